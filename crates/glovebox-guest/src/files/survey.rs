//! All that lies below some folders, for a host that has no other way to see what changed.

use bytes::Bytes;
use glovebox_archive::{Found, LeftOut, Step, Walk, open_at};
use glovebox_proto::{
    Frame, FrameKind,
    file::{Met, MetFiles, SurveyEnd, SurveyFiles},
};
use h2::SendStream;
use prost::Message;
use rustix::{
    fs::{FileType, OFlags, ResolveFlags, Stat, fstat, readlinkat},
    io::Errno,
};

use super::{Trouble, list::entry, open::open_folder};
use crate::stream;

/// What was met is sent when there are about so many bytes of it.
const FRAME: usize = 32 * 1024;
/// After so many steps others get their turn.
const STEPS: usize = 64;

/// Tells all that lies below the folders of a request.
pub(super) async fn survey(request: &SurveyFiles, out: &mut SendStream<Bytes>) -> Result<(), Trouble> {
    let mut telling = Telling {
        out,
        left: request.most,
        bytes_left: request.most_bytes,
        truncated: false,
        page: MetFiles::default(),
        size: 0,
    };
    for root in &request.roots {
        let path = [&request.top, &b"/"[..], root].concat();
        // Root inside can move even these folders away; then there is nothing in them.
        let Ok(folder) = open_folder(&path) else { continue };
        let Ok(stat) = fstat(&folder) else { continue };
        let top = met(root, &stat, Vec::new());
        match Walk::new(folder) {
            Ok(walk) if telling.tell(top.clone()).await? => survey_below(walk, root, request, &mut telling).await?,
            Ok(_) => {}
            Err(_) => drop(telling.tell(Met { unread: true, ..top }).await?),
        }
    }
    telling.flush().await?;
    let end = SurveyEnd { truncated: telling.truncated };
    Ok(stream::send(out, Frame::message(FrameKind::SurveyEnd, &end)).await?)
}

async fn survey_below(
    mut walk: Walk,
    root: &[u8],
    request: &SurveyFiles,
    telling: &mut Telling<'_>,
) -> Result<(), Trouble> {
    let mut steps = 0;
    loop {
        let mut unread = LeftOut::default();
        match walk.step(&mut unread) {
            Step::Found(found) => {
                let mounted = is_mounted(&walk, &found);
                let known = met(&[root, b"/", &found.path].concat(), &found.stat, target(&walk, &found));
                let is_folder = FileType::from_raw_mode(found.stat.st_mode) == FileType::Directory && !mounted;
                let depth = found.path.split(|byte| *byte == b'/').count() as u64;
                let unread = is_folder && (depth > request.deepest || !walk.enter(&found, &mut LeftOut::default()));
                if !telling.tell(Met { mounted, unread, ..known }).await? {
                    return Ok(());
                }
            }
            Step::Nothing => {}
            Step::End => return Ok(()),
        }
        // A folder went away, or was closed, while it was read.
        telling.truncated |= unread.count > 0;
        steps += 1;
        if steps % STEPS == 0 {
            stream::breathe(telling.out).await?;
        }
    }
}

/// Whether something is mounted on what was found. It may be of the same device, so only the way there tells.
fn is_mounted(walk: &Walk, found: &Found) -> bool {
    let Some(here) = walk.here() else { return false };
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV;
    matches!(open_at(here, found.name.as_bytes(), flags, resolve), Err(Errno::XDEV))
}

fn target(walk: &Walk, found: &Found) -> Vec<u8> {
    match (FileType::from_raw_mode(found.stat.st_mode), walk.here()) {
        (FileType::Symlink, Some(here)) => {
            readlinkat(here, &found.name, Vec::new()).map(|target| target.into_bytes()).unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

fn met(path: &[u8], stat: &Stat, target: Vec<u8>) -> Met {
    Met {
        entry: Some(entry(path, stat, target.into())),
        device: stat.st_dev,
        inode: stat.st_ino,
        changed_ns: stat.st_ctime.saturating_mul(1_000_000_000).saturating_add(stat.st_ctime_nsec as i64),
        mounted: false,
        unread: false,
    }
}

/// What is on its way to the host.
struct Telling<'a> {
    out: &'a mut SendStream<Bytes>,
    left: u64,
    bytes_left: u64,
    truncated: bool,
    page: MetFiles,
    size: usize,
}

impl Telling<'_> {
    /// Tells of one thing. Says whether there was room for it.
    async fn tell(&mut self, met: Met) -> Result<bool, Trouble> {
        let bytes = met.entry.as_ref().map_or(0, |entry| entry.name.len() + entry.target.len()) as u64;
        let (Some(left), Some(bytes_left)) = (self.left.checked_sub(1), self.bytes_left.checked_sub(bytes)) else {
            self.truncated = true;
            return Ok(false);
        };
        (self.left, self.bytes_left) = (left, bytes_left);
        self.size += met.encoded_len();
        self.page.met.push(met);
        if self.size >= FRAME {
            self.flush().await?;
        }
        Ok(true)
    }

    async fn flush(&mut self) -> Result<(), Trouble> {
        if !self.page.met.is_empty() {
            stream::send(self.out, Frame::message(FrameKind::MetFiles, &self.page)).await?;
            (self.page, self.size) = (MetFiles::default(), 0);
        }
        Ok(())
    }
}
