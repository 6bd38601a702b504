//! The seccomp filter: an allow list of system calls, compiled to a short program.
//!
//! Theory of operation. Each system call number has a verdict: allowed, refused with EPERM (calls that exist and that
//! a sandbox must not make), or unknown and answered with ENOSYS, so that programs fall back as they would on an
//! older kernel. Numbers with the same verdict form ranges, and the program finds the range of a number by binary
//! search: at most a dozen instructions, where a list has hundreds. That matters at installation, not only per
//! call: the kernel runs the program once for every number to fill its bitmap of always-allowed calls.
//!
//! A few calls are looked at more closely: `clone` may make no namespaces, `socket` only families that need no
//! privilege, `personality` only the harmless ones, `ioctl` no terminal injection. `clone3` hides its flags behind a
//! pointer that a filter cannot read, so it is answered with ENOSYS and every C library falls back to `clone`.
//! Calls through a foreign table (32-bit, x32) end the process or do not exist.

mod confined;
mod profile;
mod table;

use libc::sock_filter;

pub use confined::{Confinement, compile_confined};
pub use profile::container_profile;
use table::Call;

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;

const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const AND: u16 = 0x54; // BPF_ALU | BPF_AND | BPF_K
const EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
const GO: u16 = 0x05; // BPF_JMP | BPF_JA
const ANY_BIT: u16 = 0x45; // BPF_JMP | BPF_JSET | BPF_K
const RETURN: u16 = 0x06; // BPF_RET | BPF_K

const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;
const KILL_PROCESS: u32 = 0x8000_0000;

const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCH: u32 = 4;

/// What happens to a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Allow,
    Refuse,
    Unknown,
    /// Decided by its arguments; the index of the check.
    Check(usize),
}

