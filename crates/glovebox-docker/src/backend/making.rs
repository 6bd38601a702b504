//! Making a container, and meeting its guest.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use bollard::{
    errors::Error as DockerError,
    models::{ContainerCreateBody, SystemInfoCgroupVersionEnum},
};
use futures_util::StreamExt;
use glovebox_archive::taken::Size;
use glovebox_core::{
    Created, Enforcement, Error, ErrorCode, GuestStream, Image, ImageReference, Isolation, LimitsInForce, Result,
    SandboxId, SandboxSpec, User,
};
use glovebox_proto::{
    VERSION,
    container::{Attaching, Ready, Report},
};
use tokio::{io::AsyncWriteExt, net::UnixStream, sync::OnceCell};

use super::{
    ARRIVAL, DockerBackend, Held, Met, ending::GuestHandle, gone, host_io, showing, unfinished::Unfinished,
    watching::Watching,
};
use crate::{
    attaching::{self, Attacher},
    bridge::Key,
    client::{QUICK, is_of_transport},
    counted::Groups,
    describe::{self, Entrance, Machine, OwnFiles},
    disk,
    fresh::{Belongings, Fresh},
    gvisor::{self, Runtimes},
    image_volumes,
    images::{FoundImage, host_is_native_only},
    layers,
    mapped::Root,
    meeting::{self, Meeting},
    owner, podman,
};

impl DockerBackend {
    /// Makes the container of a sandbox and starts it.
    pub(super) async fn make(&self, id: SandboxId, spec: &SandboxSpec) -> Result<()> {
        let mut spec = describe::with_real_paths(spec)?;
        spec.runtime = spec.runtime.or_else(|| self.settings.runtime.clone());
        let spec = &spec;
        let (image, machine, before) = tokio::try_join!(self.image_of(spec), self.machine(), self.look_before(spec))?;
        let is_gvisor = machine.runtimes.is_gvisor(spec.runtime.as_deref());
        let attacher = Attacher::of(&machine.runtimes, spec.runtime.as_deref());
        let root = machine.root;
        root.map_or(Ok(()), Root::check)?;
        attaching::check(spec, attacher, root)?;
        image_volumes::check(&image.volumes)?;
        self.check_files_to_show(spec).await?;
        if is_gvisor {
            gvisor::fits(spec, rustix::process::geteuid().as_raw())?;
        }
        let limits = describe::limits_in_force(spec, machine);
        let meeting = Meeting::of(&self.settings.runtime_folder, id);
        let labels = owner::labels(id, spec);
        let unfinished = Unfinished::new(self, id, &meeting);
        let (listener, key) = match self.client.is_local() {
            true => (Some(meeting.open(&self.client.place, &labels, root).map_err(host_io)?), None),
            false => {
                meeting.make(&self.client.place, &labels).map_err(host_io)?;
                (None, Some(Key::new().map_err(host_io)?))
            }
        };
        let ear = self.ear(id);
        let known = (&image, &limits, before.folders);
        let made = self.make_container(id, spec, known, (&meeting, key.as_ref())).await;
        let container = match made {
            Ok(container) => container.keep(),
            Err(error) => {
                meeting.remove();
                self.take_back(id, spec).await;
                return Err(error);
            }
        };
        let held = Arc::new(Held {
            container,
            spec: spec.clone(),
            limits,
            image: self.named_image(spec),
            image_digest: image.digest(),
            meeting,
            listener: Mutex::new(listener),
            arrived: Mutex::default(),
            key,
            bridge: tokio::sync::Mutex::default(),
            ear,
            met: OnceCell::new(),
            before,
            watching: Watching::default(),
            unended: Mutex::default(),
            trouble: Mutex::default(),
        });
        {
            let mut all = self.all();
            if spec.living.is_some() {
                self.holders.add(id);
            }
            all.insert(id, held.clone());
        }
        if let Err(error) = self.start_container(&held).await {
            let _ = glovebox_core::Backend::destroy(self, id).await;
            glovebox_core::Backend::release(self, id);
            let error = explained(error, spec);
            return Err(if is_gvisor { gvisor::explained(error) } else { error });
        }
        unfinished.done();
        Ok(())
    }

    async fn make_container(
        &self,
        id: SandboxId,
        spec: &SandboxSpec,
        (image, limits, before): (&FoundImage, &LimitsInForce, Size),
        (meeting, key): (&Meeting, Option<&Key>),
    ) -> Result<Fresh> {
        let name = owner::name(id, spec);
        if let Some(living) = &spec.living {
            self.stores.note(id, spec);
            fs::create_dir_all(&living.store).map_err(host_io)?;
            self.check_files_are_there(id, &living.store).await?;
            disk::note_before(&living.store, before).map_err(host_io)?;
            // What is left of it since it ended by itself.
            self.client.remove(&name).await?;
            key.map_or(Ok(()), |key| key.keep(&living.store)).map_err(host_io)?;
        }
        let made = match key {
            Some(key) => self.make_there((id, &name), spec, (image, limits), key).await,
            None => self.make_here((id, &name), spec, (image, limits), meeting).await,
        };
        let made = made.map_err(|error| explained(error, spec))?;
        if let Some(living) = &spec.living {
            showing::note_files(&living.store).map_err(host_io)?;
        }
        Ok(made)
    }

