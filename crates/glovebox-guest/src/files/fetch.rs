//! Artifacts of a run, on their way out. No link is followed, and only regular files are opened for reading.

use std::{collections::BTreeSet, ffi::OsStr, io, os::unix::ffi::OsStrExt, path::Path};

use bytes::Bytes;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use glovebox_archive::{LeftOut, Step, Walk, open_at};
use glovebox_proto::{ArtifactQuery, FileEntry, FileKind, Frame, FrameKind, bound};
use h2::{RecvStream, SendStream};
use rustix::fs::{CWD, FileType, OFlags, ResolveFlags};

use super::open::{is_kernels, open_folder};
use crate::{
    Ground,
    stream::{self, Frames},
};

/// Sends the files that match the host's query.
pub(crate) async fn fetch(ground: &Ground, body: RecvStream, mut out: SendStream<Bytes>) -> io::Result<()> {
    let mut frames = Frames::new(body);
    let Some(frame) = frames.next().await? else { return Ok(()) };
    let mut query: ArtifactQuery = frame.read().map_err(io::Error::other)?;
    query.root = ground.real(&query.root).into_owned();
    let globs = glob_set(&query.globs)?;
    if is_kernels(query.root.as_bytes()) {
        return Err(rustix::io::Errno::ACCESS.into());
    }
    let mut left = query.most;
    let mut bytes_left = query.most_bytes;
    for start in starts(&query.globs) {
        let folder = open_folder(format!("{}/{start}", query.root).as_bytes()).and_then(Walk::new);
        let Ok(mut walk) = folder else { continue };
        // The host compares with what it asked for, so it needs no list of what is left out.
        let mut left_out = LeftOut::default();
        loop {
            let found = match walk.step(&mut left_out) {
                Step::Found(found) => found,
                Step::Nothing => {
                    stream::breathe(&mut out).await?;
                    continue;
                }
                Step::End => break,
            };
            let path = below(&start, &found.path);
            match FileType::from_raw_mode(found.stat.st_mode) {
                FileType::Directory => {
                    walk.enter(&found, &mut left_out);
                }
                FileType::RegularFile if left > 0 && globs.is_match(Path::new(OsStr::from_bytes(&path))) => {
                    left -= 1;
                    send_file(&mut out, &query.root, &path, &mut bytes_left).await?;
                }
                _ => {}
            }
        }
    }
    stream::send(&mut out, Frame::data(FrameKind::Done, &[])).await?;
    stream::end(&mut out)
}

fn glob_set(globs: &[String]) -> io::Result<GlobSet> {
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        set.add(GlobBuilder::new(glob).literal_separator(true).build().map_err(io::Error::other)?);
    }
    set.build().map_err(io::Error::other)
}

/// The folders to look into: the parts of the globs before their first wildcard, none within another.
fn starts(globs: &[String]) -> BTreeSet<String> {
    let mut starts: BTreeSet<String> = BTreeSet::new();
    for glob in globs {
        let fixed = &glob[..glob.find(['*', '?', '[', '{', '\\']).unwrap_or(glob.len())];
        let folder = fixed.rsplit_once('/').map_or("", |(folder, _)| folder);
        starts.insert(folder.to_owned());
    }
    let within = |a: &str, b: &str| a != b && (b.is_empty() || a.starts_with(&format!("{b}/")));
    starts.iter().filter(|a| !starts.iter().any(|b| within(a, b))).cloned().collect()
}

fn below(start: &str, path: &[u8]) -> Vec<u8> {
    if start.is_empty() { path.to_vec() } else { [start.as_bytes(), b"/", path].concat() }
}

async fn send_file(out: &mut SendStream<Bytes>, root: &str, path: &[u8], left: &mut u64) -> io::Result<()> {
    // A name that is no text could be taken for another one on the host.
    let Ok(name) = str::from_utf8(path) else { return Ok(()) };
    let whole = [root.as_bytes(), b"/", path].concat();
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    // A file that went away or cannot be read is left out; the host compares with what it asked for.
    let Ok(file) = open_at(CWD, &whole, flags, resolve) else { return Ok(()) };
    let stat = rustix::fs::fstat(&file)?;
    let size = stat.st_size as u64;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || size > *left {
        return Ok(());
    }
    *left -= size;
    let entry = FileEntry {
        path: name.to_owned(),
        mode: stat.st_mode & 0o777,
        kind: FileKind::Regular.into(),
        link: String::new(),
        modified_ns: 0,
    };
    stream::send(out, Frame::message(FrameKind::File, &entry)).await?;
    let mut buffer = vec![0; bound::CHUNK];
    let mut unsent = size;
    // A file that grows while it is read ends where it ended when it was opened.
    while unsent > 0 {
        let most = unsent.min(bound::CHUNK as u64) as usize;
        match rustix::io::read(&file, &mut buffer[..most]) {
            Ok(0) => break,
            Ok(length) => {
                unsent -= length as u64;
                stream::send(out, Frame::data(FrameKind::FileData, &buffer[..length])).await?;
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    stream::send(out, Frame::data(FrameKind::FileEnd, &[])).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_starts_at_the_fixed_part_of_each_glob_and_never_twice() {
        let globs = |texts: &[&str]| texts.iter().map(|t| t.to_string()).collect::<Vec<_>>();
        let list = |texts: &[&str]| starts(&globs(texts)).into_iter().collect::<Vec<_>>();
        assert_eq!(list(&["outputs/**"]), ["outputs"]);
        assert_eq!(list(&["outputs/**", "outputs/a/*.png"]), ["outputs"]);
        assert_eq!(list(&["outputs/**", "*.txt"]), [""]);
        assert_eq!(list(&["a/b/c.txt", "outputs/**"]), ["a/b", "outputs"]);
    }
}
