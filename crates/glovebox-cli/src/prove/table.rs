//! Every guarantee that is tried, one row each.

use std::{fs, os::unix::fs::MetadataExt, path::Path, time::Duration};

use glovebox_core::{Outcome, Tier};

use super::{
    Ground, Place, WORK,
    canaries::Canaries,
    judge::{Seen, Verdict, fact_is, facts, nothing_works, only, refused, sockets_refused},
    resources,
};

pub(super) const FILESYSTEM: &str = "filesystem";
pub(super) const PRIVILEGES: &str = "privileges";
pub(super) const PROCESSES: &str = "processes";
pub(super) const NETWORK: &str = "network";
pub(super) const RESOURCES: &str = "resources";
pub(super) const INFORMATION: &str = "information";

/// The groups in the order of the table.
pub(super) const GROUPS: [&str; 6] = [FILESYSTEM, PRIVILEGES, PROCESSES, NETWORK, RESOURCES, INFORMATION];

/// One promise, how it is tried, and who judges.
pub(super) struct Guarantee {
    pub(super) group: &'static str,
    /// The promise, as a sentence.
    pub(super) name: &'static str,
    /// The sandbox that it is tried in.
    pub(super) place: Place,
    /// What the probe is asked; `{name}` stands for something planted on the host.
    pub(super) probe: &'static str,
    pub(super) judge: fn(&Seen, &mut Canaries) -> Verdict,
    /// The limit that it is about, where something else may hold it on one host and nothing on another.
    pub(super) limit: Option<&'static str>,
    /// How long the probe may take, where that is the point.
    pub(super) timeout: Option<Duration>,
}

/// Guarantees that are made of namespaces, and that the tier without them does not give.
const OF_NAMESPACES: [&str; 10] = [
    "what is written inside does not appear on the host",
    "only harmless devices are there",
    "root inside is nobody outside",
    "setuid bits do not count",
    "processes of the host are not visible",
    "loopback is the only interface",
    "paths of the host are not visible",
    "group paths of the host are not visible",
    "the name of the host is not visible",
    "accounts of the host are not visible",
];

/// Guarantees that the native backend gives and a Docker engine may not.
const OF_NATIVE: [&str; 2] = ["root inside is nobody outside", "setuid bits do not count"];

/// Guarantees about the kernel that programs see, which is not the host's where they have one of their own: its devices are none of the host's, what is
/// written to its `/dev` lies in its memory, and who ends its first process ends the sandbox.
const OF_THE_HOSTS_KERNEL: [&str; 3] = [
    "the root cannot be written, even by root inside",
    "only harmless devices are there",
    "the first process cannot be ended",
];

impl Guarantee {
    /// Where it is not promised, if that is where it is tried.
    pub(super) fn not_promised(&self, tier: Tier, ground: Ground) -> Option<&'static str> {
        match (tier, ground) {
            (Tier::Landlock, _) if OF_NAMESPACES.contains(&self.name) => Some("without namespaces"),
            (_, Ground::OwnKernel) if OF_THE_HOSTS_KERNEL.contains(&self.name) => Some("by a kernel of its own"),
            (_, Ground::Docker | Ground::OwnKernel) if OF_NATIVE.contains(&self.name) => Some("by a Docker engine"),
            _ => None,
        }
    }
}

const fn row(
    group: &'static str,
    name: &'static str,
    place: Place,
    probe: &'static str,
    judge: fn(&Seen, &mut Canaries) -> Verdict,
) -> Guarantee {
    Guarantee { group, name, place, probe, judge, limit: None, timeout: None }
}

use Place::{AsRoot, InWorkspace, Plain, Tight};

