//! System calls that a sandbox refuses, each tried by its raw number with harmless arguments.
//!
//! The arguments are chosen so that a kernel without a filter would answer something else than EPERM wherever that is
//! possible: success, or an error about the arguments. What is tried here does no harm even where it succeeds.

use libc::*;

use crate::{
    Tried, errno, report,
    sys::{self, Arg, Arg::Int},
};

const NOWHERE: Arg = Arg::Text(c"/nowhere");
const ROOT: Arg = Arg::Text(c"/");
const NOTHING: Arg = Arg::Text(c"");
const PAGE: Arg = Arg::Page(&[]);
const NULL: Arg = Int(0);
const NO_FD: Arg = Int(-1);
const HERE: Arg = Int(AT_FDCWD as i64);
/// A file handle structure with room for 128 bytes.
const HANDLE: Arg = Arg::Page(&[128]);
const PROCESS_KEYRING: Arg = Int(KEY_SPEC_PROCESS_KEYRING as i64);
/// A part of memory to copy: eight bytes at an address of its own.
const MEMORY: Arg = Arg::Page(&[0, 0, 1, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0]);
/// Numbers of the x32 table carry this bit.
const X32_BIT: i64 = 0x4000_0000;

/// Tries each call by its name in the tables below and prints a line for each.
pub(crate) fn try_all(names: &[&str]) -> Tried {
    for name in names {
        if let Some((_, number, args)) = CALLS.iter().find(|row| row.0 == *name) {
            report(name, sys::call(*number, args).map(drop));
        } else if let Some((_, family, kind, protocol)) = SOCKETS.iter().find(|row| row.0 == *name) {
            let args = [Int((*family).into()), Int((*kind).into()), Int((*protocol).into())];
            report(name, sys::call(SYS_socket, &args).map(drop));
        } else {
            try_special(name)?;
        }
    }
    Ok(0)
}

fn try_special(name: &str) -> Result<(), String> {
    let forked = |result: Result<i32, i32>| result.map(|pid| drop(sys::wait_for(pid)));
    match name {
        "clone-newuser" => report(name, forked(sys::fork_with(CLONE_NEWUSER, || 0))),
        "clone-newnet" => report(name, forked(sys::fork_with(CLONE_NEWNET, || 0))),
        "clone-newns" => report(name, forked(sys::fork_with(CLONE_NEWNS, || 0))),
        "clone3-newuser" => report(name, forked(sys::clone3(CLONE_NEWUSER as u64))),
        #[cfg(target_arch = "x86_64")]
        "int80" => {
            let child = sys::fork_with(0, || i32::from(sys::int80_getpid() <= 0)).map_err(errno::name)?;
            println!("int80 {}", sys::wait_for(child));
        }
        _ => return Err(format!("no such call in the tables: {name}")),
    }
    Ok(())
}