    async fn make_here(
        &self,
        (id, name): (SandboxId, &str),
        spec: &SandboxSpec,
        (image, limits): (&FoundImage, &LimitsInForce),
        meeting: &Meeting,
    ) -> Result<Fresh> {
        let attacher = Attacher::of(&self.machine().await?.runtimes, spec.runtime.as_deref());
        let own = self.own_files(spec.user, attacher).map_err(host_io)?;
        let entrance = Entrance::Folder(meeting.folder());
        let body = describe::container(id, spec, image, limits, (&own, &entrance));
        let body = self.adapted(body, spec, (limits, &image.volumes)).await?;
        // One that stays may be started again meanwhile, in the same folder.
        let folder = spec.living.is_none().then(|| meeting.clone());
        self.client.make(name, body, Belongings { volume: None, folder }).await
    }

    /// The image that a sandbox starts from, fetched if it is not there.
    async fn image_of(&self, spec: &SandboxSpec) -> Result<FoundImage> {
        let Image::Reference(reference) = &self.named_image(spec) else {
            return Err(host_is_native_only());
        };
        if let Some(image) = self.client.image(reference).await? {
            return Ok(image);
        }
        self.pull(reference).await
    }

    /// Fetches an image, or a newer one of its name, and says what came.
    pub async fn pull(&self, reference: &ImageReference) -> Result<FoundImage> {
        let mut listener = self.settings.progress.map(|listen| listen(reference));
        self.client.pull(reference, |progress| listener.iter_mut().for_each(|listener| listener(progress))).await?;
        self.client.image(reference).await?.ok_or_else(|| vanished(reference))
    }

    /// The image that a sandbox is of: its own, or that of all which name none.
    pub(super) fn named_image(&self, spec: &SandboxSpec) -> Image {
        match (&spec.image, &self.settings.image) {
            (Image::Host, Some(reference)) => Image::Reference(reference.clone()),
            (image, _) => image.clone(),
        }
    }

    /// What the machine has that Docker is on.
    pub(super) async fn machine(&self) -> Result<Machine> {
        let look = || async {
            let docker = &self.client.docker;
            let asked = async { tokio::try_join!(docker.info(), docker.version()) };
            let (info, version) = self.client.ask("describe itself", QUICK, asked).await?;
            let memory = info.mem_total.filter(|bytes| *bytes > 0).map_or(u64::MAX, |bytes| bytes as u64);
            let cpus = info.ncpu.filter(|n| *n > 0).map_or(f64::MAX, |n| n as f64);
            let is_podman = podman::is_it(&version);
            let group_namespaces = !is_podman || info.cgroup_version == Some(SystemInfoCgroupVersionEnum::_2);
            let can_be_watched = self.client.is_local() && can_be_watched(info.docker_root_dir.as_deref());
            let root = if self.client.is_local() { Root::of(&info) } else { None };
            let runtimes = Runtimes::of(&info);
            Ok::<_, Error>(Machine { memory, cpus, can_be_watched, is_podman, root, group_namespaces, runtimes })
        };
        self.machine.get_or_try_init(look).await.cloned()
    }

    /// The files that every container has, which are written once.
    fn own_files(&self, user: User, attacher: Attacher) -> io::Result<OwnFiles> {
        let folder = self.settings.data_folder.join("guest");
        fs::create_dir_all(&folder)?;
        let guest = written_once(&folder.join(glovebox_embedded_guest::HASH), glovebox_embedded_guest::PROGRAM, 0o555)?;
        let mut of_etc = Vec::new();
        for (name, text, target) in describe::texts_of_etc(user) {
            let file = folder.join(format!("{name}-{}-{}", user.uid, user.gid));
            of_etc.push((written_once(&file, text.as_bytes(), 0o444)?, target));
        }
        let mut empty = None;
        if attacher == Attacher::Us {
            let empty_folder = folder.join("empty-folder");
            fs::create_dir_all(&empty_folder)?;
            empty = Some((empty_folder, written_once(&folder.join("empty-file"), b"", 0o444)?));
        }
        Ok(OwnFiles { guest, of_etc, empty, volume: None })
    }

