//! Sudden deaths while runs are being recorded: `glovebox run` is killed at a random moment, and the ledger must hold only
//! whole runs afterwards, among them every run that came to its end.

use std::{
    collections::BTreeSet,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::kill::random_below;

/// Output that is stored in the row, output that becomes a blob, and a file that is kept.
const WORKLOAD: &str = "echo err >&2; echo kept > /workspace/outputs/kept; seq 10000";
/// About twice as long as such a run takes.
const LATEST_DEATH: Duration = Duration::from_millis(25);

/// Whether only whole runs were left after every death.
pub fn record(count: usize, glovebox: &Path) -> anyhow::Result<bool> {
    let glovebox = glovebox.canonicalize().with_context(|| format!("{} is not there", glovebox.display()))?;
    let data = tempfile::tempdir()?;
    let (mut failures, mut survivors) = (Vec::new(), BTreeSet::new());
    let (mut finished, mut lost) = (0, 0);
    for number in 0..count {
        if die_once(&glovebox, data.path(), number)? {
            survivors.insert(number.to_string());
        }
        match look(&glovebox, data.path(), &survivors) {
            Ok(seen) => (finished, lost) = seen,
            Err(error) => failures.push(format!("after death {number}: {error:#}")),
        }
    }
    let ok = failures.is_empty();
    let first = &failures[..failures.len().min(5)];
    println!(
        "{}",
        json!({
            "soak": "soak-record", "ok": ok, "count": count, "failures": failures.len(), "first_failures": first,
            "finished": finished, "lost": lost, "survivors": survivors.len(),
        })
    );
    Ok(ok)
}

/// Starts a run and kills it at a random moment. Whether it had come to its end by itself.
fn die_once(glovebox: &Path, data: &Path, number: usize) -> anyhow::Result<bool> {
    let mut child = Command::new(glovebox)
        .arg("--data-dir")
        .arg(data)
        .args(["run", "--label", &format!("number={number}"), "--", "/bin/sh", "-c", WORKLOAD])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("glovebox does not start")?;
    // The random moment is the point of this test.
    std::thread::sleep(Duration::from_micros(random_below(LATEST_DEATH.as_micros() as u64)));
    child.kill()?;
    Ok(child.wait()?.success())
}

/// Looks at every run of the ledger. Gives how many were finished and how many lost.
fn look(glovebox: &Path, data: &Path, survivors: &BTreeSet<String>) -> anyhow::Result<(usize, usize)> {
    let listed = read(glovebox, data, &["runs", "list", "--json", "--limit", "10000"])?;
    let runs = listed["runs"].as_array().context("no list")?;
    let (mut finished, mut lost) = (BTreeSet::new(), 0);
    for run in runs {
        let id = run["run"].as_str().context("a run without an id")?;
        let number = run["labels"]["number"].as_str().context("a run without its label")?;
        match run["outcome"]["kind"].as_str() {
            Some("lost") => lost += 1,
            Some("exited") => {
                finished.insert(number.to_owned());
            }
            other => anyhow::bail!("{id} is {other:?}"),
        }
    }
    // The older ones were looked at when they were the newest.
    if let Some(newest) = runs.iter().find(|run| run["outcome"]["kind"] == "exited") {
        let id = newest["run"].as_str().unwrap_or_default();
        let result = read(glovebox, data, &["runs", "show", "--json", id])?;
        let expected: String = (1..=10_000).map(|number| format!("{number}\n")).collect();
        ensure!(result["stdout"]["text"] == expected.as_str(), "the output of {id} is not whole");
        ensure!(result["stderr"]["text"] == "err\n", "the standard error of {id} is not whole");
        ensure!(result["artifacts"][0]["path"] == "outputs/kept", "the artifact of {id} is missing");
    }
    let missing: Vec<&String> = survivors.difference(&finished).collect();
    ensure!(missing.is_empty(), "runs that came to their end are not recorded: {missing:?}");
    let noted = std::fs::read_dir(data.join("running")).map_or(0, Iterator::count);
    ensure!(noted == 0, "{noted} runs are noted as under way");
    Ok((finished.len(), lost))
}

fn read(glovebox: &Path, data: &Path, args: &[&str]) -> anyhow::Result<Value> {
    let output = Command::new(glovebox).arg("--data-dir").arg(data).args(args).output()?;
    ensure!(output.status.success(), "glovebox {} failed: {}", args.join(" "), String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}
