//! Sandboxes on an engine of another machine, which sees none of our folders: what it is given before a container can be made there,
//! and how its guest is met.
//!
//! The guest's program and the accounts are in a volume of the engine, one for each version and user, which every container has
//! mounted. It is filled once, by way of a container that is never started; that container's name is the lock. A file in it that
//! is written last says that all of it is there, and no container can be made without. Files of the caller that are to be
//! mounted are copied into a volume of the sandbox's own.

use std::{
    collections::HashMap,
    fs,
    io::{self, Read},
    os::{fd::OwnedFd, unix::fs::PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use bollard::{
    models::{ContainerCreateBody, HostConfig, Mount, MountType, MountVolumeOptions},
    query_parameters::UploadToContainerOptionsBuilder,
};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use glovebox_archive::Pack;
use glovebox_core::{
    Access, Error, ErrorCode, LimitsInForce, MountKind, Result, SandboxId, SandboxSpec, User, WorkspaceMode,
};
use glovebox_guest::container::Carried;
use glovebox_proto::container::Report;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout},
};

use super::{DockerBackend, Held, Met, gone, host_io, making};
use crate::{
    bridge::Key,
    client::{QUICK, is_unanswered},
    describe::{self, Entrance, OwnFiles},
    fresh::{Belongings, Fresh},
    images::FoundImage,
    layers, owner,
    told::Ear,
    volumes,
};

/// Where a volume is mounted in the container that it is filled through.
const FILLED: &str = "/fill";

/// The file of a volume that is written last.
const COMPLETE: &str = "complete";

/// How long somebody else may take to fill a volume. Who takes longer is dead.
const FILLING: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);

/// How much of a file is read at once, and how many such pieces are on their way.
const PIECE: usize = 256 * 1024;
const ON_THEIR_WAY: usize = 4;

/// How long the end of a container is waited for that a failure hints at.
const ENDING: Duration = Duration::from_secs(2);

impl DockerBackend {
    /// Begins to hear of kills for memory in a sandbox, where they cannot be counted here.
    pub(super) fn ear(&self, id: SandboxId) -> Option<Ear> {
        (!self.client.is_local()).then(|| Ear::new(&self.client, id))
    }

    /// Removes what a sandbox on another machine was given to read, as far as it can be. What is left is found by its labels.
    pub(super) async fn take_back(&self, id: SandboxId, spec: &SandboxSpec) {
        if !self.client.is_local() && describe::needs_files(spec) {
            let _ = self.client.remove_volume(&describe::volume_of_given(id)).await;
        }
    }

    /// Makes the container of a sandbox there.
    pub(super) async fn make_there(
        &self,
        (id, name): (SandboxId, &str),
        spec: &SandboxSpec,
        (image, limits): (&FoundImage, &LimitsInForce),
        key: &Key,
    ) -> Result<Fresh> {
        let entrance = Entrance::Bridge { key_sha256: key.sha256() };
        let spec = &self.give(id, spec, image).await?;
        let make = async |own: &OwnFiles| {
            let body = describe::container(id, spec, image, limits, (own, &entrance));
            let body = self.adapted(body, spec, (limits, &image.volumes)).await?;
            let volume = describe::needs_files(spec).then(|| describe::volume_of_given(id));
            self.client.make(name, body, Belongings { volume, folder: None }).await
        };
        let own = self.install(spec.user, image).await?;
        match make(&own).await {
            // Somebody removed the volume, or filled it by half.
            Err(error) if error.message.contains("bind source path does not exist") => {
                self.installed.lock().await.remove(&(spec.user.uid, spec.user.gid));
                self.client.remove_volume(&volume_of_guest(spec.user)).await?;
                make(&self.install(spec.user, image).await?).await
            }
            made => made,
        }
    }

