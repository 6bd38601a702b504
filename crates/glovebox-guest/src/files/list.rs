//! What lies under a path: one entry, or all of a folder.

use bytes::Bytes;
use glovebox_archive::{Listed, read_some};
use glovebox_proto::{
    Frame, FrameKind,
    file::{Entries, Entry, EntryKind, ListEnd, ListFolder, StatFile},
};
use h2::SendStream;
use prost::Message;
use rustix::fs::{AtFlags, FileType, OFlags, SeekFrom, Stat};

use super::{At, Trouble, done, open::open, open::split};
use crate::stream;

/// Entries are sent when there are about so many bytes of them.
const FRAME: usize = 32 * 1024;

/// Sends what is known of one path.
pub(super) async fn stat(request: &StatFile, out: &mut SendStream<Bytes>) -> Result<(), Trouble> {
    let path = &request.path;
    let flags = if request.follow { OFlags::PATH } else { OFlags::PATH | OFlags::NOFOLLOW };
    let file = open(path, flags)?;
    let stat = rustix::fs::fstat(&file).at(path)?;
    let target = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => {
            rustix::fs::readlinkat(&file, "", Vec::new()).map(|t| Bytes::from(t.into_bytes())).at(path)?
        }
        _ => Bytes::new(),
    };
    stream::send(out, Frame::message(FrameKind::Entry, &entry(split(path).1, &stat, target))).await?;
    done(out).await
}

/// Sends the entries of a folder in its own order, from the cursor on.
pub(super) async fn list(request: &ListFolder, out: &mut SendStream<Bytes>) -> Result<(), Trouble> {
    let path = &request.path;
    let folder = open(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
    if let Some(after) = request.after {
        rustix::fs::seek(&folder, SeekFrom::Start(after)).at(path)?;
    }
    let mut left = request.most;
    let mut page = Entries::default();
    let mut bytes = 0;
    let mut cursor = request.after;
    loop {
        let names = read_some(&folder).at(path)?;
        if names.is_empty() {
            cursor = None;
        }
        let last = names.is_empty() || left <= names.len() as u64;
        for Listed { name, behind } in names.into_iter().take(usize::try_from(left).unwrap_or(usize::MAX)) {
            (cursor, left) = (Some(behind), left - 1);
            // What went away meanwhile is not there any more.
            let Ok(stat) = rustix::fs::statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let target = match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink => rustix::fs::readlinkat(&folder, &name, Vec::new()).map(|t| t.into_bytes()),
                _ => Ok(Vec::new()),
            };
            let known = entry(name.as_bytes(), &stat, target.unwrap_or_default().into());
            bytes += known.encoded_len();
            page.entries.push(known);
            if bytes >= FRAME {
                send(&mut page, out).await?;
                bytes = 0;
            }
        }
        if last {
            break;
        }
        stream::breathe(out).await?;
    }
    send(&mut page, out).await?;
    stream::send(out, Frame::message(FrameKind::ListEnd, &ListEnd { cursor })).await?;
    Ok(())
}

async fn send(page: &mut Entries, out: &mut SendStream<Bytes>) -> Result<(), Trouble> {
    if !page.entries.is_empty() {
        stream::send(out, Frame::message(FrameKind::Entries, page)).await?;
        page.entries.clear();
    }
    Ok(())
}

/// What is known of a file.
pub(super) fn entry(name: &[u8], stat: &Stat, target: Bytes) -> Entry {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Symlink,
        _ => EntryKind::Other,
    };
    Entry {
        name: Bytes::copy_from_slice(name),
        kind: kind.into(),
        bytes: stat.st_size as u64,
        mode: stat.st_mode & 0o7777,
        modified_ns: stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(stat.st_mtime_nsec as i64),
        target,
    }
}
