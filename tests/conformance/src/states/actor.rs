//! Another process that works with living sandboxes as it is told: this program, started again, with a launcher of its own.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use glovebox_core::{Error, ErrorCode, RunId, SandboxName};
use glovebox_engine::{Engine, NewSandbox, RunRequest};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use crate::{Subject, client::this_program};

/// No act takes so long; one that does hangs.
const LONGEST_ACT: Duration = Duration::from_secs(45);

/// What an actor is told to do with the sandbox of a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Act {
    Create,
    /// A short run, which says whether it is the first since the files were made.
    Exec,
    /// A run that goes on.
    Detach,
    Cancel(RunId),
    Pause,
    Resume,
    Stop,
    Start,
    Reset,
    Destroy,
    /// Tells the state.
    Show,
    /// Tells name and state of all.
    List,
    /// Tells which runs are under way.
    Runs,
    /// From now on the process may open so many files more than it has open, or as many as ever.
    Descriptors(Option<u64>),
}

/// What an actor says afterwards: a word, or the code of an error and its message.
pub(crate) type Said = Result<String, (String, String)>;

/// A process that does as it is told.
pub(crate) struct Actor {
    child: Child,
    orders: Option<ChildStdin>,
    answers: Receiver<String>,
    /// Its launcher.
    pub(crate) launcher: i32,
}

impl Actor {
    /// Starts one that works in a data folder.
    pub(crate) fn start(data_dir: &Path) -> anyhow::Result<Actor> {
        let program = this_program()?;
        let mut command = Command::new(&program[0]);
        command.args(&program[1..]);
        Self::start_as(command, data_dir)
    }

    /// Starts one that may open so many files, as may all that it makes.
    pub(crate) fn start_with_descriptors(data_dir: &Path, most: usize) -> anyhow::Result<Actor> {
        let mut command = Command::new("prlimit");
        command.arg(format!("--nofile={most}:{most}")).args(this_program()?);
        Self::start_as(command, data_dir)
    }

    fn start_as(mut command: Command, data_dir: &Path) -> anyhow::Result<Actor> {
        let mut child = command
            .arg("actor")
            .arg("--data-dir")
            .arg(data_dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("this program cannot be started again")?;
        let output = BufReader::new(child.stdout.take().context("the output is piped")?);
        let (told, answers) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if told.send(line).is_err() {
                    return;
                }
            }
        });
        let orders = child.stdin.take();
        let mut actor = Actor { child, orders, answers, launcher: 0 };
        actor.launcher = actor.line()?.parse().context("an actor begins with its launcher's id")?;
        Ok(actor)
    }

    /// Tells it what to do, and does not wait.
    pub(crate) fn order(&mut self, name: &str, act: &Act) -> anyhow::Result<()> {
        let orders = self.orders.as_mut().context("it was told to end")?;
        writeln!(orders, "{}", serde_json::to_string(&(name, act))?).and_then(|()| orders.flush())?;
        Ok(())
    }

    /// What became of the last order.
    pub(crate) fn said(&mut self) -> anyhow::Result<Said> {
        Ok(serde_json::from_str(&self.line()?)?)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        self.answers.recv_timeout(LONGEST_ACT).map_err(|_| anyhow!("no answer within {} s", LONGEST_ACT.as_secs()))
    }

    /// Tells it what to do, and waits until it is done.
    pub(crate) fn act(&mut self, name: &str, act: &Act) -> anyhow::Result<Said> {
        self.order(name, act)?;
        self.said().with_context(|| format!("{act:?} {name}"))
    }

    /// Kills it, in whatever it does.
    pub(crate) fn kill(mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        drop(self.orders.take());
        let deadline = Instant::now() + Duration::from_secs(5);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The limit with which a process can open so many files more than it has open.
fn limit_for(pid: i32, more: u64) -> u64 {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let open: Vec<u64> = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let mut free = (0..).filter(|number| !open.contains(number));
    free.nth(more as usize).unwrap_or(u64::MAX)
}

/// What the other process does: one order after the other, until there are no more.
pub(super) async fn serve(subject: &dyn Subject, data_dir: &Path) -> anyhow::Result<()> {
    let engine = Engine::new(subject.backend()).with_data_dir(data_dir);
    let launcher = subject.processes().iter().find(|(name, _)| *name == "launcher").map_or(0, |(_, pid)| *pid);
    tell(&launcher)?;
    let (heard, mut orders) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if heard.send(line).is_err() {
                return;
            }
        }
    });
    while let Some(order) = orders.recv().await {
        let (name, act): (String, Act) = serde_json::from_str(&order)?;
        let said: Said = obey(&engine, &name, act).await.map_err(|e| (e.code.to_string(), e.message));
        tell(&said)?;
    }
    Ok(())
}

fn tell(what: &impl Serialize) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{}", serde_json::to_string(what)?).and_then(|()| out.flush())?;
    Ok(())
}

async fn obey(engine: &Engine, name: &str, act: Act) -> Result<String, Error> {
    let done = |_| "done".to_owned();
    let request = |line: &str| Ok::<_, Error>(RunRequest::new(glovebox_core::Command::argv(["/bin/sh", "-c", line])?));
    match act {
        Act::Create => {
            let name = SandboxName::parse(name).map_err(|text| Error::new(ErrorCode::InvalidValue, text))?;
            engine.create_living(NewSandbox { name: Some(name), ..NewSandbox::default() }).await?;
            Ok("done".to_owned())
        }
        Act::Exec => {
            let sandbox = engine.open(name).await?;
            let result = sandbox.run(request("mkdir mark 2> /dev/null && echo first || echo again")?).await?;
            Ok(match (result.outcome, result.stdout.text) {
                (glovebox_core::Outcome::Exited { code: 0 }, Some(text)) => text.trim_end().to_owned(),
                (outcome, _) => format!("{outcome:?}"),
            })
        }
        Act::Detach => Ok(engine.open(name).await?.start(request("exec sleep 1000")?).await?.id().to_string()),
        Act::Cancel(run) => engine.open_paused(name).await?.cancel(run).await.map(|()| "done".to_owned()),
        Act::Pause => engine.pause(name).await.map(|_| "done".to_owned()),
        Act::Resume => engine.resume(name).await.map(done),
        Act::Stop => engine.stop(name).await.map(done),
        Act::Start => engine.restart(name).await.map(|_| "done".to_owned()),
        Act::Reset => engine.reset(name).await.map(|_| "done".to_owned()),
        Act::Destroy => engine.destroy(name).await.map(done),
        Act::Show => Ok(engine.status(name).await?.state.to_string()),
        Act::List => {
            let all = engine.sandboxes().await?;
            let mut words: Vec<String> = all
                .iter()
                .map(|status| format!("{}={}", status.name.as_ref().map_or("", |name| name.as_str()), status.state))
                .collect();
            words.sort();
            Ok(words.join(" "))
        }
        Act::Descriptors(more) => {
            let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
            let current = more.map(|more| limit_for(std::process::id() as i32, more)).or(maximum);
            let limit = Rlimit { current, maximum };
            setrlimit(Resource::Nofile, limit).expect("a process may open fewer files");
            Ok("done".to_owned())
        }
        Act::Runs => {
            let runs = engine.open_paused(name).await?.runs().await?;
            let mut ids: Vec<String> =
                runs.iter().filter(|run| run.ended.is_none()).map(|run| run.run.to_string()).collect();
            ids.sort();
            Ok(ids.join(" "))
        }
    }
}
