//! Every layer that a result lists is really there, seen from inside.

use glovebox_core::Layer;

use crate::{World, case::cases, finished::Finished};

cases!["layers":
    every_layer_that_the_host_can_give_is_listed_as_present,
    the_user_namespace_maps_root_inside_to_nobody_outside needs(own_ids),
    host_files_keep_their_owners_by_id_mapped_mounts needs(own_ids),
    the_mount_namespace_is_its_own,
    the_process_namespace_is_its_own_and_its_first_process_is_the_guest,
    the_network_namespace_is_its_own,
    the_ipc_namespace_is_its_own,
    the_uts_namespace_is_its_own_and_the_host_name_stays_outside,
    the_cgroup_namespace_is_its_own_and_hides_the_paths_of_the_host,
    the_device_folder_holds_only_harmless_devices,
    the_kernels_own_knobs_cannot_be_read_or_turned,
    commands_hold_no_capability_even_as_root_inside,
    no_new_privileges_can_be_gained,
    a_seccomp_filter_is_in_force,
    resource_limits_are_set_and_cannot_be_raised,
    commands_run_as_an_ordinary_user,
    another_user_can_be_asked_for,
    the_root_file_system_cannot_be_written,
];

async fn status(w: &World) -> Finished {
    w.sandbox().probe("status").await.expect_exit(0)
}

/// What the host itself has for a line of `probe status`.
fn host_fact(w: &World, name: &str) -> String {
    let output = std::process::Command::new(w.probe()).arg("status").output().expect("the probe runs on the host");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.expect("the host has the fact").to_owned()
}

async fn namespace_differs(w: World, name: &str, layer: Layer) {
    let run = status(&w).await;
    let inside = run.fact(name);
    assert!(inside.contains(":["), "{inside} is not a namespace");
    assert_ne!(inside, host_fact(&w, name), "{name} is that of the host");
    assert!(run.isolation.has(layer), "{layer} is there but not listed");
}

async fn every_layer_that_the_host_can_give_is_listed_as_present(w: World) {
    let run = status(&w).await;
    let landlock = host_fact(&w, "landlock_abi") != "0";
    let features = w.features();
    let can_be = |layer: &Layer| match layer {
        Layer::Landlock => landlock,
        Layer::Cgroup => features.cgroup_limits,
        Layer::IdmappedMounts => features.idmapped_mounts,
        Layer::SeparateGuest => features.separate_guest,
        _ => true,
    };
    let expected: Vec<Layer> = Layer::ALL.iter().copied().filter(can_be).collect();
    assert_eq!(run.isolation.present, expected, "missing: {:?}", run.isolation.missing);
    assert_eq!(run.isolation.missing.len(), Layer::ALL.len() - expected.len());
}

async fn the_user_namespace_maps_root_inside_to_nobody_outside(w: World) {
    let run = status(&w).await;
    assert_ne!(run.fact("ns_user"), host_fact(&w, "ns_user"));
    for map in ["uid_map", "gid_map"] {
        let text = run.fact(map);
        let numbers: Vec<u64> = text.split(' ').map(|n| n.parse().expect("a map holds numbers")).collect();
        for range in numbers.chunks(3) {
            assert!(range[1] >= 65536, "{map} {text} reaches an ordinary id of the host");
        }
    }
    assert!(run.isolation.has(Layer::UserNs));
}

async fn host_files_keep_their_owners_by_id_mapped_mounts(w: World) {
    let run = w.sandbox().run(["stat", "-c", "%u:%g", "/usr/bin", "/usr/lib"]).await.expect_exit(0);
    assert_eq!(run.out(), "0:0\n0:0\n", "without id-mapped mounts the owner would be 65534");
    assert!(run.isolation.has(Layer::IdmappedMounts));
}

async fn the_mount_namespace_is_its_own(w: World) {
    namespace_differs(w, "ns_mnt", Layer::MountNs).await;
}

async fn the_process_namespace_is_its_own_and_its_first_process_is_the_guest(w: World) {
    namespace_differs(w.clone(), "ns_pid", Layer::PidNs).await;
    let run = w.sandbox().probe("signal-pid1").await.expect_exit(0);
    assert_eq!(run.fact("alive"), "true");
}

async fn the_network_namespace_is_its_own(w: World) {
    namespace_differs(w, "ns_net", Layer::NetworkNs).await;
}

async fn the_ipc_namespace_is_its_own(w: World) {
    namespace_differs(w, "ns_ipc", Layer::IpcNs).await;
}

async fn the_uts_namespace_is_its_own_and_the_host_name_stays_outside(w: World) {
    namespace_differs(w.clone(), "ns_uts", Layer::UtsNs).await;
    let inside = w.sandbox().run(["uname", "-n"]).await.expect_exit(0).out();
    let outside = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert_ne!(inside.trim(), outside);
}

