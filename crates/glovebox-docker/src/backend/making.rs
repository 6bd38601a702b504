//! Making a container, and meeting its guest.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize},
    },
};

use bollard::{
    errors::Error as DockerError, models::SystemInfoCgroupVersionEnum, query_parameters::CreateContainerOptionsBuilder,
};
use futures_util::StreamExt;
use glovebox_archive::taken::Size;
use glovebox_core::{
    Created, Enforcement, Error, ErrorCode, Image, ImageReference, LimitsInForce, Result, SandboxId, SandboxSpec, User,
};
use glovebox_proto::{
    VERSION,
    container::{Attaching, Ready, Report},
};
use tokio::{io::AsyncWriteExt, net::UnixStream, sync::OnceCell};

use super::{ARRIVAL, DockerBackend, Held, Met, ending::Guest, gone, host_io, watching::Watching};
use crate::{
    attaching,
    client::{QUICK, SLOW, is_of_transport},
    counted::Groups,
    describe::{self, Machine, OwnFiles},
    disk,
    gvisor::{self, Runtimes},
    images::FoundImage,
    layers,
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
        let mut limits = describe::limits_in_force(spec, machine);
        if is_gvisor {
            gvisor::fits(spec)?;
            gvisor::correct(&mut limits);
        }
        let meeting = Meeting::of(&self.settings.runtime_folder, id);
        let unfinished = self.unfinished(id, owner::name(id, spec), &meeting);
        let listener = meeting.open().map_err(host_io)?;
        let made = self.make_container(id, spec, (&image, &limits, before.folders), &meeting).await;
        let container = match made {
            Ok(container) => container,
            Err(error) => {
                meeting.remove();
                unfinished.over();
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
            listener: Mutex::new(Some(listener)),
            arrived: Mutex::default(),
            met: OnceCell::new(),
            before,
            watching: Watching::default(),
            users: AtomicUsize::new(1),
            unanswered: AtomicBool::default(),
            trouble: Mutex::default(),
        });
        self.all().insert(id, held.clone());
        let started = self.start(&held).await;
        // From here on it is destroyed or abandoned.
        unfinished.over();
        if let Err(error) = started {
            let _ = glovebox_core::Backend::destroy(self, id).await;
            let error = explained(error, spec);
            return Err(if is_gvisor { gvisor::explained(error) } else { error });
        }
        Ok(())
    }

    async fn make_container(
        &self,
        id: SandboxId,
        spec: &SandboxSpec,
        (image, limits, before): (&FoundImage, &LimitsInForce, Size),
        meeting: &Meeting,
    ) -> Result<String> {
        let own = self.own_files(spec.user).map_err(host_io)?;
        let name = owner::name(id, spec);
        if let Some(living) = &spec.living {
            self.note_volumes(&living.store, id)?;
            disk::note_before(&living.store, before).map_err(host_io)?;
            // What is left of it since it ended by itself.
            self.client.remove(&name).await?;
        }
        let mut body = describe::container(id, spec, &image.id, limits, (&own, &meeting.folder()));
        let machine = self.machine().await?;
        if machine.is_podman {
            podman::adapt(&mut body);
        }
        if machine.runtimes.is_gvisor(spec.runtime.as_deref()) {
            gvisor::adapt(&mut body, limits);
        }
        let options = CreateContainerOptionsBuilder::new().name(&name).build();
        let asked = self.client.docker.create_container(Some(options), body);
        let made = self.client.ask("make a container", SLOW, asked).await.map_err(|error| explained(error, spec))?;
        Ok(made.id)
    }

    /// The image that a sandbox starts from, fetched if it is not there.
    async fn image_of(&self, spec: &SandboxSpec) -> Result<FoundImage> {
        let Image::Reference(reference) = &self.named_image(spec) else {
            return Err(Error::new(ErrorCode::NotSupported, "the image `host` is of the backend native only")
                .hint("name one with --image, such as --image python:3.12-slim, or use --backend native"));
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
            let can_be_watched = can_be_watched(info.docker_root_dir.as_deref());
            let runtimes = Runtimes::of(&info);
            Ok::<_, Error>(Machine { memory, cpus, can_be_watched, is_podman, group_namespaces, runtimes })
        };
        self.machine.get_or_try_init(look).await.cloned()
    }

    /// The files that every container has, which are written once.
    fn own_files(&self, user: User) -> io::Result<OwnFiles> {
        let folder = self.settings.data_folder.join("guest");
        fs::create_dir_all(&folder)?;
        let guest = written_once(&folder.join(glovebox_embedded_guest::HASH), glovebox_embedded_guest::PROGRAM, 0o555)?;
        let mut accounts = Vec::new();
        for (name, text, target) in [("passwd", user.passwd(), "/etc/passwd"), ("group", user.group(), "/etc/group")] {
            let file = folder.join(format!("{name}-{}-{}", user.uid, user.gid));
            accounts.push((written_once(&file, text.as_bytes(), 0o444)?, target));
        }
        let empty = (folder.join("empty-folder"), written_once(&folder.join("empty-file"), b"", 0o444)?);
        fs::create_dir_all(&empty.0)?;
        Ok(OwnFiles { guest, accounts, empty })
    }

    /// Attaches folders of this machine in the container of a guest that waits for them.
    async fn attach(&self, held: &Held, stream: &UnixStream, mount_namespace: String) -> Result<()> {
        let User { uid, gid } = held.spec.user;
        let mounts = attaching::mounts(&held.spec).unwrap_or_default();
        let orders = Attaching { guest: peer(stream)?, mount_namespace, uid, gid, mounts };
        attaching::attach(&self.own_files(held.spec.user).map_err(host_io)?.guest, &orders).await
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
        let listener = held.listener.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        // Whoever asks again is told the same.
        let listener = listener.ok_or_else(|| held.trouble())?;
        let patience = tokio::time::sleep(ARRIVAL);
        let arrived = match held.take_arrived() {
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
        match arrived {
            (stream, Report::Ready(ready)) => met(held, stream, &ready),
            (_, Report::Waiting { .. }) => Err(host_io(io::ErrorKind::InvalidData.into())),
            (_, Report::Failed { step, errno }) => {
                let message = format!("the sandbox could not be set up: {step}");
                Err(Error::new(ErrorCode::SandboxSetup, message).because(io::Error::from_raw_os_error(errno)))
            }
        }
    }
}

