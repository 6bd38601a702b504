//! The further filter of a sandbox without namespaces: what a namespace would keep away is refused by its call.
//!
//! Two things are behind each rule. Landlock speaks about files that are opened, made, moved and removed, and about
//! nothing else: attributes of files, watching them, System V memory, message queues and sockets of the file system are
//! not its business. And where commands share the id of the caller, the kernel lets them do to every process and file of
//! the caller what equal ids allow. See docs/decisions/0013-without-namespaces.md for the whole list.

use libc::sock_filter;

use super::{ALLOW, AND, ANY_BIT, EQUAL, ERRNO, OFFSET_NUMBER, jump, load, ret};

/// What the filter depends on.
#[derive(Clone, Copy, Debug)]
pub struct Confinement {
    /// Whether programs may use the host's network.
    pub network: bool,
    /// Whether commands run under an id that others have too.
    pub shared_id: bool,
    /// The version of Landlock that this kernel has.
    pub landlock: i64,
}

const HAND_OVER: u32 = 0x7fc0_0000;

/// What happens to a call when its rule fits.
type Body = Vec<sock_filter>;

/// Compiles the filter.
pub fn compile_confined(terms: Confinement) -> Vec<sock_filter> {
    let mut program = vec![load(OFFSET_NUMBER)];
    let mut when = |numbers: &[i64], body: &dyn Fn() -> Body| {
        for number in numbers {
            let body = body();
            program.push(jump(EQUAL, *number as u32, 0, body.len() as u8));
            program.extend(body);
        }
    };
    sockets(terms, &mut when);
    // Nothing of these carries a path, and all of it is shared by the whole host.
    when(IPC, &|| answer(libc::ENOSYS));
    // Watching a folder needs no more than the right to read it as a user; Landlock is not asked.
    when(WATCHING, &|| answer(libc::ENOSYS));
    the_mark(terms, &mut when);
    if terms.landlock < 3 {
        no_truncation(&mut when);
    }
    if terms.shared_id {
        no_power_of_equal_ids(terms, &mut when);
    }
    program.push(ret(ALLOW));
    program
}

type When<'a> = dyn FnMut(&[i64], &dyn Fn() -> Body) + 'a;

const IPC: &[i64] = &[
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmdt,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semctl,
    libc::SYS_semtimedop,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_mq_notify,
    libc::SYS_mq_getsetattr,
    libc::SYS_mq_timedsend,
    libc::SYS_mq_timedreceive,
];

const WATCHING: &[i64] = &[libc::SYS_inotify_init, libc::SYS_inotify_init1, libc::SYS_inotify_add_watch];

/// Calls that name a process first, and that equal ids are enough for.
const BY_PROCESS: &[i64] = &[
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_prlimit64,
];

const OWNERS: &[i64] = &[libc::SYS_chown, libc::SYS_fchown, libc::SYS_fchownat, libc::SYS_lchown];

// The last two are setxattrat and removexattrat.
const ATTRIBUTES: &[i64] = &[
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    463,
    466,
];

/// Calls that change the mode or the times of a file. The last one is fchmodat2.
const MODES_AND_TIMES: &[i64] = &[
    libc::SYS_chmod,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_utimensat,
    452,
];

const SIGNALS: &[i64] = &[
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_send_signal,
];

/// The resource by which processes are marked.
const RTTIME: u32 = 15;

fn sockets(terms: Confinement, when: &mut When<'_>) {
    // A pair of datagram sockets could still be sent to any address; the others are bound to each other for good.
    let kinds = [libc::SOCK_STREAM as u32, libc::SOCK_SEQPACKET as u32];
    when(&[libc::SYS_socketpair], &|| argument(1, 0xf, &kinds));
    if terms.network {
        // A socket of the file system would reach every service of the host that listens on one.
        when(&[libc::SYS_socket], &|| argument(0, u32::MAX, &[libc::AF_INET as u32, libc::AF_INET6 as u32]));
    } else {
        let all = [
            libc::SYS_socket,
            libc::SYS_connect,
            libc::SYS_bind,
            libc::SYS_listen,
            libc::SYS_accept,
            libc::SYS_accept4,
        ];
        when(&all, &|| answer(libc::EPERM));
    }
}

/// Nobody sheds the mark, but everybody may ask what it is.
fn the_mark(terms: Confinement, when: &mut When<'_>) {
    when(&[libc::SYS_setrlimit], &|| refuse_argument(0, &[RTTIME]));
    if terms.shared_id {
        return; // Its rule is among those of equal ids.
    }
    when(&[libc::SYS_prlimit64], &prlimit);
}

/// `prlimit64(pid, resource, new, old)`: the marked resource may only be asked for.
fn prlimit() -> Body {
    let refuse = ret(ERRNO | libc::EPERM as u32);
    vec![
        load(low(1)),
        jump(EQUAL, RTTIME, 0, 4),
        load(low(2)),
        jump(EQUAL, 0, 0, 3),
        load(low(2) + 4),
        jump(EQUAL, 0, 0, 1),
        ret(ALLOW),
        refuse,
    ]
}

