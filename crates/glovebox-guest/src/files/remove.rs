//! Removing files, and folders with all that is in them.

use std::{ffi::CString, os::fd::OwnedFd};

use bytes::Bytes;
use glovebox_archive::{open_beneath, read_some};
use glovebox_proto::file::Remove;
use h2::SendStream;
use rustix::{
    fs::{AtFlags, unlinkat},
    io::Errno,
};

use super::{At, Trouble, open::open_parent};
use crate::stream;

/// A path that grows longer than this is not carried on: what is deeper is removed from there.
const LONGEST: usize = 2048;

/// Removes a file, an empty folder, or a whole one.
pub(super) async fn remove(request: &Remove, out: &mut SendStream<Bytes>) -> Result<(), Trouble> {
    let path = &request.path;
    let (folder, name) = open_parent(path)?;
    match remove_one(&folder, name) {
        Err(Errno::NOTEMPTY) if request.recursive => {
            let top = open_beneath(&folder, name).at(path)?;
            empty(&top, path, out).await?;
            remove_one(&folder, name).at(path)
        }
        removed => removed.at(path),
    }
}

/// Removes what has a name, unless it is a folder that is not empty.
fn remove_one(folder: &OwnedFd, name: impl rustix::path::Arg + Copy) -> rustix::io::Result<()> {
    match unlinkat(folder, name, AtFlags::empty()) {
        Err(not_a_file @ (Errno::ISDIR | Errno::PERM)) => match unlinkat(folder, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTDIR) => Err(not_a_file),
            Err(Errno::EXIST) => Err(Errno::NOTEMPTY),
            removed => removed,
        },
        removed => removed,
    }
}

/// Empties a folder of any depth with a handful of open files and a bounded path. Where the path becomes too long, what is
/// below is emptied first, and then everything begins at the top again.
async fn empty(top: &OwnedFd, path: &[u8], out: &mut SendStream<Bytes>) -> Result<(), Trouble> {
    let mut start: Option<OwnedFd> = None;
    let mut below: Vec<u8> = Vec::new();
    loop {
        let at = start.as_ref().unwrap_or(top);
        let named = || [path, b"/", &below[..]].concat();
        let folder = open_beneath(at, &below).at(&named())?;
        match remove_some(&folder).at(&named())? {
            Removed::Some => {}
            Removed::NotYet(name) => {
                if !below.is_empty() {
                    below.push(b'/');
                }
                below.extend_from_slice(name.as_bytes());
                if below.len() > LONGEST {
                    start = Some(open_beneath(at, &below).at(path)?);
                    below.clear();
                }
            }
            Removed::All => match below.iter().rposition(|byte| *byte == b'/') {
                // The next look at the folder above removes this one.
                Some(up) => below.truncate(up),
                None if !below.is_empty() => below.clear(),
                None if start.is_some() => start = None,
                None => return Ok(()),
            },
        }
        stream::breathe(out).await?;
    }
}

/// What became of some names of a folder.
enum Removed {
    /// They are gone; there may be more.
    Some,
    /// There are none left.
    All,
    /// This one is a folder that is not empty.
    NotYet(CString),
}

fn remove_some(folder: &OwnedFd) -> rustix::io::Result<Removed> {
    let names = read_some(folder)?;
    if names.is_empty() {
        return Ok(Removed::All);
    }
    for listed in names {
        match remove_one(folder, listed.name.as_c_str()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::NOTEMPTY) => return Ok(Removed::NotYet(listed.name)),
            Err(error) => return Err(error),
        }
    }
    Ok(Removed::Some)
}
