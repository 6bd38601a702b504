//! A folder with very many entries, listed in pages: all of them come, and neither the guest nor the host grows with them.

use std::time::{Duration, Instant};

use glovebox_core::{Command, Outcome};
use glovebox_engine::{Engine, NewSandbox, Page, RunRequest};
use serde_json::json;

use crate::{Subject, inside_files::path};

/// Entries of a page.
const PAGE: u64 = 10_000;
/// What listing may add to a process.
const GROWTH: u64 = 16 << 20;

/// What was seen.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) entries: u64,
    pages: u64,
    made: Duration,
    listed: Duration,
    /// Bytes by which the guest and this process grew.
    grown: [u64; 2],
}

impl Listed {
    /// Whether all came and nobody grew.
    pub(crate) fn is_fine(&self, count: u64) -> bool {
        self.entries == count && self.grown.iter().all(|grown| *grown < GROWTH)
    }
}

/// Makes a folder with so many files in a living sandbox and lists it.
pub(crate) async fn list_many(engine: &Engine, subject: &dyn Subject, count: u64) -> anyhow::Result<Listed> {
    let mut new = NewSandbox::default();
    new.spec.limits.inodes = count + 10_000;
    new.spec.limits.disk = 16 << 30;
    let sandbox = engine.create_living(new).await?;
    let began = Instant::now();
    let line = format!("mkdir 'many'; for (1..{count}) {{ open F, '>', \"many/file-$_\" or die; close F }}");
    let mut request = RunRequest::new(Command::argv(["perl", "-e", &line])?);
    request.spec.limits.timeout = Duration::from_secs(3600);
    let result = sandbox.run(request).await?;
    anyhow::ensure!(result.outcome == Outcome::Exited { code: 0 }, "{:?}: {:?}", result.outcome, result.stderr);
    let made = began.elapsed();
    let (files, folder) = (sandbox.files(), path("many"));
    let memory = || [subject.guest_memory(sandbox.id()), crate::subject::memory_of(std::process::id() as i32)];
    let (before, began) = (memory(), Instant::now());
    let (mut entries, mut pages, mut after, mut most) = (0, 0, None, before);
    loop {
        let mut listing = files.list(&folder, Page { after, most: Some(PAGE) }).await?;
        while let Some(_entry) = listing.next().await? {
            entries += 1;
        }
        pages += 1;
        let now = memory();
        most = [most[0].max(now[0]), most[1].max(now[1])];
        after = listing.cursor();
        if after.is_none() {
            break;
        }
    }
    let listed = began.elapsed();
    sandbox.destroy().await?;
    let grown = [most[0].saturating_sub(before[0]), most[1].saturating_sub(before[1])];
    Ok(Listed { entries, pages, made, listed, grown })
}

/// Whether a folder of so many entries is listed as it should be.
pub async fn folder(subject: &dyn Subject, count: u64) -> anyhow::Result<bool> {
    let data = tempfile::tempdir()?;
    let engine = Engine::new(subject.backend()).with_data_dir(data.path());
    let seen = list_many(&engine, subject, count).await?;
    let ok = seen.is_fine(count);
    let summary = json!({
        "soak": "soak-folder", "ok": ok, "count": count, "entries": seen.entries, "pages": seen.pages,
        "made_seconds": seen.made.as_secs_f64(), "listed_seconds": seen.listed.as_secs_f64(),
        "guest_grew_bytes": seen.grown[0], "host_grew_bytes": seen.grown[1],
    });
    println!("{summary}");
    Ok(ok)
}
