//! Sandboxes that were killed and do not end: a process inside waits in the kernel, which nobody can end. Who asked is told so, and by whom, and
//! does not wait; the sandbox is shown as one that ends, and is over when that process is.

use std::{future::Future, pin::pin, sync::PoisonError, time::Duration};

use glovebox_core::{Created, Error, Result, SandboxId, waiting_in_kernel};

use super::{DockerBackend, Held, Met, host_io, unfinished::Going};
use crate::{
    meeting::{Found, Guest, Meeting},
    process::Stat,
};

/// How often it is looked what keeps a container from ending. A process that waits both times is not about to end.
const LOOK: Duration = Duration::from_secs(2);

impl DockerBackend {
    /// Ends a sandbox that this process holds, and waits until nothing of it is left, or it is known that this takes long.
    pub(super) async fn destroy_held(&self, id: SandboxId) -> Result<()> {
        let Some(held) = self.all().remove(&id) else { return Ok(()) };
        let going = Going::new(self, id, &held);
        let unended = held.unended.lock().unwrap_or_else(PoisonError::into_inner).take();
        let removed = match unended {
            Some(unended) => Err(unended),
            None => {
                let removing = self.unless_stuck(id, &held, self.remove(&held));
                removing.await.map_err(|error| self.unended(id, &held, error))
            }
        };
        // What is noted of one that stays is needed for as long as it may be there.
        if removed.is_ok() || held.spec.living.is_none() {
            held.meeting.remove();
        }
        if removed.is_ok() {
            self.take_back(id, &held.spec).await;
        }
        going.over();
        removed
    }

    /// Waits until a container has ended, or it is known that it will not for long.
    async fn unless_stuck<T>(&self, id: SandboxId, held: &Held, ending: impl Future<Output = Result<T>>) -> Result<T> {
        let (mut ending, mut before) = (pin!(ending), None);
        loop {
            if let Ok(ended) = tokio::time::timeout(LOOK, &mut ending).await {
                return ended;
            }
            match held.waiting() {
                Some(waiting) if before.as_ref() == Some(&waiting) => return Err(Error::still_ending(id, &waiting)),
                waiting => before = waiting,
            }
        }
    }

    /// Meets the guest. Which process of this machine that of a living sandbox is, and its groups, is noted, so that everybody can see whether it
    /// ends and for whom it waits then.
    pub(super) async fn meet_and_note(&self, held: &Held) -> Result<Met> {
        let met = self.meet(held).await?;
        if held.spec.living.is_some() {
            let Created { isolation, limits, .. } = met.created.clone();
            held.meeting.note_ready(&Found { isolation, limits }).map_err(host_io)?;
        }
        if let Some(pid) = met.pid.filter(|_| held.spec.living.is_some())
            && let Some(Stat { start, .. }) = Stat::of(pid)
        {
            held.meeting.note_guest(&Guest { pid, start, groups: met.groups.clone() }).map_err(host_io)?;
        }
        Ok(met)
    }

    /// The guest of a living sandbox that was killed, although Docker takes its container for a running one: it ends, and waits for all others.
    pub(super) fn ending_guest(&self, id: SandboxId) -> Option<Guest> {
        let guest = Meeting::of(&self.settings.runtime_folder, id).guest()?;
        Stat::of(guest.pid).filter(|now| now.start == guest.start && now.is_ending()).map(|_| guest)
    }
}

impl Held {
    /// A process of the container that waits in the kernel, where it cannot be killed.
    pub(super) fn waiting(&self) -> Option<String> {
        let processes = self.met.get().map(|met| met.groups.processes()).unwrap_or_default();
        processes.into_iter().find_map(waiting_in_kernel)
    }
}
