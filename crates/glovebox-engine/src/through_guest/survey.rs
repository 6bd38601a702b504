//! What the guest tells of the files of a workspace. It is a hostile witness: every path is checked part by part, nothing may
//! come twice or before the folder that it is in, and counts, bytes and time are bounded.

use std::collections::{BTreeMap, btree_map};

use bytes::Bytes;
use glovebox_core::{FileStamp, Result, WORKSPACE_DIR, look_bound};
use glovebox_proto::{
    Frame, FrameKind, bound,
    file::{Entry, EntryKind, Met, MetFiles, SurveyEnd, SurveyFiles},
    path,
};
use tokio::time::{Instant, timeout_at};

use crate::channel::{Channel, Receiving, in_time, read, violation};

/// Bytes of all paths and targets. A survey tells what is no change too, so there are more than of changes.
const BYTES: u64 = 2 * look_bound::PATH_BYTES as u64;
/// No device of the host has this bit in its number, so what a guest says of a file is never taken for one of the host's.
const INSIDE: u64 = 1 << 63;
const LONGEST_NAME: usize = 255;
const LONGEST_TARGET: usize = 4096;

/// All that was met below some folders of `/workspace`.
#[derive(Debug)]
pub(super) struct Survey {
    /// The folders, by name.
    pub(super) roots: BTreeMap<Box<[u8]>, Node>,
    /// It is not all that is there.
    pub(super) truncated: bool,
    met: usize,
    bytes: u64,
}

/// Something that was met, with what lies in it.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) known: Known,
    pub(super) below: BTreeMap<Box<[u8]>, Node>,
}

/// What is known of a file, link or folder inside.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) kind: EntryKind,
    pub(super) mode: u32,
    pub(super) modified_ns: i64,
    pub(super) stamp: FileStamp,
    pub(super) target: Bytes,
    pub(super) mounted: bool,
    pub(super) unread: bool,
}

impl Known {
    /// Whether nothing was done to it since. The device is not compared: it may get another number when the sandbox is started again.
    pub(super) fn is_as(&self, before: &Known) -> bool {
        let marks = |known: &Known| (known.stamp.inode, known.stamp.changed_ns, known.stamp.bytes, known.mode);
        self.kind == before.kind && marks(self) == marks(before) && self.target == before.target
    }
}

impl Node {
    pub(super) fn is_folder(&self) -> bool {
        self.known.kind == EntryKind::Directory && !self.known.mounted
    }

    pub(super) fn is_file(&self) -> bool {
        self.known.kind == EntryKind::File
    }

    /// Whether all that is in a folder is as it was.
    pub(super) fn holds_the_same(&self, before: &Node) -> bool {
        self.below.len() == before.below.len()
            && self.below.iter().zip(&before.below).all(|((name, now), (old_name, old))| {
                name == old_name && (now.known.mounted || now.known.is_as(&old.known)) && now.holds_the_same(old)
            })
    }
}

impl Survey {
    fn new() -> Self {
        Survey { roots: BTreeMap::new(), truncated: false, met: 0, bytes: 0 }
    }

    /// Asks the guest for all that lies below some folders of `/workspace`. What it does not tell in time is not there.
    pub(super) async fn of(channel: &Channel, roots: &[&str]) -> Result<Self> {
        channel.judge(Self::ask_for(channel, roots).await)
    }

    async fn ask_for(channel: &Channel, roots: &[&str]) -> Result<Self> {
        let until = Instant::now() + look_bound::KEEPING;
        let request = SurveyFiles {
            top: WORKSPACE_DIR.into(),
            roots: roots.iter().map(|root| root.as_bytes().to_vec()).collect(),
            most: look_bound::MET as u64,
            most_bytes: BYTES,
            deepest: look_bound::DEEPEST as u64,
        };
        let asked = async {
            let (sending, opening) = channel.request(path::SURVEY).await?;
            sending.send_last(Frame::message(FrameKind::Query, &request)).await?;
            opening.answer().await
        };
        let mut receiving = in_time(asked).await?;
        let mut survey = Survey::new();
        while let Ok(more) = timeout_at(until, survey.take_some(&mut receiving, roots)).await {
            if !more? {
                return Ok(survey);
            }
        }
        survey.truncated = true;
        Ok(survey)
    }

