//! gVisor, a kernel of its own for each container, as a runtime of the engine.
//!
//! What a program does inside it asks of that kernel, and the host sees one program: control groups hold that program and all that is in
//! it at once. So memory that runs out ends the sandbox and not one process, and the number of processes inside is none that the host counts.

use bollard::models::{ContainerCreateBody, SystemInfo};
use glovebox_core::{Error, ErrorCode, Features, LimitsInForce, Result, SandboxSpec};
use glovebox_proto::container::{PLAN, Plan};

/// The flags without which it does not start, or the guest cannot speak.
pub(crate) const FLAGS: [&str; 2] = ["--network=none", "--host-uds=all"];

/// What is done about a failure.
pub(crate) const REMEDY: &str = "give the runtime the flags --network=none and --host-uds=all (runtimeArgs of the engine's configuration), and restart \
                                 the engine; docs/guides/docker.md shows how";

/// Tasks of the host that the kernel inside may need: its own, and some for each process of a program's.
const OWN_TASKS: u64 = 512;
const TASKS_OF_PROCESS: u64 = 8;

/// Runtimes that are known to have no kernel of their own.
const SHARE_THE_KERNEL: [&str; 4] = ["runc", "crun", "youki", "io.containerd.runc.v2"];

/// The runtimes of an engine that are gVisor, and the one that it uses when none is named.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runtimes {
    gvisor: Vec<String>,
    usual: Option<String>,
}

impl Runtimes {
    /// What an engine says of its runtimes.
    pub(crate) fn of(info: &SystemInfo) -> Self {
        let is_it = |name: &str, path: &str| {
            [name, path.rsplit('/').next().unwrap_or(path)].iter().any(|text| text.contains("runsc"))
        };
        let known = info.runtimes.iter().flatten();
        let gvisor = known.filter(|(name, runtime)| is_it(name, runtime.path.as_deref().unwrap_or_default()));
        Runtimes { gvisor: gvisor.map(|(name, _)| name.clone()).collect(), usual: info.default_runtime.clone() }
    }

    /// Whether a container with this runtime, or with the usual one, has its mounts in the kernel of the host, as far as is known.
    pub(crate) fn share_the_kernel(&self, runtime: Option<&str>) -> bool {
        let runtime = runtime.or(self.usual.as_deref()).unwrap_or("runc");
        !self.is_gvisor(Some(runtime)) && SHARE_THE_KERNEL.contains(&runtime)
    }

    /// Whether a container with this runtime, or with the usual one, is in gVisor.
    pub(crate) fn is_gvisor(&self, runtime: Option<&str>) -> bool {
        let runtime = runtime.or(self.usual.as_deref()).unwrap_or_default();
        // Names that the engine does not list are those of shims, such as io.containerd.runsc.v1.
        self.gvisor.iter().any(|name| name == runtime) || runtime.contains("runsc")
    }
}

/// The runtimes of an engine that are gVisor and lack a flag, each with those that it lacks.
pub(crate) fn unfit(info: &SystemInfo) -> Vec<(String, Vec<&'static str>)> {
    let runtimes = Runtimes::of(info);
    let known = info.runtimes.iter().flatten().filter(|(name, _)| runtimes.gvisor.contains(name));
    let mut unfit: Vec<_> = known
        .filter_map(|(name, runtime)| {
            let given = runtime.runtime_args.clone().unwrap_or_default();
            let lacks = FLAGS.into_iter().filter(|flag| !given.iter().any(|word| word == flag)).collect::<Vec<_>>();
            (!lacks.is_empty()).then(|| (name.clone(), lacks))
        })
        .collect();
    unfit.sort();
    unfit
}

/// What a backend has whose sandboxes are in gVisor.
pub(crate) fn features(of_engine: Features) -> Features {
    Features {
        cgroup_limits: false,
        disk_limit: false,
        mounts: false,
        pause: false,
        idmapped_mounts: false,
        group_namespace: false,
        host_kernel: false,
        inode_limit: false,
        ends_later: false,
        ..of_engine
    }
}

