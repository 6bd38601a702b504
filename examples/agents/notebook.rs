//! A data analysis as an agent does it: cells in a session that remembers, a figure that comes back as a picture and as numbers.
//!
//! The model is played by a table of cells; everything else is real. matplotlib must be there for the Python of this machine, or in a
//! folder that is named:
//!
//! ```sh
//! pip install --target /tmp/packages matplotlib
//! cargo run -p glovebox-engine --example notebook -- /tmp/packages
//! ```

use std::{
    fs,
    io::{Write, stdout},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use glovebox_core::{
    Access, Error, ErrorCode, InsidePath, Mount, MountKind, Outcome, Result, RunResult, SandboxSpec, SessionName,
    WORKING_DIR,
};
use glovebox_engine::{Engine, FileContent, InputFile, RunRequest, Sandbox};
use glovebox_native::NativeBackend;
use serde_json::Value;

/// What the model wants to have run. The second cell has a mistake in it, which the third mends: the session still knows the data.
const CELLS: [&str; 4] = [
    "import csv\nrows = list(csv.DictReader(open('sales.csv')))\nlen(rows)",
    "totals = {}\nfor row in rows:\n    totals[row['month']] = totals.get(row['month'], 0) + row['amount']\ntotals",
    "totals = {}\nfor row in rows:\n    totals[row['month']] = totals.get(row['month'], 0) + int(row['amount'])\ntotals",
    "import matplotlib.pyplot as plt\nplt.bar(list(totals), list(totals.values()))\nplt.title('Sales')\nplt.ylabel('EUR')",
];

const SALES: &str = "month,amount\nJan,120\nJan,80\nFeb,310\nMar,90\nMar,150\n";

/// Where the packages are inside.
const PACKAGES: &str = "/opt/packages";

fn main() -> Result<()> {
    // First of all, while there is one thread: the launcher is forked here, and it makes the sandboxes later.
    let backend = NativeBackend::start()?;
    let packages = std::env::args_os().nth(1).map(PathBuf::from);
    let engine = Engine::new(Arc::new(backend));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(analyse(&engine, packages.as_deref()))
}

async fn analyse(engine: &Engine, packages: Option<&Path>) -> Result<()> {
    let mut spec = SandboxSpec::default();
    if let Some(folder) = packages {
        let source = fs::canonicalize(folder).map_err(|error| failed("the folder of packages is not there", error))?;
        let target = InsidePath::absolute(PACKAGES)?;
        spec.mounts.push(Mount { source, target, access: Access::ReadOnly, kind: MountKind::default() });
    }
    let sandbox = engine.create(spec).await?;
    for (number, cell) in CELLS.iter().enumerate() {
        let result = run(&sandbox, cell).await?;
        say(&format!("[{}] {}\n", number + 1, cell.replace('\n', "\n    ")));
        show(&result)?;
        let failed = result.outcome != Outcome::Exited { code: 0 };
        if failed && !(number == 1 && result.exception.is_some()) {
            let error = Error::new(ErrorCode::Internal, format!("cell {} ended with {:?}", number + 1, result.outcome));
            return Err(error.hint("without matplotlib: pip install --target DIR matplotlib, and name DIR"));
        }
    }
    sandbox.destroy().await
}

async fn run(sandbox: &Sandbox, cell: &str) -> Result<RunResult> {
    let main = SessionName::parse("main").map_err(|message| Error::new(ErrorCode::Internal, message))?;
    let mut request = RunRequest::in_session(main, "python", cell)?;
    // The data goes in as a file; a cell that changes it changes it for the next.
    let target = InsidePath::absolute(WORKING_DIR)?;
    let target = InsidePath::relative_to(&target, "sales.csv")?;
    request.files.push(InputFile { target, content: FileContent::Bytes(SALES.into()), mode: 0o644 });
    request.command = request.command.env("PYTHONPATH", PACKAGES)?;
    request.spec.limits.timeout = Duration::from_secs(60);
    sandbox.run(request).await
}

/// What the model gets to see of a cell: values as text, what failed, and of a figure its numbers.
fn show(result: &RunResult) -> Result<()> {
    if let Some(exception) = &result.exception {
        say(&format!("    {}: {}\n", exception.name, exception.message));
    }
    for shown in result.results.iter().flatten() {
        match (shown.mime.as_str(), &shown.text) {
            ("image/png", _) => {
                let path = std::env::temp_dir().join(format!("glovebox-notebook-{}.png", std::process::id()));
                fs::write(&path, shown.to_bytes()).map_err(|error| failed("the figure cannot be written", error))?;
                say(&format!("    a figure of {} bytes: {}\n", shown.bytes, path.display()));
            }
            ("application/vnd.glovebox.chart+json", Some(text)) => {
                let chart: Value = serde_json::from_str(text).unwrap_or_default();
                say(&format!("    its numbers: {chart}\n"));
            }
            ("text/plain", Some(text)) => say(&format!("    {text}\n")),
            _ => {}
        }
    }
    Ok(())
}

fn failed(message: &str, error: std::io::Error) -> Error {
    Error::new(ErrorCode::HostIo, message).because(error)
}

/// Writes without a panic when nobody reads.
fn say(text: &str) {
    let _ = stdout().write_all(text.as_bytes());
}
