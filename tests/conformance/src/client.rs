//! Another process that works in a living sandbox: this program, started again. It exists to be killed.

use std::{
    ffi::OsString,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use anyhow::Context;
use glovebox_core::{RunId, SandboxId};
use glovebox_engine::{Engine, Event, RunRequest};
use glovebox_ledger::Ledger;

use crate::Subject;

/// This program, and the flags by which it works with the backend that this process works with.
pub(crate) fn this_program() -> anyhow::Result<Vec<OsString>> {
    const WITH_VALUE: [&str; 4] = ["--backend", "--image", "--runtime", "--docker-socket"];
    let mut words = vec![std::env::current_exe()?.into_os_string()];
    let mut args = std::env::args_os().skip(1);
    while let Some(word) = args.next() {
        let text = word.to_string_lossy().into_owned();
        if WITH_VALUE.contains(&text.as_str()) {
            words.push(word);
            words.extend(args.next());
        } else if text == "--through-guest" || WITH_VALUE.iter().any(|flag| text.starts_with(&format!("{flag}="))) {
            words.push(word);
        }
    }
    Ok(words)
}

/// A process that started a run, and shows what it writes.
pub(crate) struct Client {
    child: Child,
    output: BufReader<ChildStdout>,
    /// The run that it started.
    pub(crate) run: RunId,
}

impl Client {
    /// Starts a process that runs a line of the shell in a sandbox, and records it.
    pub(crate) fn start(data_dir: &Path, sandbox: SandboxId, timeout: Duration, line: &str) -> Client {
        let program = this_program().expect("this program has a name");
        let mut child = Command::new(&program[0])
            .args(&program[1..])
            .args(["client", "--sandbox", &sandbox.to_string(), "--line", line, "--timeout-ms"])
            .arg(timeout.as_millis().to_string())
            .arg("--data-dir")
            .arg(data_dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started again");
        let mut output = BufReader::new(child.stdout.take().expect("the output is piped"));
        let mut first = String::new();
        output.read_line(&mut first).expect("the client speaks");
        let run = first.trim_end().parse().unwrap_or_else(|_| panic!("the client said {first:?}"));
        Client { child, output, run }
    }

    /// Reads the next line of the run.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the client speaks");
        line
    }

    /// Kills the process, and waits until it is gone.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("the client can be killed");
        self.child.wait().expect("the client is a child");
    }
}

/// What the other process does.
pub async fn run_client(
    subject: &dyn Subject,
    data_dir: &Path,
    sandbox: &str,
    line: &str,
    timeout: Duration,
) -> anyhow::Result<()> {
    let engine = Engine::new(subject.backend()).with_data_dir(data_dir).with_ledger(Ledger::below(data_dir));
    let sandbox = engine.open(sandbox).await.context("the sandbox cannot be opened")?;
    let mut request = RunRequest::new(glovebox_core::Command::argv(["/bin/sh", "-c", line])?);
    request.spec.limits.timeout = timeout;
    request.spec.limits.grace = Duration::from_millis(100);
    let mut run = sandbox.start(request).await?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", run.id()).and_then(|()| out.flush())?;
    while let Some(event) = run.next_event().await {
        if let Event::Stdout(bytes) = event {
            out.write_all(&bytes).and_then(|()| out.flush())?;
        }
    }
    run.wait().await?;
    Ok(())
}