/// An error if a sandbox cannot be had there. What keeps commands from the guest's socket is that they are neither root nor the caller, whom it
/// belongs to: nobody there can say who is at its other end.
pub(crate) fn fits(spec: &SandboxSpec, caller: u32) -> Result<()> {
    let refused = |message: String| {
        Err(Error::new(ErrorCode::NotSupported, message).hint("use another --user, or another runtime"))
    };
    match spec.user.uid {
        _ if spec.living.is_none() => Ok(()),
        0 => refused("a sandbox that stays cannot have root inside in gVisor".to_owned()),
        uid if uid == caller => {
            refused(format!("a sandbox that stays cannot have your own id inside in gVisor, which is {uid}"))
        }
        _ => Ok(()),
    }
}

/// Says the description of a container as it is meant for gVisor.
pub(crate) fn adapt(body: &mut ContainerCreateBody, limits: &LimitsInForce) {
    if let Some(host) = &mut body.host_config {
        host.pids_limit = Some((OWN_TASKS + limits.pids.saturating_mul(TASKS_OF_PROCESS)) as i64);
    }
    for variable in body.env.iter_mut().flatten() {
        let Some(text) = variable.strip_prefix(PLAN).and_then(|rest| rest.strip_prefix('=')) else { continue };
        let plan: Plan = serde_json::from_str(text).expect("the plan is ours");
        let plan = serde_json::to_string(&Plan { own_kernel: true, ..plan }).expect("a plan is plain values");
        *variable = format!("{PLAN}={plan}");
    }
}

/// Adds what is to be done about a container that gVisor did not start.
pub(crate) fn explained(error: Error) -> Error {
    match error.message.contains("network") || error.message.contains("OCI runtime") {
        true => error.hint(REMEDY),
        false => error,
    }
}

#[cfg(test)]
mod tests {
    use bollard::models::Runtime;

    use super::*;

    fn engine() -> SystemInfo {
        let runtime = |path: &str, args: &[&str]| Runtime {
            path: Some(path.to_owned()),
            runtime_args: Some(args.iter().map(|arg| (*arg).to_owned()).collect()),
            ..Default::default()
        };
        let runtimes = [
            ("runc", runtime("runc", &[])),
            ("gvisor", runtime("/usr/local/bin/runsc", &["--network=none"])),
            ("runsc", runtime("runsc", &FLAGS)),
        ];
        SystemInfo {
            runtimes: Some(runtimes.map(|(name, runtime)| (name.to_owned(), runtime)).into()),
            default_runtime: Some("runc".to_owned()),
            ..Default::default()
        }
    }

    #[test]
    fn a_runtime_is_known_by_its_program() {
        let runtimes = Runtimes::of(&engine());
        for (name, is_it) in [("runc", false), ("gvisor", true), ("runsc", true), ("io.containerd.runsc.v1", true)] {
            assert_eq!(runtimes.is_gvisor(Some(name)), is_it, "{name}");
        }
        assert!(!runtimes.is_gvisor(None));
        for (runtime, shares) in [(None, true), (Some("runc"), true), (Some("gvisor"), false), (Some("kata"), false)] {
            assert_eq!(runtimes.share_the_kernel(runtime), shares, "{runtime:?}");
        }
    }

    #[test]
    fn who_could_reach_the_guests_socket_has_no_sandbox_that_stays() {
        let (store, lifetime) = ("/store".into(), glovebox_core::Lifetime::default());
        let living = glovebox_core::Living { store, lifetime, created_at: jiff::Timestamp::now() };
        let of = |uid: u32, living: Option<glovebox_core::Living>| {
            let user = glovebox_core::User { uid, gid: 1000 };
            fits(&SandboxSpec { user, living, ..SandboxSpec::default() }, 1234).is_ok()
        };
        assert!(of(1000, Some(living.clone())) && of(0, None) && of(1234, None));
        assert!(!of(0, Some(living.clone())) && !of(1234, Some(living)));
    }

    #[test]
    fn what_a_runtime_lacks_is_told() {
        assert_eq!(unfit(&engine()), [("gvisor".to_owned(), vec!["--host-uds=all"])]);
    }
}