    /// Takes the next frame. Says whether there is more to come.
    async fn take_some(&mut self, receiving: &mut Receiving, roots: &[&str]) -> Result<bool> {
        match receiving.next().await? {
            Some(frame) if frame.kind == FrameKind::MetFiles && frame.payload.len() <= bound::LISTED => {
                for met in read::<MetFiles>(&frame)?.met {
                    self.add(met, roots)?;
                }
                Ok(true)
            }
            Some(frame) if frame.kind == FrameKind::SurveyEnd => {
                self.truncated |= read::<SurveyEnd>(&frame)?.truncated;
                Ok(false)
            }
            other => Err(crate::files::refused(other, "look at")),
        }
    }

    /// Adds what the guest says that it met.
    fn add(&mut self, met: Met, roots: &[&str]) -> Result<()> {
        let wrong = |what: &str| Err(violation(format!("the guest told of {what}")));
        let Some(entry) = met.entry.clone() else { return wrong("nothing") };
        self.met += 1;
        self.bytes += (entry.name.len() + entry.target.len()) as u64;
        if self.met > look_bound::MET || self.bytes > BYTES || entry.target.len() > LONGEST_TARGET {
            return wrong("more files than it was asked for");
        }
        let mut parts = entry.name.split(|byte| *byte == b'/');
        let root = parts.next().unwrap_or_default();
        if !roots.iter().any(|asked| asked.as_bytes() == root) {
            return wrong("a file that it was not asked for");
        }
        let mut here = &mut self.roots;
        let mut name = root;
        for (depth, next) in parts.enumerate() {
            here = match here.get_mut(name) {
                Some(folder) if folder.is_folder() && !folder.known.unread => &mut folder.below,
                _ => return wrong("a file before the folder that it is in"),
            };
            name = next;
            let is_name = !matches!(name, b"" | b"." | b"..") && name.len() <= LONGEST_NAME && !name.contains(&0);
            if !is_name || depth > look_bound::DEEPEST {
                return wrong("something that is no path");
            }
        }
        match here.entry(name.into()) {
            btree_map::Entry::Occupied(_) => wrong("a file twice"),
            btree_map::Entry::Vacant(place) => {
                place.insert(Node { known: known(&met, &entry), below: BTreeMap::new() });
                Ok(())
            }
        }
    }

    /// Takes what is at a path, if something is, for the place of a mount: whatever is there now does not count.
    pub(super) fn take_for_mounted(&mut self, path: &[u8]) {
        let mut parts = path.split(|byte| *byte == b'/');
        let mut node = parts.next().and_then(|root| self.roots.get_mut(root));
        for name in parts {
            node = node.and_then(|folder| folder.below.get_mut(name));
        }
        if let Some(node) = node {
            node.known.mounted = true;
            node.below.clear();
        }
    }

    /// As it was told.
    pub(super) fn to_met(&self) -> Vec<Met> {
        let mut all = Vec::with_capacity(self.met);
        for (name, node) in &self.roots {
            flatten(name, node, &mut all);
        }
        all
    }

    /// A survey that was told before.
    pub(super) fn again(all: Vec<Met>, roots: &[&str]) -> Result<Self> {
        let mut survey = Survey::new();
        all.into_iter().try_for_each(|met| survey.add(met, roots))?;
        Ok(survey)
    }
}

fn known(met: &Met, entry: &Entry) -> Known {
    let stamp = FileStamp {
        device: met.device | INSIDE,
        inode: met.inode,
        changed_ns: met.changed_ns.into(),
        bytes: entry.bytes,
    };
    Known {
        kind: entry.kind(),
        mode: entry.mode & 0o7777,
        modified_ns: entry.modified_ns,
        stamp,
        // A part of a frame holds the whole of it.
        target: Bytes::copy_from_slice(&entry.target),
        mounted: met.mounted,
        unread: met.unread,
    }
}

