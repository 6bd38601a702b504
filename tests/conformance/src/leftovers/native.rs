//! Traces of the native backend: processes below this one, control groups, mounts, files in /run, descriptors.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use glovebox_core::SandboxId;
use glovebox_native::NativeBackend;

use super::{Leftovers, Traces, orphans::lock_holders};

/// Where launchers keep their locks.
pub(super) fn launchers() -> PathBuf {
    NativeBackend::runtime_folder().join("launchers")
}

/// A process as /proc shows it.
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) parent: i32,
    pub(super) name: String,
    /// It has ended, and only its number is left.
    pub(super) ended: bool,
}

/// Everything of the native backend that is on the host now. The launcher itself is no trace; `owner` is the name that
/// it gives to everything it makes.
pub(crate) fn traces(launcher: i32, owner: &str) -> Traces {
    let own = std::process::id() as i32;
    let mut things = BTreeSet::new();
    things.extend(processes_of(own, launcher, owner));
    things.extend(groups_of(owner));
    things.extend(mounts(own));
    things.extend(mounts(launcher));
    things.extend(run_files(owner, launcher));
    things.extend(folders_of(owner));
    let counts = BTreeMap::from([
        ("descriptors of this process", descriptors(own)),
        ("descriptors of the launcher", descriptors(launcher)),
    ]);
    Traces { things, counts }
}

/// What is on the host of these sandboxes: processes, control groups, ranges of ids and folders.
pub(crate) fn traces_of(sandboxes: &BTreeSet<SandboxId>) -> Leftovers {
    let is_theirs = |text: &str| {
        let id = text.find("sb_").and_then(|at| text.get(at..at + 29)).and_then(|id| id.parse().ok());
        id.is_some_and(|id| sandboxes.contains(&id))
    };
    let runtime = NativeBackend::runtime_folder();
    let folders = ["sandboxes", "ids"].map(|folder| fs::read_dir(runtime.join(folder)).into_iter().flatten().flatten());
    let files = folders.into_iter().flatten().map(|entry| entry.path());
    let holders = files.map(|path| (fs::read_to_string(&path).unwrap_or_default(), path));
    let files = holders.filter(|(holder, path)| is_theirs(holder) || is_theirs(&path.to_string_lossy()));
    let groups = glovebox_groups().into_iter().filter(|group| is_theirs(&group.to_string_lossy()));
    let processes = all_processes().into_iter().map(|process| process.pid);
    let processes = processes.filter(|pid| {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        groups.lines().any(is_theirs)
    });
    let left = files.map(|(_, path)| format!("file {}", path.display()));
    let left = left.chain(groups.map(|group| format!("control group {}", group.display())));
    Leftovers(left.chain(processes.map(|pid| format!("process {pid}"))).collect())
}

/// Open descriptors of a process. A launcher holds its own network, and often one for the next sandbox, and a few ranges of
/// ids: these are not counted as long as there are no more.
fn descriptors(pid: i32) -> usize {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let ids = NativeBackend::runtime_folder().join("ids");
    let targets: Vec<PathBuf> = entries.filter_map(|entry| fs::read_link(entry.path()).ok()).collect();
    let networks = targets.iter().filter(|target| target.to_string_lossy().starts_with("net:[")).count();
    let ranges = targets.iter().filter(|target| target.starts_with(&ids)).count();
    let others = targets.len() - networks - ranges;
    others + networks.saturating_sub(2) + ranges.saturating_sub(RANGES)
}

/// The name that a launcher gives to everything it makes: that of the lock file which it holds. The kernel's list of
/// locks may miss one while others come and go, so it is read again where nothing was found.
pub(crate) fn owner_name(launcher: i32) -> Option<String> {
    let look = || {
        let holders = lock_holders();
        let is_held =
            |file: &fs::DirEntry| file.metadata().is_ok_and(|facts| holders.contains(&(launcher, facts.ino())));
        let lock = fs::read_dir(launchers()).into_iter().flatten().flatten().find(is_held)?;
        Some(lock.file_name().to_string_lossy().trim_end_matches(".lock").to_owned())
    };
    (0..100).find_map(|_| look())
}

/// Processes below this one or the launcher, and processes in one of the launcher's control groups.
fn processes_of(own: i32, launcher: i32, owner: &str) -> Vec<String> {
    let all = all_processes();
    let parents: BTreeMap<i32, i32> = all.iter().map(|process| (process.pid, process.parent)).collect();
    let is_below = |pid: i32| {
        let mut at = pid;
        while let Some(parent) = parents.get(&at) {
            if *parent == own || *parent == launcher {
                return true;
            }
            at = *parent;
        }
        false
    };
    let is_in_group = |pid: i32| {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        groups.lines().any(|line| line.contains(&format!("/glovebox/{owner}.")))
    };
    all.iter()
        .filter(|process| process.pid != launcher && process.pid != own)
        // The kernel reaps the launcher's children by itself, a moment after they ended.
        .filter(|process| !(process.ended && process.parent == launcher))
        .filter(|process| is_below(process.pid) || is_in_group(process.pid))
        .map(|process| format!("process {} ({}), a child of {}", process.pid, process.name, process.parent))
        .collect()
}