#[rustfmt::skip]
pub(super) const GUARANTEES: &[Guarantee] = &[
    row(FILESYSTEM, "files of the caller cannot be read", Plain, "read {files}", nothing_works),
    row(FILESYSTEM, "private files of the host cannot be read, even by root inside", AsRoot,
        "identify /etc/shadow /etc/gshadow /etc/sudoers /etc/ssh/sshd_config /etc/machine-id /var/log/dpkg.log /run/utmp \
         /root/.profile /proc/1/root/etc/shadow", no_private_file),
    row(FILESYSTEM, "the root cannot be written, even by root inside", AsRoot,
        "make-files {token} / /usr /usr/bin /etc /bin /lib /opt /proc /dev /sys", root_is_read_only),
    row(FILESYSTEM, "what is written inside does not appear on the host", Plain,
        "make-files {token} /tmp /dev/shm /home/user", writes_stay_inside),
    row(FILESYSTEM, "writes into a workspace stay inside", InWorkspace, "write-file given 1", workspace_is_untouched),
    row(FILESYSTEM, "mounting is refused, even to root inside", AsRoot,
        "syscall mount umount2 pivot_root chroot fsopen fsmount fspick open_tree move_mount mount_setattr", refused),
    row(FILESYSTEM, "files cannot be opened past their paths", AsRoot,
        "syscall name_to_handle_at open_by_handle_at", refused),
    row(FILESYSTEM, "only harmless devices are there", AsRoot, "devices", harmless_devices),
    row(FILESYSTEM, "the kernel's memory cannot be read", AsRoot,
        "read /proc/kcore /proc/kmsg /dev/mem /dev/kmem /dev/kmsg /dev/port /proc/1/mem", nothing_works),
    row(FILESYSTEM, "the kernel's knobs cannot be turned", AsRoot,
        "open-for-writing /proc/sysrq-trigger /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe \
         /proc/sys/vm/drop_caches /proc/sys/kernel/hostname /proc/irq/0/smp_affinity /sys/kernel/uevent_helper",
        nothing_works),

    row(PRIVILEGES, "commands do not run as root", Plain, "status", not_root),
    row(PRIVILEGES, "root inside is nobody outside", Plain, "status", root_is_nobody),
    row(PRIVILEGES, "no capability is held, even by root inside", AsRoot, "status", no_capability),
    row(PRIVILEGES, "executing a file gains nothing", Plain, "status", |seen, _| fact_is(seen, "NoNewPrivs", "1")),
    row(PRIVILEGES, "setuid bits do not count", Plain, "mount-flags / /usr /tmp /workspace /home/user /dev/shm", nosuid),
    row(PRIVILEGES, "a filter of system calls is in force", Plain, "status", |seen, _| fact_is(seen, "Seccomp", "2")),
    row(PRIVILEGES, "a new user namespace is refused", Plain,
        "syscall unshare-newuser clone-newuser clone3-newuser", refused),
    row(PRIVILEGES, "other new namespaces are refused, even to root inside", AsRoot,
        "syscall unshare-newns unshare-newnet clone-newns clone-newnet setns", refused),
    row(PRIVILEGES, "modules, another kernel, reboot and the clock are refused", AsRoot,
        "syscall init_module finit_module delete_module kexec_load kexec_file_load reboot settimeofday clock_settime \
         swapon acct sethostname", refused),
    row(PRIVILEGES, "parts of the kernel with a history of holes are refused", Plain,
        "syscall bpf perf_event_open io_uring_setup io_uring_enter io_uring_register userfaultfd keyctl add_key \
         request_key", refused),
    #[cfg(target_arch = "x86_64")]
    row(PRIVILEGES, "system calls of other tables are refused", Plain, "syscall int80 x32-getpid x32-read", other_tables),

    row(PROCESSES, "processes of the host are not visible", AsRoot, "search-processes", no_process_of_the_host),
    row(PROCESSES, "processes of the host cannot be ended", AsRoot, "kill {pid}", process_lives),
    row(PROCESSES, "the first process cannot be ended", AsRoot, "signal-pid1", first_process_lives),
    row(PROCESSES, "the first process cannot be traced or read", AsRoot,
        "syscall ptrace-attach-pid1 ptrace-seize-pid1 process_vm_readv-pid1 process_vm_writev-pid1 kcmp-pid1", refused),
    row(PROCESSES, "shared memory of the host is not reachable", AsRoot, "ipc {segment}", no_segment),

    row(NETWORK, "loopback is the only interface", Plain, "interfaces", only_loopback),
    row(NETWORK, "a listener of the host is not reached", Plain, "connect {listener}", not_connected),
    row(NETWORK, "a listener of the host is not reached over IPv6", Plain, "connect {listener6}", not_connected),
    row(NETWORK, "nothing outside is reached", Plain, "connect 192.0.2.1:80", nothing_outside),
    row(NETWORK, "abstract sockets of the host are not reached", Plain, "abstract-socket {name}", not_connected_by_name),
    row(NETWORK, "raw and packet sockets are refused, even to root inside", AsRoot,
        "syscall socket-packet socket-packet-dgram socket-raw-ipv4 socket-raw-ipv6", sockets_refused),
    row(NETWORK, "sockets into other parts of the kernel are refused", AsRoot,
        "syscall socket-netlink-netfilter socket-netlink-diag socket-netlink-xfrm socket-netlink-audit \
         socket-netlink-uevent socket-vsock socket-alg socket-bluetooth socket-can socket-tipc socket-xdp socket-key",
        sockets_refused),

    Guarantee {
        limit: Some("pids"),
        ..row(RESOURCES, "processes beyond the limit are refused", Tight, "fork-bomb 200", resources::processes)
    },
    row(RESOURCES, "bytes beyond the disk limit are refused", Tight, "fill-disk large", resources::disk),
    Guarantee {
        limit: Some("inodes"),
        ..row(RESOURCES, "files beyond the limit are refused", Tight, "fill-inodes .", resources::files)
    },
    row(RESOURCES, "open files beyond the limit are refused", Tight, "open-files 200", resources::open_files),
    Guarantee {
        limit: Some("cpus"),
        ..row(RESOURCES, "CPU time is held to the limit", Tight, "burn-cpu 150", resources::cpu)
    },
    row(RESOURCES, "memory beyond the limit ends the program", Tight, "eat-memory 512", resources::memory),
    row(RESOURCES, "output beyond the limit is cut, not kept", Plain, "print-bytes 1000000", resources::output),
    Guarantee {
        timeout: Some(resources::TIME),
        ..row(RESOURCES, "a program that ignores signals ends when its time is over", Plain, "ignore-term", resources::time)
    },

    row(INFORMATION, "the caller's environment is not visible", AsRoot, "search-processes", no_environment),
    row(INFORMATION, "no descriptor of the caller is open", Plain, "raw-fd-scan", no_descriptor),
    row(INFORMATION, "paths of the host are not visible", InWorkspace, "search-processes", no_path),
    row(INFORMATION, "group paths of the host are not visible", Plain, "show /proc/self/cgroup /proc/1/cgroup", no_group),
    row(INFORMATION, "keys of the caller are not reachable", AsRoot, "key-reach {token} {serial}", nothing_works),
    row(INFORMATION, "the kernel's log cannot be read", AsRoot, "syscall syslog", refused),
    row(INFORMATION, "the name of the host is not visible", Plain, "status", no_host_name),
    row(INFORMATION, "accounts of the host are not visible", Plain, "show /etc/passwd /etc/group", no_account),
    row(INFORMATION, "the caller's terminal is not reachable", Plain,
        "read /dev/tty /dev/console /dev/pts/0 /dev/pts/1 /dev/tty0", nothing_works),
];