    /// Meets the guest of a sandbox there.
    pub(super) async fn meet_there(&self, held: &Held, key: &Key) -> Result<Met> {
        let mut ended = std::pin::pin!(self.client.docker.wait_container(&held.container, None));
        let arrived = tokio::select! {
            arrived = self.over_bridge(held, key) => arrived,
            end = ended.next() => return Err(making::ended_early(end, &held.spec)),
        };
        let (channel, report) = match arrived {
            Ok(arrived) => arrived,
            Err(error) if is_unanswered(&error) => return Err(error),
            Err(error) => {
                return Err(match timeout(ENDING, ended.next()).await {
                    Ok(end) => making::ended_early(end, &held.spec),
                    Err(_) => error,
                });
            }
        };
        let ready = making::ready(report)?;
        let (has_no_network, holds_memory) = self.client.holds(&held.container).await?;
        let is_own = |name: &str| match name {
            "net" => has_no_network,
            name => layers::is_not_the_first(&ready, name),
        };
        let isolation = layers::look(&held.spec, &ready, is_own, holds_memory);
        making::met(held, Box::new(channel), &ready, (None, isolation))
    }

    /// Connects to the guest of a living sandbox there.
    pub(super) async fn reach(&self, id: SandboxId, held: &Held) -> Result<Carried> {
        let key = match (&held.key, &held.spec.living) {
            (Some(key), _) => key.clone(),
            (None, Some(living)) => Key::kept(&living.store).map_err(|error| {
                let message = format!("the key of the sandbox {id} is not here");
                Error::new(ErrorCode::SandboxLost, message).because(error).hint("use it from where it was made")
            })?,
            (None, None) => return Err(gone(id)),
        };
        let (channel, report) = self.over_bridge(held, &key).await?;
        making::ready(report)?;
        held.meeting.note_use().map_err(host_io)?;
        Ok(channel)
    }

    /// A connection to the guest over the bridge of this process, or over a new one.
    async fn over_bridge(&self, held: &Held, key: &Key) -> Result<(Carried, Report)> {
        let known = held.bridge.lock().await.clone();
        if let Some(known) = &known {
            match known.connect().await {
                // It broke meanwhile, or its sandbox has ended.
                Err(error) if error.code == ErrorCode::SandboxLost => {}
                connected => return connected,
            }
        }
        let bridge = {
            // Who needs one at the same time waits for this one.
            let mut bridge = held.bridge.lock().await;
            match bridge.as_ref().filter(|found| known.as_ref() != Some(*found)) {
                Some(found) => found.clone(),
                None => bridge.insert(self.client.bridge(&held.container, key).await?).clone(),
            }
        };
        bridge.connect().await
    }

    /// The files that every container has, in a volume there.
    async fn install(&self, user: User, image: &FoundImage) -> Result<OwnFiles> {
        let mut installed = self.installed.lock().await;
        if let Some(own) = installed.get(&(user.uid, user.gid)) {
            return Ok(own.clone());
        }
        let name = volume_of_guest(user);
        let folder = self.filled(&name, user, image).await?;
        let of_etc = describe::texts_of_etc(user).into_iter().map(|(name, _, target)| (folder.join(name), target));
        let own = OwnFiles {
            guest: folder.join("guest"),
            of_etc: of_etc.chain([(folder.join(COMPLETE), describe::COMPLETE)]).collect(),
            // Nothing is attached there.
            empty: None,
            volume: Some(name),
        };
        installed.insert((user.uid, user.gid), own.clone());
        Ok(own)
    }

    /// The folder there of the volume that holds our files, once it does.
    async fn filled(&self, name: &str, user: User, image: &FoundImage) -> Result<PathBuf> {
        let labels = HashMap::from([(owner::GUEST.to_owned(), glovebox_embedded_guest::HASH.to_owned())]);
        let (helper, began) = (format!("{name}{}", owner::FILLS), Instant::now());
        loop {
            let volume = self.client.docker.inspect_volume(name);
            let volume = self.client.ask_if_there("look at a volume", QUICK, volume).await?;
            let filler = self.client.docker.inspect_container(&helper, None);
            let filler = self.client.ask_if_there("look at a container", QUICK, filler).await?;
            match (volume, filler) {
                (Some(volume), None) => return Ok(volume.mountpoint.into()),
                // Somebody fills it.
                (_, Some(_)) if began.elapsed() < FILLING => sleep(PAUSE).await,
                (_, Some(_)) => {
                    self.client.remove(&helper).await?;
                    self.client.remove_volume(name).await?;
                }
                (None, None) => {
                    let archive = own_archive(user).map_err(host_io)?;
                    let parts = vec![(FILLED.to_owned(), Part::Whole(archive))];
                    match self.fill(&helper, (name, labels.clone()), HashMap::new(), image, parts).await {
                        Err(error) if error.message.contains("(409)") && began.elapsed() < FILLING => {
                            sleep(PAUSE).await
                        }
                        filled => filled?,
                    }
                }
            }
        }
    }

