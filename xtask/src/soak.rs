//! The verb `soak`: the long ones, run before something is called done. Prints a table for SPECIFICATION.md.

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::{
    docker::{self, daemon::Lifetime, images},
    need,
    suites::{read, run, run_and_read},
    tree::{built, root},
};

/// The fuzz targets, as in fuzz/Cargo.toml.
const FUZZ_TARGETS: [&str; 6] =
    ["archive", "channel_decoder", "file_requests", "session_replies", "terminal", "values"];

struct Row {
    promise: String,
    command: String,
    seconds: f64,
    /// The plain values of its last line, where that is a JSON summary.
    said: String,
    error: Option<String>,
}

/// Those with a Docker engine.
const ON_DOCKER: [(&str, &[&str]); 4] = [
    ("1,000 runs in a row on Docker: no failure, no leak, flat memory", &["soak-runs", "--count", "1000"]),
    ("200 runs on Docker, 20 at once: no failure, no leak", &["soak-concurrent", "--count", "200", "--at-once", "20"]),
    (
        "500 sandboxes that stay made, used and destroyed on Docker, 4 at once: no failure, no leak, flat memory",
        &["soak-living", "--count", "500", "--at-once", "4"],
    ),
    (
        "random lives of sandboxes on Docker, two processes at once, kills of callers: as the model says, nothing left",
        &["soak-states", "--seconds", "150"],
    ),
];

/// The verb `soak`.
pub(crate) fn soak(args: &[String]) -> Result<()> {
    if args.iter().map(String::as_str).eq(["--docker"]) {
        need::root()?;
        run(&["cargo", "build", "--release", "--locked", "--workspace", "--bins"])?;
        return told(&on_docker()?);
    }
    let minutes = fuzz_minutes(args)?;
    need::root()?;
    fuzz_tools()?;
    run(&["cargo", "build", "--release", "--locked", "--workspace", "--bins"])?;
    let conformance = built("release", "conformance").to_string_lossy().into_owned();
    let glovebox = built("release", "glovebox").to_string_lossy().into_owned();
    let soaks: [(&str, &[&str]); 7] = [
        ("1,000 runs in a row: no failure, no leak, flat memory", &["soak-runs", "--count", "1000"]),
        ("200 runs, 20 at once: no failure, no leak", &["soak-concurrent", "--count", "200", "--at-once", "20"]),
        (
            "10,000 sandboxes that stay made, used and destroyed, 4 at once: no failure, no leak, flat memory",
            &["soak-living", "--count", "10000", "--at-once", "4"],
        ),
        ("kill -9 at 100 random moments: nothing is left", &["soak-kill", "--count", "100", "--glovebox", &glovebox]),
        (
            "kill -9 while recording, 100 times: only whole runs are in the ledger",
            &["soak-record", "--count", "100", "--glovebox", &glovebox],
        ),
        (
            "random lives of living sandboxes, two processes, kills: as the model says",
            &["soak-states", "--seconds", "300"],
        ),
        ("a folder with a million entries: all listed, bounded memory", &["soak-folder", "--count", "1000000"]),
    ];
    let mut rows = Vec::new();
    for (promise, argv) in soaks {
        let argv: Vec<&str> = [conformance.as_str()].into_iter().chain(argv.iter().copied()).collect();
        rows.push(row(promise, &argv));
    }
    let seconds = (minutes * 60.0).round().to_string();
    for target in FUZZ_TARGETS {
        let limit = format!("-max_total_time={seconds}");
        let promise = format!("fuzzing of `{target}` for {minutes} min: no crash");
        rows.push(row(&promise, &["cargo", "+nightly", "fuzz", "run", target, "--", &limit]));
    }
    rows.extend(on_docker()?);
    rows.push(row("what is released installs and runs on three bare systems", &["cargo", "xtask", "dist", "--try"]));
    told(&rows)
}

/// What a Docker engine has to endure, with a daemon of its own.
fn on_docker() -> Result<Vec<Row>> {
    let daemon = docker::with_images(Lifetime::OfThisProcess)?;
    let (host, image) = (format!("DOCKER_HOST={}", daemon.places.host()), images::reference("debian"));
    let conformance = built("release", "conformance").to_string_lossy().into_owned();
    let by = ["env", &host, &conformance, "--backend", "docker", "--image", &image];
    Ok(ON_DOCKER.iter().map(|(promise, argv)| row(promise, &[&by[..], argv].concat())).collect())
}

