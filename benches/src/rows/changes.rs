//! The change set of a large tree of which little changed, with the contents of what changed.

use std::{fs, io::Read, path::Path, sync::Arc};

use anyhow::{Context, Result, ensure};
use glovebox_core::{
    Backend, Command, ContentKeeper, KeptContent, LookFor, NotKept, SandboxSpec, Workspace, WorkspaceMode,
};
use glovebox_engine::RunRequest;
use glovebox_ledger::Blobs;

use crate::{
    Bench,
    report::{Goal, Line, Report},
    samples::{Contestant, take_turns},
    succeeded,
};

const FOLDERS: usize = 1000;
const FILES_EACH: usize = 100;
const CHANGED: usize = 10;

pub(super) fn measure(bench: &Bench, report: &mut Report) -> Result<()> {
    let dir = tempfile::tempdir().context("no temporary folder")?;
    let tree = dir.path().join("tree");
    grow(&tree)?;
    let keeper = Arc::new(Keeper(Blobs::open(dir.path().join("blobs"))?));
    let workspace = Some(Workspace { source: tree, mode: WorkspaceMode::Overlay });
    let sandbox = bench.runtime.block_on(bench.engine.create(SandboxSpec { workspace, ..SandboxSpec::default() }))?;
    let line = format!("for n in $(seq {CHANGED}); do echo changed > $((n * 97))/50; done");
    let request = RunRequest::new(Command::argv(["sh", "-c", &line])?);
    succeeded(&bench.runtime.block_on(sandbox.run(request))?)?;
    let changes = || -> Result<()> {
        let collecting = bench.backend.changes(sandbox.id(), LookFor::Changes, &[], Some(keeper.clone()));
        let look = bench.runtime.block_on(collecting)?;
        ensure!(look.changes.changes.len() == CHANGED, "{} changes were found", look.changes.changes.len());
        Ok(())
    };
    let samples = take_turns(bench.flags.count, vec![Contestant::new("glovebox, 100,000 files", changes)])?;
    bench.runtime.block_on(sandbox.destroy())?;
    let ours = samples[0].median();
    report.line(Line {
        measure: "change set with contents: 10 of 100,000 files changed",
        goal_text: "≤ 50 ms",
        goal: Goal::AtMost(50.0),
        measured: format!("{ours:.2} ms"),
        compared: String::new(),
        value: ours,
    });
    report.samples("changes", samples);
    Ok(())
}

/// Makes a tree of small files.
fn grow(tree: &Path) -> Result<()> {
    for folder in 0..FOLDERS {
        let folder = tree.join(folder.to_string());
        fs::create_dir_all(&folder)?;
        for file in 0..FILES_EACH {
            fs::write(folder.join(file.to_string()), "as it was\n")?;
        }
    }
    Ok(())
}

/// Keeps contents as a recorded run does.
struct Keeper(Blobs);

impl ContentKeeper for Keeper {
    fn keep(&self, content: &mut dyn Read) -> Result<KeptContent, NotKept> {
        let blob = self.0.put(content).map_err(|_| NotKept::StoreFailed)?;
        Ok(KeptContent { sha256: blob.sha256.to_string(), bytes: blob.bytes })
    }
}
