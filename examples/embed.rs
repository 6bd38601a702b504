//! Glovebox in a Rust program: one run as a value, then one as a stream of events.
//!
//! ```sh
//! cargo run -p glovebox-engine --example embed
//! ```

use std::{
    io::{Write, stderr, stdout},
    sync::Arc,
    time::Duration,
};

use glovebox_core::{Command, Result};
use glovebox_engine::{Engine, Event, RunRequest};
use glovebox_native::NativeBackend;

fn main() -> Result<()> {
    // First of all, while there is one thread: the launcher is forked here, and it makes the sandboxes later.
    let backend = NativeBackend::start()?;
    let engine = Engine::new(Arc::new(backend));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        one_run(&engine).await?;
        a_stream_of_events(&engine).await
    })
}

/// A fresh sandbox, a run, and the sandbox is gone. The result says everything that is known of the run.
async fn one_run(engine: &Engine) -> Result<()> {
    let command = Command::argv(["sh", "-c", "echo \"hello, $NAME\""])?.env("NAME", "sandbox")?;
    let mut request = RunRequest::new(command);
    request.spec.limits.memory = 64 << 20;
    request.spec.limits.timeout = Duration::from_secs(5);

    let result = engine.run(request).await?;
    print(&format!(
        "{} {:?}, {:.1} ms, {:?}\n",
        result.run,
        result.outcome,
        result.duration_ms,
        result.stdout.text.unwrap_or_default()
    ));
    Ok(())
}

/// The same as it happens. Whoever holds a canceller can end the run from elsewhere.
async fn a_stream_of_events(engine: &Engine) -> Result<()> {
    let command = Command::argv(["sh", "-c", "for i in 1 2 3; do echo line $i; done; echo done >&2; sleep 60"])?;
    let mut run = engine.start(RunRequest::new(command)).await?;
    let canceller = run.canceller();
    while let Some(event) = run.next_event().await {
        match event {
            Event::Stdout(bytes) => print(&String::from_utf8_lossy(&bytes)),
            Event::Stderr(bytes) => {
                // What is on standard error goes to ours; this program has said all that we wanted to hear.
                let _ = stderr().write_all(&bytes);
                canceller.cancel();
            }
            _ => {}
        }
    }
    let result = run.wait().await?;
    print(&format!("{} {:?}, {} layers of isolation\n", result.run, result.outcome, result.isolation.present.len()));
    Ok(())
}

/// Writes without a panic when nobody reads.
fn print(text: &str) {
    let _ = stdout().write_all(text.as_bytes());
}