/// Prints the table. An error if a promise was not held.
fn told(rows: &[Row]) -> Result<()> {
    print_table(rows)?;
    let failed: Vec<&str> = rows.iter().filter(|row| row.error.is_some()).map(|row| row.promise.as_str()).collect();
    ensure!(failed.is_empty(), "failed: {}", failed.join("; "));
    Ok(())
}

fn fuzz_minutes(args: &[String]) -> Result<f64> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        [] => Ok(2.0),
        ["--fuzz-minutes", text] => {
            let minutes: f64 = text.parse().with_context(|| format!("--fuzz-minutes {text} is not a number"))?;
            ensure!(minutes > 0.0 && minutes <= 10_000.0, "--fuzz-minutes {text} is out of range");
            Ok(minutes)
        }
        _ => bail!("the flags are --fuzz-minutes N, or --docker for the rows of Docker alone"),
    }
}

/// Fuzzing needs the nightly compiler's sanitizers and cargo-fuzz. The first must be there; the second is installed.
fn fuzz_tools() -> Result<()> {
    read(&["cargo", "+nightly", "--version"])
        .context("the nightly toolchain is missing; install it with `rustup toolchain install nightly`")?;
    if read(&["cargo", "+nightly", "fuzz", "--version"]).is_err() {
        run(&["cargo", "install", "--locked", "cargo-fuzz"])
            .context("cargo-fuzz is missing and cannot be installed")?;
    }
    Ok(())
}

fn row(promise: &str, argv: &[&str]) -> Row {
    let started = Instant::now();
    let (said, error) = match run_and_read(argv) {
        Ok((ok, text)) => {
            let said = text.lines().last().map(plain_values).unwrap_or_default();
            (said, (!ok).then(|| "it failed".to_owned()))
        }
        Err(error) => (String::new(), Some(format!("{error:#}"))),
    };
    let command = argv.join(" ").replace(&format!("{}/", root().display()), "");
    Row { promise: promise.to_owned(), command, seconds: started.elapsed().as_secs_f64(), said, error }
}

/// `name value` of each number of a JSON object; lists and objects in it are for the log above the table.
fn plain_values(line: &str) -> String {
    let summary: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line).unwrap_or_default();
    let numbers = summary.iter().filter_map(|(name, value)| Some((name, value.as_f64()?)));
    let rounded = numbers.map(|(name, value)| format!("{} {}", name.replace('_', " "), (value * 10.0).round() / 10.0));
    rounded.collect::<Vec<_>>().join(", ")
}

fn print_table(rows: &[Row]) -> Result<()> {
    let commit = read(&["git", "rev-parse", "--short", "HEAD"]).unwrap_or_else(|_| "not committed".into());
    let changed = read(&["git", "status", "--porcelain"]).is_ok_and(|text| !text.is_empty());
    let date = read(&["date", "-u", "+%Y-%m-%d"])?;
    println!("\nMeasured {} at {}{}.\n", date.trim(), commit.trim(), if changed { " with local changes" } else { "" });
    println!("| promise | command | seconds | said | held |\n| --- | --- | --- | --- | --- |");
    for row in rows {
        let held = if row.error.is_none() { "yes" } else { "**no**" };
        println!("| {} | `{}` | {:.0} | {} | {held} |", row.promise, row.command, row.seconds, row.said);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_of_a_summary_are_in_the_table() {
        let line = r#"{"runs_per_second": 124.93, "failures": 0, "ok": true, "grown": []}"#;
        assert_eq!(plain_values(line), "failures 0, runs per second 124.9");
        assert_eq!(plain_values("no summary"), "");
    }

    #[test]
    fn the_minutes_of_fuzzing_are_checked() {
        let parse = |args: &[&str]| fuzz_minutes(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>());
        assert_eq!(parse(&[]).unwrap(), 2.0);
        assert_eq!(parse(&["--fuzz-minutes", "0.5"]).unwrap(), 0.5);
        for wrong in [&["--fuzz-minutes", "0"][..], &["--fuzz-minutes", "x"], &["--fuzz-minutes"], &["--other"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
