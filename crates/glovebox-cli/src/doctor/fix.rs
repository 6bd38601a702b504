//! What `doctor --fix` does: only what is safe, and each thing is said. Nothing here makes the host less strict.

use std::{
    fs,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::Path,
    process::{Command, Stdio},
};

use glovebox_core::{Error, ErrorCode, Result};
use glovebox_native::{NativeBackend, host_facts};

/// How many ids a user is given.
const RANGE: u64 = 65536;
/// Where ids of people's own end on every distribution.
const FIRST: u64 = 100_000;

/// How the tools for sub-ids are installed, by the program that installs: what it is called with, one call after another.
const INSTALL: [(&str, &[&[&str]]); 5] = [
    ("apt-get", &[&["update", "-q"], &["install", "-q", "-y", "--no-install-recommends", "uidmap"]]),
    ("dnf", &[&["install", "-y", "shadow-utils"]]),
    ("zypper", &[&["--non-interactive", "install", "shadow"]]),
    ("pacman", &[&["-S", "--noconfirm", "--needed", "shadow"]]),
    ("apk", &[&["add", "shadow-subids"]]),
];

/// Makes folders as they should be.
pub(crate) fn folders(data_dir: &Path) -> Result<Vec<String>> {
    let mut done = Vec::new();
    for (path, mode) in [(data_dir, 0o755), (NativeBackend::runtime_folder().as_path(), 0o700)] {
        done.extend(make_folder(path, mode)?);
    }
    Ok(done)
}

/// Makes a folder, or takes from others what they may do too much in one of the caller's own.
fn make_folder(path: &Path, mode: u32) -> Result<Option<String>> {
    let failed = |error| Error::new(ErrorCode::HostIo, format!("{} cannot be made", path.display())).because(error);
    if !path.exists() {
        fs::DirBuilder::new().recursive(true).mode(mode).create(path).map_err(failed)?;
        return Ok(Some(format!("made {}", path.display())));
    }
    let found = fs::symlink_metadata(path).map_err(failed)?;
    let too_much = found.permissions().mode() & 0o777 & !mode;
    if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() || too_much == 0 {
        return Ok(None);
    }
    let permissions = fs::Permissions::from_mode(found.permissions().mode() & 0o7777 & !too_much);
    fs::set_permissions(path, permissions).map_err(failed)?;
    Ok(Some(format!("closed {} to others", path.display())))
}

/// Gives a user sub-ids, and installs the tools that hand them out. Only root can.
pub(crate) fn sub_ids(user: &str) -> Result<Vec<String>> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::new(ErrorCode::Usage, "only root can give sub-ids to a user")
            .hint(format!("sudo glovebox doctor --fix --user {user}")));
    }
    let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let account = accounts.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields[0] == user);
    let uid = account.and_then(|fields| fields.get(2)?.parse().ok());
    let uid =
        uid.ok_or_else(|| Error::new(ErrorCode::InvalidValue, format!("there is no user {user:?} in /etc/passwd")))?;
    let mut done = Vec::new();
    let has = host_facts::SubIds::of(uid, Some(user));
    if !has.tools {
        done.push(install_tools()?);
    }
    for (table, option, there) in
        [("/etc/subuid", "--add-subuids", has.users), ("/etc/subgid", "--add-subgids", has.groups)]
    {
        if !there {
            let first = first_free(&fs::read_to_string(table).unwrap_or_default());
            let range = format!("{first}-{}", first + RANGE - 1);
            call("usermod", &[option, &range, user])?;
            done.push(format!("gave {user} the ids {range} in {table}"));
        }
    }
    Ok(done)
}

fn install_tools() -> Result<String> {
    let is_there =
        |program: &str| ["/usr/bin", "/usr/sbin", "/sbin", "/bin"].iter().any(|f| Path::new(f).join(program).exists());
    let Some((program, calls)) = INSTALL.into_iter().find(|(program, _)| is_there(program)) else {
        return Err(Error::new(
            ErrorCode::HostIo,
            "newuidmap is missing, and no known program that installs it is here",
        )
        .hint("install the package that has newuidmap and newgidmap: uidmap, shadow or shadow-utils"));
    };
    for words in calls {
        call(program, words)?;
    }
    Ok(format!("installed newuidmap and newgidmap with {program}"))
}

/// Calls a program of the system. What it says goes to the error if it fails, and nowhere otherwise.
fn call(program: &str, words: &[&str]) -> Result<()> {
    let failed = |why: String| Error::new(ErrorCode::HostIo, format!("{program} {} failed: {why}", words.join(" ")));
    let mut command = Command::new(program);
    command.args(words).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null()).stdout(Stdio::null());
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

/// The first id after all ranges of a table.
fn first_free(table: &str) -> u64 {
    let ends = table.lines().filter_map(|line| {
        let mut fields = line.split(':').skip(1).map(|field| field.trim().parse::<u64>());
        Some(fields.next()?.ok()?.saturating_add(fields.next()?.ok()?))
    });
    ends.chain([FIRST]).max().unwrap_or(FIRST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_range_begins_after_all_others() {
        assert_eq!(first_free(""), 100_000);
        assert_eq!(first_free("ann:100000:65536\nbob:300000:10\nbroken:x:y\n"), 300_010);
        assert_eq!(first_free("low:1000:10\n"), 100_000);
    }

    #[test]
    fn a_folder_that_is_too_open_is_closed_and_one_that_is_right_is_let_be() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        assert!(make_folder(&path, 0o700).unwrap().unwrap().starts_with("made"));
        assert_eq!(make_folder(&path, 0o700).unwrap(), None);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(make_folder(&path, 0o755).unwrap().unwrap().starts_with("closed"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
    }
}