    /// Says the description of a container as its engine and its runtime understand it.
    pub(super) async fn adapted(
        &self,
        mut body: ContainerCreateBody,
        spec: &SandboxSpec,
        (limits, volumes): (&LimitsInForce, &[String]),
    ) -> Result<ContainerCreateBody> {
        let machine = self.machine().await?;
        if machine.is_podman {
            self.adapt_to_podman(&mut body)?;
        }
        if machine.runtimes.is_gvisor(spec.runtime.as_deref()) {
            gvisor::adapt(&mut body, limits);
            // There is no Landlock in it.
            body.host_config.iter_mut().for_each(|host| image_volumes::cover_all(host, volumes));
        }
        Ok(body)
    }

    /// Podman takes files of its own machine only.
    fn adapt_to_podman(&self, body: &mut ContainerCreateBody) -> Result<()> {
        if !self.client.is_local() {
            let message =
                "sandboxes on Podman of another machine are not there yet: it reads its filter from a file there";
            return Err(
                Error::new(ErrorCode::NotSupported, message).hint("use Docker there, or run glovebox on that machine")
            );
        }
        let folder = self.settings.data_folder.join("guest");
        let filter = folder.join(format!("{}.filter", glovebox_embedded_guest::HASH));
        let text = podman::filter(body).unwrap_or_default();
        let filter = written_once(&filter, text.as_bytes(), 0o444).map_err(host_io)?;
        podman::adapt(body, &filter);
        Ok(())
    }

    /// Attaches folders of this machine in the container of a guest that waits for them.
    async fn attach(&self, held: &Held, stream: &UnixStream, mount_namespace: String) -> Result<()> {
        let User { uid, gid } = held.spec.user;
        let mounts = attaching::mounts(&held.spec);
        let orders = Attaching { guest: peer(stream)?, mount_namespace, uid, gid, mounts };
        let own = self.own_files(held.spec.user, Attacher::Us).map_err(host_io)?;
        attaching::attach(&own.guest, &orders).await
    }

    /// Hears what a guest that came says, and does what it waits for.
    async fn hear(&self, held: &Held, mut stream: UnixStream) -> Result<(UnixStream, Report)> {
        let ended = |_| ended_early(None, &held.spec);
        let mut report = meeting::report(&mut stream).await.map_err(ended)?;
        if let Report::Waiting { mount_namespace } = report {
            self.attach(held, &stream, mount_namespace).await?;
            stream.write_u8(1).await.map_err(ended)?;
            report = meeting::report(&mut stream).await.map_err(ended)?;
        }
        Ok((stream, report))
    }

    /// Waits until the guest has come and said that it is ready.
    pub(super) async fn meet(&self, held: &Held) -> Result<Met> {
        if let Some(key) = &held.key {
            return self.meet_there(held, key).await;
        }
        let listener = held.listener.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        // Whoever asks again is told the same.
        let listener = listener.ok_or_else(|| held.trouble())?;
        let patience = tokio::time::sleep(ARRIVAL);
        let (stream, report) = match held.take_arrived() {
            Some(stream) => tokio::select! {
                told = self.hear(held, stream) => told?,
                () = patience => return Err(too_late()),
            },
            None => {
                let mut ended = std::pin::pin!(self.client.docker.wait_container(&held.container, None));
                let arrival = async {
                    let (stream, _) = listener.accept().await.map_err(host_io)?;
                    self.hear(held, stream).await
                };
                tokio::select! {
                    told = arrival => told?,
                    end = ended.next() => return Err(match end {
                        Some(Err(error)) if is_of_transport(&error) => self.client.failed("wait for the guest", error),
                        end => ended_early(end, &held.spec),
                    }),
                    () = patience => return Err(too_late()),
                }
            }
        };
        let ready = ready(report)?;
        let pid = peer(&stream)?;
        let holds_memory = Groups::of(pid).hold_memory();
        let own_kernel = self.machine().await?.runtimes.is_gvisor(held.spec.runtime.as_deref());
        let is_own = |name: &str| layers::is_not_ours(&ready, own_kernel, pid, name);
        let isolation = layers::look(&held.spec, &ready, is_own, holds_memory);
        met(held, Box::new(stream), &ready, (Some(pid), isolation))
    }
}

/// What the guest found, if it is set up and speaks as we do.
pub(super) fn ready(report: Report) -> Result<Ready> {
    match report {
        Report::Ready(ready) if ready.version != VERSION => {
            let message =
                format!("the guest speaks version {} of the protocol, and this program {VERSION}", ready.version);
            Err(Error::new(ErrorCode::ChannelViolation, message))
        }
        Report::Ready(ready) => Ok(ready),
        Report::Waiting { .. } => Err(host_io(io::ErrorKind::InvalidData.into())),
        Report::Failed { step, errno } => {
            let message = format!("the sandbox could not be set up: {step}");
            Err(Error::new(ErrorCode::SandboxSetup, message).because(io::Error::from_raw_os_error(errno)))
        }
    }
}

