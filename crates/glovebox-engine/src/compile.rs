//! The compile step of a run: in the same sandbox, before the program, within the same limits.
//!
//! A compiler that is fed hostile source is hostile, so it is a command like any other: followed, limited and never
//! believed. What it makes is fetched through the channel and kept, bound to its source by a key, and is only ever given
//! to a sandbox again. Only a source that is compiled alone is kept: a program that is made of other files too could be
//! changed by them, and its key would not tell.

use std::time::Duration;

use glovebox_core::{
    Command, CompileRecord, Ending, Evidence, Outcome, OutputRecord, PROGRAM_DIR, Result, Secret, decide_outcome,
};
use tokio::task::JoinHandle;

use crate::{
    Capture, FileContent, InputFile, RunRequest, Stdin,
    artifacts::{self, Kept, Query},
    channel::Channel,
    engine::Engine,
    following::Following,
    programs::{Key, LARGEST, Programs, Unfinished, read_file},
    result::what_was_full,
    source::Compile,
};

/// Bytes kept of each of a compiler's streams, whatever the caller's limit is.
const MOST_OUTPUT: u64 = 1 << 20;
/// A source larger than this is compiled each time.
const LARGEST_SOURCE: usize = 16 << 20;

/// Where a compile step happens.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ground {
    /// In a sandbox that nothing else has run in.
    Fresh,
    /// In one that something else may have changed, and may still change while this is compiled: nothing is kept from it.
    Lived,
}

/// What there is to do before a program runs.
pub(crate) enum Before {
    /// Nothing: it needs no compile step.
    Nothing,
    /// Nothing: it was compiled before, and is among the request's files now.
    Cached(Box<CompileRecord>),
    /// This.
    Compile(Compiling),
}

/// A compile step that is to be done.
pub(crate) struct Compiling {
    argv: Vec<String>,
    products: Vec<String>,
    /// The program's name in the cache, where it may be kept.
    key: Option<Key>,
}

/// Looks whether a request's program was compiled before. If not, gives the request that compiles it, which takes the
/// files along.
pub(crate) fn look_up(
    engine: &Engine,
    request: &mut RunRequest,
    ground: Ground,
) -> Result<(Before, Option<RunRequest>)> {
    let Some(compile) = request.compile.take() else { return Ok((Before::Nothing, None)) };
    hold_source(request);
    let key = lone_source(request, &compile).map(|source| Key::new(&compile, engine.backend_name(), source));
    let programs = Programs::below(engine.data_dir());
    if let Some(files) = key.as_ref().and_then(|key| programs.find(key, &compile.products)) {
        request.files.extend(files);
        return Ok((Before::Cached(Box::new(cached(compile.argv))), None));
    }
    let key = key.filter(|_| ground == Ground::Fresh);
    let folder = glovebox_core::InsidePath::absolute(PROGRAM_DIR)?;
    request.files.push(InputFile { target: folder, content: FileContent::Folder, mode: 0o755 });
    let mut command = Command::argv(compile.argv.clone())?;
    for (name, value) in &compile.env {
        command = command.env(name, value)?;
    }
    let mut first = RunRequest::new(command);
    first.spec.limits = request.spec.limits.clone();
    first.spec.limits.output = first.spec.limits.output.min(MOST_OUTPUT);
    first.spec.limits.output_kill = false;
    first.files = std::mem::take(&mut request.files);
    first.artifacts.clone_from(&request.artifacts);
    first.toolchains = request.toolchains.clone();
    (first.stdin, first.capture) = (Stdin::Empty, Capture::Keep);
    Ok((Before::Compile(Compiling { argv: compile.argv, products: compile.products, key }), Some(first)))
}

/// Reads a lone source of the host, so that what is hashed is what is compiled, whatever happens to the file meanwhile.
fn hold_source(request: &mut RunRequest) {
    if let [InputFile { content, .. }] = request.files.as_mut_slice()
        && let FileContent::Host(path) = content
        // One that cannot be read is an error where it is copied.
        && let Ok(bytes) = read_file(rustix::fs::CWD, path, LARGEST_SOURCE as u64)
    {
        *content = FileContent::Bytes(bytes.into());
    }
}

/// The source of a program that is made of nothing else: the one file of the request, whose bytes are at hand and
/// therefore cannot change between their hash and their use.
fn lone_source<'a>(request: &'a RunRequest, compile: &Compile) -> Option<&'a [u8]> {
    match request.files.as_slice() {
        [InputFile { target, content: FileContent::Bytes(bytes), .. }]
            if *target == compile.source
                && bytes.len() <= LARGEST_SOURCE
                && request.spec.workspace.is_none()
                && request.spec.mounts.is_empty() =>
        {
            Some(bytes)
        }
        _ => None,
    }
}

fn cached(argv: Vec<String>) -> CompileRecord {
    let nothing = || OutputRecord::new(Vec::new(), 0, false);
    CompileRecord {
        argv,
        outcome: Outcome::Exited { code: 0 },
        stdout: nothing(),
        stderr: nothing(),
        duration_ms: 0.0,
        usage: glovebox_core::Usage::default(),
        cached: true,
    }
}

impl Compiling {
    /// The record of a compile step that is over.
    pub(crate) fn record(
        &self,
        step: &mut Following,
        duration: Duration,
        evidence: &Evidence,
        secrets: &[&Secret],
    ) -> CompileRecord {
        let ending = Ending {
            memory_kill: evidence.memory_kills > 0,
            disk_full: what_was_full(evidence, step.watched),
            ..step.ending.clone()
        };
        let (stdout, stderr) = step.take_output();
        CompileRecord {
            argv: self.argv.clone(),
            outcome: decide_outcome(&ending),
            // A source may hold what is a secret too, and compilers repeat their source.
            stdout: stdout.record(secrets.iter().copied()),
            stderr: stderr.record(secrets.iter().copied()),
            duration_ms: (duration.as_secs_f64() * 1e6).round() / 1e3,
            usage: evidence.usage.clone(),
            cached: false,
        }
    }

    /// Fetches what was made, before the program can change it. The run does not depend on it: a program that cannot be
    /// kept is compiled again, and so is one that holds a secret.
    pub(crate) async fn fetch(
        &self,
        engine: &Engine,
        channel: &Channel,
        secrets: &[&Secret],
    ) -> Result<Option<Fetched>> {
        let Some(key) = &self.key else { return Ok(None) };
        let Ok(unfinished) = Programs::below(engine.data_dir()).begin() else { return Ok(None) };
        let query = Query {
            root: PROGRAM_DIR,
            globs: self.products.clone(),
            most: self.products.len() as u64,
            most_bytes: LARGEST,
        };
        let mut kept = Kept::default();
        artifacts::collect(channel, query, unfinished.folder(), secrets, &mut kept).await?;
        let whole = self.products.iter().all(|name| kept.artifacts.iter().any(|made| made.path == *name));
        let exact = whole && kept.artifacts.len() == self.products.len();
        Ok(exact.then(|| Fetched { unfinished, key: key.clone() }))
    }
}

/// A compiled program that was fetched and is not yet on the disk for good.
pub(crate) struct Fetched {
    unfinished: Unfinished,
    key: Key,
}

impl Fetched {
    /// Keeps it, while the program runs already: a disk takes its time to say that something is written.
    pub(crate) fn keep(self) -> JoinHandle<()> {
        tokio::task::spawn_blocking(move || {
            // A full disk of the host is no reason for the run to fail.
            let _ = self.unfinished.finish(&self.key);
        })
    }
}
