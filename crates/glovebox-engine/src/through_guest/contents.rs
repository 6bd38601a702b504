//! What a file was on the host or is inside, with its content where that is wanted.

use std::{
    fs::File,
    io::{self, Read},
};

use bytes::{Buf, Bytes};
use glovebox_core::{
    ContentKeeper, Error, ErrorCode, FileKind, FilePath, FileStamp, FileState, KeptContent, NotKept, Result,
    WORKSPACE_DIR, look_bound,
};
use glovebox_proto::file::EntryKind;
use rustix::fs::{FileType, Stat};
use tokio::{
    runtime::Handle,
    time::{Instant, timeout_at},
};

use super::{ahead::Ahead, host::HostEntry, survey::Known};
use crate::files::{FileStream, Files, FollowLinks, Range};

/// Something inside.
#[derive(Clone, Copy)]
pub(super) struct Inside<'a> {
    pub(super) known: &'a Known,
    /// Its path below `/workspace`.
    pub(super) path: &'a [u8],
    /// Its mode as it is told.
    pub(super) mode: u32,
}

/// Hands contents to their keeper, within bounds.
pub(super) struct Contents<'a> {
    keeper: Option<&'a dyn ContentKeeper>,
    /// The files inside, and who waits for their bytes.
    files: (Files, Handle),
    left: u64,
    until: Instant,
    /// What the walk will come to.
    pub(super) ahead: Ahead,
}

impl<'a> Contents<'a> {
    pub(super) fn new(keeper: Option<&'a dyn ContentKeeper>, files: Files, runtime: Handle) -> Self {
        let until = Instant::now() + look_bound::KEEPING;
        Contents { keeper, files: (files, runtime), left: look_bound::KEPT, until, ahead: Ahead::default() }
    }

    /// What stands in the folder of the host.
    pub(super) fn of_host(&mut self, entry: HostEntry<'_>) -> Result<FileState> {
        let kind = match entry.kind() {
            FileType::RegularFile => self.file(&host_stamp(entry.stat), |_| Ok(entry.open_file().map(File::from)))?,
            FileType::Directory => FileKind::Directory,
            // What is gone by now is a target that cannot be read, which is a name that cannot be used either.
            FileType::Symlink => FileKind::Symlink { target: entry.target().map_or("\u{fffd}".into(), |t| lossy(&t)) },
            _ => FileKind::Special,
        };
        Ok(FileState { mode: entry.mode(), kind })
    }

    /// What stands inside. An error when the guest is gone or breaks the rules.
    pub(super) fn of_inside(&mut self, inside: Inside<'_>) -> Result<FileState> {
        let kind = match inside.known.kind {
            EntryKind::File => self.file(&inside.known.stamp, |contents| contents.open(inside))?,
            EntryKind::Directory => FileKind::Directory,
            EntryKind::Symlink => FileKind::Symlink { target: lossy(&inside.known.target) },
            EntryKind::Other => FileKind::Special,
        };
        Ok(FileState { mode: inside.mode, kind })
    }

    /// Whether two files of one length differ. What cannot be read does.
    pub(super) fn differ(&mut self, inside: Inside<'_>, host: HostEntry<'_>) -> Result<bool> {
        let (Some(mut new), Some(old)) = (self.open(inside)?, host.open_file()) else { return Ok(true) };
        let differ = differ_in_content(&mut new, &mut File::from(old));
        new.failure()?;
        Ok(differ.unwrap_or(true))
    }

    fn file<R: Content>(
        &mut self,
        stamp: &FileStamp,
        open: impl FnOnce(&mut Self) -> Result<Option<R>>,
    ) -> Result<FileKind> {
        let Some(keeper) = self.keeper else {
            return Ok(FileKind::File { bytes: stamp.bytes, sha256: None, not_kept: None });
        };
        Ok(match self.keep(keeper, stamp, open)? {
            Ok(kept) => FileKind::File { bytes: kept.bytes, sha256: Some(kept.sha256), not_kept: None },
            Err(reason) => FileKind::File { bytes: stamp.bytes, sha256: None, not_kept: Some(reason) },
        })
    }

    fn keep<R: Content>(
        &mut self,
        keeper: &dyn ContentKeeper,
        stamp: &FileStamp,
        open: impl FnOnce(&mut Self) -> Result<Option<R>>,
    ) -> Result<Result<KeptContent, NotKept>> {
        let bytes = stamp.bytes;
        if bytes > look_bound::KEPT_FILE {
            return Ok(Err(NotKept::TooLarge));
        }
        if let Some(reason) = keeper.refuses(stamp) {
            return Ok(Err(reason));
        }
        if let Some(known) = keeper.known(stamp) {
            return Ok(Ok(known));
        }
        if bytes > self.left {
            return Ok(Err(NotKept::TooMuch));
        }
        if Instant::now() > self.until {
            return Ok(Err(NotKept::TooSlow));
        }
        let Some(mut content) = open(self)? else { return Ok(Err(NotKept::Unreadable)) };
        self.left -= bytes;
        // A file that still grows is kept as long as it was when it was found.
        let kept = keeper.keep(&mut (&mut content).take(bytes));
        content.failure()?;
        if let Ok(kept) = &kept
            && kept.bytes == bytes
        {
            keeper.note(*stamp, kept);
        }
        Ok(kept)
    }

