//! Podman, which speaks Docker's API and means something else by some of it.
//!
//! What a container is stands in `describe`, once. Here is what has to be said in another way for Podman to make the same of it, and what it cannot
//! do: its tmpfs has no limit on inodes, which the result says.

use std::time::Duration;

use bollard::{
    errors::Error as DockerError,
    models::{ContainerCreateBody, HostConfig, ResourcesUlimits, SystemVersion},
};
use rustix::process::{Resource, getrlimit};

/// Where Podman mounts a file system without a limit of its own, in a container whose root is read-only.
const ITS_OWN: [&str; 2] = ["/run", "/var/tmp"];

/// What is mounted there in its place: as little to write to as the read-only root that is behind it.
const NOTHING: &str = "ro,noexec,nosuid,nodev,size=4k,mode=0755";

/// Files that the guest could ever have open.
const MOST_FILES: u64 = 65_536;

/// Processes of the user who commands run as, those outside of the sandbox included: no limit of the sandbox, which has its own. Podman
/// itself has no more than 32768.
const MOST_PROCESSES: u64 = 16_384;

/// Whether an engine is Podman.
pub(crate) fn is_it(version: &SystemVersion) -> bool {
    version.components.iter().flatten().any(|component| component.name.starts_with("Podman"))
}

/// Whether an answer says that a container is not there, or does not run any more: Podman's are failures of the server.
pub(crate) fn says_gone(error: &DockerError) -> bool {
    let DockerError::DockerResponseServerError { status_code: 500, message } = error else { return false };
    ["no such container", "container state improper"].iter().any(|words| message.contains(words))
}

/// Whether an answer names a state of a container that Docker does not know: Podman has some for moments such as that between the end of
/// the last process and the note of how it ended. It does not say when a moment is over.
pub(crate) fn is_between_states(error: &DockerError) -> bool {
    matches!(error, DockerError::JsonDataError { message, .. } if message.contains("unknown variant"))
}

/// How long is waited until a container is looked at again that is between two states, and how often at most.
pub(crate) const BETWEEN: Duration = Duration::from_millis(50);
pub(crate) const MOST_LOOKS: usize = 40;

/// The states that both know.
pub(crate) const STATES: [&str; 5] = ["created", "running", "paused", "exited", "removing"];

/// Says the description of a container as Podman understands it.
pub(crate) fn adapt(body: &mut ContainerCreateBody) {
    let Some(host) = &mut body.host_config else { return };
    cover_its_own(host);
    let masked = host.masked_paths.take().unwrap_or_default();
    host.security_opt.get_or_insert_default().push(format!("mask={}", masked.join(":")));
    // It raises both as far as the kernel goes unless it is told others, and where it lacks the right to, nothing starts.
    let limits = [("nofile", Resource::Nofile, MOST_FILES), ("nproc", Resource::Nproc, MOST_PROCESSES)];
    let ulimits = limits.map(|(name, resource, most)| {
        let value = getrlimit(resource).maximum.unwrap_or(u64::MAX).min(most);
        let value = i64::try_from(value).unwrap_or(-1);
        ResourcesUlimits { name: Some(name.to_owned()), soft: Some(value), hard: Some(value) }
    });
    host.ulimits.get_or_insert_default().extend(ulimits);
}

/// Bounds what can be written in every container of Podman's, and leaves out what its tmpfs does not know.
fn cover_its_own(host: &mut HostConfig) {
    let tmpfs = host.tmpfs.get_or_insert_default();
    for options in tmpfs.values_mut() {
        let known = options.split(',').filter(|option| !option.starts_with("nr_inodes="));
        *options = known.collect::<Vec<_>>().join(",");
    }
    tmpfs.extend(ITS_OWN.map(|folder| (folder.to_owned(), NOTHING.to_owned())));
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use bollard::models::SystemVersionComponents;

    use super::*;

    #[test]
    fn an_engine_is_known_by_its_parts() {
        let of = |name: &str| SystemVersion {
            components: Some(vec![SystemVersionComponents { name: name.to_owned(), ..Default::default() }]),
            ..Default::default()
        };
        assert!(is_it(&of("Podman Engine")));
        assert!(!is_it(&of("Engine")));
        assert!(!is_it(&SystemVersion::default()));
    }

    #[test]
    fn a_container_that_ended_is_told_from_an_engine_that_failed() {
        let answer =
            |message: &str| DockerError::DockerResponseServerError { status_code: 500, message: message.to_owned() };
        assert!(says_gone(&answer("no container with name or ID \"x\" found: no such container")));
        assert!(says_gone(&answer(
            "can only kill running containers. x is in state stopped: container state improper"
        )));
        assert!(!says_gone(&answer("crun: cannot do that")));
    }

    #[test]
    fn no_folder_of_podmans_own_can_be_filled_and_no_unknown_option_is_said() {
        let tmpfs = HashMap::from([("/tmp".to_owned(), "rw,size=8,nr_inodes=7,mode=1777".to_owned())]);
        let host = HostConfig {
            tmpfs: Some(tmpfs),
            masked_paths: Some(vec!["/sys".to_owned(), "/proc/kcore".to_owned()]),
            ..HostConfig::default()
        };
        let mut body = ContainerCreateBody { host_config: Some(host), ..ContainerCreateBody::default() };
        adapt(&mut body);
        let host = body.host_config.unwrap();
        let tmpfs = host.tmpfs.unwrap();
        assert_eq!(tmpfs["/tmp"], "rw,size=8,mode=1777");
        assert!(tmpfs["/run"].starts_with("ro,") && tmpfs["/var/tmp"].starts_with("ro,"));
        assert_eq!(host.security_opt.unwrap(), ["mask=/sys:/proc/kcore"]);
        let named: Vec<String> = host.ulimits.unwrap().into_iter().filter_map(|ulimit| ulimit.name).collect();
        assert_eq!(named, ["nofile", "nproc"]);
    }
}
