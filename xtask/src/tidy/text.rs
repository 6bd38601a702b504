//! Rules about names and text.

use super::{
    Offence,
    code::{code_only, line_of},
};
use crate::tree::{SourceFile, root};

/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 8] = ["utils", "util", "common", "helpers", "helper", "types", "misc", "stuff"];
/// Macros that mark unfinished work.
const UNFINISHED: [&str; 3] = ["todo!", "dbg!", "unimplemented!"];
/// Hosts that an address in this tree may name. Registries, mirrors and private hosts are not among them.
const KNOWN_HOSTS: [&str; 14] = [
    "127.0.0.1",
    "apache.org",
    "docs.kernel.org",
    "docs.rs",
    "example.com",
    "example.invalid",
    "example.org",
    "github.com",
    "keepachangelog.com",
    "localhost",
    "man7.org",
    "semver.org",
    "w3.org",
    "www.rfc-editor.org",
];

pub(super) fn file_names_say_what_is_inside(files: &[SourceFile]) -> Vec<Offence> {
    let empty = |part: &str| EMPTY_NAMES.contains(&part.split('.').next().unwrap_or(part));
    let bad = files.iter().filter(|file| file.path.split('/').any(empty));
    bad.map(|file| Offence::new(&file.path, 0, "the name says nothing about what is inside")).collect()
}

pub(super) fn nothing_is_left_unfinished(files: &[SourceFile]) -> Vec<Offence> {
    let rust = files.iter().filter(|file| file.path.ends_with(".rs"));
    rust.flat_map(|file| {
        let code = code_only(&file.text);
        let found: Vec<Offence> = UNFINISHED
            .iter()
            .flat_map(|name| code.match_indices(name))
            .map(|(at, name)| Offence::new(&file.path, line_of(&code, at), format!("{name} is unfinished work")))
            .collect();
        found
    })
    .collect()
}

pub(super) fn lines_end_cleanly(files: &[SourceFile]) -> Vec<Offence> {
    let mut offences = Vec::new();
    for file in files.iter().filter(|file| file.path != "Cargo.lock") {
        for (at, line) in file.text.split('\n').enumerate() {
            if line.ends_with([' ', '\t', '\r']) {
                offences.push(Offence::new(&file.path, at + 1, "trailing whitespace"));
            }
        }
        if !file.text.is_empty() && (!file.text.ends_with('\n') || file.text.ends_with("\n\n")) {
            offences.push(Offence::new(&file.path, file.text.lines().count(), "the file must end with one newline"));
        }
    }
    offences
}

pub(super) fn no_machine_or_registry_is_named(files: &[SourceFile]) -> Vec<Offence> {
    let here = ["crates", "target", "xtask"].map(|folder| format!("{}/{folder}", root().display()));
    let mut offences = Vec::new();
    for file in files.iter().filter(|file| !file.path.ends_with("Cargo.lock")) {
        for (at, line) in file.text.lines().enumerate() {
            for host in hosts(line).filter(|host| !is_known(host)) {
                let message = format!("the host {host} is not on the list of hosts that may be named");
                offences.push(Offence::new(&file.path, at + 1, message));
            }
            if here.iter().any(|path| line.contains(path.as_str())) {
                offences.push(Offence::new(&file.path, at + 1, "a path of this machine"));
            }
        }
    }
    offences
}

/// Hosts of the addresses in a line. Placeholders such as `https://HOST` have no dot and no letter case of a host.
fn hosts(line: &str) -> impl Iterator<Item = &str> {
    line.split("://").skip(1).filter_map(|tail| {
        let end = tail.find(|c: char| !(c.is_ascii_alphanumeric() || c == '.' || c == '-')).unwrap_or(tail.len());
        Some(&tail[..end]).filter(|host| host.contains('.'))
    })
}

fn is_known(host: &str) -> bool {
    KNOWN_HOSTS.iter().any(|known| host == *known || host.strip_suffix(known).is_some_and(|head| head.ends_with('.')))
}

#[cfg(test)]
mod tests {
    use super::{super::tests::file, *};

    #[test]
    fn names_that_say_nothing_are_offences_as_files_and_as_folders() {
        let files = ["src/utils.rs", "crates/common/src/lib.rs", "src/common_ground.rs"].map(|path| file(path, ""));
        assert_eq!(file_names_say_what_is_inside(&files).len(), 2);
    }

    #[test]
    fn unfinished_work_is_found_in_code_alone() {
        let found =
            nothing_is_left_unfinished(&[file("a.rs", "// todo!()\nfn f() { todo!() }\nconst A: &str = \"dbg!\";\n")]);
        assert_eq!(found.iter().map(|offence| offence.line).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn whitespace_at_the_end_of_a_line_or_file_is_an_offence() {
        assert_eq!(lines_end_cleanly(&[file("a.md", "a \nb\n")]).len(), 1);
        assert_eq!(lines_end_cleanly(&[file("a.md", "a")]).len(), 1);
        assert_eq!(lines_end_cleanly(&[file("a.md", "a\n\n")]).len(), 1);
        assert!(lines_end_cleanly(&[file("a.md", "a\n")]).is_empty());
    }

    #[test]
    fn unknown_hosts_and_paths_of_this_machine_are_offences() {
        let unknown = format!("see https{}mirror.internal.net/x\n", "://");
        assert_eq!(no_machine_or_registry_is_named(&[file("a.md", &unknown)]).len(), 1);
        assert!(
            no_machine_or_registry_is_named(&[file("a.md", "see https://docs.rs/h2 or https://HOST\n")]).is_empty()
        );
        let path = format!("{}/crates/x\n", root().display());
        assert_eq!(no_machine_or_registry_is_named(&[file("a.md", &path)]).len(), 1);
    }
}