/// Whether this process sees what the engine keeps, its volumes and all in them: nothing that a program makes its own is closed to root.
fn can_be_watched(root: Option<&str>) -> bool {
    rustix::process::geteuid().is_root() && root.is_some_and(|root| fs::read_dir(root).is_ok())
}

fn too_late() -> Error {
    let message = format!("the guest did not come within {} s of the start of its container", ARRIVAL.as_secs());
    Error::new(ErrorCode::SandboxSetup, message).hint("is the machine that busy? try again")
}

/// Writes a file, unless it is there.
fn written_once(path: &Path, bytes: &[u8], mode: u32) -> io::Result<PathBuf> {
    if fs::metadata(path).is_ok_and(|found| found.len() == bytes.len() as u64) {
        return Ok(path.to_owned());
    }
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    // Of this process and this call alone, whoever else writes the same.
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(format!(".{}-{number}", std::process::id()));
    fs::write(&unfinished, bytes)?;
    fs::set_permissions(&unfinished, fs::Permissions::from_mode(mode))?;
    fs::rename(&unfinished, path)?;
    Ok(path.to_owned())
}

/// What is known of a sandbox whose guest is ready.
pub(super) fn met(
    held: &Held,
    stream: GuestStream,
    ready: &Ready,
    (pid, isolation): (Option<i32>, Isolation),
) -> Result<Met> {
    let groups = pid.map(Groups::of).unwrap_or_default();
    if let Some(layer) = held.spec.required_layers.iter().find(|layer| !isolation.has(**layer)) {
        return Err(Error::new(ErrorCode::LayerMissing, format!("the layer {layer} was asked for and is missing")));
    }
    let mut limits = held.limits.clone();
    if groups.let_go(limits.memory_group_bytes.unwrap_or(limits.memory_bytes)) {
        return Err(Error::new(ErrorCode::NotSupported, "the engine holds no sandbox to its limits of memory, CPUs and processes")
            .hint("an engine without root can on a host with control groups of version 2 that are delegated to its user; use an engine of root, or --backend native"));
    }
    if limits.store == "tmpfs" && !(1..=limits.inodes).contains(&ready.inodes) {
        limits.enforcement.insert("inodes".to_owned(), Enforcement::None);
    }
    let created = Created {
        isolation,
        limits,
        places: Vec::new(),
        image: held.image.clone(),
        image_digest: held.image_digest.clone(),
    };
    // One that stays may be paused, and what is frozen does not end by a signal: Docker ends it.
    let guest = pid.filter(|_| held.spec.living.is_none()).and_then(|pid| GuestHandle::hold(pid, &held.container));
    let channel = Mutex::new(held.spec.living.is_none().then_some(stream));
    Ok(Met { channel, pid, guest, groups, created })
}

/// The guest, as the kernel knows it.
fn peer(stream: &UnixStream) -> Result<i32> {
    let pid = stream.peer_cred().ok().and_then(|peer| peer.pid());
    pid.ok_or_else(|| Error::new(ErrorCode::SandboxSetup, "the kernel does not say which process the guest is"))
}

fn vanished(reference: &ImageReference) -> Error {
    Error::new(ErrorCode::ImageUnavailable, format!("the image {reference} was fetched and is not there"))
        .hint("did somebody remove it meanwhile? try again")
}

/// What is said of a container whose guest ended before it came.
pub(super) fn ended_early(
    end: Option<Result<bollard::models::ContainerWaitResponse, DockerError>>,
    spec: &SandboxSpec,
) -> Error {
    let how = match end {
        Some(Ok(end)) => format!("with the code {}", end.status_code),
        Some(Err(DockerError::DockerContainerWaitError { code, .. })) => format!("with the code {code}"),
        _ => "and Docker does not say how".to_owned(),
    };
    let error = Error::new(ErrorCode::SandboxSetup, format!("the first process of the container ended {how}"));
    match &spec.runtime {
        Some(runtime) => error.hint(format!(
            "does the runtime {runtime} let a socket of the host be reached? gVisor does with its flag --host-uds=all"
        )),
        None => error,
    }
}

/// Adds what a user can do about a failure of Docker's.
fn explained(error: Error, spec: &SandboxSpec) -> Error {
    match &spec.runtime {
        Some(runtime) if error.message.contains("nknown runtime") => {
            error.hint(format!("is the runtime {runtime} known to this Docker engine? `docker info` lists them"))
        }
        _ => error,
    }
}

impl DockerBackend {
    /// What this process holds of a sandbox, or finds of it.
    pub(super) async fn hold(&self, id: SandboxId) -> Result<std::sync::Arc<Held>> {
        match self.held(id) {
            Ok(held) => Ok(held),
            Err(_) => self.find_held(id, &SandboxSpec::default()).await?.ok_or_else(|| gone(id)),
        }
    }
}
