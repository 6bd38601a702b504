//! Finding containers again that somebody else, or an earlier process, made.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bollard::models::{ContainerSummary, ContainerSummaryStateEnum as State};
use glovebox_core::{Created, Error, ErrorCode, Found, Isolation, Result, SandboxId, SandboxSpec, SandboxState};
use jiff::Timestamp;
use tokio::sync::OnceCell;

use super::{DockerBackend, Held, Met, gone, watching::Watching};
use crate::{
    client::{QUICK, SLOW},
    counted::Groups,
    describe,
    meeting::Meeting,
    owner::{self, Verdict},
};

/// An engine hears of the end of a container so long after its guest is gone at most.
const NOTICED: Duration = Duration::from_secs(2);

/// The code of a container whose first process was killed.
const KILLED: i64 = 137;

impl DockerBackend {
    /// The container of a sandbox, if there is one.
    async fn container_of(&self, id: SandboxId) -> Result<Option<ContainerSummary>> {
        let found = self.client.containers(Some((owner::SANDBOX, id.to_string()))).await?;
        Ok(found.into_iter().find(|found| owner::sandbox(found) == Some(id) && !owner::only_fills(found)))
    }

    /// In which state a living sandbox is.
    pub(super) async fn look_at_state(&self, id: SandboxId) -> Result<SandboxState> {
        let found = self.container_of(id).await?;
        let is_left = |found: &&ContainerSummary| match found.state {
            Some(State::EXITED | State::DEAD) => true,
            // Who was about to start it has died.
            Some(State::CREATED) => owner::judge(found, Timestamp::now(), &self.stores) == Verdict::Left,
            Some(State::RUNNING) => self.is_unheard(id, found) && owner::is_alone(found),
            _ => false,
        };
        if let Some(found) = found.as_ref().filter(is_left) {
            self.sweeper().bury(found).await?;
            return Ok(SandboxState::Stopped);
        }
        let is_unheard = found.as_ref().is_some_and(|found| self.is_unheard(id, found));
        Ok(match found.and_then(|found| found.state) {
            Some(State::CREATED) => SandboxState::Creating,
            Some(State::RUNNING) if self.ending_guest(id).is_some() => SandboxState::Stopping,
            Some(State::RUNNING) if is_unheard => SandboxState::Creating,
            Some(State::RUNNING | State::RESTARTING) => SandboxState::Ready,
            Some(State::PAUSED) => SandboxState::Paused,
            Some(State::REMOVING) => SandboxState::Stopping,
            _ => SandboxState::Stopped,
        })
    }

    /// Whether the guest of a living sandbox is known not to have been heard of. Until then it ends with whoever waits for it.
    fn is_unheard(&self, id: SandboxId, found: &ContainerSummary) -> bool {
        let owner = found.labels.as_ref().and_then(|labels| owner::label(labels, owner::OWNER));
        owner.is_some_and(|owner| Meeting::of(&self.settings.runtime_folder, id).is_unheard(owner))
    }

    /// What is known of a living sandbox that this process holds, and whether it is paused. Another process may have stopped and started it
    /// since, and then it has another container, which is looked at anew. What is left of one that ended stays where it is: it tells how
    /// that came.
    pub(super) async fn look_again(&self, id: SandboxId, held: Arc<Held>) -> Result<(Arc<Held>, bool)> {
        let Some(found) = self.container_of(id).await? else { return Ok((held, false)) };
        let is_paused = found.state == Some(State::PAUSED);
        // Who is about to make it has not met its guest yet.
        if found.id.as_ref() == Some(&held.container) || held.met.get().is_none() {
            return Ok((held, is_paused));
        }
        if found.state == Some(State::CREATED) || self.is_unheard(id, &found) {
            return Err(Error::being_started(id));
        }
        let Some(now) = self.find_held(id, &held.spec).await? else { return Ok((held, false)) };
        if let Some(known) = self.all().get_mut(&id).filter(|known| Arc::ptr_eq(known, &held)) {
            *known = Arc::clone(&now);
        }
        Ok((now, is_paused))
    }

    /// Why the guest of a container does not answer any more, as far as the host can tell.
    pub(super) async fn look_why_gone(&self, held: &Held) -> Option<Error> {
        // The counters go with the container, so they are read before anybody is asked.
        let kills = held.met.get().map_or(0, |met| met.evidence().memory_kills);
        let ended = self.client.ended_within(&held.container, NOTICED).await;
        let why = match self.client.look_at(&held.container, QUICK).await {
            Err(error) => format!("the sandbox went away: {}", error.message),
            Ok(seen) => {
                let state = seen.and_then(|seen| seen.state).unwrap_or_default();
                if state.running == Some(true) {
                    return None;
                }
                let is_short = kills > 0 || state.oom_killed == Some(true);
                why_ended(state.exit_code.or(ended), is_short)
            }
        };
        Some(Error::new(ErrorCode::SandboxLost, why))
    }