/// Whatever can be read is the host's, where the sandbox has its root from it. An image has files of the same names, which are others.
fn no_private_file(seen: &Seen, _: &mut Canaries) -> Verdict {
    let is_hosts = |path: &str, file: &str| match seen.about.ground {
        Ground::Native => true,
        Ground::Docker | Ground::OwnKernel => {
            fs::metadata(path).is_ok_and(|own| format!("{}:{}", own.dev(), own.ino()) == file)
        }
    };
    facts(seen, |seen| {
        let read = seen.answers().into_iter().filter(|(path, file)| file.contains(':') && is_hosts(path, file));
        Some(Verdict::unless(read.map(|(path, _)| format!("{path} works")).collect()))
    })
}

fn root_is_read_only(seen: &Seen, canaries: &mut Canaries) -> Verdict {
    match nothing_works(seen, canaries) {
        Verdict::Holds(_) => {
            let folders = ["/", "/usr", "/usr/bin", "/etc", "/bin", "/lib", "/opt", "/dev"];
            let made = folders.iter().filter(|folder| Path::new(folder).join(&canaries.token).exists());
            Verdict::unless(made.map(|folder| format!("{folder} of the host was written")).collect())
        }
        other => other,
    }
}

fn writes_stay_inside(seen: &Seen, canaries: &mut Canaries) -> Verdict {
    match only(seen, &["ok"]) {
        Verdict::Holds(_) => {
            let made = ["/tmp", "/dev/shm", "/home/user"].map(|folder| Path::new(folder).join(&canaries.token));
            Verdict::unless(made.iter().filter(|path| path.exists()).map(|path| path.display().to_string()).collect())
        }
        Verdict::Broken(why) => Verdict::Unknown(format!("nothing could be written inside: {why}")),
        other => other,
    }
}