/// A look at one argument: `(low word & mask)` must be in the list, or must not be.
struct Check {
    call: Call,
    argument: u32,
    mask: u32,
    values: &'static [u32],
    /// What happens when the masked argument is in the list; the other thing happens otherwise.
    listed: Listed,
    /// A further value that is allowed when another argument, by its index, has exactly one value.
    refined: Option<(u32, u32, u32)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Listed {
    Allowed,
    Refused,
}

/// Compiles the filter. The result does not depend on the host, so it is made once, before anything is forked.
pub fn compile() -> Vec<sock_filter> {
    let ranges = ranges();
    let mut program = vec![load(OFFSET_ARCH), jump(EQUAL, ARCH, 1, 0), ret(KILL_PROCESS), load(OFFSET_NUMBER)];
    search(&ranges, &mut program);
    program
}

/// Compiles a further filter for sandboxes that write to folders of the host: nothing may give a file its owner's or
/// group's rights when executed. Inside that would mean nothing, but the file belongs to a user of the host.
pub fn compile_no_setid() -> Vec<sock_filter> {
    const SETID: u32 = libc::S_ISUID | libc::S_ISGID;
    const CREATES: u32 = (libc::O_CREAT | libc::O_TMPFILE & !libc::O_DIRECTORY) as u32;
    let refuse = ret(ERRNO | libc::EPERM as u32);
    let mut program = vec![load(OFFSET_NUMBER)];
    for (number, mode) in table::MODES {
        program.push(jump(EQUAL, *number as u32, 0, 4));
        program.push(load(16 + 8 * mode));
        program.push(jump(ANY_BIT, SETID, 0, 1));
        program.push(refuse);
        program.push(ret(ALLOW));
    }
    for (number, flags, mode) in table::OPENS {
        program.push(jump(EQUAL, *number as u32, 0, 6));
        program.push(load(16 + 8 * flags));
        program.push(jump(ANY_BIT, CREATES, 0, 3));
        program.push(load(16 + 8 * mode));
        program.push(jump(ANY_BIT, SETID, 0, 1));
        program.push(refuse);
        program.push(ret(ALLOW));
    }
    // Its mode lies behind a pointer; programs fall back to openat.
    program.push(jump(EQUAL, libc::SYS_openat2 as u32, 0, 1));
    program.push(ret(ERRNO | libc::ENOSYS as u32));
    program.push(ret(ALLOW));
    program
}

/// The first number of each range and its verdict.
fn ranges() -> Vec<(u32, Verdict)> {
    let mut ranges: Vec<(u32, Verdict)> = Vec::new();
    for (number, verdict) in verdicts().into_iter().enumerate() {
        if ranges.last().is_none_or(|(_, last)| *last != verdict) {
            ranges.push((number as u32, verdict));
        }
    }
    ranges
}

/// The verdict of every number up to the highest known one, and of all above it at the end.
fn verdicts() -> Vec<Verdict> {
    let mut verdicts = vec![Verdict::Unknown; table::HIGHEST + 2];
    let refused = table::REFUSED.iter().map(|call| (call, Verdict::Refuse));
    let allowed = table::ALLOWED.iter().chain(table::NEWER).map(|call| (call, Verdict::Allow));
    let checked = table::CHECKS.iter().enumerate().map(|(index, check)| (&check.call, Verdict::Check(index)));
    for (call, verdict) in refused.chain(allowed).chain(checked) {
        verdicts[call.number as usize] = verdict;
    }
    verdicts
}

/// Emits a binary search over the ranges. Both halves follow their comparison, so jumps only go forward, and an
/// unconditional jump carries the long distance that a conditional one cannot.
fn search(ranges: &[(u32, Verdict)], program: &mut Vec<sock_filter>) {
    if let [(_, verdict)] = ranges {
        emit(*verdict, program);
        return;
    }
    let (low, high) = ranges.split_at(ranges.len() / 2);
    let at = program.len();
    program.push(jump(AT_LEAST, high[0].0, 0, 1));
    program.push(sock_filter { code: GO, jt: 0, jf: 0, k: 0 });
    search(low, program);
    program[at + 1].k = (program.len() - at - 2) as u32;
    search(high, program);
}

fn emit(verdict: Verdict, program: &mut Vec<sock_filter>) {
    match verdict {
        Verdict::Allow => program.push(ret(ALLOW)),
        Verdict::Refuse => program.push(ret(ERRNO | libc::EPERM as u32)),
        Verdict::Unknown => program.push(ret(ERRNO | libc::ENOSYS as u32)),
        Verdict::Check(index) => emit_check(&table::CHECKS[index], program),
    }
}

fn emit_check(check: &Check, program: &mut Vec<sock_filter>) {
    let refuse = ret(ERRNO | libc::EPERM as u32);
    let (listed, other) = match check.listed {
        Listed::Allowed => (ret(ALLOW), refuse),
        Listed::Refused => (refuse, ret(ALLOW)),
    };
    program.push(load(16 + 8 * check.argument));
    program.push(sock_filter { code: AND, jt: 0, jf: 0, k: check.mask });
    for (i, value) in check.values.iter().enumerate() {
        let to_listed = check.values.len() - i + if check.refined.is_some() { 4 } else { 0 };
        program.push(jump(EQUAL, *value, to_listed as u8, 0));
    }
    if let Some((value, argument, required)) = check.refined {
        program.push(jump(EQUAL, value, 0, 3));
        program.push(load(16 + 8 * argument));
        program.push(jump(EQUAL, required, 2, 0));
        program.push(refuse);
    }
    program.push(other);
    program.push(listed);
}

fn load(offset: u32) -> sock_filter {
    sock_filter { code: LOAD, jt: 0, jf: 0, k: offset }
}

fn jump(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

fn ret(k: u32) -> sock_filter {
    sock_filter { code: RETURN, jt: 0, jf: 0, k }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs a program as the kernel would.
    fn run(program: &[sock_filter], arch: u32, number: u32, arguments: [u32; 6]) -> u32 {
        let (mut at, mut a) = (0, 0u32);
        loop {
            let i = program[at];
            at += 1;
            match i.code {
                LOAD => {
                    a = match i.k {
                        OFFSET_NUMBER => number,
                        OFFSET_ARCH => arch,
                        offset => arguments[(offset as usize - 16) / 8],
                    }
                }
                AND => a &= i.k,
                ANY_BIT => at += usize::from(if a & i.k != 0 { i.jt } else { i.jf }),
                EQUAL => at += usize::from(if a == i.k { i.jt } else { i.jf }),
                AT_LEAST => at += usize::from(if a >= i.k { i.jt } else { i.jf }),
                GO => at += i.k as usize,
                RETURN => return i.k,
                other => panic!("instruction {other}"),
            }
        }
    }

    fn verdict(number: u32) -> Verdict {
        verdicts().get(number as usize).copied().unwrap_or(Verdict::Unknown)
    }

    pub(super) fn call(number: i64, arguments: [u32; 6]) -> u32 {
        run(&compile(), ARCH, number as u32, arguments)
    }

    pub(super) const EPERM: u32 = ERRNO | libc::EPERM as u32;
    const ENOSYS: u32 = ERRNO | libc::ENOSYS as u32;

    #[test]
    fn every_number_gets_the_verdict_of_the_tables() {
        let program = compile();
        for number in 0..1000u32 {
            let got = run(&program, ARCH, number, [0; 6]);
            match verdict(number) {
                Verdict::Allow => assert_eq!(got, ALLOW, "{number}"),
                Verdict::Refuse => assert_eq!(got, EPERM, "{number}"),
                Verdict::Unknown => assert_eq!(got, ENOSYS, "{number}"),
                Verdict::Check(_) => {}
            }
        }
    }

    #[test]
    fn no_call_is_in_two_tables_and_the_program_is_short() {
        assert!(table::ALLOWED.iter().all(|n| !table::REFUSED.contains(n)));
        assert!(table::CHECKS.iter().all(|c| !table::REFUSED.contains(&c.call)));
        assert!(compile().len() < 400, "{}", compile().len());
    }

    #[test]
    fn no_call_gives_a_file_the_rights_of_its_owner() {
        let program = compile_no_setid();
        let call = |number: i64, arguments| run(&program, ARCH, number as u32, arguments);
        for mode in [0o4755, 0o2755, 0o6000] {
            assert_eq!(call(libc::SYS_chmod, [0, mode, 0, 0, 0, 0]), EPERM);
            assert_eq!(call(libc::SYS_fchmodat, [0, 0, mode, 0, 0, 0]), EPERM);
            assert_eq!(call(452, [0, 0, mode, 0, 0, 0]), EPERM);
            assert_eq!(call(libc::SYS_openat, [0, 0, libc::O_CREAT as u32, mode, 0, 0]), EPERM);
            assert_eq!(call(libc::SYS_open, [0, libc::O_TMPFILE as u32, mode, 0, 0, 0]), EPERM);
            // Without a file to make, the mode is whatever lay in the register.
            assert_eq!(call(libc::SYS_openat, [0, 0, libc::O_DIRECTORY as u32, mode, 0, 0]), ALLOW);
        }
        assert_eq!(call(libc::SYS_chmod, [0, 0o1777, 0, 0, 0, 0]), ALLOW);
        assert_eq!(call(libc::SYS_openat2, [0; 6]), ENOSYS);
        assert_eq!(call(libc::SYS_read, [0o6000; 6]), ALLOW);
    }

    #[test]
    fn foreign_tables_are_not_served() {
        assert_eq!(run(&compile(), 0x4000_0003, 4, [0; 6]), KILL_PROCESS);
        assert_eq!(call(0x4000_0000 | libc::SYS_getpid, [0; 6]), ENOSYS);
    }

    #[test]
    fn clone_makes_processes_and_threads_but_no_namespaces() {
        assert_eq!(call(libc::SYS_clone, [libc::SIGCHLD as u32, 0, 0, 0, 0, 0]), ALLOW);
        for flag in
            [libc::CLONE_NEWUSER, libc::CLONE_NEWNS, libc::CLONE_NEWPID, libc::CLONE_NEWNET, libc::CLONE_NEWCGROUP]
        {
            assert_eq!(call(libc::SYS_clone, [(flag | libc::SIGCHLD) as u32, 0, 0, 0, 0, 0]), EPERM);
        }
        assert_eq!(call(libc::SYS_clone3, [0; 6]), ENOSYS);
    }

    #[test]
    fn sockets_are_unix_internet_or_netlink_and_netlink_is_route_only() {
        for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6] {
            assert_eq!(call(libc::SYS_socket, [family as u32, 1, 0, 0, 0, 0]), ALLOW);
        }
        assert_eq!(call(libc::SYS_socket, [libc::AF_NETLINK as u32, 3, 0, 0, 0, 0]), ALLOW);
        assert_eq!(call(libc::SYS_socket, [libc::AF_NETLINK as u32, 3, 9, 0, 0, 0]), EPERM);
        for family in [libc::AF_PACKET, libc::AF_VSOCK, libc::AF_ALG, libc::AF_BLUETOOTH, libc::AF_XDP] {
            assert_eq!(call(libc::SYS_socket, [family as u32, 1, 0, 0, 0, 0]), EPERM);
        }
    }

    const OWN_ID: Confinement = Confinement { network: false, shared_id: false, landlock: 6 };
    const SHARED_ID: Confinement = Confinement { shared_id: true, ..OWN_ID };

    #[test]
    fn without_namespaces_no_socket_reaches_the_host() {
        let call = |terms, number: i64, arguments| run(&compile_confined(terms), ARCH, number as u32, arguments);
        for number in [libc::SYS_socket, libc::SYS_connect, libc::SYS_bind] {
            assert_eq!(call(OWN_ID, number, [libc::AF_INET as u32, 1, 0, 0, 0, 0]), EPERM);
        }
        let network = Confinement { network: true, ..OWN_ID };
        assert_eq!(call(network, libc::SYS_socket, [libc::AF_INET6 as u32, 1, 0, 0, 0, 0]), ALLOW);
        assert_eq!(call(network, libc::SYS_connect, [3; 6]), ALLOW);
        for terms in [OWN_ID, network] {
            assert_eq!(call(terms, libc::SYS_socket, [libc::AF_UNIX as u32, 1, 0, 0, 0, 0]), EPERM);
            let pair = |kind: i32| call(terms, libc::SYS_socketpair, [libc::AF_UNIX as u32, kind as u32, 0, 0, 0, 0]);
            assert_eq!(pair(libc::SOCK_STREAM | libc::SOCK_CLOEXEC), ALLOW);
            assert_eq!(pair(libc::SOCK_DGRAM | libc::SOCK_NONBLOCK), EPERM);
        }
    }

    #[test]
    fn the_mark_can_be_asked_for_and_not_be_set() {
        for terms in [OWN_ID, SHARED_ID] {
            let program = compile_confined(terms);
            let call = |number: i64, arguments| run(&program, ARCH, number as u32, arguments);
            assert_eq!(call(libc::SYS_prlimit64, [0, 15, 0, 1, 0, 0]), ALLOW);
            assert_eq!(call(libc::SYS_prlimit64, [0, 15, 1, 0, 0, 0]), EPERM);
            assert_eq!(call(libc::SYS_prlimit64, [0, 7, 1, 0, 0, 0]), ALLOW);
            assert_eq!(call(libc::SYS_setrlimit, [15, 1, 0, 0, 0, 0]), EPERM);
            assert_eq!(call(libc::SYS_setrlimit, [7, 1, 0, 0, 0, 0]), ALLOW);
        }
    }

    #[test]
    fn equal_ids_give_no_power_over_others() {
        let program = compile_confined(SHARED_ID);
        let call = |number: i64, arguments| run(&program, ARCH, number as u32, arguments);
        for number in [libc::SYS_sched_setaffinity, libc::SYS_sched_setscheduler, libc::SYS_prlimit64] {
            assert_eq!(call(number, [77, 0, 0, 0, 0, 0]), EPERM);
            assert_eq!(call(number, [0; 6]), ALLOW);
        }
        assert_eq!(call(libc::SYS_setpriority, [0, 0, 5, 0, 0, 0]), ALLOW);
        assert_eq!(call(libc::SYS_setpriority, [0, 77, 5, 0, 0, 0]), EPERM);
        assert_eq!(call(libc::SYS_setpriority, [2, 0, 5, 0, 0, 0]), EPERM);
        assert_eq!(call(libc::SYS_ioprio_set, [1, 0, 5, 0, 0, 0]), ALLOW);
        assert_eq!(call(libc::SYS_ioprio_set, [3, 0, 5, 0, 0, 0]), EPERM);
        for number in [libc::SYS_chmod, libc::SYS_fchmod, libc::SYS_utimensat, 452] {
            assert_eq!(call(number, [0; 6]), 0x7fc0_0000, "{number} is handed over");
        }
        assert_ne!(call(libc::SYS_chown, [0; 6]), ALLOW);
        assert_ne!(call(libc::SYS_setxattr, [0; 6]), ALLOW);
        assert_eq!(call(libc::SYS_ioctl, [0, libc::TCGETS as u32, 0, 0, 0, 0]), ALLOW);
        assert_eq!(call(libc::SYS_ioctl, [0, 0x8004_5430, 0, 0, 0, 0]), ALLOW);
        for request in [0x4008_6602, 0x401c_5820, 0x4080_6685, 0x8901, 0x8902] {
            assert_ne!(call(libc::SYS_ioctl, [0, request, 0, 0, 0, 0]), ALLOW, "{request:x}");
        }
        assert_eq!(call(libc::SYS_fcntl, [0, 1024, 0, 0, 0, 0]), EPERM);
        assert_eq!(call(libc::SYS_fcntl, [0, libc::F_GETFL as u32, 0, 0, 0, 0]), ALLOW);
        assert_eq!(call(libc::SYS_kill, [77, 9, 0, 0, 0, 0]), ALLOW, "Landlock keeps signals inside");
    }

    #[test]
    fn what_an_old_landlock_cannot_do_is_refused_by_call() {
        let program = compile_confined(Confinement { landlock: 2, ..SHARED_ID });
        let call = |number: i64, arguments| run(&program, ARCH, number as u32, arguments);
        assert_eq!(call(libc::SYS_kill, [77, 9, 0, 0, 0, 0]), EPERM);
        assert_eq!(call(libc::SYS_kill, [u32::MAX, 9, 0, 0, 0, 0]), EPERM);
        assert_eq!(call(libc::SYS_kill, [0, 9, 0, 0, 0, 0]), ALLOW);
        assert_eq!(call(libc::SYS_tgkill, [77, 77, 9, 0, 0, 0]), EPERM);
        assert_eq!(call(libc::SYS_fcntl, [0, libc::F_SETOWN as u32, 77, 0, 0, 0]), EPERM);
        assert_eq!(call(libc::SYS_truncate, [0; 6]), EPERM);
        let open = |flags: i32| call(libc::SYS_openat, [0, 0, flags as u32, 0, 0, 0]);
        assert_eq!(open(libc::O_RDONLY | libc::O_TRUNC), EPERM);
        assert_eq!(open(libc::O_WRONLY | libc::O_TRUNC), ALLOW);
        assert_eq!(open(libc::O_RDONLY), ALLOW);
    }

    proptest! {
        #[test]
        fn no_argument_makes_a_refused_call_pass(number in 0u32..600, arguments: [u32; 6]) {
            let got = run(&compile(), ARCH, number, arguments);
            if !matches!(verdict(number), Verdict::Allow | Verdict::Check(_)) {
                prop_assert_ne!(got, ALLOW);
            }
        }
    }
}