    /// Takes hold of a living sandbox.
    pub(super) async fn take_hold(&self, id: SandboxId, spec: &SandboxSpec) -> Result<Created> {
        self.stores.note(id, spec);
        let found = match self.held(id) {
            Ok(held) => self.look_again(id, held).await?.0,
            Err(_) => {
                let stopped = || {
                    let message = format!("the sandbox {id} is stopped");
                    Error::new(ErrorCode::WrongState, message).hint(format!("glovebox start {id}"))
                };
                self.find_held(id, spec).await?.ok_or_else(stopped)?
            }
        };
        let mut all = self.all();
        let met = all.entry(id).or_insert(found).met.get().ok_or_else(|| gone(id))?;
        self.holders.add(id);
        Ok(met.created.clone())
    }

    /// What is known of the container of a sandbox that runs, whoever made it.
    pub(super) async fn find_held(&self, id: SandboxId, spec: &SandboxSpec) -> Result<Option<Arc<Held>>> {
        let Some(found) = self.container_of(id).await? else { return Ok(None) };
        let Some(container) = found.id.clone() else { return Ok(None) };
        let Some(seen) = self.client.look_at(&container, SLOW).await? else { return Ok(None) };
        let pid = seen.state.and_then(|state| state.pid).unwrap_or_default() as i32;
        if pid == 0 {
            // It has just ended, and nobody else would remove what is left; or it is about to be started.
            if found.state != Some(State::CREATED) {
                self.sweeper().bury(&found).await?;
            }
            return Ok(None);
        }
        if self.is_unheard(id, &found) {
            return Ok(None);
        }
        // On another machine's engine it may be known to another machine's glovebox alone.
        let meeting = Meeting::of(&self.settings.runtime_folder, id);
        let (isolation, limits) = match meeting.found() {
            Some(found) => (found.isolation, found.limits),
            None => (Isolation::default(), describe::limits_in_force(spec, self.machine().await?)),
        };
        // The number of a process on another machine is nothing here.
        let pid = self.client.is_local().then_some(pid);
        let groups = match self.ending_guest(id).filter(|guest| Some(guest.pid) == pid) {
            Some(guest) => guest.groups,
            None => pid.map(Groups::of).unwrap_or_default(),
        };
        let created = Created {
            isolation,
            limits: limits.clone(),
            places: Vec::new(),
            image: self.named_image(spec),
            image_digest: found
                .labels
                .as_ref()
                .and_then(|labels| owner::label(labels, owner::DIGEST))
                .map(str::to_owned),
        };
        let met = OnceCell::new_with(Some(Met { channel: Mutex::default(), pid, guest: None, groups, created }));
        Ok(Some(Arc::new(Held {
            container,
            spec: spec.clone(),
            limits,
            image: self.named_image(spec),
            image_digest: None,
            meeting,
            listener: Mutex::default(),
            arrived: Mutex::default(),
            key: None,
            bridge: tokio::sync::Mutex::default(),
            // Who only looks need not hear anything.
            ear: spec.living.as_ref().and_then(|_| self.ear(id)),
            met,
            before: self.look_at_volumes(spec).await,
            watching: Watching::default(),
            unended: Mutex::default(),
            trouble: Mutex::default(),
        })))
    }

    /// The sandboxes that there are containers of.
    pub(super) async fn look_around(&self) -> Result<Vec<Found>> {
        let now = Timestamp::now();
        let all = self.client.containers(None).await?;
        let found = all.iter().filter_map(|container| {
            let id = owner::sandbox(container)?;
            Some(Found { id, owned: owner::judge(container, now, &self.stores) == Verdict::Owned })
        });
        Ok(found.collect())
    }
}

/// What is said of a container that has ended: with which code, if that is known, and whether the kernel is known to have killed in it
/// because it was out of memory. An engine may miss such a kill, so where it tells of none there may have been one.
fn why_ended(code: Option<i64>, is_short: bool) -> String {
    match code {
        Some(KILLED) | None if is_short => "the container ended: its first process was out of memory".to_owned(),
        Some(KILLED) => "the container was killed: it was out of memory, or somebody ended it".to_owned(),
        Some(code) => format!("the container ended with the code {code}"),
        None => "the container is gone: Docker was restarted, or somebody ended it".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_container_is_told_as_far_as_it_is_known() {
        assert!(why_ended(Some(KILLED), true).contains("its first process was out of memory"));
        assert!(why_ended(Some(KILLED), false).contains("or somebody ended it"));
        // A command that was killed for memory before is no reason for another end.
        assert_eq!(why_ended(Some(1), true), "the container ended with the code 1");
        assert!(why_ended(None, true).contains("out of memory"));
        assert!(why_ended(None, false).contains("is gone"));
    }
}
