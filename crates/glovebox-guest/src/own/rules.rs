//! The Landlock rules of the commands of a sandbox that has a root of its own.

use std::{io, os::fd::OwnedFd};

use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr,
    RulesetStatus, Scope,
};
use rustix::fs::{CWD, FileType, Mode, OFlags};

/// The newest Landlock that this code was written for; older kernels give what they have.
const LANDLOCK: ABI = ABI::V6;

/// Where every sandbox writes.
pub(crate) const WRITTEN: [&str; 4] = ["/workspace", "/home/user", "/tmp", "/dev/shm"];

type Rules = Result<RulesetCreated, Box<dyn std::error::Error>>;

/// Reading everywhere, writing only where something is meant to be written.
#[derive(Clone, Debug, Default)]
pub struct FileRules<'a> {
    /// Files and folders that are written beside those of every sandbox.
    pub written: Vec<&'a str>,
    /// An entry of the root in which nothing can be read either, by its name.
    pub hidden: Option<&'a str>,
    /// Whether abstract sockets of others must be out of reach, which older kernels cannot do.
    pub own_sockets: bool,
}

/// What the kernel enforces of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restricted {
    /// Nothing.
    Not,
    /// Where can be written, but not all that matters.
    Files,
    /// What matters.
    All,
}

impl FileRules<'_> {
    /// Restricts this process and all that descend from it. Says what the kernel enforces; a kernel that has Landlock enforces something, or this is
    /// an error.
    pub fn restrict(&self) -> io::Result<Restricted> {
        Ok(match self.enforce().map_err(|error| io::Error::other(error.to_string()))? {
            RulesetStatus::FullyEnforced => Restricted::All,
            RulesetStatus::PartiallyEnforced if self.own_sockets => Restricted::Files,
            RulesetStatus::PartiallyEnforced => Restricted::All,
            RulesetStatus::NotEnforced => Restricted::Not,
        })
    }

    fn enforce(&self) -> Result<RulesetStatus, Box<dyn std::error::Error>> {
        let all = AccessFs::from_all(LANDLOCK);
        let read = AccessFs::from_read(LANDLOCK);
        let write_files = read | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
        let mut ruleset = Ruleset::default().handle_access(all)?;
        if self.own_sockets {
            ruleset = ruleset.scope(Scope::AbstractUnixSocket)?;
        }
        let mut rules = ruleset.create()?;
        rules = match self.hidden {
            None => rules.add_rule(PathBeneath::new(place("/")?, read))?,
            Some(hidden) => allow_all_but(rules, hidden, read)?,
        };
        for folder in ["/proc", "/dev"] {
            rules = rules.add_rule(PathBeneath::new(place(folder)?, write_files))?;
        }
        for folder in WRITTEN.iter().chain(&self.written) {
            let place = place(folder)?;
            let is_folder = FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode) == FileType::Directory;
            rules = rules.add_rule(PathBeneath::new(
                place,
                if is_folder { all } else { write_files & AccessFs::from_file(LANDLOCK) },
            ))?;
        }
        Ok(rules.restrict_self()?.ruleset)
    }
}

/// A file or folder to make a rule for, whatever it lets this process do. With musl the standard library opens it as for reading, and so did the
/// `PathFd` of the crate: what may not be read had no rule.
fn place(path: &str) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// Allows something to each entry of the root but one. The names in every folder can be listed: a rule for the root is one for
/// all that is below it.
fn allow_all_but(rules: RulesetCreated, hidden: &str, access: BitFlags<AccessFs>) -> Rules {
    let mut rules = rules.add_rule(PathBeneath::new(place("/")?, AccessFs::ReadDir))?;
    for entry in std::fs::read_dir("/")? {
        let name = entry?.file_name();
        // Where a link leads to is an entry of the root too, or below one.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(place) = rustix::fs::openat(CWD, std::path::Path::new("/").join(&name), flags, Mode::empty()) else {
            continue;
        };
        let access = match FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode) {
            _ if name == hidden => continue,
            FileType::Symlink => continue,
            FileType::Directory => access,
            _ => access & AccessFs::from_file(LANDLOCK),
        };
        rules = rules.add_rule(PathBeneath::new(place, access))?;
    }
    Ok(rules)
}
