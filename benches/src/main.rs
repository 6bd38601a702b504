//! Measures the promises of SPECIFICATION.md against bare fork+exec, bubblewrap, runc and `docker run`.
//!
//! What is measured is what a user gets: all layers, all limits, output captured, the outcome decided from evidence,
//! the end of the sandbox awaited. Contestants of one row take turns, each round in another order, so that a noisy
//! moment of the machine hits all of them alike.

mod machine;
mod peers;
mod process;
mod report;
mod rows;
mod samples;

use std::{path::PathBuf, sync::Arc};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use glovebox_core::{Command, Outcome, RunResult};
use glovebox_engine::{Engine, RunRequest};
use glovebox_native::NativeBackend;
use tokio::runtime::Runtime;

use crate::{peers::Peers, report::Report, rows::Row};

/// The same allocator as in the program that is distributed.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

/// Measures the promises of SPECIFICATION.md and prints them as one table.
#[derive(Parser)]
#[command(
    name = "glovebox-bench",
    override_usage = "cargo xtask bench [--plain] [OPTIONS]",
    after_help = "With --plain, what `cargo build --release` makes is measured in place of the static build that is distributed."
)]
struct Flags {
    /// Rows to measure, all by default.
    #[arg(long, value_enum, value_delimiter = ',')]
    rows: Vec<Row>,
    /// Samples of each contestant.
    #[arg(long, default_value_t = 50)]
    count: usize,
    /// Sandboxes at one time in the row `rate`.
    #[arg(long, default_value_t = 4)]
    at_once: usize,
    /// Sandboxes that live at one time in the row `density`.
    #[arg(long, default_value_t = 1000)]
    alive: usize,
    /// Print one JSON document in place of the table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    peers: Peers,
    /// The `glovebox` program of the row `cli`. Given by xtask.
    #[arg(long, hide = true)]
    glovebox: PathBuf,
}

/// What every row needs.
struct Bench {
    runtime: Runtime,
    engine: Engine,
    backend: Arc<NativeBackend>,
    flags: Flags,
}

impl Bench {
    /// One run in a fresh sandbox, from nothing to nothing.
    fn cold_run(&self) -> Result<RunResult> {
        let result = self.runtime.block_on(self.engine.run(true_request()?))?;
        succeeded(&result)?;
        Ok(result)
    }
}

/// `/bin/true` with the default limits.
fn true_request() -> Result<RunRequest> {
    Ok(RunRequest::new(Command::argv(["/bin/true"])?))
}

/// A benchmark of failing runs would be fast and worth nothing.
fn succeeded(result: &RunResult) -> Result<()> {
    ensure!(result.outcome == Outcome::Exited { code: 0 }, "a run ended with {:?}", result.outcome);
    Ok(())
}

/// Makes this program a process that runs `/bin/true` in a cold sandbox for each line on its standard input.
const COLD_ON_DEMAND: &str = "--cold-on-demand";

fn cold_on_demand(backend: Arc<NativeBackend>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let engine = Engine::new(backend);
    for _ in std::io::stdin().lines() {
        succeeded(&runtime.block_on(engine.run(true_request()?))?)?;
        println!("done");
    }
    Ok(())
}

fn main() -> Result<()> {
    // The launcher is forked while this process is small and has one thread.
    let backend = Arc::new(NativeBackend::start()?);
    if std::env::args().nth(1).as_deref() == Some(COLD_ON_DEMAND) {
        return cold_on_demand(backend);
    }
    let flags = Flags::parse();
    ensure!(flags.count > 0 && flags.at_once > 0, "--count and --at-once must be above 0");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start tokio")?;
    let engine = Engine::new(backend.clone());
    let bench = Bench { runtime, engine, backend, flags };

    let mut report = Report::new(machine::facts(&bench.cold_run()?.isolation));
    let picked = if bench.flags.rows.is_empty() { Row::ALL } else { &bench.flags.rows };
    for row in picked {
        eprintln!("measuring {row:?} …");
        row.measure(&bench, &mut report)?;
    }
    if bench.flags.json {
        println!("{:#}", report.json());
    } else {
        print!("{}", report.markdown());
    }
    Ok(())
}
