//! Walking a tree with one open folder, whatever its size and shape.

use std::{
    collections::VecDeque,
    ffi::CString,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, FileType, SeekFrom, Stat, statat},
    io::Result,
};

use crate::{
    DEEPEST, LeftOut, Why,
    folder::{Listed, is_kernels_own, open_beneath, read_some},
};

/// A tree that is being walked. Folders come before what is in them.
pub struct Walk {
    top: OwnedFd,
    /// From the top to where we are; never empty until the end.
    levels: Vec<Level>,
    /// The folder of the last level, unless it has to be opened again.
    here: Option<OwnedFd>,
    /// The path of the last level below the top.
    path: Vec<u8>,
}

/// A folder on the way.
struct Level {
    /// How long the path of the level above is.
    above: usize,
    /// Names that were read and not walked yet.
    names: VecDeque<Listed>,
    /// Where the folder goes on.
    behind: u64,
}

/// Something that was found.
pub struct Found {
    /// Its name.
    pub name: CString,
    /// Its path below the top.
    pub path: Vec<u8>,
    /// What is known of it.
    pub stat: Stat,
}

/// One step of a walk.
pub enum Step {
    /// Something was found.
    Found(Found),
    /// Nothing was found in this step; there may be more.
    Nothing,
    /// The walk is over.
    End,
}

impl Walk {
    /// Walks what is below a folder.
    pub fn new(top: OwnedFd) -> Result<Self> {
        let here = Some(open_beneath(&top, b"")?);
        Ok(Walk { top, levels: vec![Level::new(0)], here, path: Vec::new() })
    }

    /// The folder in which the last thing was found.
    pub fn here(&self) -> Option<BorrowedFd<'_>> {
        self.here.as_ref().map(AsFd::as_fd)
    }

    /// Looks at the next thing, with a few calls of the kernel. What is in a folder follows only when it is entered.
    pub fn step(&mut self, left_out: &mut LeftOut) -> Step {
        let Some(level) = self.levels.last_mut() else { return Step::End };
        let Some(listed) = level.names.pop_front() else {
            if let Err(error) = self.read_more() {
                left_out.note(&self.path, Why::Unreadable(error.raw_os_error()));
                self.leave();
            }
            return Step::Nothing;
        };
        level.behind = listed.behind;
        let here = match self.reopen() {
            Ok(here) => here,
            Err(error) => {
                left_out.note(&self.path, Why::Unreadable(error.raw_os_error()));
                self.leave();
                return Step::Nothing;
            }
        };
        // What went away meanwhile is not there any more, and nothing to tell.
        let Ok(stat) = statat(here, &listed.name, AtFlags::SYMLINK_NOFOLLOW) else { return Step::Nothing };
        let path = below(&self.path, listed.name.as_bytes());
        Step::Found(Found { name: listed.name, path, stat })
    }

    /// Enters a folder that was just found. Says whether it could: the kernel's own folders are passed over.
    pub fn enter(&mut self, found: &Found, left_out: &mut LeftOut) -> bool {
        debug_assert_eq!(FileType::from_raw_mode(found.stat.st_mode), FileType::Directory);
        if self.levels.len() > DEEPEST {
            left_out.note(&found.path, Why::TooDeep);
            return false;
        }
        let opened = self.reopen().and_then(|here| open_beneath(here, found.name.as_bytes()));
        match opened.and_then(|folder| Ok((is_kernels_own(&folder)?, folder))) {
            Ok((true, _)) => false,
            Ok((false, folder)) => {
                self.levels.push(Level::new(self.path.len()));
                self.path.clone_from(&found.path);
                self.here = Some(folder);
                true
            }
            Err(error) => {
                left_out.note(&found.path, Why::Unreadable(error.raw_os_error()));
                false
            }
        }
    }

    /// Reads more names of the last level, or leaves it at its end.
    fn read_more(&mut self) -> Result<()> {
        let names = read_some(self.reopen()?)?;
        match self.levels.last_mut() {
            Some(level) if !names.is_empty() => level.names = names.into(),
            _ => self.leave(),
        }
        Ok(())
    }

    fn leave(&mut self) {
        if let Some(level) = self.levels.pop() {
            self.path.truncate(level.above);
        }
        self.here = None;
    }

    /// The folder of the last level, opened again behind what was walked when that is needed.
    fn reopen(&mut self) -> Result<BorrowedFd<'_>> {
        let folder = match self.here.take() {
            Some(folder) => folder,
            None => {
                let folder = open_beneath(&self.top, &self.path)?;
                let behind =
                    self.levels.last().map_or(0, |level| level.names.back().map_or(level.behind, |n| n.behind));
                rustix::fs::seek(&folder, SeekFrom::Start(behind))?;
                folder
            }
        };
        let here: &OwnedFd = self.here.insert(folder);
        Ok(here.as_fd())
    }
}

impl Level {
    fn new(above: usize) -> Self {
        Level { above, names: VecDeque::new(), behind: 0 }
    }
}

fn below(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if folder.is_empty() { name.to_vec() } else { [folder, b"/", name].concat() }
}