/// Whether this process sees the engine's volumes and all in them: nothing that a program makes its own is closed to root.
fn can_be_watched(root: Option<&str>) -> bool {
    let volumes = root.map(|root| Path::new(root).join("volumes"));
    rustix::process::geteuid().is_root() && volumes.is_some_and(|volumes| fs::read_dir(volumes).is_ok())
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
    let unfinished = path.with_extension(std::process::id().to_string());
    fs::write(&unfinished, bytes)?;
    fs::set_permissions(&unfinished, fs::Permissions::from_mode(mode))?;
    fs::rename(&unfinished, path)?;
    Ok(path.to_owned())
}

/// What is known of a sandbox whose guest is ready.
fn met(held: &Held, stream: UnixStream, ready: &Ready) -> Result<Met> {
    if ready.version != VERSION {
        let message = format!("the guest speaks version {} of the protocol, and this program {VERSION}", ready.version);
        return Err(Error::new(ErrorCode::ChannelViolation, message));
    }
    let pid = peer(&stream)?;
    let groups = Groups::of(pid);
    let isolation = layers::look(&held.spec, ready, (pid, &groups));
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
    let guest = if held.spec.living.is_none() { Guest::hold(pid, &held.container) } else { None };
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
fn ended_early(end: Option<Result<bollard::models::ContainerWaitResponse, DockerError>>, spec: &SandboxSpec) -> Error {
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
        Some(runtime) if error.message.contains("untime") => {
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
