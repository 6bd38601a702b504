//! The image `host`: the host's own toolchains, by an allow list.
//!
//! Never part of it: /home, /root, /var, /etc/ssl/private, and everything of /etc that is not listed here, because
//! files there may hold passwords or tokens.

use std::fs;

use glovebox_core::User;

/// Folders that are mounted whole, or copied as the links that they are on hosts with a merged /usr.
const TOP: [&str; 8] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt"];

/// Folders of /etc that are mounted. A trailing `*` stands for any ending.
const ETC_FOLDERS: [&str; 10] =
    ["R", "alternatives", "fonts", "java*", "lua*", "perl", "php*", "pki", "python*", "ssl/certs"];

/// Files of /etc that are copied: a mount costs as much, and every sandbox pays for it.
const ETC_FILES: [&str; 10] = [
    "debian_version",
    "ld.so.cache",
    "localtime",
    "matplotlibrc",
    "mime.types",
    "os-release",
    "protocols",
    "services",
    "ssl/openssl.cnf",
    "timezone",
];

/// A file larger than this is mounted after all.
const LARGEST_COPY: u64 = 16 * 1024;

/// What the image consists of.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostImage {
    /// Absolute paths that are mounted read-only at the same place, and whether each is a folder.
    pub(crate) mounts: Vec<(String, bool)>,
    /// Links: where they are, and what they say.
    pub(crate) links: Vec<(String, String)>,
    /// Files that are copied: where they are, and what is in them.
    pub(crate) files: Vec<(String, Vec<u8>)>,
}

impl HostImage {
    /// Looks at what this host has.
    pub(crate) fn detect() -> Self {
        let mut image = HostImage::default();
        for name in TOP {
            image.add(&format!("/{name}"), Add::Mount);
        }
        let names = names_in("/etc");
        for pattern in ETC_FOLDERS {
            match pattern.strip_suffix('*') {
                Some(start) => {
                    let found = names.iter().filter(|name| name.starts_with(start));
                    found.for_each(|name| image.add(&format!("/etc/{name}"), Add::Mount));
                }
                None => image.add(&format!("/etc/{pattern}"), Add::Mount),
            }
        }
        for name in ETC_FILES {
            image.add(&format!("/etc/{name}"), Add::Copy);
        }
        image
    }

    fn add(&mut self, path: &str, how: Add) {
        let Ok(metadata) = fs::symlink_metadata(path) else { return };
        if metadata.is_symlink() {
            if let Some(target) = fs::read_link(path).ok().and_then(|t| t.to_str().map(str::to_owned)) {
                self.links.push((path.to_owned(), target));
            }
        } else if metadata.is_file() && how == Add::Copy && metadata.len() <= LARGEST_COPY {
            self.files.extend(fs::read(path).map(|content| (path.to_owned(), content)));
        } else if metadata.is_file() || metadata.is_dir() {
            self.mounts.push((path.to_owned(), metadata.is_dir()));
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Add {
    Mount,
    Copy,
}

fn names_in(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Files of /etc that are the sandbox's own.
pub(crate) fn own_files(uid: u32, gid: u32, host_network: bool) -> Vec<(&'static str, String)> {
    let user = User { uid, gid };
    let resolver =
        if host_network { fs::read_to_string("/etc/resolv.conf").unwrap_or_default() } else { String::new() };
    vec![
        ("passwd", user.passwd()),
        ("group", user.group()),
        ("hostname", format!("{}\n", crate::HOST_NAME)),
        ("hosts", format!("127.0.0.1 localhost {0}\n::1 localhost {0}\n", crate::HOST_NAME)),
        ("resolv.conf", resolver),
        ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n".into()),
    ]
}
