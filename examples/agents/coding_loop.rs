//! A small agent loop in a sandbox that stays: try, look at the failure, change a file, try again, look at the changes.
//!
//! The model is played by a table of answers; everything else is real. The sandbox would survive this program, were it not
//! destroyed at the end.
//!
//! ```sh
//! cargo run -p glovebox-engine --example coding_loop
//! ```

use std::{
    fs,
    io::{Write, stdout},
    path::Path,
    sync::Arc,
    time::Duration,
};

use glovebox_core::{Command, Error, ErrorCode, Lifetime, Outcome, Result, Workspace, WorkspaceMode};
use glovebox_engine::{Engine, NewSandbox, RunRequest, Sandbox};
use glovebox_native::NativeBackend;

/// What the model says to what it saw last: a command to run.
const ANSWERS: [(&str, &str); 4] = [
    ("", "sh test.sh"),
    ("expected 42, got 41", "sed -i 's/40 + 1/40 + 2/' answer.sh"),
    ("", "sh test.sh"),
    ("passed", ""),
];

fn main() -> Result<()> {
    // First of all, while there is one thread: the launcher is forked here, and it makes the sandboxes later.
    let backend = NativeBackend::start()?;
    let folder = std::env::temp_dir().join(format!("glovebox-coding-loop-{}", std::process::id()));
    let prepared = prepare(&folder);
    let engine = Engine::new(Arc::new(backend)).with_data_dir(folder.join("data"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let worked = prepared.and_then(|()| runtime.block_on(work(&engine, &folder.join("project"))));
    let _ = fs::remove_dir_all(folder);
    worked
}

/// A project with a bug and a test that finds it.
fn prepare(folder: &Path) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let project = folder.join("project");
        fs::create_dir_all(&project)?;
        fs::write(project.join("answer.sh"), "echo $((40 + 1))\n")?;
        fs::write(
            project.join("test.sh"),
            "got=$(sh answer.sh)\n[ \"$got\" = 42 ] && echo passed || { echo expected 42, got $got; exit 1; }\n",
        )
    };
    write().map_err(|error| Error::new(ErrorCode::HostIo, "the project cannot be written").because(error))
}

async fn work(engine: &Engine, project: &Path) -> Result<()> {
    let mut new = NewSandbox {
        lifetime: Lifetime { idle: Some(Duration::from_secs(600)), max_age: None },
        ..NewSandbox::default()
    };
    // The project is the working directory inside; what the agent does to it stays inside.
    new.spec.workspace = Some(Workspace { source: project.to_owned(), mode: WorkspaceMode::Overlay });
    let sandbox = engine.create_living(new).await?;
    let done = agent(&sandbox).await;
    let changes = sandbox.changes().await?;
    say(&format!("changed inside: {:?}; the project itself is as it was\n", changes.modified));
    sandbox.destroy().await?;
    done
}

/// The loop: the model sees what the last command wrote, and says what to do next.
async fn agent(sandbox: &Sandbox) -> Result<()> {
    let mut seen = String::new();
    for (expected, command) in ANSWERS {
        if seen.trim_end() != expected {
            return Err(Error::new(ErrorCode::Internal, format!("the model has no answer to {seen:?}")));
        }
        if command.is_empty() {
            say("the model is content\n");
            return Ok(());
        }
        let mut request = RunRequest::new(Command::argv(["sh", "-c", command])?);
        request.spec.limits.timeout = Duration::from_secs(10);
        let result = sandbox.run(request).await?;
        seen = result.stdout.text.unwrap_or_default();
        let ended = match result.outcome {
            Outcome::Exited { code } => format!("exit {code}"),
            other => format!("{other:?}"),
        };
        say(&format!("$ {command}\n{seen}[{ended}, {:.1} ms]\n", result.duration_ms));
    }
    Err(Error::new(ErrorCode::Internal, "the model has no more answers"))
}

/// Writes without a panic when nobody reads.
fn say(text: &str) {
    let _ = stdout().write_all(text.as_bytes());
}