    /// Copies what is to be mounted into a volume of the sandbox's own. Gives a description whose mounts are there.
    async fn give(&self, id: SandboxId, spec: &SandboxSpec, image: &FoundImage) -> Result<SandboxSpec> {
        let mut there = spec.clone();
        if spec.mounts.iter().any(|mount| matches!(mount.kind, MountKind::Volume { .. })) {
            return Err(self.not_shared("caches and projects cannot be used").hint("a --volume of that engine can"));
        }
        volumes::check(spec, &self.client.place)?;
        let mut own = spec.mounts.iter().filter(|mount| !describe::is_elsewhere(mount));
        if let Some(mount) = own.find(|mount| mount.access == Access::ReadWrite) {
            return Err(self.not_shared(&format!("{} cannot be written to", mount.source.display())));
        }
        if spec.workspace.as_ref().is_some_and(|workspace| workspace.mode == WorkspaceMode::ReadWrite) {
            let hint = "leave out --workspace-mode read-write: what changes inside comes back with `glovebox apply`";
            return Err(self.not_shared("a workspace cannot be written to while it runs").hint(hint));
        }
        let sources = there.mounts.iter_mut().filter(|mount| !describe::is_elsewhere(mount));
        let sources = sources.map(|mount| &mut mount.source);
        let sources = sources.chain(there.workspace.iter_mut().map(|workspace| &mut workspace.source));
        let mut sources: Vec<&mut PathBuf> = sources.collect();
        if sources.is_empty() {
            return Ok(there);
        }
        let name = describe::volume_of_given(id);
        // A sandbox that is started again is given what is there now.
        self.client.remove_volume(&name).await?;
        let parts = parts_of(&sources).map_err(host_io)?;
        let helper = format!("glovebox-{id}{}", owner::FILLS);
        let of_helper = owner::labels(id, &SandboxSpec { living: None, ..spec.clone() });
        self.fill(&helper, (&name, owner::labels(id, spec)), of_helper, image, parts).await?;
        let asked = self.client.docker.inspect_volume(&name);
        let folder = PathBuf::from(self.client.ask("look at a volume", QUICK, asked).await?.mountpoint);
        for (number, source) in sources.iter_mut().enumerate() {
            **source = folder.join(number.to_string());
        }
        Ok(there)
    }

    /// Fills a volume by way of a container that is never started.
    async fn fill(
        &self,
        helper: &str,
        (volume, of_volume): (&str, HashMap<String, String>),
        of_helper: HashMap<String, String>,
        image: &FoundImage,
        parts: Vec<(String, Part)>,
    ) -> Result<()> {
        let mount = Mount {
            target: Some(FILLED.to_owned()),
            source: Some(volume.to_owned()),
            typ: Some(MountType::VOLUME),
            volume_options: Some(MountVolumeOptions {
                no_copy: Some(true),
                labels: Some(of_volume),
                ..MountVolumeOptions::default()
            }),
            ..Mount::default()
        };
        let body = ContainerCreateBody {
            image: Some(image.id.clone()),
            entrypoint: Some(vec!["/never-started".to_owned()]),
            labels: Some(of_helper),
            host_config: Some(HostConfig {
                mounts: Some(vec![mount]),
                network_mode: Some("none".to_owned()),
                ..HostConfig::default()
            }),
            ..ContainerCreateBody::default()
        };
        let belongings = Belongings { volume: Some(volume.to_owned()), folder: None };
        let fresh = self.client.make(helper, body, belongings).await?;
        let mut filled = Ok(());
        for (path, part) in parts {
            filled = self.upload(helper, &path, part).await;
            if filled.is_err() {
                break;
            }
        }
        self.client.remove(helper).await?;
        fresh.keep();
        if filled.is_err() {
            let _ = self.client.remove_volume(volume).await;
        }
        filled
    }

