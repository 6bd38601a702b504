//! On what the numbers were measured.

use std::{fs, process::Command};

use glovebox_core::{Isolation, Layer};

/// Facts about the machine, by name.
pub(crate) fn facts(isolation: &Isolation) -> Vec<(&'static str, String)> {
    let missing: Vec<&str> = isolation.missing.iter().map(|layer| layer.as_str()).collect();
    let layers = format!("{} of {}", isolation.present.len(), Layer::ALL.len());
    vec![
        ("date", said(&["date", "-u", "+%Y-%m-%d %H:%M UTC"])),
        ("commit", commit()),
        ("kernel", read("/proc/sys/kernel/osrelease")),
        ("CPU", cpu()),
        ("load before", read("/proc/loadavg").split_whitespace().take(3).collect::<Vec<_>>().join(" ")),
        ("control groups", cgroups().into()),
        (
            "layers present",
            if missing.is_empty() { layers } else { format!("{layers}; missing: {}", missing.join(", ")) },
        ),
        ("bubblewrap", said(&["bwrap", "--version"])),
        ("runc", said(&["runc", "--version"]).lines().next().unwrap_or_default().to_owned()),
        ("docker", said(&["dockerd", "--version"])),
    ]
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn said(argv: &[&str]) -> String {
    let output = Command::new(argv[0]).args(&argv[1..]).output();
    output.map_or_else(|_| "unknown".into(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn commit() -> String {
    let commit = said(&["git", "rev-parse", "--short", "HEAD"]);
    let changed = if said(&["git", "status", "--porcelain"]).is_empty() { "" } else { " with local changes" };
    format!("{}{changed}", if commit.is_empty() { "none" } else { &commit })
}

fn cpu() -> String {
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).and_then(|line| line.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{}, {cores} cores used", model.map_or("unknown", |(_, model)| model))
}

fn cgroups() -> &'static str {
    let mounts = read("/proc/mounts");
    let kind = |kind: &str| mounts.lines().any(|line| line.split(' ').nth(2) == Some(kind));
    match (kind("cgroup"), kind("cgroup2")) {
        (true, true) => "hybrid",
        (true, false) => "v1",
        (false, true) => "v2",
        (false, false) => "none",
    }
}