    /// Opens a file inside. Nothing where it cannot be read.
    fn open(&mut self, inside: Inside<'_>) -> Result<Option<Inflow>> {
        self.read_ahead(inside)?;
        let (files, runtime) = &self.files;
        if let Some(rest) = self.ahead.content(inside.path) {
            let (runtime, until) = (runtime.clone(), self.until);
            return Ok(Some(Inflow { stream: None, runtime, until, rest, failed: None }));
        }
        let Ok(path) = FilePath::absolute([WORKSPACE_DIR.as_bytes(), b"/", inside.path].concat()) else {
            return Ok(None);
        };
        let range = Range { offset: 0, length: Some(inside.known.stamp.bytes) };
        let reading = files.read_by(&path, range, FollowLinks::No);
        // A clock is known only where the runtime is.
        match runtime.block_on(async { timeout_at(self.until, reading).await }) {
            Err(_) => Ok(None),
            Ok(Err(error)) if is_of_guest(&error) => Err(error),
            Ok(Err(_)) => Ok(None),
            Ok(Ok(stream)) => {
                let (runtime, until) = (runtime.clone(), self.until);
                Ok(Some(Inflow { stream: Some(stream), runtime, until, rest: Bytes::new(), failed: None }))
            }
        }
    }
}

impl Contents<'_> {
    /// Reads the next lot of small files, unless this one was read with the last. One that cannot be read so is opened by itself.
    fn read_ahead(&mut self, inside: Inside<'_>) -> Result<()> {
        if self.ahead.content(inside.path).is_some() {
            return Ok(());
        }
        let keeper = self.keeper;
        let wanted = |stamp: &FileStamp| {
            keeper.is_none_or(|keeper| keeper.refuses(stamp).is_none() && keeper.known(stamp).is_none())
        };
        let Some(lot) = self.ahead.lot(inside.path, wanted) else { return Ok(()) };
        let (files, runtime) = &self.files;
        let reading = files.read_small(lot.clone());
        match runtime.block_on(async { timeout_at(self.until, reading).await }) {
            Ok(Err(error)) if is_of_guest(&error) => Err(error),
            Ok(Err(_)) | Err(_) => Ok(()),
            Ok(Ok(contents)) => {
                let read = lot.into_iter().zip(contents);
                self.ahead.keep(read.filter_map(|(file, content)| Some((file.path, content?))));
                Ok(())
            }
        }
    }
}

/// Whether a failure is that of the whole guest, and not of one file.
fn is_of_guest(error: &Error) -> bool {
    matches!(error.code, ErrorCode::SandboxLost | ErrorCode::ChannelViolation)
}

/// A content, and what went wrong beyond it while it was read.
trait Content: Read {
    fn failure(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Content for File {}

/// The bytes of a file inside, on a thread that may wait for them.
struct Inflow {
    /// Where more of them come from; nothing of a file that was read ahead.
    stream: Option<FileStream>,
    runtime: Handle,
    until: Instant,
    rest: Bytes,
    failed: Option<Error>,
}

impl Content for Inflow {
    fn failure(&mut self) -> Result<()> {
        self.failed.take().filter(is_of_guest).map_or(Ok(()), Err)
    }
}

impl Read for Inflow {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(stream) = self.stream.as_mut().filter(|_| self.rest.is_empty()) {
            let until = self.until;
            match self.runtime.block_on(async { timeout_at(until, stream.next()).await }) {
                Err(_) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(Err(error)) => {
                    self.failed = Some(error);
                    return Err(io::ErrorKind::Other.into());
                }
                Ok(Ok(next)) => self.rest = next.unwrap_or_default(),
            }
        }
        let count = buffer.len().min(self.rest.len());
        self.rest.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}

fn differ_in_content(new: &mut impl Read, old: &mut impl Read) -> io::Result<bool> {
    let (mut a, mut b) = (Vec::with_capacity(64 * 1024), Vec::with_capacity(64 * 1024));
    loop {
        for (file, buffer) in [(&mut *new as &mut dyn Read, &mut a), (old, &mut b)] {
            buffer.clear();
            file.take(64 * 1024).read_to_end(buffer)?;
        }
        if a != b {
            return Ok(true);
        }
        if a.is_empty() {
            return Ok(false);
        }
    }
}

/// What is no text is shown as well as it can be.
pub(super) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn host_stamp(stat: &Stat) -> FileStamp {
    FileStamp { device: stat.st_dev, inode: stat.st_ino, changed_ns: changed_ns(stat), bytes: stat.st_size as u64 }
}

/// When something last changed.
pub(super) fn changed_ns(stat: &Stat) -> i128 {
    i128::from(stat.st_ctime) * 1_000_000_000 + i128::from(stat.st_ctime_nsec)
}
