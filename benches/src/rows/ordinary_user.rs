//! A cold sandbox of an ordinary user, compared with one of root.
//!
//! Each contestant is a process of its own with its own launcher, which makes a sandbox, runs `/bin/true` in it and ends it
//! whenever it is told to, and says when that is done. They take turns like all others.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::{Context, Result, ensure};

use crate::{
    Bench,
    report::{Goal, Report},
    samples::{Contestant, take_turns},
};

/// An id without an account, and so without sub-ids.
const NOBODY_IN_PARTICULAR: u32 = 64_998;

pub(super) fn measure(bench: &Bench, report: &mut Report) -> Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
    let program = folder.path().join("glovebox-bench");
    std::fs::copy(std::env::current_exe()?, &program)?;
    let mut root = Servant::start(&program, 0)?;
    let mut user = Servant::start(&program, NOBODY_IN_PARTICULAR)?;
    let mut with_ids = user_with_sub_ids().map(|uid| Servant::start(&program, uid)).transpose()?;
    let mut contestants =
        vec![Contestant::new("root", || root.run()), Contestant::new("user without sub-ids", || user.run())];
    if let Some(servant) = &mut with_ids {
        contestants.push(Contestant::new("user with sub-ids", || servant.run()));
    }
    let samples = take_turns(bench.flags.count, contestants)?;
    let theirs = samples[0].median();
    let ours = samples[1..].iter().map(|samples| samples.median()).fold(0.0, f64::max);
    let goal = ("≤ 1.3 × root", Goal::AtMost(1.3));
    report.compare("library, cold, as an ordinary user (the slower level)", goal, ours, ("root", theirs));
    report.samples("user", samples);
    Ok(())
}

/// The first account that has sub-ids.
fn user_with_sub_ids() -> Option<u32> {
    let (owners, accounts) =
        (std::fs::read_to_string("/etc/subuid").ok()?, std::fs::read_to_string("/etc/passwd").ok()?);
    let name = owners.lines().find_map(|line| line.split(':').next())?;
    let account = accounts.lines().find(|line| line.split(':').next() == Some(name))?;
    account.split(':').nth(2)?.parse().ok()
}

/// A process that makes sandboxes on demand.
struct Servant {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Servant {
    fn start(program: &Path, uid: u32) -> Result<Self> {
        let id = uid.to_string();
        let mut child = Command::new("setpriv")
            .args(["--reuid", &id, "--regid", &id, "--clear-groups"])
            .arg(program)
            .arg("--cold-on-demand")
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("setpriv cannot be started")?;
        let orders = child.stdin.take().context("the process has no standard input")?;
        let answers = BufReader::new(child.stdout.take().context("the process has no standard output")?);
        Ok(Servant { child, orders, answers })
    }

    fn run(&mut self) -> Result<()> {
        self.orders.write_all(b"go\n")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        ensure!(answer == "done\n", "the process that makes sandboxes said {answer:?}");
        Ok(())
    }
}

impl Drop for Servant {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