    /// Unpacks an archive in a container, as it is made.
    async fn upload(&self, container: &str, path: &str, part: Part) -> Result<()> {
        let (give, mut take) = mpsc::channel(ON_THEIR_WAY);
        let what = part.place().map(Path::to_owned);
        let packing = tokio::task::spawn_blocking(move || part.pack(&give));
        let body = bollard::body_try_stream(stream::poll_fn(move |cx| take.poll_recv(cx)));
        let options = UploadToContainerOptionsBuilder::new().path(path).build();
        let asked = self.client.docker.upload_to_container(container, Some(options), body);
        // As long as it takes, where the engine shows that it lives.
        let sent = self.client.ask("unpack files into a volume", FOR_ALL_FILES, asked).await;
        match (packing.await, what) {
            (Ok(Err(error)), Some(place)) => Err(Error::unusable(&place, error)),
            _ => sent,
        }
    }

    fn not_shared(&self, what: &str) -> Error {
        let message = format!("{what}: Docker at {} is on another machine", self.client.place);
        Error::new(ErrorCode::NotSupported, message).hint("mounts are copied there, so they are read-only")
    }
}

/// No copy takes longer.
const FOR_ALL_FILES: Duration = Duration::from_secs(3600);

/// The name of the volume that holds our own files for sandboxes of a user.
fn volume_of_guest(user: User) -> String {
    format!("{}{}-{}-{}", owner::GUESTS, &glovebox_embedded_guest::HASH[..16], user.uid, user.gid)
}

/// What is to be unpacked of files and folders of the caller's, which are numbered.
fn parts_of(sources: &[&mut PathBuf]) -> io::Result<Vec<(String, Part)>> {
    let mut folders = tar::Builder::new(Vec::new());
    let mut parts = Vec::new();
    for (number, source) in sources.iter().enumerate() {
        let (number, found) = (number.to_string(), fs::metadata(&**source)?);
        if found.is_dir() {
            append(&mut folders, &number, tar::EntryType::Directory, found.permissions().mode(), &[])?;
            parts.push((format!("{FILLED}/{number}"), Part::Folder((*source).clone())));
        } else {
            parts.push((FILLED.to_owned(), Part::File((*source).clone(), number)));
        }
    }
    parts.insert(0, (FILLED.to_owned(), Part::Whole(folders.into_inner()?)));
    Ok(parts)
}

/// Our own files as an archive, the one that says that all are there as the last.
fn own_archive(user: User) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    append(&mut archive, "guest", tar::EntryType::Regular, 0o555, glovebox_embedded_guest::PROGRAM)?;
    for (name, text, _) in describe::texts_of_etc(user) {
        append(&mut archive, name, tar::EntryType::Regular, 0o444, text.as_bytes())?;
    }
    append(&mut archive, COMPLETE, tar::EntryType::Regular, 0o444, b"")?;
    archive.into_inner()
}

fn append(
    archive: &mut tar::Builder<Vec<u8>>,
    name: &str,
    kind: tar::EntryType,
    mode: u32,
    content: &[u8],
) -> io::Result<()> {
    archive.append(&header(name, kind, mode, content.len() as u64)?, content)
}

fn header(name: &str, kind: tar::EntryType, mode: u32, size: u64) -> io::Result<tar::Header> {
    let mut header = tar::Header::new_gnu();
    header.set_path(name)?;
    header.set_entry_type(kind);
    header.set_mode(mode & 0o777);
    header.set_size(size);
    header.set_cksum();
    Ok(header)
}

/// What is unpacked in a volume.
enum Part {
    /// An archive.
    Whole(Vec<u8>),
    /// What is in a folder of the caller's.
    Folder(PathBuf),
    /// A file of the caller's, under a name.
    File(PathBuf, String),
}

type Pieces = mpsc::Sender<io::Result<Bytes>>;

impl Part {
    fn place(&self) -> Option<&Path> {
        match self {
            Part::Whole(_) => None,
            Part::Folder(place) | Part::File(place, _) => Some(place),
        }
    }

    /// Gives the archive piece by piece. An error ends it in the midst, so that nobody takes it for whole.
    fn pack(self, give: &Pieces) -> io::Result<()> {
        let packed = match self {
            Part::Whole(bytes) => {
                let _ = give.blocking_send(Ok(bytes.into()));
                return Ok(());
            }
            Part::Folder(place) => pack_folder(&place, give),
            Part::File(place, name) => pack_file(&place, &name, give),
        };
        if let Err(error) = &packed {
            let _ = give.blocking_send(Err(io::Error::new(error.kind(), error.to_string())));
        }
        packed
    }
}

