//! Runs suites one after the other and says at the end what became of each.
//!
//! A suite's output is never held back: it goes to the terminal as it appears, so that a failure explains itself.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

/// How many cases of a suite went which way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Cases that hold.
    pub(crate) passed: u64,
    /// Cases that do not.
    pub(crate) failed: u64,
    /// Cases that were not tried.
    pub(crate) skipped: u64,
    /// Why they were not tried.
    pub(crate) reasons: Vec<String>,
    /// What did not hold, by name and with what it said first.
    pub(crate) failures: Vec<String>,
}

impl Counts {
    /// Counts of a suite that is one case.
    pub(crate) fn one() -> Self {
        Counts { passed: 1, ..Counts::default() }
    }

    /// These and others.
    pub(crate) fn and(self, other: Counts) -> Self {
        Counts {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            skipped: self.skipped + other.skipped,
            reasons: [self.reasons, other.reasons].concat(),
            failures: [self.failures, other.failures].concat(),
        }
    }
}

struct Suite {
    name: String,
    took: Duration,
    counts: Counts,
    error: Option<String>,
}

/// The suites that ran so far.
pub(crate) struct Suites {
    started: Instant,
    done: Vec<Suite>,
}

impl Suites {
    /// None yet.
    pub(crate) fn new() -> Self {
        Suites { started: Instant::now(), done: Vec::new() }
    }

    /// Runs one suite. A failure is kept for the summary, and the next suites still run: one push of a change should
    /// show everything that is wrong with it.
    pub(crate) fn run(&mut self, name: &str, work: impl FnOnce() -> Result<Counts>) {
        println!("\n=== {name}");
        let started = Instant::now();
        let (counts, error) = match work() {
            Ok(counts) if counts.failed > 0 => {
                let error = format!("{} failed", counts.failed);
                (counts, Some(error))
            }
            Ok(counts) => (counts, None),
            Err(error) => (Counts { failed: 1, ..Counts::default() }, Some(format!("{error:#}"))),
        };
        if let Some(error) = &error {
            println!("--- {name}: FAILED: {error}");
        }
        self.done.push(Suite { name: name.to_owned(), took: started.elapsed(), counts, error });
    }

    /// Prints the summary. An error when any suite failed.
    pub(crate) fn finish(self) -> Result<()> {
        println!("\n=== summary");
        println!("{:<28} {:>7} {:>7} {:>8} {:>9}", "suite", "passed", "failed", "skipped", "seconds");
        for suite in &self.done {
            let Counts { passed, failed, skipped, .. } = &suite.counts;
            println!("{:<28} {passed:>7} {failed:>7} {skipped:>8} {:>9.1}", suite.name, suite.took.as_secs_f64());
            if let Some(error) = &suite.error {
                println!("    FAILED: {error}");
            }
            for failure in &suite.counts.failures {
                println!("    FAILED: {failure}");
            }
        }
        let sum = |pick: fn(&Counts) -> u64| self.done.iter().map(|suite| pick(&suite.counts)).sum::<u64>();
        let (passed, failed, skipped) = (sum(|c| c.passed), sum(|c| c.failed), sum(|c| c.skipped));
        let seconds = self.started.elapsed().as_secs_f64();
        println!("{:<28} {passed:>7} {failed:>7} {skipped:>8} {seconds:>9.1}", "all");
        let reasons = self.done.iter().flat_map(|suite| suite.counts.reasons.iter());
        let mut skips: BTreeMap<&str, u64> = BTreeMap::new();
        // Each was named where it was skipped; here is why.
        reasons.for_each(|reason| *skips.entry(reason.rsplit(": ").next().unwrap_or(reason)).or_default() += 1);
        for (reason, times) in skips {
            println!("    skipped {times}: {reason}");
        }
        let broken: Vec<&str> = self.done.iter().filter(|s| s.error.is_some()).map(|s| s.name.as_str()).collect();
        if broken.is_empty() {
            println!("\nresult: passed");
            return Ok(());
        }
        println!("\nresult: FAILED");
        bail!("failed: {}", broken.join(", "))
    }
}

/// A command line as a `Command`, run in the root of the tree.
pub(crate) fn command(argv: &[&str]) -> Command {
    let mut command = Command::new(argv[0]);
    command.args(&argv[1..]).current_dir(crate::tree::root());
    command
}

/// Runs a command with its output on standard error; an error unless it exits with 0. Standard output is for what a verb
/// was asked for: a table, a summary, a document.
pub(crate) fn run(argv: &[&str]) -> Result<()> {
    eprintln!("$ {}", argv.join(" "));
    let status =
        command(argv).stdout(std::io::stderr()).status().with_context(|| format!("cannot start {}", argv[0]))?;
    if !status.success() {
        bail!("`{}` ended with {status}", argv.join(" "));
    }
    Ok(())
}

/// Runs a command with its output on the terminal and gives what it wrote to standard output, whatever its end.
pub(crate) fn run_and_read(argv: &[&str]) -> Result<(bool, String)> {
    eprintln!("$ {}", argv.join(" "));
    let mut child =
        command(argv).stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start {}", argv[0]))?;
    let stdout = child.stdout.take().context("the child has no standard output")?;
    let mut text = String::new();
    for line in BufReader::new(stdout).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        writeln!(std::io::stdout(), "{line}")?;
        text.push_str(&line);
        text.push('\n');
    }
    Ok((child.wait()?.success(), text))
}

/// Runs a command quietly and gives its standard output; an error with all that it said unless it exits with 0.
pub(crate) fn read(argv: &[&str]) -> Result<String> {
    let output = command(argv).output().with_context(|| format!("cannot start {}", argv[0]))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` ended with {}: {}", argv.join(" "), output.status, said.trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}