#[rustfmt::skip]
const CALLS: &[(&str, i64, &[Arg])] = &[
    ("unshare-newuser", SYS_unshare, &[Int(CLONE_NEWUSER as i64)]),
    ("unshare-newns", SYS_unshare, &[Int(CLONE_NEWNS as i64)]),
    ("unshare-newnet", SYS_unshare, &[Int(CLONE_NEWNET as i64)]),
    ("setns", SYS_setns, &[NO_FD, NULL]),
    ("ptrace-attach-pid1", SYS_ptrace, &[Int(PTRACE_ATTACH as i64), Int(1), NULL, NULL]),
    ("ptrace-seize-pid1", SYS_ptrace, &[Int(PTRACE_SEIZE as i64), Int(1), NULL, NULL]),
    ("process_vm_readv-pid1", SYS_process_vm_readv, &[Int(1), MEMORY, Int(1), MEMORY, Int(1), NULL]),
    ("process_vm_writev-pid1", SYS_process_vm_writev, &[Int(1), MEMORY, Int(1), MEMORY, Int(1), NULL]),
    ("kcmp-pid1", SYS_kcmp, &[Int(1), Int(1), Int(0), Int(0), Int(0)]),
    ("add_key", SYS_add_key, &[Arg::Text(c"user"), Arg::Text(c"probe"), PAGE, Int(1), PROCESS_KEYRING]),
    ("request_key", SYS_request_key, &[Arg::Text(c"user"), Arg::Text(c"probe"), NULL, NULL]),
    ("keyctl", SYS_keyctl, &[Int(KEYCTL_GET_KEYRING_ID as i64), Int(KEY_SPEC_USER_KEYRING as i64), NULL]),
    ("bpf", SYS_bpf, &[NULL, PAGE, Int(128)]),
    ("perf_event_open", SYS_perf_event_open, &[PAGE, NULL, NO_FD, NO_FD, NULL]),
    ("io_uring_setup", SYS_io_uring_setup, &[Int(1), PAGE]),
    ("io_uring_enter", SYS_io_uring_enter, &[NO_FD, NULL, NULL, NULL, NULL]),
    ("io_uring_register", SYS_io_uring_register, &[NO_FD, NULL, NULL, NULL]),
    ("userfaultfd", SYS_userfaultfd, &[Int(1)]),
    ("kexec_load", SYS_kexec_load, &[NULL, Int(999), NULL, NULL]),
    ("kexec_file_load", SYS_kexec_file_load, &[NO_FD, NO_FD, NULL, NULL, NULL]),
    ("init_module", SYS_init_module, &[PAGE, Int(1), NOTHING]),
    ("finit_module", SYS_finit_module, &[NO_FD, NOTHING, NULL]),
    ("delete_module", SYS_delete_module, &[Arg::Text(c"no-such-module"), NULL]),
    ("name_to_handle_at", SYS_name_to_handle_at, &[HERE, ROOT, HANDLE, PAGE, NULL]),
    ("open_by_handle_at", SYS_open_by_handle_at, &[HERE, HANDLE, NULL]),
    ("mount", SYS_mount, &[Arg::Text(c"none"), NOWHERE, Arg::Text(c"tmpfs"), NULL, NULL]),
    ("umount2", SYS_umount2, &[NOWHERE, NULL]),
    ("pivot_root", SYS_pivot_root, &[NOWHERE, NOWHERE]),
    ("chroot", SYS_chroot, &[ROOT]),
    ("fsopen", SYS_fsopen, &[Arg::Text(c"tmpfs"), NULL]),
    ("fsconfig", SYS_fsconfig, &[NO_FD, NULL, NULL, NULL, NULL]),
    ("fsmount", SYS_fsmount, &[NO_FD, NULL, NULL]),
    ("fspick", SYS_fspick, &[HERE, ROOT, NULL]),
    ("open_tree", SYS_open_tree, &[HERE, ROOT, NULL]),
    ("move_mount", SYS_move_mount, &[NO_FD, NOTHING, NO_FD, NOTHING, NULL]),
    ("mount_setattr", SYS_mount_setattr, &[NO_FD, NOTHING, NULL, PAGE, Int(32)]),
    ("swapon", SYS_swapon, &[NOWHERE, NULL]),
    ("swapoff", SYS_swapoff, &[NOWHERE]),
    ("reboot", SYS_reboot, &[NULL, NULL, NULL, NULL]),
    ("settimeofday", SYS_settimeofday, &[NULL, NULL]),
    ("clock_settime", SYS_clock_settime, &[Int(99), PAGE]),
    ("acct", SYS_acct, &[NOWHERE]),
    ("quotactl", SYS_quotactl, &[NULL, NULL, NULL, NULL]),
    ("sethostname", SYS_sethostname, &[Arg::Text(c"probe"), Int(5)]),
    ("syslog", SYS_syslog, &[Int(3), PAGE, Int(4096)]),
    ("vhangup", SYS_vhangup, &[]),
    ("ioctl-tiocsti", SYS_ioctl, &[NULL, Int(TIOCSTI as i64), Arg::Text(c"x")]),
    #[cfg(target_arch = "x86_64")]
    ("iopl", SYS_iopl, &[Int(3)]),
    #[cfg(target_arch = "x86_64")]
    ("ioperm", SYS_ioperm, &[Int(0x80), Int(1), Int(1)]),
    #[cfg(target_arch = "x86_64")]
    ("x32-getpid", X32_BIT + SYS_getpid, &[]),
    #[cfg(target_arch = "x86_64")]
    ("x32-read", X32_BIT + SYS_read, &[NO_FD, PAGE, Int(1)]),
];

#[rustfmt::skip]
const SOCKETS: &[(&str, i32, i32, i32)] = &[
    ("socket-packet", AF_PACKET, SOCK_RAW, 0),
    ("socket-packet-dgram", AF_PACKET, SOCK_DGRAM, 0),
    ("socket-raw-ipv4", AF_INET, SOCK_RAW, IPPROTO_ICMP),
    ("socket-raw-ipv6", AF_INET6, SOCK_RAW, IPPROTO_ICMPV6),
    ("socket-netlink-diag", AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG),
    ("socket-netlink-xfrm", AF_NETLINK, SOCK_RAW, NETLINK_XFRM),
    ("socket-netlink-audit", AF_NETLINK, SOCK_RAW, NETLINK_AUDIT),
    ("socket-netlink-netfilter", AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER),
    ("socket-netlink-uevent", AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT),
    ("socket-netlink-generic", AF_NETLINK, SOCK_RAW, NETLINK_GENERIC),
    ("socket-netlink-crypto", AF_NETLINK, SOCK_RAW, NETLINK_CRYPTO),
    ("socket-vsock", AF_VSOCK, SOCK_STREAM, 0),
    ("socket-alg", AF_ALG, SOCK_SEQPACKET, 0),
    ("socket-bluetooth", AF_BLUETOOTH, SOCK_RAW, 1),
    ("socket-can", AF_CAN, SOCK_RAW, 1),
    ("socket-x25", AF_X25, SOCK_SEQPACKET, 0),
    ("socket-ax25", AF_AX25, SOCK_DGRAM, 0),
    ("socket-tipc", AF_TIPC, SOCK_SEQPACKET, 0),
    ("socket-xdp", AF_XDP, SOCK_RAW, 0),
    ("socket-rds", AF_RDS, SOCK_SEQPACKET, 0),
    ("socket-llc", AF_LLC, SOCK_STREAM, 0),
    ("socket-nfc", AF_NFC, SOCK_SEQPACKET, 0),
    ("socket-pppox", AF_PPPOX, SOCK_STREAM, 0),
    ("socket-key", AF_KEY, SOCK_RAW, 2),
    ("socket-appletalk", AF_APPLETALK, SOCK_DGRAM, 0),
    ("socket-ipx", AF_IPX, SOCK_DGRAM, 0),
];
