//! Control groups, version 1, version 2, and hosts that have both.
//!
//! Theory of operation. A sandbox has two groups side by side in every hierarchy that is used: `….run` for its
//! commands, with the limits, and `….guest` for our own process inside, so that a workload at its limit can neither
//! kill nor starve it. (Where controllers have hierarchies of their own, `….guest` is only in that of memory: what a
//! guest may fork is limited otherwise.) All groups lie directly below one folder `glovebox` of the hierarchy's
//! root, or of the group that was given to an ordinary user,
//! and their names begin with the id of the launcher that made them; its lock file tells whether it still lives (see
//! `owner`).
//! Guest and zygote join by writing `0` to descriptors that were opened here, by the launcher: the kernel checks the opener's
//! rights, so a process inside needs none.

mod evidence;
mod freezing;
mod leaves;
mod limits;

use std::{
    fs, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::fs::{Access, Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::{living::GROUP_OWNER, sys};

pub(crate) use evidence::{Counters, MemoryFiles, storage_bytes};
pub(crate) use limits::GroupLimits;

const FOLDER: &str = "glovebox";

/// How long the kernel is given to let go of processes that have ended.
const LET_GO: Duration = Duration::from_secs(5);

/// A controller that sandboxes use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Controller {
    Memory,
    Pids,
    Cpu,
    /// CPU time used, on version 1; part of `cpu` on version 2.
    CpuAccount,
    /// Stopping all processes at once, on version 1; every group of version 2 can.
    Freezer,
}

const CONTROLLERS: [(Controller, &str); 5] = [
    (Controller::Memory, "memory"),
    (Controller::Pids, "pids"),
    (Controller::Cpu, "cpu"),
    (Controller::CpuAccount, "cpuacct"),
    (Controller::Freezer, "freezer"),
];

/// One mounted hierarchy.
#[derive(Clone, Debug)]
struct Hierarchy {
    mount: PathBuf,
    /// The group below which all of ours are: the hierarchy's root, or the group that was given to an ordinary user.
    top: PathBuf,
    version: Version,
    controllers: Vec<Controller>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The hierarchies of this host that sandboxes use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cgroups {
    hierarchies: Vec<Hierarchy>,
}

impl Cgroups {
    /// Looks at what is mounted, and makes our folder in each hierarchy that has a controller we use and where this user may.
    pub(crate) fn detect(as_root: bool) -> io::Result<Self> {
        let mut found = Self::look(as_root)?;
        found.hierarchies.retain(|h| !h.controllers.is_empty());
        found.hierarchies.retain(|h| h.prepare().is_ok());
        Ok(found)
    }

    /// Looks at what is mounted: all of it for root, for others what was given to them.
    pub(crate) fn look(as_root: bool) -> io::Result<Self> {
        let mounts = sys::read_small("/proc/self/mountinfo")?;
        let mut hierarchies = parse_mounts(&mounts);
        if !as_root {
            let own = sys::read_small("/proc/self/cgroup")?;
            hierarchies.iter_mut().for_each(|h| h.top = h.mount.join(own_group(&own, h).trim_start_matches('/')));
            hierarchies.retain(|h| rustix::fs::access(&h.top, Access::WRITE_OK).is_ok());
        }
        let on_one: Vec<Controller> =
            hierarchies.iter().filter(|h| h.version == Version::One).flat_map(|h| h.controllers.clone()).collect();
        for hierarchy in hierarchies.iter_mut().filter(|h| h.version == Version::Two) {
            let there = sys::read_small(hierarchy.top.join("cgroup.controllers")).unwrap_or_default();
            hierarchy.controllers = CONTROLLERS
                .iter()
                .filter(|(c, name)| !on_one.contains(c) && there.split_ascii_whitespace().any(|word| word == *name))
                .map(|(c, _)| *c)
                .collect();
        }
        Ok(Cgroups { hierarchies })
    }

    /// Whether all limits can be held by groups.
    pub(crate) fn is_complete(&self) -> bool {
        [Controller::Memory, Controller::Pids, Controller::Cpu].into_iter().all(|wanted| self.has(wanted))
    }

    /// Which limits groups hold.
    pub(crate) fn held(&self) -> HeldByGroups {
        HeldByGroups {
            memory: self.has(Controller::Memory),
            pids: self.has(Controller::Pids),
            cpus: self.has(Controller::Cpu),
        }
    }

    /// Whether a controller is there.
    pub(crate) fn has(&self, controller: Controller) -> bool {
        self.hierarchies.iter().any(|h| h.controllers.contains(&controller))
    }

    /// Makes a group of no limits at the top of every hierarchy that has a controller we use. What is left of it when this
    /// fails is removed.
    pub(crate) fn make_trial(&self, name: &str) -> io::Result<TrialGroups> {
        let used = self.hierarchies.iter().filter(|h| !h.controllers.is_empty());
        let mut made = TrialGroups(Vec::new());
        for hierarchy in used {
            let group = hierarchy.top.join(name);
            fs::create_dir(&group)?;
            made.0.push(group);
        }
        Ok(made)
    }

    /// The names of all groups that any launcher left or uses, without their endings.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .hierarchies
            .iter()
            .filter_map(|h| fs::read_dir(h.folder()).ok())
            .flat_map(|folder| folder.flatten())
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter_map(|name| Some(name.strip_suffix(".run").or_else(|| name.strip_suffix(".guest"))?.to_owned()))
            .collect();
        names.sort();
        names.dedup();
        names
    }

    /// The groups of a name, whether or not they exist.
    pub(crate) fn named(&self, name: &str) -> Groups {
        let limits = |h: &&Hierarchy| h.controllers != [Controller::Freezer];
        Groups { hierarchies: self.hierarchies.iter().filter(limits).cloned().collect(), name: name.to_owned() }
    }

    /// The groups of a living sandbox, which can be frozen.
    pub(crate) fn named_living(&self, name: &str) -> Groups {
        Groups { hierarchies: self.hierarchies.clone(), name: name.to_owned() }
    }

    /// Whether the processes of a living sandbox can be frozen.
    pub(crate) fn can_freeze(&self) -> bool {
        self.hierarchies.iter().any(Hierarchy::can_freeze)
    }
}

/// Groups that are removed when they are no longer looked at.
pub(crate) struct TrialGroups(Vec<PathBuf>);

impl TrialGroups {
    /// Moves the calling process into all of them.
    pub(crate) fn join(&self) -> io::Result<()> {
        self.0.iter().try_for_each(|group| fs::write(group.join("cgroup.procs"), "0"))
    }
}

impl Drop for TrialGroups {
    fn drop(&mut self) {
        for group in &self.0 {
            let _ = fs::remove_dir(group);
        }
    }
}

impl Hierarchy {
    /// Whether a side has a group here.
    fn has(&self, side: Side) -> bool {
        side == Side::Run || self.controllers.contains(&Controller::Memory)
    }

    fn folder(&self) -> PathBuf {
        self.top.join(FOLDER)
    }

    fn can_freeze(&self) -> bool {
        self.version == Version::Two || self.controllers.contains(&Controller::Freezer)
    }

    fn prepare(&self) -> io::Result<()> {
        let folder = self.folder();
        if folder.is_dir() && self.version == Version::One {
            return Ok(());
        }
        make_group(&folder)?;
        if self.version == Version::Two {
            let wanted: Vec<String> = CONTROLLERS
                .iter()
                .filter(|(c, _)| self.controllers.contains(c))
                .map(|(_, name)| format!("+{name}"))
                .collect();
            let wanted = wanted.join(" ");
            match fs::write(self.top.join("cgroup.subtree_control"), &wanted) {
                // A group gives its controllers to groups below it only when no process is in itself.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    self.step_down()?;
                    fs::write(self.top.join("cgroup.subtree_control"), &wanted)?;
                }
                other => other?,
            }
            fs::write(folder.join("cgroup.subtree_control"), &wanted)?;
        }
        Ok(())
    }
}

