//! Hosts that are known to refuse what a sandbox needs, and what helps on each.

use std::{fs, path::Path};

use crate::{standing, sys};

/// A kind of host that refuses something, by the name that its users know it by.
#[derive(Debug)]
pub struct KnownHost {
    /// Its name, as it stands after "this is".
    pub name: &'static str,
    /// How it is recognised, for the docs.
    pub sign: &'static str,
    /// What to do, one line. What begins with a program's name is a command.
    pub remedy: &'static str,
    recognises: fn(&Signs) -> bool,
}

/// What a container was made by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// Docker, or something that behaves like it.
    Docker,
    /// Podman, Buildah.
    Podman,
    /// A pod of Kubernetes.
    Kubernetes,
    /// LXC, Incus.
    Lxc,
}

/// What a host shows of itself in files and variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signs {
    /// Whether the caller is root.
    pub root: bool,
    /// `/proc/version`.
    pub version: String,
    /// What made the container that this is, if it is one.
    pub container: Option<Container>,
    /// Whether this is a job of GitHub Actions.
    pub github: bool,
    /// Whether this is a job of GitLab.
    pub gitlab: bool,
    /// Whether the kernel has user namespaces at all.
    pub user_namespaces: bool,
    /// `user.max_user_namespaces`.
    pub most_user_namespaces: Option<u64>,
    /// `kernel.unprivileged_userns_clone`, a switch of Debian's and of hardened kernels.
    pub unprivileged_clone: Option<u64>,
    /// `kernel.apparmor_restrict_unprivileged_userns`, Ubuntu's switch.
    pub apparmor_restricts: Option<u64>,
    /// Whether the root of this process is not the root of a mount.
    pub changed_root: bool,
    /// Whether a filter of system calls is on the caller.
    pub filtered: bool,
    /// Whether something lies over a part of `/proc`; the kernel then gives nobody a new one.
    pub covered_proc: bool,
    /// Whether a profile of AppArmor is on the caller.
    pub confined: bool,
    /// Whether the caller is a root who may not even give root's own id to a namespace.
    pub powerless_root: bool,
}

impl Signs {
    /// Those of this host.
    pub fn read() -> Self {
        let read = |path: &str| sys::read_small(path).unwrap_or_default();
        let switch = |name: &str| read(&format!("/proc/sys/{name}")).trim().parse().ok();
        let (status, mounts) = (read("/proc/self/status"), read("/proc/self/mountinfo"));
        Signs {
            root: rustix::process::geteuid().is_root(),
            version: read("/proc/version"),
            container: container(),
            github: std::env::var_os("GITHUB_ACTIONS").is_some(),
            gitlab: std::env::var_os("GITLAB_CI").is_some(),
            user_namespaces: Path::new("/proc/self/ns/user").exists(),
            most_user_namespaces: switch("user/max_user_namespaces"),
            unprivileged_clone: switch("kernel/unprivileged_userns_clone"),
            apparmor_restricts: switch("kernel/apparmor_restrict_unprivileged_userns"),
            changed_root: !mounts.is_empty() && !mounts.lines().any(|line| line.split(' ').nth(4) == Some("/")),
            filtered: sys::status_field(&status, "Seccomp") == Some("2"),
            covered_proc: mounts.lines().any(is_over_proc),
            confined: read("/proc/self/attr/current").contains("(enforce)"),
            powerless_root: standing::is_powerless_root(),
        }
    }
}

/// What made the container that this process is in.
fn container() -> Option<Container> {
    let is_there = |path: &str| Path::new(path).exists();
    // A pod's runtime leaves none of the others' files, but a pod may be made by Docker.
    if is_there("/var/run/secrets/kubernetes.io") || std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        return Some(Container::Kubernetes);
    }
    if is_there("/.dockerenv") {
        return Some(Container::Docker);
    }
    if is_there("/run/.containerenv") {
        return Some(Container::Podman);
    }
    let said = fs::read_to_string("/run/systemd/container").unwrap_or_default();
    (said.trim() == "lxc" || is_there("/dev/.lxc")).then_some(Container::Lxc)
}