fn workspace_is_untouched(seen: &Seen, canaries: &mut Canaries) -> Verdict {
    facts(seen, |seen| {
        seen.fact("wrote")?;
        let changed = !canaries.workspace_is_untouched();
        Some(Verdict::unless(changed.then(|| format!("{WORK}/given changed on the host")).into_iter().collect()))
    })
}

fn harmless_devices(seen: &Seen, _: &mut Canaries) -> Verdict {
    const HARMLESS: [&str; 8] = ["null", "zero", "full", "random", "urandom", "tty", "ptmx", "console"];
    facts(seen, |seen| {
        seen.answers().iter().find(|(_, path)| *path == "/dev/null")?;
        let harmless = |path: &str| path.strip_prefix("/dev/").is_some_and(|name| HARMLESS.contains(&name));
        let others = seen.answers().into_iter().filter(|(kind, path)| *kind == "block" || !harmless(path));
        Some(Verdict::unless(others.map(|(_, path)| path.to_owned()).collect()))
    })
}

fn not_root(seen: &Seen, _: &mut Canaries) -> Verdict {
    facts(seen, |seen| {
        let roots = ["Uid", "Gid"]
            .into_iter()
            .filter(|name| seen.fact(name).is_none_or(|ids| ids.split(' ').any(|id| id == "0")));
        Some(Verdict::unless(roots.map(|name| format!("{name} holds 0")).collect()))
    })
}

/// The host's own view of the map counts: ids inside, ids of the host, how many.
fn root_is_nobody(seen: &Seen, _: &mut Canaries) -> Verdict {
    let caller = u64::from(rustix::process::geteuid().as_raw());
    facts(seen, |seen| {
        let map: Vec<u64> = seen.about.ids.split_ascii_whitespace().map(|n| n.parse().ok()).collect::<Option<_>>()?;
        let rows: Vec<&[u64]> = map.chunks_exact(3).collect();
        rows.first()?;
        if rows.iter().any(|row| row[1] == 0) {
            return Some(Verdict::Broken("an id inside is root outside".into()));
        }
        Some(match rows.iter().find(|row| row[0] == 0).map(|row| row[1]) {
            None => Verdict::Holds("there is no root inside".into()),
            Some(outside) if outside == caller => Verdict::Unknown(format!("it has your own id, {caller}")),
            Some(outside) => Verdict::Holds(format!("it is {outside}")),
        })
    })
}

fn no_capability(seen: &Seen, _: &mut Canaries) -> Verdict {
    facts(seen, |seen| {
        let sets = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
        let held = sets.into_iter().filter(|set| seen.fact(set) != Some("0000000000000000"));
        Some(Verdict::unless(held.map(|set| format!("{set} is {}", seen.fact(set).unwrap_or("not told"))).collect()))
    })
}

fn nosuid(seen: &Seen, _: &mut Canaries) -> Verdict {
    facts(seen, |seen| {
        let open = seen.answers().into_iter().filter(|(_, flags)| !flags.split(',').any(|flag| flag == "nosuid"));
        Some(Verdict::unless(open.map(|(path, _)| format!("{path} lets them count")).collect()))
    })
}

#[cfg(target_arch = "x86_64")]
fn other_tables(seen: &Seen, _: &mut Canaries) -> Verdict {
    // The filter may end who calls a foreign table; then the probe does not live to tell.
    if seen.outcome == (Outcome::Signaled { signal: 31 }) {
        return Verdict::holds();
    }
    facts(seen, |seen| {
        let int80 = seen.fact("int80")?;
        let mut wrong = Vec::new();
        if !["signaled 31", "signaled 9", "signaled 11", "exited 1"].contains(&int80) {
            wrong.push(format!("int80 gave {int80}"));
        }
        for name in ["x32-getpid", "x32-read"] {
            let answer = seen.fact(name)?;
            if !["EPERM", "ENOSYS"].contains(&answer) {
                wrong.push(format!("{name} gave {answer}"));
            }
        }
        Some(Verdict::unless(wrong))
    })
}

