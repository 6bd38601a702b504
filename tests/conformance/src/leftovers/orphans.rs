//! What is on the host of launchers that nobody owns: dead ones, and ones that outlive the process they served.
//!
//! Sandboxes of launchers in use by somebody else on this machine are not looked at.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use glovebox_native::NativeBackend;

use super::native::{all_processes, glovebox_groups, is_free, launchers, read_process};

/// Control groups, processes, lock files and mounts that no living owner answers for.
pub(crate) fn orphaned_things() -> BTreeSet<String> {
    let in_use = owners_in_use();
    let is_orphaned = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        !in_use.iter().any(|owner| name.starts_with(owner.as_str()))
    };
    let groups: Vec<PathBuf> = glovebox_groups().into_iter().filter(|group| is_orphaned(group)).collect();
    let locks = fs::read_dir(launchers()).into_iter().flatten().flatten().map(|entry| entry.path());
    let ranges = fs::read_dir(NativeBackend::runtime_folder().join("ids")).into_iter().flatten().flatten();
    let ranges = ranges.map(|entry| entry.path()).filter(|path| fs::File::open(path).is_ok_and(|file| is_free(&file)));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut things = BTreeSet::new();
    things.extend(groups.iter().flat_map(|group| processes_in(group)));
    things.extend(orphaned_processes());
    things.extend(groups.iter().map(|group| format!("control group {}", group.display())));
    things.extend(locks.filter(|lock| is_orphaned(lock)).map(|lock| format!("file {}", lock.display())));
    things.extend(ranges.map(|range| format!("file {}", range.display())));
    things.extend(
        mounts
            .lines()
            .filter_map(|line| line.split(' ').nth(4))
            .filter(|place| place.starts_with(&*NativeBackend::runtime_folder().to_string_lossy()))
            .map(|place| format!("mount at {place}")),
    );
    things
}

/// Processes of ours that lost whom they belong to. They need not be in any group: one that is stuck before it joins its
/// group is the hardest to find otherwise.
fn orphaned_processes() -> Vec<String> {
    const NAMES: [&str; 4] = ["glovebox-launch", "glovebox-guest", "glovebox-zygote", "glovebox-watch"];
    let ancestors = ancestors();
    let processes = all_processes().into_iter();
    let orphans = processes.filter(|p| NAMES.contains(&p.name.as_str()) && ancestors.contains(&p.parent));
    // One that has ended and waits for its new parent to take note is over; how soon that is, is up to the host's init.
    let orphans = orphans.filter(|process| !has_ended(process.pid));
    orphans.map(|process| format!("process {} ({})", process.pid, process.name)).collect()
}

fn has_ended(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with(['Z', 'X']))
}

fn processes_in(group: &Path) -> Vec<String> {
    let ids = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let processes = ids.lines().filter_map(|id| read_process(id.parse().ok()?));
    processes.map(|process| format!("process {} ({})", process.pid, process.name)).collect()
}

/// Names of launchers that live and whose parent is the process they serve. A launcher that lost it was handed to an
/// ancestor of ours, because whatever we start has our ancestors.
fn owners_in_use() -> Vec<String> {
    let ancestors = ancestors();
    let holders = lock_holders();
    let locks = fs::read_dir(launchers()).into_iter().flatten().flatten();
    locks
        .filter(|lock| {
            let inode = lock.metadata().map_or(0, |facts| facts.ino());
            let holder = holders.iter().find(|(_, held)| *held == inode).and_then(|(pid, _)| read_process(*pid));
            holder.is_some_and(|launcher| !ancestors.contains(&launcher.parent))
        })
        .map(|lock| lock.file_name().to_string_lossy().trim_end_matches(".lock").to_owned())
        .collect()
}

/// Process id and inode of every lock that excludes others.
pub(crate) fn lock_holders() -> Vec<(i32, u64)> {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let holder = |line: &str| {
        let mut words = line.split_whitespace().skip_while(|word| *word != "WRITE").skip(1);
        let pid = words.next()?.parse().ok()?;
        let inode = words.next()?.rsplit(':').next()?.parse().ok()?;
        Some((pid, inode))
    };
    locks.lines().filter_map(holder).collect()
}

fn ancestors() -> Vec<i32> {
    let mut found = Vec::new();
    let mut at = std::process::id() as i32;
    while let Some(process) = read_process(at) {
        found.push(process.parent);
        at = process.parent;
    }
    found
}
