//! What can be seen: identity, descriptors, environment, files, keys, System V segments.

use std::{
    fs,
    io::Read,
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    path::PathBuf,
};

use crate::{Tried, errno_of, report, sys, sys::Arg};

const SESSION: i32 = libc::KEY_SPEC_SESSION_KEYRING;
const USER: i32 = libc::KEY_SPEC_USER_KEYRING;
const USER_SESSION: i32 = libc::KEY_SPEC_USER_SESSION_KEYRING;

/// Prints `/proc/self/status`, the id maps and the namespaces, each as `name value`.
pub(crate) fn status() -> Tried {
    let status = match fs::read_to_string("/proc/self/status") {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => String::new(),
        status => status.map_err(|e| e.to_string())?,
    };
    let told: Vec<(&str, &str)> = status.lines().filter_map(|line| line.split_once(':')).collect();
    for (name, value) in &told {
        println!("{name} {}", value.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    let by_calls = status_by_calls();
    for (name, value) in by_calls.iter().filter(|(name, _)| !told.iter().any(|(other, _)| other == name)) {
        println!("{name} {value}");
    }
    for map in ["uid_map", "gid_map"] {
        let Ok(text) = fs::read_to_string(format!("/proc/self/{map}")) else { continue };
        println!("{map} {}", text.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    for name in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"] {
        // A kernel that is none of Linux's may have no such link; whoever needs it sees that it is not printed.
        let Ok(link) = fs::read_link(format!("/proc/self/ns/{name}")) else { continue };
        println!("ns_{name} {}", link.display());
    }
    println!("landlock_abi {}", landlock_abi());
    println!("host_name {}", rustix::system::uname().nodename().to_string_lossy());
    Ok(0)
}

/// Folders of processes, as /proc lists them.
fn processes_by_list() -> std::io::Result<Vec<PathBuf>> {
    let is_number = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().bytes().all(|b| b.is_ascii_digit());
    Ok(fs::read_dir("/proc")?.flatten().filter(is_number).map(|entry| entry.path()).collect())
}

/// The same where /proc does not let itself be listed: every number that is there.
fn processes_by_number() -> Vec<PathBuf> {
    (1..=65_536).map(|pid| PathBuf::from(format!("/proc/{pid}"))).filter(|folder| folder.exists()).collect()
}

/// The lines that matter most, asked for by calls: the file may not be read, and a kernel that is none of Linux's may lack some.
fn status_by_calls() -> Vec<(&'static str, String)> {
    use rustix::process::{getegid, geteuid, getgid, getuid};
    let mut told = vec![
        ("Uid", format!("{} {}", getuid().as_raw(), geteuid().as_raw())),
        ("Gid", format!("{} {}", getgid().as_raw(), getegid().as_raw())),
    ];
    if let Ok(sets) = rustix::thread::capabilities(None) {
        let sets = [("CapInh", sets.inheritable), ("CapPrm", sets.permitted), ("CapEff", sets.effective)];
        told.extend(sets.map(|(name, set)| (name, format!("{:016x}", set.bits()))));
    }
    let ask = |what: i32, number: i64| sys::call(libc::SYS_prctl, &[Arg::Int(what.into()), Arg::Int(number)]);
    let bounding = (0..64).filter(|number| ask(libc::PR_CAPBSET_READ, *number) == Ok(1)).map(|number| 1u64 << number);
    let is_ambient = |number: &i64| {
        let ask = [libc::PR_CAP_AMBIENT.into(), libc::PR_CAP_AMBIENT_IS_SET.into(), *number, 0, 0].map(Arg::Int);
        sys::call(libc::SYS_prctl, &ask) == Ok(1)
    };
    let ambient = (0..64).filter(is_ambient).map(|number| 1u64 << number);
    told.push(("CapBnd", format!("{:016x}", bounding.sum::<u64>())));
    told.push(("CapAmb", format!("{:016x}", ambient.sum::<u64>())));
    // This call must have zeros behind it, or it is refused.
    let alone = [libc::PR_GET_NO_NEW_PRIVS.into(), 0, 0, 0, 0].map(Arg::Int);
    told.push(("NoNewPrivs", sys::call(libc::SYS_prctl, &alone).unwrap_or(0).to_string()));
    told.push(("Seccomp", ask(libc::PR_GET_SECCOMP, 0).unwrap_or(0).to_string()));
    told
}

/// The Landlock version of the kernel; 0 where it has none or the call is refused.
fn landlock_abi() -> i64 {
    const VERSION: i64 = 1;
    sys::call(libc::SYS_landlock_create_ruleset, &[Arg::Int(0), Arg::Int(0), Arg::Int(VERSION)]).unwrap_or(0)
}

/// Prints each open descriptor and what it is, as /proc shows them.
pub(crate) fn descriptors() -> Tried {
    for entry in fs::read_dir("/proc/self/fd").map_err(|e| e.to_string())? {
        let path = entry.map_err(|e| e.to_string())?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match fs::read_link(&path) {
            // The folder that is being read is a descriptor of this very loop.
            Ok(link) if link.to_string_lossy().ends_with("/fd") => {}
            Ok(link) => println!("{name} {}", link.display()),
            Err(error) => println!("{name} {error}"),
        }
    }
    Ok(0)
}

/// Prints each open descriptor, found by asking for every number; this needs no /proc.
pub(crate) fn scan_descriptors() -> Tried {
    for number in 0..65536 {
        if sys::call(libc::SYS_fcntl, &[Arg::Int(number), Arg::Int(i64::from(libc::F_GETFD))]).is_ok() {
            println!("{number}");
        }
    }
    Ok(0)
}

/// Prints the environment.
pub(crate) fn environment() -> Tried {
    for (name, value) in std::env::vars_os() {
        println!("{}={}", name.to_string_lossy(), value.to_string_lossy());
    }
    Ok(0)
}

/// Tries to read a byte of each path: `ok` when there was one, `empty` at an end of file, else the errno.
pub(crate) fn read(paths: &[&str]) -> Tried {
    for path in paths {
        let opened = fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        match opened.and_then(|mut file| file.read(&mut [0])) {
            Ok(0) => println!("{path} empty"),
            result => report(path, result.map(drop).map_err(|e| errno_of(&e))),
        }
    }
    Ok(0)
}

/// Tries to read each path: the device and inode of what was read, `empty`, else the errno.
pub(crate) fn identify(paths: &[&str]) -> Tried {
    for path in paths {
        let opened = fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        let read = opened.and_then(|mut file| Ok((file.read(&mut [0])?, file.metadata()?)));
        match read {
            Ok((0, _)) => println!("{path} empty"),
            Ok((_, facts)) => println!("{path} {}:{}", facts.dev(), facts.ino()),
            Err(error) => report(path, Err(errno_of(&error))),
        }
    }
    Ok(0)
}

/// Tries to open each path for writing, without making or cutting anything: `ok`, `null` where the path leads to
/// the null device, else the errno.
pub(crate) fn open_for_writing(paths: &[&str]) -> Tried {
    for path in paths {
        let opened = fs::OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path);
        match opened.and_then(|file| file.metadata()) {
            Ok(facts) if facts.rdev() == libc::makedev(1, 3) => println!("{path} null"),
            result => report(path, result.map(drop).map_err(|e| errno_of(&e))),
        }
    }
    Ok(0)
}

/// Prints the beginning of each file, its path before every line.
pub(crate) fn show(paths: &[&str]) -> Tried {
    for path in paths {
        match read_beginning(path) {
            Ok(bytes) if bytes.is_empty() => println!("{path} is empty"),
            Ok(bytes) => String::from_utf8_lossy(&bytes).lines().for_each(|line| println!("{path} {line}")),
            Err(error) => report(path, Err(errno_of(&error))),
        }
    }
    Ok(0)
}

/// Reads up to 64 KiB of a file.
fn read_beginning(path: impl AsRef<std::path::Path>) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    file.take(64 << 10).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Prints every device below /dev but those of terminals, as `block NAME` or `character NAME`.
pub(crate) fn devices() -> Tried {
    let mut folders = vec![std::path::PathBuf::from("/dev")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(|e| e.to_string())?.flatten() {
            // A device may be mounted over an ordinary file, which is what the folder itself would tell of.
            let path = entry.path();
            let kind = fs::symlink_metadata(&path).map_err(|e| e.to_string())?.file_type();
            if kind.is_dir() && path != std::path::Path::new("/dev/pts") {
                folders.push(path);
            } else if kind.is_block_device() || kind.is_char_device() {
                println!("{} {}", if kind.is_block_device() { "block" } else { "character" }, path.display());
            }
        }
    }
    Ok(0)
}

/// Reads words from stdin, one a line, and looks for them in all that /proc shows of every process. Prints how many
/// processes there are, how many could be looked at, and each file that holds one of the words. The words do not come as
/// arguments, because the probe would then find itself.
pub(crate) fn search_processes() -> Tried {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|e| e.to_string())?;
    let words: Vec<&[u8]> = text.lines().map(str::as_bytes).filter(|word| !word.is_empty()).collect();
    let holds = |bytes: &[u8]| words.iter().any(|word| bytes.windows(word.len()).any(|part| part == *word));
    let (mut processes, mut looked) = (0, 0);
    for folder in processes_by_list().unwrap_or_else(|_| processes_by_number()) {
        processes += 1;
        let mut seen = false;
        for name in ["cmdline", "environ", "comm", "mountinfo", "cgroup", "maps"] {
            let bytes = read_beginning(folder.join(name)).unwrap_or_default();
            seen |= name == "environ" && !bytes.is_empty();
            if holds(&bytes) {
                println!("found {}", folder.join(name).display());
            }
        }
        looked += u32::from(seen);
        let descriptors = fs::read_dir(folder.join("fd")).into_iter().flatten().flatten().map(|fd| fd.path());
        let links = ["exe", "cwd", "root"].into_iter().map(|name| folder.join(name));
        for link in links.chain(descriptors) {
            if fs::read_link(&link).is_ok_and(|target| holds(target.as_os_str().as_encoded_bytes())) {
                println!("found {}", link.display());
            }
        }
    }
    println!("processes {processes}\nlooked {looked}");
    Ok(0)
}

/// Tries to make a file of this name in each folder.
pub(crate) fn make_files(name: &str, folders: &[&str]) -> Tried {
    for folder in folders {
        let path = std::path::Path::new(folder).join(name);
        let made = fs::OpenOptions::new().write(true).create_new(true).open(path);
        report(folder, made.map(drop).map_err(|e| errno_of(&e)));
    }
    Ok(0)
}

/// Prints what the mount of each path refuses: `nosuid`, `nodev`, `read-only`, joined by commas.
pub(crate) fn mount_flags(paths: &[&str]) -> Tried {
    use rustix::fs::StatVfsMountFlags as Flags;
    for path in paths {
        let facts = rustix::fs::statvfs(*path).map_err(|e| format!("{path}: {e}"))?;
        let names = [(Flags::NOSUID, "nosuid"), (Flags::NODEV, "nodev"), (Flags::RDONLY, "read-only")];
        let set: Vec<&str> = names.iter().filter(|(flag, _)| facts.f_flag.contains(*flag)).map(|(_, n)| *n).collect();
        println!("{path} {}", set.join(","));
    }
    Ok(0)
}

/// On the host: is there, with a telling argument, until the end of stdin.
pub(crate) fn hold() -> Tried {
    println!("ready");
    wait_for_end_of_stdin();
    Ok(0)
}

/// On the host: adds a key to the session and the user keyring, prints its serial, removes it at the end of stdin.
pub(crate) fn key_add(name: &str) -> Tried {
    let add = |keyring| sys::add_key(name, "payload of the caller", keyring);
    let (session, user) = (add(SESSION), add(USER));
    match (&session, &user) {
        (Ok(session), Ok(user)) => println!("session {session}\nuser {user}"),
        (Err(errno), _) | (_, Err(errno)) => println!("failed {}", crate::errno::name(*errno)),
    }
    wait_for_end_of_stdin();
    // The keys may share one serial; a second removal that finds nothing is no failure.
    let _ = session.map(|serial| sys::unlink_key(serial, SESSION));
    let _ = user.map(|serial| sys::unlink_key(serial, USER));
    Ok(0)
}

/// Tries every way to a key that somebody outside holds.
pub(crate) fn key_reach(name: &str, serial: i64) -> Tried {
    report("search-session", sys::search_key(name, SESSION).map(drop));
    report("search-user", sys::search_key(name, USER).map(drop));
    report("search-user-session", sys::search_key(name, USER_SESSION).map(drop));
    report("read-by-serial", sys::read_key(serial).map(drop));
    let listed = fs::read_to_string("/proc/keys").is_ok_and(|keys| keys.contains(name));
    println!("listed {listed}");
    Ok(0)
}

/// On the host: makes a System V segment, says so, removes it at the end of stdin.
pub(crate) fn hold_shm(key: i64) -> Tried {
    let flags = i64::from(libc::IPC_CREAT | 0o666);
    let segment = sys::call(libc::SYS_shmget, &[Arg::Int(key), Arg::Int(4096), Arg::Int(flags)]);
    report("held", segment.map(drop));
    wait_for_end_of_stdin();
    if let Ok(id) = segment {
        report("removed", sys::call(libc::SYS_shmctl, &[Arg::Int(id), Arg::Int(i64::from(libc::IPC_RMID))]).map(drop));
    }
    Ok(0)
}

/// Looks for a System V segment by its key, and counts those that are listed.
pub(crate) fn ipc(key: i64) -> Tried {
    report("shmget", sys::call(libc::SYS_shmget, &[Arg::Int(key), Arg::Int(4096), Arg::Int(0)]).map(drop));
    for kind in ["shm", "msg", "sem"] {
        let listed = fs::read_to_string(format!("/proc/sysvipc/{kind}")).map_or(0, |text| text.lines().skip(1).count());
        println!("listed_{kind} {listed}");
    }
    Ok(0)
}

fn wait_for_end_of_stdin() {
    let mut sink = Vec::new();
    // Both an end and an error mean that whoever asked is gone.
    let _ = std::io::stdin().read_to_end(&mut sink);
}
