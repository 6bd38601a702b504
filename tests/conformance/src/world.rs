//! What a case is given: an engine with a data folder of its own, a scratch folder of the host, and the probe.

use std::{
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    rc::Rc,
};

use glovebox_core::{Features, SandboxId, Tier};
use glovebox_engine::Engine;

use crate::{Subject, Traces, setup::Setup, subject::memory_of};

/// A variable of the caller's environment whose value must never be seen inside.
pub const CALLER_MARK: (&str, &str) = ("GLOVEBOX_CONFORMANCE_CALLER", "value-of-the-caller-5b1c");

/// What a case is given. Cheap to clone; all clones are the same world.
#[derive(Clone)]
pub struct World(Rc<Inner>);

struct Inner {
    engine: Engine,
    subject: Rc<dyn Subject>,
    features: Features,
    probe: PathBuf,
    scratch: PathBuf,
}

impl World {
    /// A world whose data folder and scratch folder lie in `scratch`.
    pub fn new(subject: Rc<dyn Subject>, features: Features, probe: PathBuf, scratch: PathBuf) -> World {
        let engine = Engine::new(subject.backend()).with_data_dir(scratch.join("engine-data"));
        World(Rc::new(Inner { engine, subject, features, probe, scratch }))
    }

    /// A sandbox to describe, with the default limits.
    pub fn sandbox(&self) -> Setup<'_> {
        Setup::new(self)
    }

    /// The engine under test.
    pub fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// The backend under test.
    pub fn backend(&self) -> std::sync::Arc<dyn glovebox_core::Backend> {
        self.0.subject.backend()
    }

    /// The backend under test, with what the suite knows of it.
    pub(crate) fn subject(&self) -> &dyn Subject {
        &*self.0.subject
    }

    /// What the backend declares.
    pub fn features(&self) -> &Features {
        &self.0.features
    }

    /// The tier of the sandboxes that are tested.
    pub fn tier(&self) -> Tier {
        if self.features().namespaces { Tier::Namespaces } else { Tier::Landlock }
    }

    /// The probe on the host.
    pub fn probe(&self) -> &Path {
        &self.0.probe
    }

    /// The suite's own folder of the host, which everything else lies in.
    pub fn scratch(&self) -> &Path {
        &self.0.scratch
    }

    /// The data folder of the engine.
    pub fn data_dir(&self) -> PathBuf {
        self.0.scratch.join("engine-data")
    }

    /// A new, empty folder of the host that everybody may read.
    pub fn folder(&self, name: &str) -> PathBuf {
        let folder = self.0.scratch.join(name);
        std::fs::create_dir_all(&folder).expect("a scratch folder can be made");
        folder
    }

    /// A folder of the host that everybody may write to, whoever commands are there.
    pub fn open_folder(&self, name: &str) -> PathBuf {
        let folder = self.folder(name);
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).expect("its mode can be set");
        folder
    }

    /// A file of the host in a folder of its own.
    pub fn host_file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.0.scratch.join(name);
        std::fs::write(&path, content).expect("a scratch file can be written");
        path
    }

    /// Ends the guest of a sandbox from outside, as an accident would.
    pub fn kill_guest(&self, sandbox: SandboxId) {
        self.0.subject.kill_guest(sandbox);
    }

    /// Memory of a sandbox's guest that lies in RAM, bytes.
    pub fn guest_memory(&self, sandbox: SandboxId) -> u64 {
        self.0.subject.guest_memory(sandbox)
    }

    /// Memory of this process that lies in RAM, bytes.
    pub fn own_memory(&self) -> u64 {
        memory_of(std::process::id() as i32)
    }

    /// Everything of the backend that is on the host now.
    pub fn traces(&self) -> Traces {
        self.0.subject.traces()
    }

    /// Starts the probe on the host and waits for its first line, which says that it holds what it was to plant.
    pub fn plant(&self, args: &[&str]) -> Planted {
        let mut child = Command::new(self.probe())
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the probe runs on the host");
        let mut first = String::new();
        let output = child.stdout.as_mut().expect("the output is piped");
        BufReader::new(output).read_line(&mut first).expect("the probe speaks");
        Planted { child, first: first.trim_end().to_owned() }
    }
}

/// Something on the host that must not be reachable inside; it is removed when this value is dropped.
pub struct Planted {
    child: Child,
    /// The first line that the probe printed.
    pub first: String,
}

impl Drop for Planted {
    fn drop(&mut self) {
        // The end of its input tells the probe to remove what it planted.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