/// Files below /proc that hold the word of the caller and whose names end so.
fn found<'a>(seen: &'a Seen, endings: &[&str]) -> Vec<&'a str> {
    let files = seen.out.lines().filter_map(|line| line.strip_prefix("found "));
    files
        .filter(|path| endings.iter().any(|ending| path.ends_with(ending) || path.contains(&format!("{ending}/"))))
        .collect()
}

fn no_process_of_the_host(seen: &Seen, _: &mut Canaries) -> Verdict {
    facts(seen, |seen| {
        let processes = seen.number("processes")?;
        // The guest, its helper and the probe; one may be ending.
        if processes > 5 {
            return Some(Verdict::Broken(format!("{processes} processes are visible")));
        }
        let names = found(seen, &["/cmdline", "/comm"]);
        Some(match names.as_slice() {
            [] => Verdict::Holds(format!("{processes} of its own are")),
            _ => Verdict::Broken(format!("{} shows a process of the host", names.join(", "))),
        })
    })
}

/// The process itself is the witness: what the probe says does not matter, as long as it was there to try.
fn process_lives(seen: &Seen, canaries: &mut Canaries) -> Verdict {
    match canaries.process_lives() {
        false => Verdict::Broken("a process of the host is gone".into()),
        true => facts(seen, |seen| seen.fact("kill").map(|answer| Verdict::Holds(answer.to_owned()))),
    }
}

fn first_process_lives(seen: &Seen, _: &mut Canaries) -> Verdict {
    match seen.outcome {
        Outcome::Lost => Verdict::Broken("root inside can end it, and the sandbox with it".into()),
        _ => fact_is(seen, "alive", "true"),
    }
}

fn no_segment(seen: &Seen, _: &mut Canaries) -> Verdict {
    facts(seen, |seen| {
        let listed = ["listed_shm", "listed_msg", "listed_sem"].into_iter().filter(|name| seen.number(name) != Some(0));
        let mut against: Vec<String> = listed.map(|name| format!("{name} is not 0")).collect();
        against.extend((seen.fact("shmget")? == "ok").then(|| "a segment of the host was found".to_owned()));
        Some(Verdict::unless(against))
    })
}

fn only_loopback(seen: &Seen, _: &mut Canaries) -> Verdict {
    facts(seen, |seen| {
        let others: Vec<String> = seen.out.lines().filter(|name| *name != "lo").map(str::to_owned).collect();
        Some(Verdict::unless(others))
    })
}

/// Without a way out the kernel says so at once. That a machine behind it is not there is said by others, unless the kernel has no network at all.
fn nothing_outside(seen: &Seen, _: &mut Canaries) -> Verdict {
    match seen.about.ground {
        Ground::Native | Ground::Docker => only(seen, &["ENETUNREACH", "EPERM"]),
        Ground::OwnKernel => only(seen, &["ENETUNREACH", "EHOSTUNREACH", "EPERM"]),
    }
}

/// The listener is the witness.
fn not_connected(seen: &Seen, canaries: &mut Canaries) -> Verdict {
    match canaries.was_connected() {
        true => Verdict::Broken("the host's listener was reached".into()),
        false => nothing_works(seen, canaries),
    }
}

fn not_connected_by_name(seen: &Seen, canaries: &mut Canaries) -> Verdict {
    match canaries.was_connected_by_name() {
        true => Verdict::Broken("the host's socket was reached".into()),
        false => nothing_works(seen, canaries),
    }
}

fn no_environment(seen: &Seen, _: &mut Canaries) -> Verdict {
    facts(seen, |seen| match seen.number("looked")? {
        0 if seen.isolation.tier == Tier::Landlock && found(seen, &["/environ"]).is_empty() => {
            Some(Verdict::Holds("no environment can be opened, not even one's own".into()))
        }
        0 => Some(Verdict::Unknown("not even the probe's own environment could be read".into())),
        _ => Some(Verdict::unless(found(seen, &["/environ"]).into_iter().map(str::to_owned).collect())),
    })
}

fn no_descriptor(seen: &Seen, _: &mut Canaries) -> Verdict {
    facts(seen, |seen| {
        let others = seen.out.lines().filter(|number| !["0", "1", "2"].contains(number));
        Some(Verdict::unless(others.map(|number| format!("{number} is open")).collect()))
    })
}