/// Whether a line of mountinfo is of a mount over a part of `/proc`. One that every process may make, of a file system that
/// is empty for everybody, does not count for the kernel.
fn is_over_proc(line: &str) -> bool {
    let (place, kind) = line.split_once(" - ").unwrap_or((line, ""));
    place.split(' ').nth(4).is_some_and(|path| path.starts_with("/proc/"))
        && !kind.starts_with("binfmt_misc ")
        && !kind.starts_with("autofs ")
}

/// The first row of [`KNOWN_HOSTS`] that fits.
pub(super) fn recognise(signs: &Signs) -> Option<&'static KnownHost> {
    KNOWN_HOSTS.iter().find(|host| (host.recognises)(signs))
}

/// Every host that is known. The first that fits counts, so what refuses first stands first.
pub const KNOWN_HOSTS: &[KnownHost] = &[
    KnownHost {
        name: "WSL 1",
        sign: "/proc/version says Microsoft, and the kernel has no user namespaces",
        remedy: "wsl --set-version DISTRIBUTION 2 (in Windows; WSL 1 has no Linux kernel)",
        recognises: |signs| signs.version.contains("Microsoft") && !signs.user_namespaces,
    },
    KnownHost {
        name: "a kernel without user namespaces",
        sign: "/proc/self/ns/user is not there",
        remedy: "use a kernel with CONFIG_USER_NS=y; every distribution's own has it",
        recognises: |signs| !signs.user_namespaces,
    },
    KnownHost {
        name: "a container of GitHub Actions",
        sign: "GITHUB_ACTIONS is set, and the job has a container whose filter or covered /proc refuses sandboxes",
        remedy: "container: {options: --privileged} in the job, or no container: the runner itself works",
        recognises: |signs| signs.github && is_tight_container(signs),
    },
    KnownHost {
        name: "a container of GitLab CI",
        sign: "GITLAB_CI is set, and the job has a container whose filter or covered /proc refuses sandboxes",
        remedy: "privileged = true in [runners.docker] of the runner's config.toml",
        recognises: |signs| signs.gitlab && is_tight_container(signs),
    },
    KnownHost {
        name: "a pod of Kubernetes without rights",
        sign: "the variables or secrets of Kubernetes are there, and a filter or a covered /proc",
        remedy: "securityContext: {privileged: true} for the container",
        recognises: |signs| signs.container == Some(Container::Kubernetes) && is_tight_container(signs),
    },
    KnownHost {
        name: "a Docker container without the options that sandboxes need",
        sign: "/.dockerenv is there, and a filter, a covered /proc or a profile of AppArmor",
        remedy: "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined \
                 --security-opt systempaths=unconfined",
        recognises: |signs| signs.container == Some(Container::Docker) && is_tight_container(signs),
    },
    KnownHost {
        name: "a Podman container without the options that sandboxes need",
        sign: "/run/.containerenv is there, and a filter, a covered /proc or a profile of AppArmor",
        remedy: "podman run --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt unmask=ALL",
        recognises: |signs| signs.container == Some(Container::Podman) && is_tight_container(signs),
    },
    KnownHost {
        name: "a root without CAP_SETFCAP",
        sign: "root has lost its capabilities; the kernel then lets nobody give root's own id to a namespace",
        remedy: "docker run --user 1000, or --cap-add SETFCAP",
        recognises: |signs| signs.powerless_root,
    },
    KnownHost {
        name: "an LXC container without nesting",
        sign: "LXC's files are there, and a filter, a covered /proc or a profile of AppArmor",
        remedy: "incus config set NAME security.nesting=true (LXC: lxc.include = /usr/share/lxc/config/nesting.conf)",
        recognises: |signs| signs.container == Some(Container::Lxc) && is_tight_container(signs),
    },
    KnownHost {
        name: "a host that allows no user namespaces",
        sign: "user.max_user_namespaces is 0, as some hardened hosts have it",
        remedy: "sudo sysctl -w user.max_user_namespaces=15000",
        recognises: |signs| signs.most_user_namespaces == Some(0),
    },
    KnownHost {
        name: "a hardened kernel that keeps user namespaces for root",
        sign: "kernel.unprivileged_userns_clone is 0",
        remedy: "sudo sysctl -w kernel.unprivileged_userns_clone=1, or run glovebox as root",
        recognises: |signs| !signs.root && signs.unprivileged_clone == Some(0),
    },
    KnownHost {
        name: "Ubuntu with AppArmor's restriction of user namespaces",
        sign: "kernel.apparmor_restrict_unprivileged_userns is 1",
        remedy: "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or run glovebox as root",
        recognises: |signs| !signs.root && signs.apparmor_restricts.is_some_and(|value| value != 0),
    },
    KnownHost {
        name: "a changed root (chroot)",
        sign: "no mount is the root of this process; the kernel makes no user namespace there",
        remedy: "enter the folder with systemd-nspawn or pivot_root in place of chroot",
        recognises: |signs| signs.changed_root,
    },
];

