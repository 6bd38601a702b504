//! Folders as tar archives, both ways.
//!
//! Theory of operation. An archive is always a stream: [`Pack`] gives it piece by piece, [`Unpack`] takes it piece by piece,
//! and each call does a bounded amount of work, so that the guest, which has one thread, can serve others in between.
//! Neither holds more than a few blocks of the archive and a few names for each level of folders.
//!
//! The same code works inside a sandbox and on the host, and neither side trusts the other. All paths are opened beneath
//! the folder that was given, part by part, without following any symbolic link. Only regular files, folders and links are
//! made; of a mode only the permission bits are taken. What cannot be packed or made is left out and counted, and never
//! silently.
//!
//! Beside it, [`taken`] adds up what folders take on a disk.

mod folder;
mod pack;
mod read;
mod resolve;
pub mod taken;
mod unpack;
mod walk;

use std::{fmt, io};

pub use folder::{Listed, is_kernels_own, open_beneath, read_some};
pub use pack::Pack;
pub use read::{Entry, Event, Kind, Reader};
pub use resolve::open_at;
pub use unpack::{LinkRule, Unpack, write_all};
pub use walk::{Found, Step, Walk};

/// No folder below this depth is packed.
pub const DEEPEST: usize = 128;
/// No path in an archive is longer.
pub const LONGEST_PATH: usize = 4096;

/// Why an archive could not be packed or unpacked.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The bytes are no tar archive, or one of a form that is not read.
    #[error("{0}")]
    Malformed(&'static str),
    /// The archive would be far larger than what the files really take.
    #[error("the files have so many holes and links that an archive of them would be far larger than they are")]
    TooLarge(Vec<u8>),
    /// A file or folder could not be made or read.
    #[error("{1}")]
    Io(Vec<u8>, #[source] io::Error),
}

/// What was left out of an archive or not made from one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// How many.
    pub count: u64,
    /// The path of the first, and why.
    pub first: Option<(Vec<u8>, Why)>,
}

/// Why something was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It cannot be read; the error number.
    Unreadable(i32),
    /// It became shorter while it was read; the rest is zeros.
    Shrank,
    /// It lies deeper than [`DEEPEST`] folders.
    TooDeep,
    /// It is a device, a pipe, a socket or something unknown.
    NotOrdinary,
    /// It is a link that leads out of the folder.
    LeadsOut,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Unreadable(errno) => io::Error::from_raw_os_error(*errno).fmt(f),
            Why::Shrank => f.write_str("it became shorter while it was read"),
            Why::TooDeep => write!(f, "it lies deeper than {DEEPEST} folders"),
            Why::NotOrdinary => f.write_str("it is a device or a pipe"),
            Why::LeadsOut => f.write_str("it is a link that leads out of the folder, or a hard link"),
        }
    }
}

impl LeftOut {
    fn note(&mut self, path: &[u8], why: Why) {
        self.count += 1;
        self.first.get_or_insert_with(|| (path.to_vec(), why));
    }
}