pub(super) fn all_processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| read_process(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// Reads `/proc/PID/stat`: `pid (name) state parent …`. The name may itself hold spaces and brackets.
pub(super) fn read_process(pid: i32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (head, tail) = stat.rsplit_once(')')?;
    let name = head.split_once('(')?.1.to_owned();
    let mut fields = tail.split_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X" | "x");
    let parent = fields.next()?.parse().ok()?;
    Some(Process { pid, parent, name, ended })
}

/// Control groups of the sandboxes of a launcher, in every hierarchy.
fn groups_of(owner: &str) -> Vec<String> {
    let prefix = format!("{owner}.");
    let named = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix));
    glovebox_groups().into_iter().filter(named).map(|path| format!("control group {}", path.display())).collect()
}

/// All control groups of all launchers.
pub(super) fn glovebox_groups() -> Vec<PathBuf> {
    let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let hierarchies = mountinfo.lines().filter_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        file_system.starts_with("cgroup").then(|| mount.split(' ').nth(4))?.map(PathBuf::from)
    });
    // Root's are at the top of each hierarchy, those of an ordinary user in the group that was given to them.
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own: BTreeSet<&str> = own.lines().filter_map(|line| line.splitn(3, ':').nth(2)).collect();
    let mut groups = Vec::new();
    for hierarchy in hierarchies {
        let places: BTreeSet<PathBuf> =
            own.iter().chain([&"/"]).map(|path| hierarchy.join(path.trim_start_matches('/'))).collect();
        for place in places {
            collect_groups(&place.join("glovebox"), &mut groups);
        }
    }
    groups
}

fn collect_groups(folder: &Path, groups: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            groups.push(entry.path());
            collect_groups(&entry.path(), groups);
        }
    }
}

/// A launcher keeps so many ranges of ids for the sandboxes to come.
const RANGES: usize = 4;

/// A launcher keeps so many skeletons for the sandboxes to come.
const SKELETONS: usize = 4;

/// Mounts that a process sees. The scratch folder of a launcher, in its own namespace, and the skeletons in it are part of
/// the launcher as long as they are few; whatever else is mounted there is not. Mount ids are left out, because they
/// are used again.
fn mounts(pid: i32) -> Vec<String> {
    let scratch = NativeBackend::runtime_folder().join("scratch").to_string_lossy().into_owned();
    let mountinfo = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
    let points = mountinfo.lines().filter_map(|line| Some((line.split(' ').nth(3)?, line.split(' ').nth(4)?)));
    let mut skeletons = BTreeSet::new();
    let mut mounts: Vec<String> = Vec::new();
    for (root, point) in points.filter(|(_, point)| *point != scratch) {
        match point.strip_prefix(&scratch).and_then(|rest| rest.strip_prefix("/skeleton-")) {
            Some(rest) => drop(skeletons.insert(rest.split('/').next().unwrap_or(rest).to_owned())),
            None => mounts.push(format!("mount {root} at {point}")),
        }
    }
    mounts.extend(skeletons.into_iter().skip(SKELETONS).map(|name| format!("skeleton {name}")));
    mounts
}

/// Folders of a launcher's sandboxes that have no namespaces.
fn folders_of(owner: &str) -> Vec<String> {
    let place = format!("/tmp/glovebox-{}/files", rustix::process::geteuid().as_raw());
    let names = fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let names = names.filter_map(|name| name.into_string().ok()).filter(|name| name.starts_with(owner));
    names.map(|name| format!("folder {name}")).collect()
}

/// Files in /run/glovebox, other than the locks of other launchers, which come and go, and what belongs to sandboxes of Docker.
fn run_files(owner: &str, launcher: i32) -> Vec<String> {
    let mut files = Vec::new();
    super::collect_files(&NativeBackend::runtime_folder(), &mut files);
    let of_docker = NativeBackend::runtime_folder().join("docker");
    files.retain(|path| !Path::new(path).starts_with(&of_docker));
    let launchers = launchers().to_string_lossy().into_owned();
    files.retain(|path| !path.starts_with(&launchers) || path.contains(owner));
    // Of living sandboxes only those are ours that our launcher keeps; others may be at work beside this suite.
    let holders = lock_holders();
    let is_others = |path: &String| {
        let lock = Path::new(path).parent().map(|folder| folder.join("lock"));
        let inode = lock.and_then(|lock| fs::metadata(lock).ok()).map(|facts| facts.ino());
        path.contains("/sandboxes/") && !holders.iter().any(|(pid, held)| Some(*held) == inode && *pid == launcher)
    };
    files.retain(|path| !is_others(path));
    files.retain(|path| !path.contains("/ids/") || is_lost_range(path, owner));
    files.into_iter().map(|path| format!("file {path}")).collect()
}

/// Whether a range of ids is left of a sandbox that is no more. Those that a launcher holds for sandboxes to come are not, and
/// others are at work beside this suite.
fn is_lost_range(path: &str, owner: &str) -> bool {
    let holder = fs::read_to_string(path).unwrap_or_default();
    let Some(sandbox) = holder.strip_prefix("living.") else {
        return holder == owner && fs::File::open(path).is_ok_and(|file| is_free(&file));
    };
    !NativeBackend::runtime_folder().join("sandboxes").join(sandbox).exists()
}

/// Whether nobody holds the lock on a file.
pub(super) fn is_free(file: &fs::File) -> bool {
    rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
}