impl Hierarchy {
    /// Moves this process and its parent, the caller, out of the top group into one below it.
    fn step_down(&self) -> io::Result<()> {
        let own = self.top.join("glovebox.self");
        make_group(&own)?;
        let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
        for process in [parent, rustix::process::getpid().as_raw_nonzero().get()] {
            fs::write(own.join("cgroup.procs"), process.to_string())?;
        }
        Ok(())
    }
}

/// The path of a hierarchy's group in a process's table of groups.
fn own_group<'a>(table: &'a str, hierarchy: &Hierarchy) -> &'a str {
    let named = |line: &&str| {
        let controllers = line.split(':').nth(1).unwrap_or_default();
        match hierarchy.version {
            Version::Two => controllers.is_empty(),
            Version::One => CONTROLLERS
                .iter()
                .filter(|(controller, _)| hierarchy.controllers.contains(controller))
                .any(|(_, name)| controllers.split(',').any(|word| word == *name)),
        }
    };
    table.lines().find(named).and_then(|line| line.splitn(3, ':').nth(2)).unwrap_or("/")
}

/// Which limits are held by groups; the others need a substitute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HeldByGroups {
    pub(crate) memory: bool,
    pub(crate) pids: bool,
    pub(crate) cpus: bool,
}

/// The groups of one sandbox.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    hierarchies: Vec<Hierarchy>,
    name: String,
}