/// Whether a container is closed as its maker's defaults close it. Capabilities do not tell: who has few of them makes
/// sandboxes as an ordinary user does.
fn is_tight_container(signs: &Signs) -> bool {
    let docker_like = signs.container.is_some() || (signs.filtered && (signs.github || signs.gitlab));
    docker_like && (signs.filtered || signs.covered_proc || signs.confined)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ordinary machine and an ordinary user.
    fn plain() -> Signs {
        Signs { user_namespaces: true, most_user_namespaces: Some(1000), ..Signs::default() }
    }

    /// What a container of the usual makers shows.
    fn tight() -> Signs {
        Signs { filtered: true, covered_proc: true, ..plain() }
    }

    fn name(signs: &Signs) -> &'static str {
        recognise(signs).map_or("", |host| host.name)
    }

    #[test]
    fn an_ordinary_machine_is_none_of_the_known_ones() {
        assert_eq!(name(&plain()), "");
        assert_eq!(name(&Signs { root: true, ..plain() }), "");
    }

    #[test]
    fn each_host_is_called_by_its_name() {
        let docker = Signs { container: Some(Container::Docker), root: true, ..tight() };
        assert!(name(&docker).contains("Docker"));
        assert!(name(&Signs { filtered: false, ..docker.clone() }).contains("Docker"));
        assert_eq!(name(&Signs { filtered: false, covered_proc: false, ..docker.clone() }), "");
        assert!(name(&Signs { github: true, ..docker.clone() }).contains("GitHub"));
        assert!(name(&Signs { gitlab: true, ..docker }).contains("GitLab"));
        assert!(name(&Signs { container: Some(Container::Podman), ..tight() }).contains("Podman"));
        assert!(name(&Signs { container: Some(Container::Kubernetes), ..tight() }).contains("Kubernetes"));
        assert!(name(&Signs { container: Some(Container::Lxc), ..tight() }).contains("LXC"));
        assert!(name(&Signs { apparmor_restricts: Some(1), ..plain() }).contains("Ubuntu"));
        assert!(name(&Signs { unprivileged_clone: Some(0), ..plain() }).contains("hardened"));
        assert!(name(&Signs { most_user_namespaces: Some(0), ..plain() }).contains("allows no"));
        assert!(name(&Signs { changed_root: true, ..plain() }).contains("chroot"));
        assert!(name(&Signs { powerless_root: true, root: true, ..plain() }).contains("SETFCAP"));
        let wsl = Signs { version: "Linux version 4.4.0-19041-Microsoft".into(), ..Signs::default() };
        assert_eq!(name(&wsl), "WSL 1");
        assert_eq!(name(&Signs { version: "Linux version 5.15.1-microsoft-standard-WSL2".into(), ..plain() }), "");
    }

    #[test]
    fn switches_that_bind_only_ordinary_users_do_not_bind_root() {
        let root = Signs { root: true, ..plain() };
        assert_eq!(name(&Signs { apparmor_restricts: Some(1), unprivileged_clone: Some(0), ..root }), "");
    }

    #[test]
    fn a_part_of_proc_is_covered_by_whatever_hides_something() {
        assert!(is_over_proc("70 60 0:50 / /proc/acpi ro,relatime - tmpfs tmpfs ro"));
        assert!(is_over_proc("71 60 0:48 /bus /proc/bus ro,nosuid - proc proc rw"));
        assert!(!is_over_proc("60 50 0:48 / /proc rw,nosuid - proc proc rw"));
        assert!(!is_over_proc("61 60 0:30 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw"));
    }

    #[test]
    fn the_signs_of_this_very_host_are_read() {
        let signs = Signs::read();
        assert!(signs.version.starts_with("Linux version") && signs.user_namespaces, "{signs:?}");
    }
}
