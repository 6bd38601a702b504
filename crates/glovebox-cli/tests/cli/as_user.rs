//! The daily way of an ordinary user, with sub-ids and without. The tests run as root, who makes the accounts.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::PathBuf,
    process::Command,
};

use tempfile::TempDir;

/// A home with the binary in it, and its owner.
struct User {
    dir: TempDir,
    uid: u32,
    gid: u32,
}

impl User {
    /// The accounts are those that the conformance suite makes; they stay for the next time.
    fn new(name: &str, sub_ids: bool) -> User {
        if ids(name).is_none() {
            call(Command::new("useradd").args(["--no-create-home", "--shell", "/bin/sh", name]));
        }
        let has_ids = fs::read_to_string("/etc/subuid").is_ok_and(|text| text.contains(&format!("{name}:")));
        if sub_ids && !has_ids {
            let range = "700000000-700065535";
            call(Command::new("usermod").args(["--add-subuids", range, "--add-subgids", range, name]));
        }
        if !sub_ids && has_ids {
            call(Command::new("sed").args(["-i", &format!("/^{name}:/d"), "/etc/subuid", "/etc/subgid"]));
        }
        let (uid, gid) = ids(name).expect("the account was made");
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        super::copy_of_the_binary(&dir.path().join("glovebox"));
        fs::create_dir(dir.path().join("home")).unwrap();
        chown(dir.path().join("home"), Some(uid), Some(gid)).expect("this test needs root");
        User { dir, uid, gid }
    }

    fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    /// Does a line of shell as this user, in their home, and gives what it wrote.
    #[track_caller]
    fn shell(&self, line: &str) -> String {
        let (uid, gid) = (self.uid.to_string(), self.gid.to_string());
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &uid, "--regid", &gid, "--clear-groups", "sh", "-euc", line]);
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", self.dir.path().display());
        command.env_clear().env("PATH", path).env("HOME", self.home()).current_dir(self.home());
        let output = command.output().expect("setpriv is there");
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(format!("/tmp/glovebox-{}", self.uid));
    }
}

