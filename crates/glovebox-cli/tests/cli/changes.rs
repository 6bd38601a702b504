//! The daily way with a coding agent: run in a folder, look at the changes, apply them.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::{MetadataExt, symlink},
    process::Stdio,
};

use serde_json::Value;

use crate::{Bench, Called, spawn_piped};

/// A folder with a few files, and a run in it that changes them in every way.
fn changed() -> Bench {
    let bench = Bench::new();
    bench.write("a.txt", "one\ntwo\nthree\n");
    bench.write("b.txt", "old\n");
    bench.write("src/long.txt", (0..30).map(|n| format!("line {n}\n")).collect::<String>());
    bench.write("run.sh", "#!/bin/sh\n");
    bench.write(".gitignore", "*.log\n");
    let line = "sed -i s/two/TWO/ a.txt; rm b.txt; chmod +x run.sh; mv src/long.txt src/longer.txt; \
                echo more >> src/longer.txt; mkdir -p made; echo new > made/new.txt; echo log > x.log; \
                ln -s a.txt link; mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; echo out > ../outputs/o";
    bench.call(["run", "--workspace", ".", "--", "sh", "-c", line]).expect(0, "");
    bench
}

fn names<'a>(document: &'a Value, list: &str) -> Vec<&'a str> {
    document[list].as_array().expect("a list").iter().map(|name| name.as_str().expect("a name")).collect()
}

