//! Ending containers. Docker is asked to end one only where this process cannot.

use std::{fs, os::fd::OwnedFd, time::Duration};

use glovebox_core::Result;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

use super::{DockerBackend, Held};

/// How long Docker may take to notice the end of a one-shot container and to remove it, before it is told to.
const BY_ITSELF: Duration = Duration::from_secs(2);

/// The guest of a one-shot container, held by a handle that never means another process.
#[derive(Debug)]
pub(super) struct Guest(OwnedFd);

impl Guest {
    /// Takes hold of a process, if it is the first of its process namespace and in the groups of this container: then all others of
    /// the container end with it.
    pub(super) fn hold(pid: i32, container: &str) -> Option<Self> {
        let guest = Guest(pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?);
        // What is read is of the process that is held, unless that has ended.
        let of_process = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
        let is_first = of_process("status")?.lines().any(|line| line.starts_with("NSpid:") && line.ends_with("\t1"));
        let is_inside = of_process("cgroup")?.lines().any(|line| line.contains(container));
        (is_first && is_inside && !guest.has_ended()).then_some(guest)
    }

    /// Whether it has ended, and with it all of the container.
    fn has_ended(&self) -> bool {
        let mut seen = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut seen, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }
}

impl DockerBackend {
    /// Removes a container and waits until it is gone.
    pub(super) async fn remove(&self, held: &Held) -> Result<()> {
        // Docker removes a one-shot container by itself when it has ended. To tell it so meanwhile would make it kill what is dead.
        let removed = self.client.removed(&held.container);
        if held.kill_guest().is_some()
            && let Ok(removed) = tokio::time::timeout(BY_ITSELF, removed).await
        {
            return removed;
        }
        self.client.remove(&held.container).await
    }
}

impl Held {
    /// Ends the guest of a one-shot sandbox, and with it all processes of the container. Says whether any was left to end, or nothing where
    /// this process cannot do so: there may be no handle, and Docker may belong to somebody else.
    pub(super) fn kill_guest(&self) -> Option<bool> {
        let guest = self.met.get()?.guest.as_ref()?;
        match guest.has_ended() {
            true => Some(false),
            false => pidfd_send_signal(&guest.0, Signal::KILL).is_ok().then_some(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_not_the_first_of_a_container_is_not_held() {
        let own = std::process::id() as i32;
        assert!(Guest::hold(own, "").is_none(), "it is in a namespace with others above it");
        // The first process of this machine, or of the container that the tests run in, is in no group of that name.
        assert!(Guest::hold(1, "no-such-container").is_none());
    }
}