fn ids(name: &str) -> Option<(u32, u32)> {
    let passwd = fs::read_to_string("/etc/passwd").ok()?;
    let line = passwd.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

fn call(command: &mut Command) {
    assert!(command.status().is_ok_and(|status| status.success()), "{command:?}");
}

/// What somebody with a coding agent does in a repository, from the first run to taking it back.
fn daily_way(user: &User) {
    user.shell(
        "mkdir app; cd app; git init -q; git config user.name A; git config user.email a@example.com; mkdir -p src sub/deep; \
         echo one > a.txt; seq 30 > src/b.txt; echo d > sub/deep/d; echo '#!/bin/sh' > run.sh; echo '*.log' > .gitignore; \
         chmod 555 sub/deep; git add -A; git commit -qm first",
    );
    let inside = "git status --short; sed -i s/one/ONE/ a.txt; mv src/b.txt src/c.txt; chmod +x run.sh; chmod u+w sub/deep; \
                  rm -r sub; mkdir -p new/x; echo hi > new/x/y; echo log > z.log; ln -s a.txt link; git add -A; \
                  git commit -qm agent; git log --format=%s";
    let said = user.shell(&format!("cd app; glovebox run --workspace . -- sh -euc '{inside}'"));
    assert_eq!(said, "agent\nfirst\n", "Git does not work inside as it does outside");
    let shown = user.shell("cd app; git status --short; glovebox changes --summary");
    for line in ["renamed   src/b.txt -> src/c.txt", "mode      run.sh", "deleted   sub/deep/d", "changed 6 files"] {
        assert!(shown.contains(line), "{line:?} is not in {shown}");
    }
    let applied = user.shell("cd app; glovebox apply; git status --short --no-renames");
    assert!(applied.contains("applied 6 changes"), "{applied}");
    for line in [" M a.txt\n", " M run.sh\n", " D src/b.txt\n", " D sub/deep/d\n", "?? link\n", "?? new/\n"] {
        assert!(applied.contains(line), "{line:?} is not in {applied}");
    }
    assert!(!applied.contains("z.log") && user.home().join("app/link").is_symlink());
    for path in ["app/new/x/y", "app/a.txt"] {
        assert_eq!(fs::metadata(user.home().join(path)).unwrap().uid(), user.uid, "{path}");
    }
    assert_eq!(user.shell("cd app; glovebox apply --reverse >&2; git status --short; stat -c %a sub/deep"), "555\n");
}

#[test]
fn an_ordinary_user_with_sub_ids_runs_reviews_applies_and_takes_back() {
    daily_way(&User::new("glovebox-sub", true));
}

#[test]
fn an_ordinary_user_without_sub_ids_runs_reviews_applies_and_takes_back() {
    daily_way(&User::new("glovebox-one", false));
}

#[test]
fn a_folder_of_somebody_else_is_refused_and_nothing_is_left_in_it() {
    let user = User::new("glovebox-one", false);
    let theirs = user.dir.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    fs::write(theirs.join("a"), "one\n").unwrap();
    fs::set_permissions(theirs.join("a"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(&theirs, fs::Permissions::from_mode(0o755)).unwrap();
    let folder = theirs.display();
    let line = format!(
        "cd {folder}; glovebox run --workspace . -- sh -c 'rm -f a; echo new > new' 2> /dev/null; glovebox changes; \
         glovebox apply --json && exit 9; test $? = 1"
    );
    let said = user.shell(&line);
    assert!(said.contains("lies in a folder that cannot be written to"), "{said}");
    let names: Vec<_> = theirs.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["a"]);
    let ours = fs::metadata(theirs.join("a")).unwrap();
    assert_eq!((ours.uid(), ours.len()), (0, 4));
}

#[test]
fn the_record_of_somebody_else_is_not_read_and_the_error_says_whose_it_is() {
    let user = User::new("glovebox-one", false);
    let data = user.dir.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).unwrap();
    let said = user.shell(&format!("glovebox --data-dir {} changes --json && exit 9; true", data.display()));
    assert!(said.contains("ledger_unavailable") && said.contains("somebody else's"), "{said}");
}

#[test]
fn missing_layers_are_told_when_a_sandbox_is_made_and_shown_and_not_by_each_run_in_it() {
    // One of its own: the others take the folder of living sandboxes with them.
    let user = User::new("glovebox-stay", false);
    let said = user.shell(
        "glovebox create --name box 2>&1; echo ==; glovebox exec box -- true 2>&1; echo ==; glovebox show box 2>&1; echo ==; \
         glovebox exec box --json -- true; glovebox destroy box",
    );
    let parts: Vec<&str> = said.split("==\n").collect();
    assert!(parts[0].contains("these layers of isolation are not given here: cgroup"), "{said}");
    assert!(parts[0].contains("nothing holds these limits here: cpus"), "{said}");
    assert_eq!(parts[1], "", "{said}");
    assert!(parts[2].contains("lacks") && parts[2].contains("cgroup"), "{said}");
    assert!(parts[3].contains("\"missing\":[\"cgroup\""), "{said}");
}

/// Anybody can make a folder of that name in /tmp, and whoever did would own what is kept there.
#[test]
fn a_runtime_folder_that_somebody_else_made_is_never_used_and_said() {
    let user = User::new("glovebox-squatted", false);
    let folder = PathBuf::from(format!("/tmp/glovebox-{}", user.uid));
    let told = |verb: &str| user.shell(&format!("glovebox {verb} 2>&1 || true"));
    for why in ["belongs to another user", "is not a folder", "can be written by others"] {
        match why {
            "is not a folder" => std::os::unix::fs::symlink("/var/tmp", &folder).unwrap(),
            _ => {
                fs::create_dir(&folder).unwrap();
                fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
                let owner = if why == "belongs to another user" { 65534 } else { user.uid };
                chown(&folder, Some(owner), Some(owner)).unwrap();
            }
        }
        for verb in ["run -- true", "create", "gc"] {
            let said = told(verb);
            assert!(said.contains(why) && said.contains("XDG_RUNTIME_DIR"), "{verb}: {said}");
            assert!(!said.contains("os error 0"), "{verb}: {said}");
        }
        let private = user.shell("mkdir -m 700 -p run; XDG_RUNTIME_DIR=$PWD/run glovebox run -- echo fine");
        assert_eq!(private, "fine\n");
        if folder.is_symlink() {
            fs::remove_file(&folder).unwrap();
        } else {
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "something was put there");
            fs::remove_dir(&folder).unwrap();
        }
    }
}
