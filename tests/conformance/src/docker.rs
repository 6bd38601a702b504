//! The Docker backend under test, with what it may leave: containers, volumes, control groups, processes and folders.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context;
use glovebox_core::{Backend, ImageReference, SandboxId};
use glovebox_docker::{DockerBackend, Settings};
use glovebox_native::NativeBackend;
use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process},
};

use crate::{Leftovers, Subject, Traces};

/// The Docker backend.
pub struct DockerSubject {
    backend: Arc<DockerBackend>,
    socket: PathBuf,
    /// Holds the guest's program, and goes with the suite.
    _data: tempfile::TempDir,
}

impl DockerSubject {
    /// The engine that `DOCKER_HOST` names, the image that cases run in, and the runtime where it is not the engine's own choice. The suite
    /// itself asks that engine through a socket of this machine, which must be given where the backend uses another way.
    pub fn new(image: &str, runtime: Option<String>, socket: Option<&Path>) -> anyhow::Result<Self> {
        let data = tempfile::Builder::new().prefix("conformance-docker-").tempdir().context("no data folder")?;
        let image = ImageReference::parse(image).map_err(anyhow::Error::msg)?;
        let backend = DockerBackend::new(Settings {
            host: None,
            image: Some(image),
            runtime,
            runtime_folder: NativeBackend::runtime_folder(),
            data_folder: data.path().to_owned(),
            progress: None,
        })?;
        let its_own = backend.place().strip_prefix("unix://").map(PathBuf::from);
        let socket =
            socket.map(Path::to_owned).or(its_own).context("Docker is not at a socket: see --docker-socket")?;
        Ok(DockerSubject { backend: Arc::new(backend), socket, _data: data })
    }

    /// What Docker says of all containers or volumes with our label, without the client under test.
    fn listed(&self, path: &str) -> String {
        ask(&self.socket, path, "glovebox.managed%3Dtrue").expect("Docker answers")
    }

    /// Volumes that outlive sandboxes, which cases remove themselves.
    fn volumes_of_callers(&self) -> Vec<String> {
        let text = ask(&self.socket, "/volumes?", "glovebox.volume").expect("Docker answers");
        let all: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let all = all["Volumes"].as_array().cloned().unwrap_or_default();
        all.iter().map(|volume| format!("volume {}", volume["Name"])).collect()
    }

    /// Docker's id of a sandbox's container.
    fn container(&self, sandbox: SandboxId) -> Option<String> {
        let all: serde_json::Value = serde_json::from_str(&self.listed("/containers/json?all=1&")).ok()?;
        let is_its = |found: &&serde_json::Value| found["Labels"]["glovebox.sandbox"] == sandbox.to_string();
        Some(all.as_array()?.iter().find(is_its)?["Id"].as_str()?.to_owned())
    }
}

/// Asks Docker for a document about what has a label.
fn ask(socket: &Path, path: &str, label: &str) -> io::Result<String> {
    say(socket, &format!("GET {path}filters=%7B%22label%22%3A%5B%22{label}%22%5D%7D"))
}

/// Says something to Docker, and reads its answer.
fn say(socket: &Path, what: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    write!(stream, "{what} HTTP/1.0\r\nHost: docker\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    match head.split(' ').nth(1) {
        // An answer without a list is none that nothing is left.
        Some(status) if status.starts_with('2') => Ok(body.to_owned()),
        _ => Err(io::Error::other(format!("{what}: {head}"))),
    }
}

/// Where engines make the groups of containers: Docker, and Podman of root.
const GROUPS: [&str; 2] = ["docker", "libpod_parent"];

/// The processes of guests in containers.
fn guests() -> Vec<i32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let text = |pid: i32, name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let is_in_container = |groups: &str| GROUPS.iter().any(|folder| groups.contains(&format!("/{folder}/")));
    // In gVisor there is no process of the guest on the host, but those of its kernel.
    let is_guest = |name: &str| name.starts_with("glovebox-guest") || name == "exe" || name.starts_with("runsc");
    pids.filter(|pid| is_guest(text(*pid, "comm").trim()) && is_in_container(&text(*pid, "cgroup"))).collect()
}

/// The ids of sandboxes that stand in a text.
fn ids(text: &str) -> BTreeSet<String> {
    let found = text.match_indices("sb_").filter_map(|(at, _)| text.get(at..at + 29));
    found.filter(|id| id.parse::<SandboxId>().is_ok()).map(str::to_owned).collect()
}

impl Subject for DockerSubject {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.backend) as Arc<dyn Backend>
    }

    fn traces(&self) -> Traces {
        let mut things: BTreeSet<String> = BTreeSet::new();
        things.extend(ids(&self.listed("/containers/json?all=1&")).into_iter().map(|id| format!("container of {id}")));
        things.extend(ids(&self.listed("/volumes?")).into_iter().map(|id| format!("volume of {id}")));
        things.extend(self.volumes_of_callers());
        let folders = fs::read_dir(NativeBackend::runtime_folder().join("docker")).into_iter().flatten().flatten();
        things.extend(folders.map(|folder| format!("folder {}", folder.path().display())));
        things.extend(guests().into_iter().map(|pid| format!("process {pid}")));
        let groups = GROUPS.iter().flat_map(|folder| {
            let found = fs::read_dir(Path::new("/sys/fs/cgroup/memory").join(folder))
                .or_else(|_| fs::read_dir(Path::new("/sys/fs/cgroup").join(folder)));
            found.into_iter().flatten().flatten().filter(|entry| entry.path().is_dir())
        });
        things.extend(groups.map(|group| format!("control group {}", group.path().display())));
        let descriptors = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        // Connections to Docker are kept for the next question, and their number is what was asked at one time.
        let sockets = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        let sockets = sockets.filter(|entry| {
            fs::read_link(entry.path()).is_ok_and(|target| target.to_string_lossy().starts_with("socket:"))
        });
        Traces { things, counts: BTreeMap::from([("descriptors of this process", descriptors - sockets.count())]) }
    }

    fn traces_of(&self, sandboxes: &BTreeSet<SandboxId>) -> Leftovers {
        let all = self.traces().things.into_iter();
        let is_theirs =
            |thing: &String| ids(thing).iter().any(|id| sandboxes.iter().any(|gone| gone.to_string() == *id));
        Leftovers(all.filter(is_theirs).collect())
    }

    fn kill_guest(&self, sandbox: SandboxId) {
        let pid = Pid::from_raw(self.guest(sandbox)).expect("a process id is not 0");
        // An ordinary user's containers belong to root, and only Docker ends their processes.
        if kill_process(pid, Signal::KILL) == Err(Errno::PERM) {
            let container = self.container(sandbox).expect("the sandbox has a container");
            say(&self.socket, &format!("POST /containers/{container}/kill")).expect("Docker answers");
        }
    }

    fn guest(&self, sandbox: SandboxId) -> i32 {
        let told = || {
            let container = self.container(sandbox)?;
            let seen: serde_json::Value =
                serde_json::from_str(&self.listed(&format!("/containers/{container}/json?"))).ok()?;
            i32::try_from(seen["State"]["Pid"].as_i64()?).ok()
        };
        self.backend.guest_pid(sandbox).or_else(told).expect("the sandbox has a guest")
    }

    fn processes(&self) -> Vec<(&'static str, i32)> {
        vec![("glovebox", std::process::id() as i32)]
    }
}
