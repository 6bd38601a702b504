//! The little language that cases are written in: `w.sandbox().memory("64m").probe("eat-memory 512").await`.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use glovebox_core::{
    Access, Cache, Command, InsidePath, Layer, Mount, MountKind, Network, PROGRAM_DIR, ProjectName, Result, RunResult,
    SandboxSpec, Secret, Tier, User, VolumeMount, Workspace, WorkspaceMode, parse_cpus, parse_duration, parse_size,
};
use glovebox_engine::{
    Capture, Compile, FileContent, InputFile, NewSandbox, Run, RunRequest, Sandbox, Stdin, TerminalSize, Toolchains,
};
use tokio::sync::mpsc;

use crate::{World, finished::Finished};

/// Where the probe is inside, where a mount can be anywhere.
const PROBE: &str = "/probe/bin";

/// How cases that name a folder of the sandbox find it from the working directory, where there is no root of its own.
const FROM_WORKING_DIR: [(&str, &str); 3] =
    [("/workspace", "../../workspace"), ("/home/user", "../../home/user"), ("/tmp", "../../tmp")];

/// A sandbox and a run, described step by step. Values are those that people type.
pub struct Setup<'a> {
    world: &'a World,
    living: Option<&'a Sandbox>,
    spec: SandboxSpec,
    env: Vec<(String, String)>,
    secrets: Vec<(String, String)>,
    cwd: Option<String>,
    files: Vec<InputFile>,
    stdin: Stdin,
    artifacts: Vec<String>,
    terminal: Option<TerminalSize>,
    capture: Capture,
    toolchains: Toolchains,
    compile: Option<Compile>,
}

impl<'a> Setup<'a> {
    pub(crate) fn new(world: &'a World) -> Self {
        Setup {
            world,
            living: None,
            spec: SandboxSpec { isolation: world.tier(), ..SandboxSpec::default() },
            env: Vec::new(),
            secrets: Vec::new(),
            cwd: None,
            files: Vec::new(),
            stdin: Stdin::Empty,
            artifacts: Vec::new(),
            terminal: None,
            capture: Capture::Keep,
            toolchains: Toolchains::default(),
            compile: None,
        }
    }

    /// Runs in a living sandbox in place of a fresh one.
    pub(crate) fn inside(mut self, sandbox: &'a Sandbox) -> Self {
        self.living = Some(sandbox);
        self
    }

    pub(crate) fn memory(mut self, size: &str) -> Self {
        self.spec.limits.memory = parse_size(size).expect("the case names a size");
        self
    }

    pub(crate) fn disk(mut self, size: &str) -> Self {
        self.spec.limits.disk = parse_size(size).expect("the case names a size");
        self
    }

    pub(crate) fn output(mut self, size: &str) -> Self {
        self.spec.limits.output = parse_size(size).expect("the case names a size");
        self
    }

    pub(crate) fn output_kill(mut self) -> Self {
        self.spec.limits.output_kill = true;
        self
    }

    pub(crate) fn cpus(mut self, cpus: &str) -> Self {
        self.spec.limits.cpus = parse_cpus(cpus).expect("the case names a number of CPUs");
        self
    }

    pub(crate) fn pids(mut self, count: u64) -> Self {
        self.spec.limits.pids = count;
        self
    }

    pub(crate) fn inodes(mut self, count: u64) -> Self {
        self.spec.limits.inodes = count;
        self
    }

    pub(crate) fn open_files(mut self, count: u64) -> Self {
        self.spec.limits.open_files = count;
        self
    }

    pub(crate) fn timeout(mut self, duration: &str) -> Self {
        self.spec.limits.timeout = parse_duration(duration).expect("the case names a duration");
        self
    }

    pub(crate) fn grace(mut self, duration: &str) -> Self {
        self.spec.limits.grace = parse_duration(duration).expect("the case names a duration");
        self
    }

    pub(crate) fn user(mut self, user: &str) -> Self {
        // Without namespaces there is no root inside, and the ordinary user is the strongest who can try.
        if self.world.tier() == Tier::Namespaces || user != "root" {
            self.spec.user = User::parse(user).expect("the case names a user");
        }
        self
    }