fn no_path(seen: &Seen, _: &mut Canaries) -> Verdict {
    facts(seen, |seen| {
        seen.number("looked")?;
        let places = ["/mountinfo", "/maps", "/exe", "/cwd", "/root", "/fd", "/cgroup"];
        Some(Verdict::unless(found(seen, &places).into_iter().map(str::to_owned).collect()))
    })
}

fn no_group(seen: &Seen, _: &mut Canaries) -> Verdict {
    facts(seen, |seen| {
        let id = seen.sandbox.to_string();
        let told = seen.out.lines().filter(|line| line.contains(&id) || line.contains("/glovebox"));
        Some(Verdict::unless(told.map(str::to_owned).collect()))
    })
}

fn no_host_name(seen: &Seen, _: &mut Canaries) -> Verdict {
    facts(seen, |seen| {
        let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let inside = seen.fact("host_name")?;
        let separate = seen.isolation.has(glovebox_core::Layer::UtsNs);
        Some(match (inside == own, separate) {
            (false, _) => Verdict::Holds(format!("inside it is {inside}")),
            (true, true) => Verdict::Unknown("the host has the name that every sandbox has".into()),
            (true, false) => Verdict::Broken(inside.to_owned()),
        })
    })
}

fn no_account(seen: &Seen, _: &mut Canaries) -> Verdict {
    let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let names = accounts.lines().filter_map(|line| line.split(':').next());
    let names: Vec<&str> = names.filter(|name| !["root", "nobody", "user", ""].contains(name)).collect();
    if names.is_empty() {
        return Verdict::Unknown("the host has no accounts of its own to look for".into());
    }
    facts(seen, |seen| {
        let inside: Vec<&str> =
            seen.out.lines().filter_map(|line| line.strip_prefix("/etc/passwd ")?.split(':').next()).collect();
        inside.first()?;
        Some(Verdict::unless(
            names.iter().filter(|name| inside.contains(name)).map(|name| (*name).to_owned()).collect(),
        ))
    })
}

#[cfg(test)]
mod tests {
    use glovebox_core::{Enforcement, Isolation, LimitsInForce, SandboxId};

    use super::{
        super::{judge::About, new_token},
        *,
    };

