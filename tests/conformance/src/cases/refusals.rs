//! System calls and sockets that are refused. The probe's arguments are such that a kernel without a filter would
//! answer something else wherever that is possible.

use crate::{World, case::cases, finished::Finished};

cases!["refusals":
    nested_user_namespaces_are_refused,
    other_new_namespaces_are_refused,
    tracing_and_reading_the_guest_are_refused,
    keyrings_are_refused,
    bpf_is_refused,
    performance_counters_are_refused,
    io_uring_is_refused,
    user_fault_handling_is_refused,
    loading_another_kernel_is_refused,
    loading_modules_is_refused,
    file_handles_are_refused,
    mounting_is_refused,
    the_new_mount_calls_are_refused,
    swap_reboot_clock_and_accounting_are_refused,
    the_kernels_log_is_refused,
    ports_of_the_machine_are_refused,
    system_calls_of_the_x32_table_are_refused,
    system_calls_of_the_32_bit_table_are_refused,
    raw_and_packet_sockets_are_refused,
    netlink_beyond_routes_is_refused,
    foreign_socket_families_are_refused,
    typing_into_the_terminal_is_refused,
    setuid_programs_gain_nothing,
];

/// Expects EPERM or ENOSYS for each call: the filter's answers. An error about the arguments means that the kernel
/// itself looked at the call.
async fn refused(w: World, names: &str) {
    for user in ["user", "root"] {
        let run = w.sandbox().user(user).probe(&format!("syscall {names}")).await.expect_exit(0);
        only(&run, names, &["EPERM", "ENOSYS"]);
    }
}

#[track_caller]
fn only(run: &Finished, names: &str, answers: &[&str]) {
    let wrong: Vec<String> = names
        .split(' ')
        .map(|name| (name, run.fact(name)))
        .filter(|(_, answer)| !answers.contains(&answer.as_str()))
        .map(|(name, answer)| format!("{name} gave {answer}"))
        .collect();
    assert!(wrong.is_empty(), "expected {answers:?}: {}", wrong.join(", "));
}

async fn nested_user_namespaces_are_refused(w: World) {
    refused(w, "unshare-newuser clone-newuser clone3-newuser").await;
}

async fn other_new_namespaces_are_refused(w: World) {
    refused(w, "unshare-newns unshare-newnet clone-newns clone-newnet setns").await;
}

async fn tracing_and_reading_the_guest_are_refused(w: World) {
    refused(w, "ptrace-attach-pid1 ptrace-seize-pid1 process_vm_readv-pid1 process_vm_writev-pid1 kcmp-pid1").await;
}

async fn keyrings_are_refused(w: World) {
    refused(w, "keyctl add_key request_key").await;
}

async fn bpf_is_refused(w: World) {
    refused(w, "bpf").await;
}

async fn performance_counters_are_refused(w: World) {
    refused(w, "perf_event_open").await;
}

async fn io_uring_is_refused(w: World) {
    refused(w, "io_uring_setup io_uring_enter io_uring_register").await;
}

async fn user_fault_handling_is_refused(w: World) {
    refused(w, "userfaultfd").await;
}

async fn loading_another_kernel_is_refused(w: World) {
    refused(w, "kexec_load kexec_file_load").await;
}

async fn loading_modules_is_refused(w: World) {
    refused(w, "init_module finit_module delete_module").await;
}

async fn file_handles_are_refused(w: World) {
    refused(w, "name_to_handle_at open_by_handle_at").await;
}

async fn mounting_is_refused(w: World) {
    refused(w, "mount umount2 pivot_root chroot").await;
}

async fn the_new_mount_calls_are_refused(w: World) {
    refused(w, "fsopen fsconfig fsmount fspick open_tree move_mount mount_setattr").await;
}

async fn swap_reboot_clock_and_accounting_are_refused(w: World) {
    refused(w, "swapon swapoff reboot settimeofday clock_settime acct quotactl sethostname vhangup").await;
}

async fn the_kernels_log_is_refused(w: World) {
    refused(w, "syslog").await;
}

async fn ports_of_the_machine_are_refused(w: World) {
    if cfg!(target_arch = "x86_64") {
        refused(w, "iopl ioperm").await;
    }
}

async fn system_calls_of_the_x32_table_are_refused(w: World) {
    if cfg!(target_arch = "x86_64") {
        // The filter may also kill for a foreign table; then the probe does not live to tell.
        let run = w.sandbox().probe("syscall x32-getpid x32-read").await;
        if run.outcome != (glovebox_core::Outcome::Signaled { signal: 31 }) {
            only(&run, "x32-getpid x32-read", &["EPERM", "ENOSYS"]);
        }
    }
}

async fn system_calls_of_the_32_bit_table_are_refused(w: World) {
    if cfg!(target_arch = "x86_64") {
        let run = w.sandbox().probe("syscall int80").await.expect_exit(0);
        // The child dies of the filter, or gets an error in place of its process id.
        only(&run, "int80", &["signaled 31", "signaled 9", "signaled 11", "exited 1"]);
    }
}

const SOCKET_ANSWERS: [&str; 4] = ["EPERM", "EACCES", "EAFNOSUPPORT", "ENOSYS"];

async fn sockets_refused(w: World, names: &str) {
    for user in ["user", "root"] {
        let run = w.sandbox().user(user).probe(&format!("syscall {names}")).await.expect_exit(0);
        only(&run, names, &SOCKET_ANSWERS);
    }
}

async fn raw_and_packet_sockets_are_refused(w: World) {
    sockets_refused(w, "socket-packet socket-packet-dgram socket-raw-ipv4 socket-raw-ipv6").await;
}

async fn netlink_beyond_routes_is_refused(w: World) {
    let names = "socket-netlink-diag socket-netlink-xfrm socket-netlink-audit socket-netlink-netfilter \
                 socket-netlink-uevent socket-netlink-generic socket-netlink-crypto";
    sockets_refused(w, &names.split_whitespace().collect::<Vec<_>>().join(" ")).await;
}

async fn foreign_socket_families_are_refused(w: World) {
    let names = "socket-vsock socket-alg socket-bluetooth socket-can socket-x25 socket-ax25 socket-tipc socket-xdp \
                 socket-rds socket-llc socket-nfc socket-pppox socket-key socket-appletalk socket-ipx";
    sockets_refused(w, &names.split_whitespace().collect::<Vec<_>>().join(" ")).await;
}

async fn typing_into_the_terminal_is_refused(w: World) {
    let run = w.sandbox().terminal(24, 80).probe("syscall ioctl-tiocsti").await.expect_exit(0);
    assert!(run.out().trim().ends_with("EPERM") || run.out().trim().ends_with("EIO"), "{}", run.story());
}

async fn setuid_programs_gain_nothing(w: World) {
    let line = "cp /usr/bin/id . && chmod 6755 id && ./id -u; for s in /usr/bin/su /usr/bin/passwd /usr/bin/chsh; do \
                test -u $s && echo suid; done; grep -E ' /(usr|probe/bin) ' /proc/mounts";
    let run = w.sandbox().sh_with_probe(line).await.expect_exit(0);
    assert!(run.out().starts_with("1000\n"), "{}", run.story());
    for mount in
        run.out().lines().filter(|line| line.contains(" / ") || line.contains("/usr") || line.contains("/probe"))
    {
        assert!(mount.contains("nosuid"), "{mount} allows setuid programs");
    }
}
