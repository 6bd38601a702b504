//! Which system calls a sandbox may make.
// tidy: table

use super::{Check, Listed};

/// No number above this one is known.
pub(super) const HIGHEST: usize = 512;

/// A system call, by its name with `SYS_` before it, and its number on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    label: &'static str,
    pub(super) number: i64,
}

impl Call {
    /// The name as the kernel's own tables have it.
    pub(super) fn name(&self) -> &'static str {
        self.label.trim_start_matches("SYS_")
    }
}

macro_rules! call {
    ($name:ident) => {
        Call { label: stringify!($name), number: libc::$name }
    };
}

macro_rules! calls {
    ($($name:ident)*) => { &[$(call!($name)),*] };
}

const NAMESPACE_FLAGS: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWCGROUP) as u32;

/// Calls that are decided by an argument.
pub(super) const CHECKS: &[Check] = &[
    // No new namespaces: they would give a program powers over things that nobody checked.
    Check {
        call: call!(SYS_clone),
        argument: 0,
        mask: NAMESPACE_FLAGS,
        values: &[0],
        listed: Listed::Allowed,
        refined: None,
    },
    // Families that ordinary programs use. Netlink only for routes (protocol 0), which tells about interfaces.
    Check {
        call: call!(SYS_socket),
        argument: 0,
        mask: u32::MAX,
        values: &[libc::AF_UNIX as u32, libc::AF_INET as u32, libc::AF_INET6 as u32],
        listed: Listed::Allowed,
        refined: Some((libc::AF_NETLINK as u32, 2, libc::NETLINK_ROUTE as u32)),
    },
    Check {
        call: call!(SYS_socketpair),
        argument: 0,
        mask: u32::MAX,
        values: &[libc::AF_UNIX as u32],
        listed: Listed::Allowed,
        refined: None,
    },
    // Terminal injection, and the console's selection buffer.
    Check {
        call: call!(SYS_ioctl),
        argument: 1,
        mask: u32::MAX,
        values: &[libc::TIOCSTI as u32, 0x541c],
        listed: Listed::Refused,
        refined: None,
    },
    // The plain one, two old emulations, no address randomisation (debuggers), and the question which one it is.
    Check {
        call: call!(SYS_personality),
        argument: 0,
        mask: u32::MAX,
        values: &[0, 8, 0x2_0000, 0x2_0008, 0x4_0000, u32::MAX],
        listed: Listed::Allowed,
        refined: None,
    },
];