fn flatten(path: &[u8], node: &Node, all: &mut Vec<Met>) {
    let Node { known, below } = node;
    let entry = Entry {
        name: Bytes::copy_from_slice(path),
        kind: known.kind.into(),
        bytes: known.stamp.bytes,
        mode: known.mode,
        modified_ns: known.modified_ns,
        target: known.target.clone(),
    };
    all.push(Met {
        entry: Some(entry),
        device: known.stamp.device & !INSIDE,
        inode: known.stamp.inode,
        // It came as such a number.
        changed_ns: known.stamp.changed_ns as i64,
        mounted: known.mounted,
        unread: known.unread,
    });
    for (name, node) in below {
        flatten(&[path, b"/", name].concat(), node, all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(path: &str, kind: EntryKind) -> Met {
        let entry = Entry { name: path.to_owned().into(), kind: kind.into(), mode: 0o755, ..Entry::default() };
        Met { entry: Some(entry), inode: 7, ..Met::default() }
    }

    fn told(all: Vec<Met>) -> Result<Survey> {
        Survey::again(all, &["outputs", "agent_workspace"])
    }

    #[test]
    fn a_survey_is_the_same_when_it_is_told_again() {
        let all = vec![
            met("agent_workspace", EntryKind::Directory),
            met("agent_workspace/a", EntryKind::Directory),
            met("agent_workspace/a/b", EntryKind::File),
            met("outputs", EntryKind::Directory),
        ];
        assert_eq!(told(all.clone()).unwrap().to_met(), all);
    }

    #[test]
    fn what_lies_where_a_mount_was_does_not_count() {
        let all = vec![
            met("agent_workspace", EntryKind::Directory),
            met("agent_workspace/a", EntryKind::Directory),
            met("agent_workspace/a/b", EntryKind::Directory),
            met("agent_workspace/a/b/c", EntryKind::File),
            met("agent_workspace/a/d", EntryKind::File),
        ];
        let mut survey = told(all).unwrap();
        survey.take_for_mounted(b"agent_workspace/a/b");
        survey.take_for_mounted(b"agent_workspace/x/y");
        survey.take_for_mounted(b"other");
        let told: Vec<(Bytes, bool)> =
            survey.to_met().into_iter().map(|met| (met.entry.unwrap().name, met.mounted)).collect();
        let wanted = [
            ("agent_workspace", false),
            ("agent_workspace/a", false),
            ("agent_workspace/a/b", true),
            ("agent_workspace/a/d", false),
        ];
        assert_eq!(told, wanted.map(|(name, mounted)| (name.into(), mounted)));
    }

    #[test]
    fn what_a_guest_must_not_tell_is_a_violation() {
        let (folder, file) = (EntryKind::Directory, EntryKind::File);
        let root = || met("outputs", folder);
        let unread = Met { unread: true, ..met("outputs/u", folder) };
        let mounted = Met { mounted: true, ..met("outputs/m", folder) };
        let long = "x".repeat(256);
        let deep = |depth: usize| format!("outputs{}", "/d".repeat(depth));
        let lies = [
            vec![met("home", folder)],
            vec![met("", folder)],
            vec![met("/outputs", folder)],
            vec![met("outputs/x", file)],
            vec![root(), root()],
            vec![root(), met("outputs/x", file), met("outputs/x", file)],
            vec![root(), met("outputs/x", file), met("outputs/x/y", file)],
            vec![root(), met("outputs/../x", file)],
            vec![root(), met("outputs/..", file)],
            vec![root(), met("outputs/.", file)],
            vec![root(), met("outputs/", file)],
            vec![root(), met("outputs/a\0b", file)],
            vec![root(), met(&format!("outputs/{long}"), file)],
            vec![root(), unread, met("outputs/u/x", file)],
            vec![root(), mounted, met("outputs/m/x", file)],
            vec![Met::default()],
            (0..look_bound::DEEPEST + 3).map(|depth| met(&deep(depth), folder)).collect(),
        ];
        for lie in lies {
            let shown = format!("{lie:?}");
            assert_eq!(told(lie).unwrap_err().code, glovebox_core::ErrorCode::ChannelViolation, "{shown}");
        }
        told((0..look_bound::DEEPEST + 2).map(|depth| met(&deep(depth), folder)).collect()).unwrap();
    }
}
