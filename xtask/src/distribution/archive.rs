//! Files as archives whose bytes depend on nothing but the files: names sorted, one time, owned by root.

use std::{collections::BTreeSet, io::Write};

use anyhow::{Result, ensure};
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

/// A file of an archive.
#[derive(Clone)]
pub(super) struct Entry {
    /// Its path, relative.
    pub(super) path: String,
    /// Whether it is a program.
    pub(super) executable: bool,
    /// Its content.
    pub(super) bytes: Vec<u8>,
}

impl Entry {
    /// A file that is not a program.
    pub(super) fn new(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Entry { path: path.into(), executable: false, bytes: bytes.into() }
    }
}

/// The entries below `top` as a compressed tar file, folders included.
pub(super) fn tar_gz(top: &str, entries: &[Entry], seconds: u64) -> Result<Vec<u8>> {
    let mut entries: Vec<Entry> = entries.to_vec();
    for entry in &mut entries {
        entry.path = format!("{top}{}", entry.path);
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    let mut archive = Builder::new(GzBuilder::new().write(Vec::new(), Compression::best()));
    for folder in folders(&entries) {
        archive.append_data(&mut header(EntryType::Directory, 0o755, seconds, 0), folder, &[][..])?;
    }
    for Entry { path, executable, bytes } in &entries {
        let mode = if *executable { 0o755 } else { 0o644 };
        archive.append_data(&mut header(EntryType::Regular, mode, seconds, bytes.len()), path, bytes.as_slice())?;
    }
    Ok(archive.into_inner()?.finish()?)
}

/// Every folder above an entry, parents first.
fn folders(entries: &[Entry]) -> BTreeSet<&str> {
    let ends = entries.iter().flat_map(|entry| entry.path.match_indices('/').map(|(at, _)| &entry.path[..=at]));
    ends.collect()
}

fn header(kind: EntryType, mode: u32, seconds: u64, size: usize) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_mtime(seconds);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(size as u64);
    header
}

/// A file compressed alone, without its name and time.
pub(super) fn gz(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut out = GzBuilder::new().write(Vec::new(), Compression::best());
    out.write_all(bytes)?;
    Ok(out.finish()?)
}

/// A Debian package: an `ar` archive of a format number, the control files and the files.
pub(super) fn deb(control: &str, files: &[Entry], seconds: u64) -> Result<Vec<u8>> {
    let control = tar_gz("", &[Entry::new("control", control)], seconds)?;
    let files = tar_gz("", files, seconds)?;
    let mut package = b"!<arch>\n".to_vec();
    for (name, bytes) in [("debian-binary", b"2.0\n".as_slice()), ("control.tar.gz", &control), ("data.tar.gz", &files)]
    {
        let header = format!("{name:<16}{seconds:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, "100644", bytes.len());
        ensure!(header.len() == 60, "{name} does not fit into an ar archive");
        package.extend(header.as_bytes());
        package.extend(bytes);
        // Members begin at even offsets.
        package.extend(vec![b'\n'; bytes.len() % 2]);
    }
    Ok(package)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::command;

    fn entries() -> Vec<Entry> {
        let program = Entry { executable: true, ..Entry::new("usr/bin/p", "#!") };
        vec![Entry::new("usr/share/doc/p/odd", "odd"), program]
    }

    #[test]
    fn the_order_of_the_entries_changes_no_byte() {
        let mut turned = entries();
        turned.reverse();
        assert_eq!(tar_gz("p-1/", &entries(), 7).unwrap(), tar_gz("p-1/", &turned, 7).unwrap());
        assert_ne!(tar_gz("p-1/", &entries(), 7).unwrap(), tar_gz("p-1/", &entries(), 8).unwrap());
    }

    #[test]
    fn dpkg_reads_the_package_as_it_was_meant() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.deb");
        let control =
            "Package: p\nVersion: 1\nArchitecture: amd64\nMaintainer: m <m@example.invalid>\nDescription: d\n";
        std::fs::write(&path, deb(control, &entries(), 86_400).unwrap()).unwrap();
        let say = |flag: &str| {
            let output = command(&["dpkg-deb", flag, &path.to_string_lossy()]).env("TZ", "UTC").output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        };
        assert_eq!(say("--field"), control);
        let listed = say("--contents");
        let lines: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
        let expected = [
            ("drwxr-xr-x", "usr/"),
            ("drwxr-xr-x", "usr/bin/"),
            ("drwxr-xr-x", "usr/share/"),
            ("drwxr-xr-x", "usr/share/doc/"),
            ("drwxr-xr-x", "usr/share/doc/p/"),
            ("-rwxr-xr-x", "usr/bin/p"),
            ("-rw-r--r--", "usr/share/doc/p/odd"),
        ];
        assert_eq!(lines.iter().map(|line| (line[0], line[5])).collect::<Vec<_>>(), expected);
        assert!(lines.iter().all(|line| line[1] == "0/0" && line[3] == "1970-01-02"), "{listed}");
    }
}