    pub(crate) fn network_full(mut self) -> Self {
        self.spec.network = Network::Full;
        self
    }

    pub(crate) fn require(mut self, layer: Layer) -> Self {
        self.spec.required_layers.push(layer);
        self
    }

    pub(crate) fn workspace(mut self, folder: &Path, mode: WorkspaceMode) -> Self {
        self.spec.workspace = Some(Workspace { source: folder.to_owned(), mode });
        self
    }

    pub(crate) fn mount(mut self, source: &Path, target: &str, access: Access) -> Self {
        let target = InsidePath::absolute(target).expect("the case names a path");
        self.spec.mounts.push(Mount { source: source.to_owned(), target, access, kind: MountKind::Host });
        self
    }

    pub(crate) fn volume(mut self, text: &str) -> Self {
        self.spec.volumes.push(VolumeMount::parse(text).expect("the case names a volume"));
        self
    }

    pub(crate) fn project(mut self, name: &str) -> Self {
        self.spec.project = Some(ProjectName::parse(name).expect("the case names a project"));
        self
    }

    pub(crate) fn cache(mut self, name: &str) -> Self {
        self.spec.caches.extend(Cache::parse(name).expect("the case names a cache"));
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn secret(mut self, name: &str, value: &str) -> Self {
        self.secrets.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn cwd(mut self, path: &str) -> Self {
        self.cwd = Some(path.to_owned());
        self
    }

    pub(crate) fn file(mut self, target: &str, content: impl Into<Bytes>, mode: u32) -> Self {
        let target = InsidePath::absolute(target).expect("the case names a path");
        self.files.push(InputFile { target, content: FileContent::Bytes(content.into()), mode });
        self
    }

    pub(crate) fn host_file(mut self, target: &str, source: impl Into<PathBuf>, mode: u32) -> Self {
        let target = InsidePath::absolute(target).expect("the case names a path");
        self.files.push(InputFile { target, content: FileContent::Host(source.into()), mode });
        self
    }

    pub(crate) fn stdin(mut self, bytes: impl Into<Bytes>) -> Self {
        self.stdin = Stdin::Bytes(bytes.into());
        self
    }

    pub(crate) fn stdin_stream(mut self, stream: mpsc::Receiver<Bytes>) -> Self {
        self.stdin = Stdin::Stream(stream);
        self
    }

    pub(crate) fn artifact(mut self, glob: &str) -> Self {
        self.artifacts.push(glob.to_owned());
        self
    }

    pub(crate) fn terminal(mut self, rows: u16, columns: u16) -> Self {
        self.terminal = Some(TerminalSize { rows, columns });
        self
    }

    pub(crate) fn count_only(mut self) -> Self {
        self.capture = Capture::Count;
        self
    }

    pub(crate) fn toolchains(mut self, toolchains: Toolchains) -> Self {
        self.toolchains = toolchains;
        self
    }

    /// Adds a compile step by the shell: the line makes `main` in the folder `$OUT` from the source.
    pub(crate) fn compile(mut self, source: &str, line: &str) -> Self {
        self.compile = Some(Compile {
            argv: ["sh", "-e", "-c", line].map(str::to_owned).to_vec(),
            env: vec![("OUT".to_owned(), PROGRAM_DIR.to_owned())],
            source: InsidePath::absolute(source).expect("the case names a path"),
            products: vec!["main".to_owned()],
            compiler: "sh".to_owned(),
        });
        self
    }

    /// Mounts the probe; every way that runs the probe does so by itself.
    pub(crate) fn with_probe(self) -> Self {
        let probe = self.world.probe().to_owned();
        let place = self.probe_inside();
        self.mount(&probe, &place, Access::ReadOnly)
    }

    fn probe_inside(&self) -> String {
        match self.world.tier() {
            Tier::Namespaces => PROBE.to_owned(),
            Tier::Landlock => self.world.probe().to_string_lossy().into_owned(),
        }
    }

    /// A word of a command, as it must be said in a sandbox of this tier.
    fn said(&self, word: &str) -> String {
        if self.world.tier() == Tier::Namespaces || self.cwd.is_some() || word == self.probe_inside() {
            return word.to_owned();
        }
        // The scratch folder of the suite is the host's own.
        let host = self.world.scratch().to_string_lossy().into_owned();
        let said =
            |part: &str| FROM_WORKING_DIR.iter().fold(part.to_owned(), |text, (from, to)| text.replace(from, to));
        let outside = |part: &str| part.split(&host).map(said).collect::<Vec<_>>().join(&host);
        // The folder of compiled programs is known to Glovebox wherever it is named.
        let parts = word.split(PROGRAM_DIR).map(outside).collect::<Vec<_>>().join(PROGRAM_DIR);
        parts.replace(PROBE, &self.probe_inside())
    }

    /// Makes a sandbox that stays, with the probe in it.
    pub(crate) async fn create(self) -> Sandbox {
        let world = self.world;
        world.engine().create(self.with_probe().spec).await.expect("the sandbox can be made")
    }

    /// Makes a sandbox that stays when all of this is gone, with the probe in it.
    pub(crate) async fn create_living(self) -> Sandbox {
        let world = self.world;
        let new = NewSandbox { spec: self.with_probe().spec, ..NewSandbox::default() };
        world.engine().create_living(new).await.expect("the sandbox can be made")
    }

    /// Runs a program and waits for its end.
    pub(crate) async fn run<const N: usize>(self, argv: [&str; N]) -> Finished {
        Finished(self.try_run(argv).await.unwrap_or_else(|error| panic!("{}: {error}", error.code)))
    }

    /// Runs a line of the shell.
    pub(crate) async fn sh(self, line: &str) -> Finished {
        self.run(["/bin/sh", "-c", line]).await
    }

    /// Runs a line of the shell with the probe at hand as `$P`.
    pub(crate) async fn sh_with_probe(self, line: &str) -> Finished {
        let place = self.probe_inside();
        self.with_probe().env("P", &place).sh(line).await
    }

    /// Runs the probe with words that are separated by spaces.
    pub(crate) async fn probe(self, words: &str) -> Finished {
        let place = self.probe_inside();
        let argv: Vec<&str> = std::iter::once(place.as_str()).chain(words.split(' ')).collect();
        let setup = if self.living.is_some() { self } else { self.with_probe() };
        Finished(setup.finish(&argv).await.unwrap_or_else(|error| panic!("{}: {error}", error.code)))
    }

    /// Runs a program; an error of Glovebox is given back.
    pub(crate) async fn try_run<const N: usize>(self, argv: [&str; N]) -> Result<RunResult> {
        self.finish(&argv).await
    }

    /// Starts a program.
    pub(crate) async fn start<const N: usize>(self, argv: [&str; N]) -> Run {
        let (engine, living) = (self.world.engine().clone(), self.living);
        let request = self.request(&argv).expect("the case describes a run");
        let started = match living {
            Some(sandbox) => sandbox.start(request).await,
            None => engine.start(request).await,
        };
        started.unwrap_or_else(|error| panic!("{}: {error}", error.code))
    }

    async fn finish(self, argv: &[&str]) -> Result<RunResult> {
        let (engine, living) = (self.world.engine().clone(), self.living);
        let request = self.request(argv)?;
        match living {
            Some(sandbox) => sandbox.run(request).await,
            None => engine.run(request).await,
        }
    }

    fn request(self, argv: &[&str]) -> Result<RunRequest> {
        let mut command = Command::argv(argv.iter().map(|word| self.said(word)))?;
        for (name, value) in &self.env {
            command = command.env(name, value)?;
        }
        for (name, value) in &self.secrets {
            command = command.secret(name, Secret::new(value.clone()))?;
        }
        if let Some(path) = &self.cwd {
            command = command.cwd(path)?;
        }
        let mut request = RunRequest::new(command);
        request.spec = self.spec;
        request.files = self.files;
        request.stdin = self.stdin;
        request.artifacts = self.artifacts;
        request.terminal = self.terminal;
        request.capture = self.capture;
        request.toolchains = self.toolchains;
        request.compile = self.compile;
        Ok(request)
    }
}