    #[test]
    fn every_guarantee_is_a_sentence_of_its_own_in_a_group_that_is_printed() {
        let mut names: Vec<&str> = GUARANTEES.iter().map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), GUARANTEES.len());
        for row in GUARANTEES {
            assert!(GROUPS.contains(&row.group) && row.name.contains(' ') && !row.name.ends_with('.'), "{}", row.name);
        }
        assert!(GROUPS.iter().all(|group| GUARANTEES.iter().any(|row| row.group == *group)));
        let named = OF_NAMESPACES.iter().chain(&OF_NATIVE).chain(&OF_THE_HOSTS_KERNEL);
        assert!(named.into_iter().all(|name| GUARANTEES.iter().any(|row| row.name == *name)));
    }

    fn seen(outcome: Outcome, out: &str) -> Seen {
        let enforcement = ["cpus", "pids"].map(|limit| (limit.to_owned(), Enforcement::Cgroup)).into();
        Seen {
            outcome,
            out: out.to_owned(),
            err: String::new(),
            out_bytes: out.len() as u64,
            cpu_ms: 0.0,
            warnings: Vec::new(),
            limits: LimitsInForce {
                memory_bytes: 0,
                cpus: 1.0,
                pids: 1,
                disk_bytes: 0,
                inodes: 0,
                open_files: 0,
                timeout_ms: 0,
                output_bytes: 0,
                memory_group_bytes: None,
                store: String::new(),
                lowered: Vec::new(),
                enforcement,
            },
            isolation: Isolation::default(),
            sandbox: SandboxId::new(),
            about: About {
                ground: Ground::Native,
                guest: None,
                ids: "         0          0 4294967295\n".into(),
                room: 0,
            },
        }
    }

    #[test]
    fn no_guarantee_holds_when_the_probe_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut canaries = Canaries::plant_folder(new_token(), dir.path()).unwrap();
        for row in GUARANTEES {
            for outcome in
                [Outcome::Exited { code: 0 }, Outcome::Exited { code: 99 }, Outcome::Lost, Outcome::Cancelled]
            {
                let verdict = (row.judge)(&seen(outcome.clone(), ""), &mut canaries);
                assert!(!matches!(verdict, Verdict::Holds(_)), "{} after {outcome:?}", row.name);
            }
        }
    }

    /// What a probe would print where nothing isolates it.
    fn on_a_bare_host(probe: &str) -> (i32, String) {
        let own_name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let text = match probe.split(' ').next().unwrap_or_default() {
            "identify" => "/etc/shadow 8:1\n",
            "make-files" => "/tmp ok\n/dev/shm ok\n/home/user ok\n",
            "write-file" => "wrote 1\n",
            "devices" => "character /dev/null\nblock /dev/sda\n",
            "status" => {
                let text = "Uid 0 0 0 0\nGid 0 0 0 0\nCapEff 000001ffffffffff\nNoNewPrivs 0\nSeccomp 0";
                return (0, format!("{text}\nhost_name {own_name}\n"));
            }
            "mount-flags" => "/ nodev\n/usr read-only\n",
            "search-processes" => {
                "found /proc/7/environ\nfound /proc/7/cmdline\nfound /proc/7/mountinfo\nprocesses 3\nlooked 3\n"
            }
            "kill" => "kill ok\n",
            "signal-pid1" => "KILL ok\nalive false\n",
            "ipc" => "shmget ok\nlisted_shm 1\nlisted_msg 0\nlisted_sem 0\n",
            "interfaces" => "lo\neth0\n",
            "fork-bomb" => "forked 200\nstopped none\n",
            "fill-disk" => return (1, "wrote 999999999\nstopped ENOSPC\n".into()),
            "fill-inodes" => return (1, "made 99999\nstopped ENOSPC\n".into()),
            "open-files" => "opened 200\n",
            "burn-cpu" => "wall_ms 151\n",
            "eat-memory" => "ate 512\n",
            "print-bytes" => return (0, "x".repeat(1_000_000)),
            "raw-fd-scan" => "0\n1\n2\n7\n",
            "show" if probe.contains("cgroup") => "/proc/self/cgroup 0::/glovebox/x.run\n",
            "show" => {
                return (
                    0,
                    fs::read_to_string("/etc/passwd").unwrap().lines().map(|l| format!("/etc/passwd {l}\n")).collect(),
                );
            }
            "syscall" if probe.contains("int80") => "int80 exited 0\nx32-getpid ok\nx32-read EBADF\n",
            _ => "this ok\n",
        };
        (0, text.to_owned())
    }

    #[test]
    fn a_file_of_the_image_is_told_from_the_one_of_the_host() {
        let dir = tempfile::tempdir().unwrap();
        let mut canaries = Canaries::plant_folder(new_token(), dir.path()).unwrap();
        let own = fs::metadata("/etc/passwd").unwrap();
        let mut judge = |file: String| {
            let mut seen = seen(Outcome::Exited { code: 0 }, &format!("/etc/shadow EACCES\n/etc/passwd {file}\n"));
            seen.about.ground = Ground::Docker;
            no_private_file(&seen, &mut canaries)
        };
        assert!(matches!(judge(format!("{}:{}", own.dev(), own.ino())), Verdict::Broken(_)));
        assert!(matches!(judge(format!("{}:{}", own.dev(), own.ino() + 1)), Verdict::Holds(_)));
    }

    #[test]
    fn what_a_bare_host_answers_breaks_every_guarantee() {
        let dir = tempfile::tempdir().unwrap();
        let mut canaries = Canaries::plant_folder(new_token(), dir.path()).unwrap();
        fs::write(canaries.workspace().join("given"), "changed").unwrap();
        let written = Path::new("/tmp").join(&canaries.token);
        fs::write(&written, "").unwrap();
        // A program that does not end has no other end than the one that was asked for.
        for row in GUARANTEES.iter().filter(|row| row.timeout.is_none()) {
            let (code, out) = on_a_bare_host(row.probe);
            let verdict = (row.judge)(&seen(Outcome::Exited { code }, &out), &mut canaries);
            assert!(matches!(verdict, Verdict::Broken(_)), "{}", row.name);
        }
        fs::remove_file(written).unwrap();
    }
}
