//! Ending containers, and what is said of one that does not end.

use std::{fs, os::fd::OwnedFd, time::Duration};

use bollard::query_parameters::KillContainerOptionsBuilder;
use glovebox_core::{Error, ErrorCode, Evidence, Result, SandboxId};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

use super::{DockerBackend, Held};
use crate::client::{SLOW, is_unanswered};

/// How long Docker may take to notice the end of a one-shot container and to remove it, before it is told to.
const BY_ITSELF: Duration = Duration::from_secs(2);

/// The guest of a one-shot container, held by a handle that never means another process.
#[derive(Debug)]
pub(super) struct GuestHandle(OwnedFd);

impl GuestHandle {
    /// Takes hold of a process, if it is the first of its process namespace and in the groups of this container: then all others of
    /// the container end with it.
    pub(super) fn hold(pid: i32, container: &str) -> Option<Self> {
        let guest = GuestHandle(pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?);
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

impl Held {
    /// Connects to the guest of a living sandbox on this machine.
    pub(super) async fn connect(&self) -> std::io::Result<tokio::net::UnixStream> {
        self.meeting.connect(self.first_process()).await
    }

    /// The first process of the container, where it is one of this kernel's and known to be that.
    fn first_process(&self) -> Option<i32> {
        let pid = self.met.get()?.pid?;
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        // Where there is a kernel of its own, such as gVisor's, it is that one, and other processes of its listen.
        (name == "glovebox-guest\n" && GuestHandle::hold(pid, &self.container).is_some()).then_some(pid)
    }

    /// Ends the guest of a one-shot sandbox, and with it all processes of the container. Says whether any was left to end, or nothing where
    /// this process cannot do so: there may be no handle, and the container may belong to somebody else.
    fn kill_guest(&self) -> Option<bool> {
        let guest = self.met.get()?.guest.as_ref()?;
        match guest.has_ended() {
            true => Some(false),
            false => pidfd_send_signal(&guest.0, Signal::KILL).is_ok().then_some(true),
        }
    }
}

impl DockerBackend {
    /// What is said of a sandbox that Docker was asked to end, and that did not for this reason: who keeps it from ending, if that can be
    /// seen from here.
    pub(super) fn unended(&self, id: SandboxId, held: &Held, error: Error) -> Error {
        match error.code {
            _ if is_unanswered(&error) => left_to_docker(&self.client.place).because(error),
            ErrorCode::StillEnding => held.waiting().map_or(error, |waiting| Error::still_ending(id, &waiting)),
            _ => error,
        }
    }

    /// Ends the processes of a container, and says what was counted until then.
    pub(super) async fn kill(&self, held: &Held) -> Result<Option<Evidence>> {
        let evidence = self.seen(held, None).await?;
        // Where this process can do it, Docker is not asked.
        if let Some(any) = held.kill_guest() {
            return Ok(evidence.filter(|_| any));
        }
        let options = KillContainerOptionsBuilder::new().signal("SIGKILL").build();
        let asked = self.client.docker.kill_container(&held.container, Some(options));
        let killed = self.client.ask_if_there("end a container", SLOW, asked).await?;
        Ok(evidence.filter(|_| killed.is_some()))
    }

    /// Removes a container and waits until it is gone.
    pub(super) async fn remove(&self, held: &Held) -> Result<()> {
        // Docker removes a one-shot container by itself when it has ended. To tell it so meanwhile would make it kill what is dead.
        if held.kill_guest().is_some()
            && let Ok(removed) = tokio::time::timeout(BY_ITSELF, self.client.removed(&held.container)).await
        {
            return removed;
        }
        self.client.remove(&held.container).await
    }
}

/// What is said of a container whose end Docker was asked for and did not confirm.
fn left_to_docker(place: &str) -> Error {
    let message = format!("Docker at {place} does not answer, so nobody knows whether the container is removed");
    Error::new(ErrorCode::StillEnding, message).hint(
        "it ends by itself without us; when Docker answers again, `glovebox gc --backend docker` removes what is left",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_not_the_first_of_a_container_is_not_held() {
        let own = std::process::id() as i32;
        assert!(GuestHandle::hold(own, "").is_none(), "it is in a namespace with others above it");
        // The first process of this machine, or of the container that the tests run in, is in no group of that name.
        assert!(GuestHandle::hold(1, "no-such-container").is_none());
    }
}