/// Kernels before Linux 6.2 let programs shorten files that Landlock does not let them write.
fn no_truncation(when: &mut When<'_>) {
    const ACCESS: u32 = libc::O_ACCMODE as u32;
    when(&[libc::SYS_truncate], &|| answer(libc::EPERM));
    when(&[libc::SYS_openat2], &|| answer(libc::ENOSYS));
    for (number, flags) in [(libc::SYS_open, 1), (libc::SYS_openat, 2)] {
        when(&[number], &|| {
            vec![
                load(low(flags)),
                jump(ANY_BIT, libc::O_TRUNC as u32, 0, 3),
                sock_filter { code: AND, jt: 0, jf: 0, k: ACCESS },
                jump(EQUAL, libc::O_RDONLY as u32, 0, 1),
                ret(ERRNO | libc::EPERM as u32),
                ret(ALLOW),
            ]
        });
    }
}

/// What the kernel would allow because the caller's processes and files have the same id.
fn no_power_of_equal_ids(terms: Confinement, when: &mut When<'_>) {
    when(BY_PROCESS, &|| {
        let mut body = vec![load(low(0)), jump(EQUAL, 0, 1, 0), ret(ERRNO | libc::EPERM as u32)];
        body.extend([load(OFFSET_NUMBER), jump(EQUAL, libc::SYS_prlimit64 as u32, 1, 0), ret(ALLOW)]);
        body.extend(prlimit());
        body
    });
    // Of a process (which is 1 for ioprio_set and 0 for setpriority), and only of the calling one.
    for (number, process) in [(libc::SYS_setpriority, 0), (libc::SYS_ioprio_set, 1)] {
        when(&[number], &|| {
            let refuse = ret(ERRNO | libc::EPERM as u32);
            vec![load(low(0)), jump(EQUAL, process, 0, 3), load(low(1)), jump(EQUAL, 0, 0, 1), ret(ALLOW), refuse]
        });
    }
    when(OWNERS, &|| answer(libc::EPERM));
    when(ATTRIBUTES, &|| answer(libc::EOPNOTSUPP));
    // The guest changes these for the commands, where it lets them: see `glovebox_guest::serve_attributes`.
    when(MODES_AND_TIMES, &|| vec![ret(HAND_OVER)]);
    when(&[libc::SYS_ioctl], &harmless_ioctl);
    // Leases and notices hold up, or spy on, whoever opens the file; an owner is who gets a signal of it.
    let refused: &[u32] = match terms.landlock {
        6.. => &[1024, 1026],
        _ => &[1024, 1026, libc::F_SETOWN as u32, 15],
    };
    when(&[libc::SYS_fcntl], &|| refuse_argument(1, refused));
    if terms.landlock < 6 {
        // Landlock cannot keep signals inside yet, so only the own group of processes can be signalled.
        when(&[libc::SYS_kill], &|| argument(0, u32::MAX, &[0]));
        when(SIGNALS, &|| answer(libc::EPERM));
    }
}

/// Terminals, sockets but for their owners, and a few questions and copies. Others change what a file is, for which being
/// its owner is enough.
fn harmless_ioctl() -> Body {
    // FICLONE, FICLONERANGE, FIGETBSZ, FS_IOC_GETFLAGS, FS_IOC_FIEMAP
    const LISTED: [u32; 5] = [0x4004_9409, 0x4020_940d, 0x2, 0x8008_6601, 0xc020_660b];
    const OWNED: [u32; 2] = [0x8901, 0x8902];
    let mut body = vec![load(low(1))];
    let refuse = ret(ERRNO | libc::ENOTTY as u32);
    for value in OWNED {
        body.extend([jump(EQUAL, value, 0, 1), refuse]);
    }
    for value in LISTED {
        body.extend([jump(EQUAL, value, 0, 1), ret(ALLOW)]);
    }
    body.push(sock_filter { code: AND, jt: 0, jf: 0, k: 0xffff_ff00 });
    body.extend([jump(EQUAL, 0x8900, 0, 1), ret(ALLOW)]);
    // Everything of terminals; what of it reaches further, the other filter refuses.
    body.push(sock_filter { code: AND, jt: 0, jf: 0, k: 0xff00 });
    body.extend([jump(EQUAL, 0x5400, 0, 1), ret(ALLOW), refuse]);
    body
}

/// The place of an argument's low word.
fn low(argument: u32) -> u32 {
    16 + 8 * argument
}

fn answer(errno: i32) -> Body {
    vec![ret(ERRNO | errno as u32)]
}

/// Allowed when the masked argument is one of these.
fn argument(number: u32, mask: u32, values: &[u32]) -> Body {
    let mut body = vec![load(low(number)), sock_filter { code: AND, jt: 0, jf: 0, k: mask }];
    for value in values {
        body.extend([jump(EQUAL, *value, 0, 1), ret(ALLOW)]);
    }
    body.push(ret(ERRNO | libc::EPERM as u32));
    body
}

/// Refused when the argument is one of these.
fn refuse_argument(number: u32, values: &[u32]) -> Body {
    let mut body = vec![load(low(number))];
    for value in values {
        body.extend([jump(EQUAL, *value, 0, 1), ret(ERRNO | libc::EPERM as u32)]);
    }
    body.push(ret(ALLOW));
    body
}