/// Calls that set a mode, and which argument it is.
pub(super) const MODES: &[(i64, u32)] = &[
    (libc::SYS_chmod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    // fchmodat2
    (452, 2),
    (libc::SYS_creat, 1),
    (libc::SYS_mkdir, 1),
    (libc::SYS_mkdirat, 2),
    (libc::SYS_mknod, 1),
    (libc::SYS_mknodat, 2),
];

/// Calls that may make a file: which argument the flags are, and which the mode.
pub(super) const OPENS: &[(i64, u32, u32)] = &[(libc::SYS_open, 1, 2), (libc::SYS_openat, 2, 3)];

/// Calls that exist and that no sandbox makes.
pub(super) const REFUSED: &[Call] = calls! {
    SYS_acct SYS_add_key SYS_adjtimex SYS_bpf SYS_chroot SYS_clock_adjtime SYS_clock_settime SYS_delete_module
    SYS_fanotify_init SYS_fanotify_mark SYS_finit_module SYS_fsconfig SYS_fsmount SYS_fsopen SYS_fspick
    SYS_init_module SYS_io_uring_enter SYS_io_uring_register SYS_io_uring_setup SYS_kcmp SYS_kexec_file_load
    SYS_kexec_load SYS_keyctl SYS_lookup_dcookie SYS_mbind SYS_migrate_pages SYS_mount SYS_mount_setattr
    SYS_move_mount SYS_move_pages SYS_name_to_handle_at SYS_nfsservctl SYS_open_by_handle_at SYS_open_tree
    SYS_perf_event_open SYS_pivot_root SYS_process_madvise SYS_quotactl SYS_quotactl_fd SYS_reboot SYS_request_key
    SYS_set_mempolicy SYS_setdomainname SYS_sethostname SYS_setns SYS_settimeofday SYS_swapoff SYS_swapon SYS_syslog
    SYS_umount2 SYS_unshare SYS_userfaultfd SYS_vhangup
    SYS_iopl SYS_ioperm SYS_modify_ldt SYS_uselib SYS_ustat SYS_sysfs SYS__sysctl
};

/// Calls that ordinary programs make. The old asynchronous input and output (io_setup) is not among them: the whole machine
/// has one number of its contexts, which a program could take from everybody else; programs fall back to threads.
pub(super) const ALLOWED: &[Call] = calls! {
    SYS_accept SYS_accept4 SYS_access SYS_alarm SYS_arch_prctl SYS_bind SYS_brk SYS_capget SYS_capset SYS_chdir
    SYS_chmod SYS_chown SYS_clock_getres SYS_clock_gettime SYS_clock_nanosleep SYS_close SYS_close_range
    SYS_connect SYS_copy_file_range SYS_creat SYS_dup SYS_dup2 SYS_dup3 SYS_epoll_create SYS_epoll_create1
    SYS_epoll_ctl SYS_epoll_ctl_old SYS_epoll_pwait SYS_epoll_pwait2 SYS_epoll_wait SYS_epoll_wait_old
    SYS_eventfd SYS_eventfd2 SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_faccessat SYS_faccessat2
    SYS_fadvise64 SYS_fallocate SYS_fchdir SYS_fchmod SYS_fchmodat SYS_fchown SYS_fchownat SYS_fcntl
    SYS_fdatasync SYS_fgetxattr SYS_flistxattr SYS_flock SYS_fork SYS_fremovexattr SYS_fsetxattr SYS_fstat
    SYS_fstatfs SYS_fsync SYS_ftruncate SYS_futex SYS_futex_waitv SYS_futimesat SYS_get_mempolicy
    SYS_get_robust_list SYS_get_thread_area SYS_getcpu SYS_getcwd SYS_getdents SYS_getdents64 SYS_getegid
    SYS_geteuid SYS_getgid SYS_getgroups SYS_getitimer SYS_getpeername SYS_getpgid SYS_getpgrp SYS_getpid
    SYS_getppid SYS_getpriority SYS_getrandom SYS_getresgid SYS_getresuid SYS_getrlimit SYS_getrusage SYS_getsid
    SYS_getsockname SYS_getsockopt SYS_gettid SYS_gettimeofday SYS_getuid SYS_getxattr SYS_inotify_add_watch
    SYS_inotify_init SYS_inotify_init1 SYS_inotify_rm_watch SYS_ioprio_get SYS_ioprio_set SYS_kill SYS_landlock_add_rule
    SYS_landlock_create_ruleset SYS_landlock_restrict_self SYS_lchown SYS_lgetxattr SYS_link SYS_linkat
    SYS_listen SYS_listxattr SYS_llistxattr SYS_lremovexattr SYS_lseek SYS_lsetxattr SYS_lstat SYS_madvise
    SYS_membarrier SYS_memfd_create SYS_memfd_secret SYS_mincore SYS_mkdir SYS_mkdirat SYS_mknod SYS_mknodat
    SYS_mlock SYS_mlock2 SYS_mlockall SYS_mmap SYS_mprotect SYS_mq_getsetattr SYS_mq_notify SYS_mq_open
    SYS_mq_timedreceive SYS_mq_timedsend SYS_mq_unlink SYS_mremap SYS_msgctl SYS_msgget SYS_msgrcv SYS_msgsnd
    SYS_msync SYS_munlock SYS_munlockall SYS_munmap SYS_nanosleep SYS_newfstatat SYS_open SYS_openat SYS_openat2
    SYS_pause SYS_pidfd_getfd SYS_pidfd_open SYS_pidfd_send_signal SYS_pipe SYS_pipe2 SYS_pkey_alloc
    SYS_pkey_free SYS_pkey_mprotect SYS_poll SYS_ppoll SYS_prctl SYS_pread64 SYS_preadv SYS_preadv2 SYS_prlimit64
    SYS_process_mrelease SYS_process_vm_readv SYS_process_vm_writev SYS_pselect6 SYS_ptrace SYS_pwrite64
    SYS_pwritev SYS_pwritev2 SYS_read SYS_readahead SYS_readlink SYS_readlinkat SYS_readv SYS_recvfrom
    SYS_recvmmsg SYS_recvmsg SYS_remap_file_pages SYS_removexattr SYS_rename SYS_renameat SYS_renameat2
    SYS_restart_syscall SYS_rmdir SYS_rseq SYS_rt_sigaction SYS_rt_sigpending SYS_rt_sigprocmask
    SYS_rt_sigqueueinfo SYS_rt_sigreturn SYS_rt_sigsuspend SYS_rt_sigtimedwait SYS_rt_tgsigqueueinfo
    SYS_sched_get_priority_max SYS_sched_get_priority_min SYS_sched_getaffinity SYS_sched_getattr
    SYS_sched_getparam SYS_sched_getscheduler SYS_sched_rr_get_interval SYS_sched_setaffinity SYS_sched_setattr
    SYS_sched_setparam SYS_sched_setscheduler SYS_sched_yield SYS_seccomp SYS_select SYS_semctl SYS_semget
    SYS_semop SYS_semtimedop SYS_sendfile SYS_sendmmsg SYS_sendmsg SYS_sendto SYS_set_mempolicy_home_node
    SYS_set_robust_list SYS_set_thread_area SYS_set_tid_address SYS_setfsgid SYS_setfsuid SYS_setgid
    SYS_setgroups SYS_setitimer SYS_setpgid SYS_setpriority SYS_setregid SYS_setresgid SYS_setresuid SYS_setreuid
    SYS_setrlimit SYS_setsid SYS_setsockopt SYS_setuid SYS_setxattr SYS_shmat SYS_shmctl SYS_shmdt SYS_shmget
    SYS_shutdown SYS_sigaltstack SYS_signalfd SYS_signalfd4 SYS_splice SYS_stat SYS_statfs SYS_statx SYS_symlink
    SYS_symlinkat SYS_sync SYS_sync_file_range SYS_syncfs SYS_sysinfo SYS_tee SYS_tgkill SYS_time
    SYS_timer_create SYS_timer_delete SYS_timer_getoverrun SYS_timer_gettime SYS_timer_settime
    SYS_timerfd_create SYS_timerfd_gettime SYS_timerfd_settime SYS_times SYS_tkill SYS_truncate SYS_umask
    SYS_uname SYS_unlink SYS_unlinkat SYS_utime SYS_utimensat SYS_utimes SYS_vfork SYS_vmsplice SYS_wait4
    SYS_waitid SYS_write SYS_writev
};

/// The same of those that are numbered alike on every architecture and not all named by the libc crate yet.
pub(super) const NEWER: &[Call] = &[
    Call { label: "cachestat", number: 451 },
    Call { label: "fchmodat2", number: 452 },
    Call { label: "map_shadow_stack", number: 453 },
    Call { label: "futex_wake", number: 454 },
    Call { label: "futex_wait", number: 455 },
    Call { label: "futex_requeue", number: 456 },
    Call { label: "mseal", number: 462 },
    Call { label: "setxattrat", number: 463 },
    Call { label: "getxattrat", number: 464 },
    Call { label: "listxattrat", number: 465 },
    Call { label: "removexattrat", number: 466 },
];

/// A call that does not exist for a sandbox, and that a C library must be told so of, or it would not fall back to `clone`.
pub(super) const ABSENT: Call = call!(SYS_clone3);