fn read(bench: &Bench, name: &str) -> String {
    fs::read_to_string(bench.work().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn changes_are_a_list_and_diffs_for_people() {
    let bench = changed();
    let called = bench.call(["changes"]);
    assert_eq!(called.code, 0, "{called:?}");
    let text = called.text();
    for part in [
        "changed 7 files in ",
        "  modified  a.txt                           +1 -1\n",
        "  deleted   b.txt                           +0 -1\n",
        "  added     link                            link to a.txt\n",
        "  mode      run.sh                          mode 644 -> 755\n",
        "  renamed   src/long.txt -> src/longer.txt  +1 -0\n",
        "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n",
        "new file mode 100644\n--- /dev/null\n+++ b/made/new.txt\n@@ -0,0 +1 @@\n+new\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    assert!(!text.contains('\x1b'), "colours without a terminal");
    let left_out =
        "glovebox: left out: 1 file that .gitignore names, 1 file of Git itself (.git); --all includes them\n";
    assert_eq!(called.stderr, left_out);
    let called = bench.call(["changes", "--summary", "--all"]);
    assert!(called.text().contains("x.log") && called.text().contains(".git/hooks/pre-commit"), "{called:?}");
    assert!(called.text().contains("Git runs what this says") && !called.text().contains("@@"), "{called:?}");
}

#[test]
fn changes_are_a_patch_that_git_takes() {
    let bench = changed();
    let patch = bench.dir.path().join("agent.patch");
    fs::write(
        &patch,
        bench
            .call([
                "changes", "--only", "a.txt", "--only", "b.txt", "--only", "src", "--only", "run.sh", "--only", "made",
            ])
            .stdout,
    )
    .unwrap();
    bench.call(["apply"]);
    let applied = ["a.txt", "made/new.txt", "src/longer.txt"].map(|name| read(&bench, name));
    bench.call(["apply", "--reverse"]);
    let git = std::process::Command::new("git").arg("apply").arg(&patch).current_dir(bench.work()).output();
    let git = git.expect("git is needed: apt-get install git");
    assert!(git.status.success(), "{git:?}");
    assert_eq!(["a.txt", "made/new.txt", "src/longer.txt"].map(|name| read(&bench, name)), applied);
    assert!(!bench.work().join("b.txt").exists() && !bench.work().join("src/long.txt").exists());
    assert_eq!(fs::metadata(bench.work().join("run.sh")).unwrap().mode() & 0o777, 0o755);
}

#[test]
fn changes_in_json_are_those_of_the_contract_with_details() {
    let bench = changed();
    let document = bench.call(["changes", "--json"]).document();
    assert_eq!(
        names(&document, "added"),
        ["agent_workspace/link", "agent_workspace/made/new.txt", "agent_workspace/src/longer.txt", "outputs/o"]
    );
    assert_eq!(names(&document, "modified"), ["agent_workspace/a.txt", "agent_workspace/run.sh"]);
    assert_eq!(names(&document, "deleted"), ["agent_workspace/b.txt", "agent_workspace/src/long.txt"]);
    assert_eq!(document["ignored"], 2);
    let run = document["run"].as_str().unwrap();
    let prefix = &run["run_".len()..run.len() - 2];
    let all = bench.call(["changes", prefix, "--all", "--json"]).document();
    assert_eq!(all["run"], document["run"]);
    assert!(names(&all, "added").contains(&"agent_workspace/x.log"));
    let files = document["files"].as_array().unwrap();
    let renamed = files.iter().find(|file| file["path"] == "agent_workspace/src/longer.txt").unwrap();
    assert_eq!(renamed["renamed_from"], "agent_workspace/src/long.txt");
    assert_eq!(renamed["after"]["kind"], "file");
    assert_eq!(renamed["after"]["sha256"].as_str().unwrap().len(), 64);
}

#[test]
fn colours_come_when_they_are_asked_for_and_never_from_inside() {
    let bench = Bench::new();
    let line = r"printf 'a\033[2Jb\n' > text; touch $(printf 'na\033[31mme')";
    bench.call(["run", "--workspace", ".", "--", "sh", "-c", line]).expect(0, "");
    let output = bench.glovebox(["changes"]).env("CLICOLOR_FORCE", "1").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\x1b[32madded") && text.contains("na\\u{1b}[31mme"), "{text:?}");
    assert!(!text.contains("\x1b[2J") && !text.contains("\x1b[31mme"), "{text:?}");
}

#[test]
fn an_apply_brings_everything_says_so_and_can_be_undone() {
    let bench = changed();
    let before: Vec<String> = ["a.txt", "b.txt", "src/long.txt"].map(|name| read(&bench, name)).into();
    let dry = bench.call(["apply", "--dry-run"]);
    assert_eq!(dry.code, 0);
    assert!(dry.text().contains("would apply 6 changes"), "{dry:?}");
    assert_eq!(read(&bench, "b.txt"), "old\n", "a dry run changed something");
    let called = bench.call(["apply"]);
    assert_eq!(called.code, 0, "{called:?}");
    for part in [
        "  modified  a.txt                           +1 -1\n",
        "  deleted   b.txt                           +0 -1\n",
        "  renamed   src/long.txt -> src/longer.txt  +1 -0\n",
        "applied 6 changes of run_",
    ] {
        assert!(called.text().contains(part), "{part:?} is not in {}", called.text());
    }
    assert_eq!(read(&bench, "a.txt"), "one\nTWO\nthree\n");
    assert_eq!(read(&bench, "made/new.txt"), "new\n");
    assert!(read(&bench, "src/longer.txt").ends_with("more\n"));
    assert_eq!(fs::metadata(bench.work().join("run.sh")).unwrap().mode() & 0o777, 0o755);
    for absent in ["b.txt", "x.log", ".git", "o", "src/long.txt", ".glovebox-apply"] {
        assert!(!bench.work().join(absent).exists(), "{absent} is there");
    }
    let again = bench.call(["apply", "--json"]).document();
    assert_eq!(names(&again["applied"], "added"), Vec::<&str>::new());
    assert!(bench.call(["apply"]).text().starts_with("nothing to do: "));
    let undone = bench.call(["apply", "--reverse"]);
    assert!(undone.text().contains("undid 6 changes"), "{undone:?}");
    assert!(undone.text().contains("renamed   src/longer.txt -> src/long.txt"), "{undone:?}");
    assert_eq!(["a.txt", "b.txt", "src/long.txt"].map(|name| read(&bench, name)).to_vec(), before);
    assert!(!bench.work().join("made").exists());
    let nothing = bench.call(["apply", "--reverse"]);
    assert!(nothing.code == 125 && nothing.stderr.contains("nothing_to_reverse"), "{nothing:?}");
}

#[test]
fn a_host_that_changed_is_refused_with_the_list_and_exit_code_1() {
    let bench = changed();
    bench.write("a.txt", "mine\n");
    bench.write("made/new.txt", "mine\n");
    let called = bench.call(["apply"]);
    assert_eq!(called.code, 1);
    for line in ["conflict: a.txt was changed", "conflict: made/new.txt is there already", "[conflicts]"] {
        assert!(called.stderr.contains(line), "{}", called.stderr);
    }
    assert_eq!(read(&bench, "b.txt"), "old\n", "half of it was applied");
    let called = bench.call(["apply", "--json"]);
    let document = called.document();
    assert_eq!((called.code, document["error"]["code"].as_str()), (1, Some("conflicts")));
    assert_eq!(document["conflicts"][0]["path"], "a.txt");
    let some = bench.call(["apply", "--only", "src", "--only", "b.txt"]);
    assert_eq!(some.code, 0, "{some:?}");
    assert!(!bench.work().join("b.txt").exists() && read(&bench, "a.txt") == "mine\n");
}

#[test]
fn a_file_that_the_host_changes_while_the_run_lasts_is_a_conflict() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let line = "echo inside >> a.txt; echo ready; cat";
    let mut child = spawn_piped(&mut bench.glovebox(["run", "--workspace", ".", "--", "sh", "-c", line]));
    let mut first = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(first, "ready\n");
    bench.write("a.txt", "outside\n");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    let called = bench.call(["apply"]);
    assert_eq!(called.code, 1, "{called:?}");
    assert!(called.stderr.contains("while the run lasted"), "{}", called.stderr);
    assert_eq!(read(&bench, "a.txt"), "outside\n");
}

#[test]
fn a_run_without_a_workspace_is_applied_where_one_says() {
    let bench = Bench::new();
    bench.call(["run", "--", "sh", "-c", "mkdir d; echo x > d/file"]).expect(0, "");
    let run = bench.call(["runs", "list", "--json"]).document()["runs"][0]["run"].as_str().unwrap().to_owned();
    let called = bench.call(["apply", &run]);
    assert!(called.code == 2 && called.stderr.contains("--to DIR"), "{called:?}");
    fs::create_dir(bench.work().join("here")).unwrap();
    assert_eq!(bench.call(["apply", &run, "--to", "here"]).code, 0);
    assert_eq!(read(&bench, "here/d/file"), "x\n");
    let called = bench.call(["apply", &run, "--to", "nowhere"]);
    assert!(called.code == 125 && called.stderr.contains("file_not_found"), "{called:?}");
}

#[test]
fn without_a_run_it_is_the_last_one_of_this_folder_or_of_one_above() {
    let bench = changed();
    fs::create_dir(bench.work().join("other")).unwrap();
    bench.call(["run", "--workspace", "other", "--", "touch", "x"]).expect(0, "");
    let document = bench.call(["changes", "--json"]).document();
    assert!(names(&document, "deleted").contains(&"agent_workspace/b.txt"), "{document}");
    let below = bench.glovebox(["changes", "--json"]).current_dir(bench.work().join("src")).output().unwrap();
    assert_eq!(Called::new(below).document()["run"], document["run"]);
    let elsewhere = bench.glovebox(["changes", "--json"]).current_dir("/").output().unwrap();
    let error = Called::new(elsewhere);
    assert_eq!((error.code, error.document()["error"]["code"].as_str()), (125, Some("run_not_found")));
}

#[test]
fn changes_can_be_picked_one_by_one() {
    let bench = changed();
    // In this order: a.txt, b.txt, link, made/new.txt, run.sh, the rename. What is kept as an artifact is not asked about.
    let called = bench.call_with_input(["apply", "-i"], b"y\nwhat\nn\nn\ny\nd\n");
    assert_eq!(called.code, 0, "{called:?}");
    assert!(called.text().contains("applied 2 changes"), "{called:?}");
    assert!(called.stderr.contains("(1/6) apply this?") && called.stderr.contains("q  quit"), "{called:?}");
    assert_eq!((read(&bench, "a.txt").as_str(), read(&bench, "b.txt").as_str()), ("one\nTWO\nthree\n", "old\n"));
    assert_eq!(read(&bench, "made/new.txt"), "new\n");
    for input in [&b"y\nq\n"[..], b""] {
        let called = bench.call_with_input(["apply", "--interactive"], input);
        assert!(called.code == 0 && called.stderr.contains("nothing was applied"), "{called:?}");
    }
    assert_eq!(read(&bench, "b.txt"), "old\n");
}

#[test]
fn what_holds_a_secret_is_not_kept_and_cannot_be_applied() {
    let bench = Bench::new();
    let mut command = bench.glovebox([
        "run",
        "--workspace",
        ".",
        "--secret",
        "TOKEN",
        "--",
        "sh",
        "-c",
        "echo $TOKEN > t; echo x > u; touch n-$TOKEN",
    ]);
    assert!(command.env("TOKEN", "hunter2hunter2").status().unwrap().success());
    let called = bench.call(["changes"]);
    assert!(called.text().contains("content not kept: it holds the value of a --secret"), "{called:?}");
    assert!(!called.text().contains("hunter2"));
    let called = bench.call(["apply"]);
    assert!(called.code == 1 && called.stderr.contains("conflict: t has content that was not kept"), "{called:?}");
    assert_eq!(bench.call(["apply", "--only", "u"]).code, 0);
    let found = std::process::Command::new("grep").args(["-r", "hunter2"]).arg(bench.dir.path()).output().unwrap();
    assert!(found.stdout.is_empty(), "the secret is on the disk: {found:?}");
}

#[test]
fn the_project_does_not_get_to_say_what_is_applied_where() {
    let bench = changed();
    for text in ["to = '/tmp'", "all = true", "outward-links = true"] {
        bench.write("glovebox.toml", text);
        let called = bench.call(["apply"]);
        assert!(called.code != 0 && called.stderr.contains("untrusted_config"), "{text}: {called:?}");
    }
    bench.write("glovebox.toml", "pager = 'touch evil; cat'");
    let called = bench.call(["changes"]);
    assert!(called.code != 0 && called.stderr.contains("untrusted_config"), "{called:?}");
}

#[test]
fn links_do_not_lead_an_apply_out_of_the_folder() {
    let bench = Bench::new();
    bench.write("sub/a", "one\n");
    bench.call(["run", "--workspace", ".", "--", "sh", "-c", "echo two > sub/a; ln -s /etc out"]).expect(0, "");
    let outside = bench.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("a"), "one\n").unwrap();
    fs::remove_dir_all(bench.work().join("sub")).unwrap();
    symlink(&outside, bench.work().join("sub")).unwrap();
    let called = bench.call(["apply"]);
    assert!(called.code == 1 && called.stderr.contains("lies behind a link"), "{called:?}");
    assert_eq!(fs::read_to_string(outside.join("a")).unwrap(), "one\n");
    assert!(called.stderr.contains("conflict"), "{called:?}");
    let called = bench.call(["apply", "--only", "out"]);
    assert!(called.stderr.contains("out is left out: a link that leads out"), "{called:?}");
    assert!(fs::symlink_metadata(bench.work().join("out")).is_err());
}

#[test]
fn gc_mends_an_apply_that_was_killed() {
    let bench = Bench::new();
    for number in 0..400 {
        bench.write(&format!("f{number}"), "old\n");
    }
    bench.call(["run", "--workspace", ".", "--", "sh", "-c", "for f in f*; do echo new > $f; done"]).expect(0, "");
    let mut mended = 0;
    for round in 0..40u64 {
        let mut child = bench.glovebox(["apply"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while !bench.work().join(".glovebox-apply/journal").exists() && child.try_wait().unwrap().is_none() {
            std::hint::spin_loop();
        }
        std::thread::sleep(std::time::Duration::from_micros(100 * round));
        let _ = child.kill();
        child.wait().unwrap();
        let document = bench.call(["gc", "--json"]).document();
        mended += document["mended"].as_array().unwrap().len();
        let contents: std::collections::HashSet<String> = (0..400).map(|n| read(&bench, &format!("f{n}"))).collect();
        assert_eq!(contents.len(), 1, "round {round}: some files are old and some are new");
        assert!(!bench.work().join(".glovebox-apply").exists());
        if contents.contains("new\n") {
            assert_eq!(bench.call(["apply", "--reverse"]).code, 0);
        }
    }
    assert!(mended > 0, "no kill hit an apply at work");
}

#[test]
fn a_run_that_is_not_recorded_has_no_changes_to_look_at() {
    let bench = Bench::new();
    let document = bench.result(&["--no-record", "--workspace", ".", "--", "touch", "x"]);
    assert_eq!(document["changes"]["added"][0], "agent_workspace/x");
    let called = bench.call(["changes", document["run"].as_str().unwrap()]);
    assert!(called.code == 125 && called.stderr.contains("run_not_found"), "{called:?}");
}

#[test]
fn what_is_over_a_bound_or_has_no_text_for_a_name_is_said_and_refused() {
    let bench = Bench::new();
    let line = r"truncate -s 300M big; touch $(printf 'a\377b'); echo fine > fine";
    bench.call(["run", "--workspace", ".", "--", "sh", "-c", line]).expect(0, "");
    let text = bench.call(["changes"]).text().to_owned();
    assert!(text.contains("300 MiB, content not kept: the file is too large"), "{text}");
    assert!(text.contains("its name is not UTF-8"), "{text}");
    let called = bench.call(["apply", "--json"]);
    assert_eq!((called.code, called.document()["conflicts"].as_array().unwrap().len()), (1, 2), "{called:?}");
    assert_eq!(bench.call(["apply", "--only", "fine"]).code, 0);
    assert_eq!(read(&bench, "fine"), "fine\n");
}

#[test]
fn a_read_write_workspace_has_no_change_set_and_that_is_said() {
    let bench = Bench::new();
    let line = ["run", "--workspace", ".", "--workspace-mode", "read-write", "--", "touch", "x"];
    bench.call(line).expect(0, "");
    let run = bench.call(["runs", "list", "--json"]).document()["runs"][0]["run"].as_str().unwrap().to_owned();
    let called = bench.call(["changes", &run]);
    assert!(called.text().contains("changed nothing") && called.stderr.contains("read-write"), "{called:?}");
}

/// The files of a folder that a patch can say: names, kinds, executable or not, and contents.
fn said(root: &std::path::Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let (path, facts) = (entry.path(), fs::symlink_metadata(entry.path()).unwrap());
            match () {
                () if facts.is_dir() => open.push(path),
                () if facts.is_symlink() => lines.push(format!("{path:?} -> {:?}", fs::read_link(&path).unwrap())),
                () => lines.push(format!("{path:?} {} {:?}", facts.mode() & 0o111, fs::read(&path).unwrap())),
            }
        }
    }
    lines.sort();
    lines
}

#[test]
fn a_patch_is_exact_whatever_is_in_the_files_and_their_names() {
    let bench = Bench::new();
    bench.write("crlf.txt", "a\r\nb\r\nc\r\n");
    bench.write("joined.txt", "a\u{200d}b \u{1b}[2J\nold\n");
    bench.write("end.txt", "no end");
    bench.write("two words", "x\ny\n");
    bench.write("was_link", "text\n");
    bench.write("run.sh", "#!/bin/sh\n");
    bench.write("moved here", (0..30).map(|n| format!("line {n}\n")).collect::<String>());
    bench.write("picture", b"\0\x01");
    symlink("end.txt", bench.work().join("link")).unwrap();
    let line = "sed -i s/b/B/ crlf.txt; sed -i s/old/new/ joined.txt; printf ' now' >> end.txt; echo z >> 'two words'; \
                rm was_link; ln -s end.txt was_link; chmod +x run.sh; mv 'moved here' \"moved \\\"there\\\"\"; \
                ln -sf run.sh link; touch empty; printf 'one\\rtwo' > \"$(printf 'odd\\n\\tname')\"; printf '\\0' > picture; mkdir hollow";
    bench.call(["run", "--workspace", ".", "--", "sh", "-c", line]).expect(0, "");
    let called = bench.call(["changes", "--patch"]);
    assert_eq!(called.code, 0, "{called:?}");
    for missing in ["picture", "hollow"] {
        assert!(called.stderr.contains(&format!("links and modes: {missing}")), "{}", called.stderr);
    }
    let patch = bench.dir.path().join("agent.patch");
    fs::write(&patch, &called.stdout).unwrap();
    let only = ["crlf.txt", "joined.txt", "end.txt", "two words", "was_link", "run.sh", "link", "empty", "moved here"];
    let mut args = vec!["apply", "--only", "moved \"there\"", "--only", "odd\n\tname"];
    args.extend(only.iter().flat_map(|path| ["--only", path]));
    assert_eq!(bench.call(args).code, 0);
    let applied = said(&bench.work());
    assert_eq!(bench.call(["apply", "--reverse"]).code, 0);
    let git = std::process::Command::new("git").arg("apply").arg(&patch).current_dir(bench.work()).output();
    let git = git.expect("git is needed: apt-get install git");
    assert!(git.status.success(), "{git:?}\n{}", String::from_utf8_lossy(&called.stdout));
    assert_eq!(said(&bench.work()), applied);
}

#[test]
fn paths_are_named_as_seen_from_where_one_is_or_as_they_are_listed() {
    let bench = Bench::new();
    bench.write("src/deep/a", "a\n");
    bench.write("b", "b\n");
    bench.call(["run", "--workspace", ".", "--", "sh", "-c", "echo x > src/deep/a; echo x > b"]).expect(0, "");
    let full = bench.work().canonicalize().unwrap().join("src");
    for only in ["deep", "./deep/a", "../src/deep", "src/deep/a", full.to_str().unwrap(), "."] {
        let mut command = bench.glovebox(["changes", "--json", "--only", only]);
        let document = Called::new(command.current_dir(bench.work().join("src")).output().unwrap()).document();
        assert_eq!(names(&document, "modified"), ["agent_workspace/src/deep/a"], "{only}");
    }
    let called = bench.call(["changes", "--only", "nothing"]);
    assert!(called.code == 125 && called.stderr.contains("--summary lists them"), "{called:?}");
}

#[test]
fn what_does_not_conflict_can_be_applied_without_the_rest() {
    let bench = changed();
    bench.write("a.txt", "mine\n");
    bench.write("made", "mine too\n");
    let called = bench.call(["apply", "--skip-conflicts"]);
    assert_eq!(called.code, 0, "{called:?}");
    assert!(called.stderr.contains("skipped: a.txt was changed on the host since then"), "{called:?}");
    assert!(called.stderr.contains("skipped: made is there already"), "{called:?}");
    assert_eq!((read(&bench, "a.txt"), read(&bench, "made")), ("mine\n".to_owned(), "mine too\n".to_owned()));
    assert!(!bench.work().join("b.txt").exists() && bench.work().join("src/longer.txt").exists());
    assert_eq!(bench.call(["apply", "--reverse"]).code, 0);
    let document = bench.call(["apply", "--skip-conflicts", "--json"]).document();
    assert_eq!(document["skipped"][0]["path"], "a.txt", "{document}");
}

#[test]
fn a_run_that_only_looked_around_points_to_the_one_before_it() {
    let bench = changed();
    let worked = bench.call(["changes", "--json"]).document()["run"].as_str().unwrap().to_owned();
    bench.call(["run", "--workspace", ".", "--", "true"]).expect(0, "");
    for verb in ["changes", "apply"] {
        let called = bench.call([verb]);
        assert!(called.stderr.contains(&format!("an earlier run here, {worked}, changed ")), "{called:?}");
    }
    assert_eq!(read(&bench, "b.txt"), "old\n");
}

#[test]
fn what_goes_to_another_folder_is_what_was_shown() {
    let bench = Bench::new();
    bench.write(".gitignore", "*.log\n");
    bench.call(["run", "--workspace", ".", "--", "sh", "-c", "echo x > x.log; echo y > y"]).expect(0, "");
    let copy = bench.dir.path().join("copy");
    fs::create_dir(&copy).unwrap();
    let called = bench.call(["apply".as_ref(), "--to".as_ref(), copy.as_os_str()]);
    assert_eq!(called.code, 0, "{called:?}");
    assert!(copy.join("y").exists() && !copy.join("x.log").exists());
}
