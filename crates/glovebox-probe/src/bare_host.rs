//! A host that gives no namespaces, for tests: what a default container is.
//!
//! A program is started in a user namespace that has all ids and in which no further namespace can be made, with the
//! capabilities that a root has in a default container, or as an ordinary user with none. Only root can do this.

use std::{
    fs,
    io::{Read, Write},
    os::unix::process::CommandExt,
    process::Command,
};

use crate::{Tried, errno, sys};

/// Capabilities of a root in a default Docker container, by the kernel's numbers: CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL,
/// SETGID, SETUID, SETPCAP, NET_BIND_SERVICE, NET_RAW, SYS_CHROOT, MKNOD, AUDIT_WRITE, SETFCAP.
const KEPT: [i64; 14] = [0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31];
const MOST_CAPABILITIES: i64 = 64;

/// Runs a program there, as `root` or as a user by number, and ends as it ends.
pub(crate) fn run(who: &str, program: &str, args: &[&str]) -> Tried {
    let user = if who == "root" { None } else { Some(crate::number::<u32>(who)?) };
    let pipe = || std::io::pipe().map_err(|error| error.to_string());
    let ((entered, enter), (mapped, map)) = (pipe()?, pipe()?);
    let child = sys::fork_with(0, || {
        let _ = sys::call(libc::SYS_unshare, &[sys::Arg::Int(libc::CLONE_NEWUSER.into())]);
        let _ = (&enter).write(b"x");
        let _ = (&mapped).read(&mut [0]);
        let why = become_bare(user, program, args);
        eprintln!("probe: {why}");
        99
    });
    let child = child.map_err(errno::name)?;
    let _ = (&entered).read(&mut [0]);
    for ids in ["uid_map", "gid_map"] {
        fs::write(format!("/proc/{child}/{ids}"), "0 0 4294967295").map_err(|error| error.to_string())?;
    }
    (&map).write_all(b"x").map_err(|error| error.to_string())?;
    let ended = sys::wait_for(child);
    let code = ended.strip_prefix("exited ").and_then(|code| code.parse().ok());
    Ok(code.unwrap_or(99))
}

/// Becomes the program. Returns only what went wrong.
fn become_bare(user: Option<u32>, program: &str, args: &[&str]) -> String {
    if let Err(error) = fs::write("/proc/sys/user/max_user_namespaces", "0") {
        return format!("the host still gives namespaces: {error}");
    }
    for capability in (0..MOST_CAPABILITIES).filter(|number| user.is_some() || !KEPT.contains(number)) {
        let order = [sys::Arg::Int(libc::PR_CAPBSET_DROP.into()), sys::Arg::Int(capability)];
        if sys::call(libc::SYS_prctl, &order).is_err() {
            break;
        }
    }
    let mut command = Command::new(program);
    command.args(args);
    if let Some(user) = user {
        // As root does it, this also leaves all further groups.
        command.uid(user).gid(user);
    }
    command.exec().to_string()
}