async fn the_cgroup_namespace_is_its_own_and_hides_the_paths_of_the_host(w: World) {
    namespace_differs(w.clone(), "ns_cgroup", Layer::CgroupNs).await;
    let run = w.sandbox().run(["cat", "/proc/self/cgroup"]).await.expect_exit(0);
    for line in run.out().lines() {
        assert!(line.ends_with(":/"), "{line} shows a path");
    }
}

async fn the_device_folder_holds_only_harmless_devices(w: World) {
    const HARMLESS: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
    let line = "find /dev ! -type d ! -type l ! -path '/dev/pts/*' ! -path '/dev/shm/*' -exec stat -c '%F:%n' {} +";
    let run = w.sandbox().sh(line).await.expect_exit(0);
    let devices = run.out();
    assert!(devices.contains("character special file:/dev/null"), "there is no /dev/null: {devices}");
    for device in devices.lines() {
        let (kind, path) = device.split_once(':').expect("stat prints a kind and a path");
        let name = path.trim_start_matches("/dev/");
        assert_ne!(kind, "block special file", "{name} is a block device");
        assert!(HARMLESS.contains(&name) || name == "ptmx" || name == "console", "{name} is not harmless");
    }
    w.sandbox().sh("echo x > /dev/null && head -c 3 /dev/zero | wc -c").await.expect_exit(0).expect_out("3\n");
    assert!(run.isolation.has(Layer::PrivateDev));
}

async fn the_kernels_own_knobs_cannot_be_read_or_turned(w: World) {
    let reads = "/proc/kcore /proc/kmsg /proc/1/mem /dev/mem /dev/kmsg";
    let run = w.sandbox().user("root").probe(&format!("read {reads}")).await.expect_exit(0);
    for path in reads.split(' ') {
        assert_ne!(run.fact(path), "ok", "{path} can be read");
    }
    let writes = "/proc/sysrq-trigger /proc/sys/kernel/core_pattern /proc/sys/vm/drop_caches /proc/sys/kernel/hostname \
                  /proc/sys/kernel/modprobe /proc/irq/0/smp_affinity";
    let run = w.sandbox().user("root").probe(&format!("open-for-writing {}", squeeze(writes))).await.expect_exit(0);
    for path in writes.split_whitespace() {
        assert_ne!(run.fact(path), "ok", "{path} can be written");
    }
    let keys = w.sandbox().sh("cat /proc/keys /proc/timer_list /proc/sched_debug 2>/dev/null | head -c 100").await;
    assert_eq!(keys.out(), "");
    assert!(keys.isolation.has(Layer::MaskedProc));
}

fn squeeze(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

async fn commands_hold_no_capability_even_as_root_inside(w: World) {
    for user in ["user", "root"] {
        let run = w.sandbox().user(user).probe("status").await.expect_exit(0);
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(run.fact(set), "0000000000000000", "{set} of {user}");
        }
        assert!(run.isolation.has(Layer::NoCapabilities));
    }
}

async fn no_new_privileges_can_be_gained(w: World) {
    let run = status(&w).await;
    assert_eq!(run.fact("NoNewPrivs"), "1");
    assert!(run.isolation.has(Layer::NoNewPrivs));
}

async fn a_seccomp_filter_is_in_force(w: World) {
    let run = status(&w).await;
    assert_eq!(run.fact("Seccomp"), "2");
    assert!(run.isolation.has(Layer::Seccomp));
}

async fn resource_limits_are_set_and_cannot_be_raised(w: World) {
    let run =
        w.sandbox().open_files(77).sh("ulimit -n; ulimit -Hn; ulimit -c; ulimit -n 78 && echo raised; true").await;
    assert!(run.out().starts_with("77\n77\n0\n"), "{}", run.story());
    assert!(!run.out().contains("raised"), "{}", run.story());
    assert!(run.isolation.has(Layer::Rlimits));
}

async fn commands_run_as_an_ordinary_user(w: World) {
    let run = status(&w).await;
    assert_eq!(run.fact("Uid"), "1000 1000 1000 1000");
    assert_eq!(run.fact("Gid"), "1000 1000 1000 1000");
    let groups = run.out().lines().find(|line| line.starts_with("Groups")).map(str::to_owned);
    assert!(matches!(groups.as_deref(), Some("Groups " | "Groups" | "Groups 1000")), "{groups:?}");
    assert!(run.isolation.has(Layer::UnprivilegedUser));
}

async fn another_user_can_be_asked_for(w: World) {
    let run = w.sandbox().user("1234:4321").sh("id -u; id -g; echo x > file && cat file").await;
    run.expect_exit(0).expect_out("1234\n4321\nx\n");
}

async fn the_root_file_system_cannot_be_written(w: World) {
    let line = "for d in / /usr /bin /etc /opt /lib /proc /dev; do touch $d/x 2>/dev/null && echo $d; done; true";
    for user in ["user", "root"] {
        let run = w.sandbox().user(user).sh(line).await.expect_exit(0);
        assert_eq!(run.out(), "", "{user} can write there");
    }
}