/// Which of a sandbox's two groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Run,
    Guest,
}

impl Groups {
    /// Makes the groups with their limits. When it fails, some may be there.
    pub(crate) fn make(&self, limits: &GroupLimits) -> io::Result<()> {
        for hierarchy in &self.hierarchies {
            for side in [Side::Run, Side::Guest].into_iter().filter(|side| hierarchy.has(*side)) {
                let path = self.path(hierarchy, side);
                make_group(&path)?;
                limits.of(side).write(hierarchy, &path)?;
            }
        }
        Ok(())
    }

    /// Whether they are those of a living sandbox, and may have leaves.
    fn is_living(&self) -> bool {
        self.name.split('.').next() == Some(GROUP_OWNER)
    }

    /// The name that all of them share.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Descriptors by which a process that has one thread joins all groups of a side. Version 1 has a file for threads: a
    /// thread that moves itself by it does not wait for a grace period of the kernel, which takes milliseconds.
    pub(crate) fn doors(&self, side: Side) -> io::Result<Vec<OwnedFd>> {
        self.hierarchies
            .iter()
            .filter(|h| h.has(side))
            .map(|h| {
                let file = if h.version == Version::One { "tasks" } else { "cgroup.procs" };
                Ok(rustix::fs::open(self.path(h, side).join(file), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?)
            })
            .collect()
    }

    /// The processes of a side, host ids.
    pub(crate) fn processes(&self, side: Side) -> Vec<i32> {
        if side == Side::Run && self.is_living() {
            return self.processes_but(None);
        }
        let first = self.hierarchies.first().map(|h| self.path(h, side).join("cgroup.procs"));
        let text = first.and_then(|path| sys::read_small(path).ok()).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Whether a process is in this side's group of every hierarchy: each line of its own table must end in our name.
    pub(crate) fn hold(&self, side: Side, pid: i32) -> bool {
        let table = sys::read_small(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let group = format!("/{FOLDER}/{}", self.group_name(side));
        let wanted = self.hierarchies.iter().filter(|h| h.has(side)).count();
        let below = format!("{group}/");
        wanted > 0 && table.lines().filter(|line| line.ends_with(&group) || line.contains(&below)).count() == wanted
    }

    /// Removes groups whose processes have all been ended. The kernel may need a moment to let go of the last one; says
    /// whether it did. Mostly that is over before there is anything to wait for; a longer one is slept through.
    pub(crate) fn remove_when_empty(&self) -> bool {
        let begin = Instant::now();
        while !self.remove() {
            if begin.elapsed() > LET_GO {
                return false;
            }
            rest_after(begin.elapsed());
        }
        true
    }

    /// Removes the groups. They must be empty; what is not there is not missed.
    fn remove(&self) -> bool {
        let mut all = true;
        if self.is_living() {
            self.remove_leaves();
        }
        for hierarchy in &self.hierarchies {
            for side in [Side::Run, Side::Guest].into_iter().filter(|side| hierarchy.has(*side)) {
                match fs::remove_dir(self.path(hierarchy, side)) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(_) => all = false,
                }
            }
        }
        all
    }

    fn path(&self, hierarchy: &Hierarchy, side: Side) -> PathBuf {
        hierarchy.folder().join(self.group_name(side))
    }

    fn group_name(&self, side: Side) -> String {
        match side {
            Side::Run => format!("{}.run", self.name),
            Side::Guest => format!("{}.guest", self.name),
        }
    }

    /// The path of a file of a controller in the commands' group.
    fn file(&self, controller: Controller, one: &str, two: &str) -> Option<PathBuf> {
        self.file_in("", controller, one, two)
    }

    /// The same in a group below it.
    fn file_in(&self, leaf: &str, controller: Controller, one: &str, two: &str) -> Option<PathBuf> {
        let hierarchy = self.hierarchies.iter().find(|h| h.controllers.contains(&controller))?;
        let name = if hierarchy.version == Version::One { one } else { two };
        Some(self.path(hierarchy, Side::Run).join(leaf).join(name))
    }
}

/// Waits for the kernel, which needs a moment, or some time.
fn rest_after(waited: Duration) {
    if waited < Duration::from_millis(1) {
        std::thread::yield_now();
    } else {
        // As long again as so far, so that the end is seen soon after it came.
        std::thread::sleep(waited.min(Duration::from_millis(50)));
    }
}

fn make_group(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Which versions are mounted, as people call it.
pub(crate) fn mounted_version() -> &'static str {
    let hierarchies = parse_mounts(&sys::read_small("/proc/self/mountinfo").unwrap_or_default());
    let has = |version| hierarchies.iter().any(|h| h.version == version);
    match (has(Version::One), has(Version::Two)) {
        (true, true) => "hybrid",
        (true, false) => "v1",
        (false, true) => "v2",
        (false, false) => "none",
    }
}

/// Reads the hierarchies out of a mountinfo table. Version 2's controllers are not in it.
fn parse_mounts(table: &str) -> Vec<Hierarchy> {
    table
        .lines()
        .filter_map(|line| {
            let (mount, kind) = line.split_once(" - ")?;
            let mount = PathBuf::from(mount.split(' ').nth(4)?);
            let mut kind = kind.split(' ');
            let version = match kind.next()? {
                "cgroup" => Version::One,
                "cgroup2" => Version::Two,
                _ => return None,
            };
            let options = kind.nth(1)?;
            let has = |name: &str| options.split(',').any(|option| option == name);
            let controllers = match version {
                Version::One => CONTROLLERS.iter().filter(|(_, name)| has(name)).map(|(c, _)| *c).collect(),
                Version::Two => Vec::new(),
            };
            Some(Hierarchy { top: mount.clone(), mount, version, controllers })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
30 24 0:26 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:10 - cgroup2 cgroup2 rw,nsdelegate
35 30 0:31 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:15 - cgroup cgroup rw,cpu,cpuacct
36 30 0:32 / /sys/fs/cgroup/memory rw,nosuid shared:16 - cgroup cgroup rw,memory";

    #[test]
    fn the_own_group_is_found_by_controller_or_by_its_lack() {
        let table = "4:memory:/user/anna\n3:cpu,cpuacct:/b\n0::/session.scope\n";
        let found = parse_mounts(HYBRID);
        let own: Vec<&str> = found.iter().map(|hierarchy| own_group(table, hierarchy)).collect();
        assert_eq!(own, ["/session.scope", "/b", "/user/anna"]);
    }

    #[test]
    fn hierarchies_of_a_hybrid_host_are_told_apart() {
        let found = parse_mounts(HYBRID);
        assert_eq!(found.len(), 3);
        assert_eq!(found[0].version, Version::Two);
        assert_eq!(found[1].controllers, [Controller::Cpu, Controller::CpuAccount]);
        assert_eq!(found[2].mount, PathBuf::from("/sys/fs/cgroup/memory"));
    }
}