fn pack_folder(place: &Path, give: &Pieces) -> io::Result<()> {
    let mut pack = Pack::folder(OwnedFd::from(fs::File::open(place)?))?;
    loop {
        let mut piece = Vec::with_capacity(PIECE);
        let more = pack.fill(&mut piece, PIECE).map_err(io::Error::other)?;
        if !piece.is_empty() && give.blocking_send(Ok(piece.into())).is_err() {
            // Nobody wants the rest, and says why.
            return Ok(());
        }
        if !more {
            break;
        }
    }
    match &pack.left_out().first {
        Some((path, _)) => Err(io::Error::other(format!("{} in it cannot be copied", String::from_utf8_lossy(path)))),
        None => Ok(()),
    }
}

fn pack_file(place: &Path, name: &str, give: &Pieces) -> io::Result<()> {
    let file = fs::File::open(place)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is neither a file nor a folder"));
    }
    let header = header(name, tar::EntryType::Regular, found.permissions().mode(), found.len())?;
    let padding = found.len().next_multiple_of(512) - found.len();
    let end = io::repeat(0).take(padding + 1024);
    let mut archive = (&header.as_bytes()[..]).chain(file.take(found.len())).chain(end);
    let mut left = 512 + found.len() + padding + 1024;
    while left > 0 {
        let mut piece = vec![0; PIECE.min(left as usize)];
        // A file that became shorter meanwhile ends the archive too soon, and that is an error.
        archive.read_exact(&mut piece)?;
        left -= piece.len() as u64;
        if give.blocking_send(Ok(piece.into())).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All of an archive, and how its making ended.
    fn packed(part: Part) -> (Vec<u8>, io::Result<()>) {
        let (give, mut take) = mpsc::channel(ON_THEIR_WAY);
        let packing = std::thread::spawn(move || part.pack(&give));
        let mut bytes = Vec::new();
        while let Some(Ok(piece)) = take.blocking_recv() {
            bytes.extend(piece);
        }
        (bytes, packing.join().unwrap())
    }

    fn entries(bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut archive = tar::Archive::new(bytes);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            let name = entry.path().unwrap().to_string_lossy().into_owned();
            (name, entry.header().mode().unwrap(), content)
        });
        entries.collect()
    }

    #[test]
    fn our_own_files_are_packed_with_the_one_that_says_so_as_the_last() {
        let found = entries(&own_archive(User { uid: 1000, gid: 1000 }).unwrap());
        let names: Vec<&str> = found.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, ["guest", "passwd", "group", "hosts", "resolv.conf", COMPLETE]);
        assert_eq!((found[0].1, found[0].2.as_slice()), (0o555, glovebox_embedded_guest::PROGRAM));
    }

    #[test]
    fn files_and_folders_of_the_caller_are_packed_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let content = vec![7; PIECE + 700];
        fs::write(&file, &content).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let (bytes, end) = packed(Part::File(file.clone(), "3".to_owned()));
        assert!(end.is_ok() && bytes.len() % 512 == 0);
        assert_eq!(entries(&bytes), [("3".to_owned(), 0o640, content.clone())]);
        let (bytes, end) = packed(Part::Folder(folder.path().to_owned()));
        assert!(end.is_ok());
        assert_eq!(entries(&bytes).iter().map(|(name, ..)| name.as_str()).collect::<Vec<_>>(), ["file"]);
        assert!(packed(Part::File("/dev/null".into(), "1".to_owned())).1.is_err());
        assert!(packed(Part::File("/nonexistent".into(), "1".to_owned())).1.is_err());
    }

    #[test]
    fn what_is_to_be_mounted_is_numbered_and_folders_are_made_first() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "x").unwrap();
        let (mut one, mut two) = (file, folder.path().to_owned());
        let parts = parts_of(&[&mut one, &mut two]).unwrap();
        let paths: Vec<&str> = parts.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["/fill", "/fill", "/fill/1"]);
        let Part::Whole(folders) = &parts[0].1 else { panic!("folders come first") };
        assert_eq!(entries(folders).iter().map(|(name, ..)| name.as_str()).collect::<Vec<_>>(), ["1"]);
    }
}
