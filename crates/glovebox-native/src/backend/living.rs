//! Living sandboxes, as their users reach them: through the keeper, whoever that is.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use glovebox_core::{
    Backend, Created, Error, ErrorCode, Isolation, Outgrown, Result, RunId, SandboxId, SandboxSpec, SandboxState, Tier,
};

use jiff::Timestamp;

use rustix::process::{Signal, pidfd_send_signal};

use super::{
    Held, NativeBackend, answer, gone, host_io,
    meeting::hear,
    planning::{limits_in_force, lowered},
    send_order, unavailable,
};
use crate::{
    answers::Answers,
    changes::Layers,
    living::{Door, LiveRecord, LivingFolder},
    owner::RuntimeFolder,
    plan::{Answer, Order},
    standing::caller_is_root_outside,
    watch, wire,
};

/// How long it is waited for memory to be given back.
const RECLAIMING: Duration = Duration::from_secs(1);

/// What is said where a sandbox that lost its keeper can get no other.
const NOT_TAKEN_OVER: &str = "no keeper could take over the sandbox";

/// How often a keeper is looked for that may just have ended.
const ATTEMPTS: usize = 3;
/// A run that is over by then is over before its keeper would have looked, so that the keeper need not hear of it.
const UNWATCHED: Duration = Duration::from_millis(2);

/// Lets go of a sandbox that could not be opened, or that nobody waits for any more.
struct Opening<'a> {
    backend: &'a NativeBackend,
    id: SandboxId,
    opened: bool,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        if !self.opened {
            self.backend.release(self.id);
        }
    }
}

impl NativeBackend {
    /// A backend for work with living sandboxes only: it makes none, so it needs no launcher, and is ready at once. Where a
    /// sandbox has lost its keeper, `program` is started with the words `__keep ID`; it must call
    /// [`NativeBackend::start`] and [`NativeBackend::keep`].
    pub fn without_launcher(program: impl Into<PathBuf>) -> Self {
        NativeBackend {
            launcher: None,
            program: Some(program.into()),
            cgroups: Default::default(),
            sandboxes: Default::default(),
            holders: Default::default(),
        }
    }

    /// Has the launcher of this process keep a living sandbox that lost its keeper. The launcher then stays for it when this
    /// process ends.
    pub fn keep(&self, id: SandboxId) -> Result<()> {
        let asked = self.order(&Order::Adopt { id }, None)?;
        match wire::receive::<Answer>(&asked).map_err(host_io)? {
            Some((Answer::Done, _)) => Ok(()),
            Some((Answer::Failed(failure), _)) => Err(failure.into_error_of(NOT_TAKEN_OVER)),
            _ => Err(gone(id)),
        }
    }

    /// Takes hold of a living sandbox, and sees to it that somebody keeps it.
    pub(super) async fn open_living(&self, id: SandboxId, spec: &SandboxSpec) -> Result<Created> {
        let folder = LivingFolder::of(&RuntimeFolder::of_caller_alone()?, id);
        self.catch_up(id).await?;
        if let Some(created) = self.hold_once_more(&folder) {
            return Ok(created);
        }
        let (keeper, answer, record) =
            self.ask_keeper(&folder).await.map_err(|error| or_turned_away(&folder, error))?;
        let held = Held { answer: Some(answer), ..held_of(&folder, spec, keeper, record) };
        let mut opening = self.begin_opening(id, held);
        let created = self.ready(id).await.map_err(|error| or_turned_away(&folder, error))?;
        opening.opened = true;
        Ok(created)
    }

    /// Notes a sandbox that is being opened. Others in this process may be opening it too, and each of them lets go of it once.
    fn begin_opening(&self, id: SandboxId, held: Held) -> Opening<'_> {
        let mut all = self.held();
        self.holders.add(id);
        all.insert(id, held);
        Opening { backend: self, id, opened: false }
    }

    /// Meets the guest of a living sandbox that this process has hold of and another one has stopped and started since.
    pub(super) async fn catch_up(&self, id: SandboxId) -> Result<()> {
        let known = self.held().get(&id).and_then(|held| Some((held.living.clone()?, held.made.as_ref()?.guest_pid)));
        let Some(((folder, spec), known)) = known else { return Ok(()) };
        match folder.guest().map_err(host_io)? {
            Some((_, record)) if record.guest.pid == known => return Ok(()),
            Some((_, record)) if record.present.is_none() => return Err(Error::being_started(id)),
            Some(_) => {}
            None => return Ok(()),
        }
        let turned_away = |error| or_turned_away(&folder, error);
        let (keeper, answer, record) = self.ask_keeper(&folder).await.map_err(turned_away)?;
        let heard = hear(id, answer).await.map_err(turned_away)?;
        let mut now = held_of(&folder, &spec, keeper, record);
        now.take(heard)?;
        // Unless everybody has let go of it meanwhile.
        if let Some(held) = self.held().get_mut(&id) {
            *held = now;
        }
        Ok(())
    }

    /// Another hold on a sandbox that this process has hold of already, if its guest still lives.
    fn hold_once_more(&self, folder: &LivingFolder) -> Option<Created> {
        if !self.held().contains_key(&folder.id) {
            return None;
        }
        folder.guest().ok()??;
        let all = self.held();
        let created = all.get(&folder.id)?.created.clone()?;
        self.holders.add(folder.id);
        Some(created)
    }

    /// Asks whoever keeps a sandbox for what there is of it, and starts a keeper where there is none.
    pub(super) async fn ask_keeper(&self, folder: &LivingFolder) -> Result<(OwnedFd, OwnedFd, LiveRecord)> {
        let id = folder.id;
        let mut why = io::Error::from(io::ErrorKind::NotFound);
        for _ in 0..ATTEMPTS {
            let Some((guest, record)) = folder.guest().map_err(host_io)? else {
                return Err(Error::new(ErrorCode::WrongState, format!("the sandbox {id} is stopped"))
                    .hint(format!("glovebox start {id} starts it again, with its files")));
            };
            if !folder.is_kept() {
                if record.present.is_none() {
                    // The launcher does it too, but that of an ordinary user may not always.
                    let _ = pidfd_send_signal(&guest, Signal::KILL);
                }
                self.find_keeper(id).await?;
            }
            match folder.connect(Door::Keeper) {
                Ok(keeper) => {
                    let asked = send_order(&keeper, &Order::Open { id }, None)?;
                    return Ok((keeper, asked, record));
                }
                // It ended in between; the next round looks again.
                Err(error) => why = error,
            }
        }
        Err(gone(id).or_too_many(why))
    }

    /// Gives a sandbox a keeper.
    async fn find_keeper(&self, id: SandboxId) -> Result<()> {
        if self.launcher.is_some() {
            let asked = self.order(&Order::Adopt { id }, None)?;
            return match answer(asked).await? {
                (Answer::Done, _) => Ok(()),
                (Answer::Failed(failure), _) => Err(failure.into_error_of(NOT_TAKEN_OVER)),
                _ => Err(gone(id)),
            };
        }
        let program = self.program.clone().ok_or_else(|| unavailable("this process has no launcher"))?;
        let run = move || std::process::Command::new(program).args(["__keep", &id.to_string()]).output();
        let ran =
            tokio::task::spawn_blocking(run).await.map_err(io::Error::other).and_then(|ran| ran).map_err(host_io)?;
        match ran.status.success() {
            true => Ok(()),
            false => Err(Error::new(
                ErrorCode::SandboxLost,
                format!("nobody keeps the sandbox {id}, and no keeper could be started"),
            )
            .because(io::Error::other(String::from_utf8_lossy(&ran.stderr).trim().to_owned()))),
        }
    }

    /// In which state a living sandbox is.
    pub(super) fn look_at_state(&self, id: SandboxId) -> Result<SandboxState> {
        let folder = LivingFolder::of(&RuntimeFolder::of_caller_alone()?, id);
        Ok(match folder.guest().map_err(host_io)? {
            None => SandboxState::Stopped,
            Some((_, record)) if record.guest.is_ending() => SandboxState::Stopping,
            Some((_, record)) if record.present.is_none() && folder.is_kept() => SandboxState::Creating,
            // Whoever made it died before it was ready; it is ended by whoever takes it over.
            Some((_, record)) if record.present.is_none() => SandboxState::Stopping,
            Some((_, record)) if self.cgroups()?.named_living(&record.group).is_frozen() => SandboxState::Paused,
            Some(_) => SandboxState::Ready,
        })
    }

    /// Which layers were found in place when a living sandbox was made.
    pub(super) fn look_at_layers(&self, id: SandboxId) -> Option<Isolation> {
        let (_, record) = LivingFolder::of(&RuntimeFolder::of_caller(), id).guest().ok()??;
        let present = record.present?;
        Some(Isolation::from_checks(Tier::Namespaces, |layer| present.contains(&layer)))
    }

    /// For how long a living sandbox was not used, if nothing is at work in it.
    pub(super) fn look_at_use(&self, id: SandboxId) -> Option<Duration> {
        let folder = LivingFolder::of(&RuntimeFolder::of_caller(), id);
        let (_, record) = folder.guest().ok()??;
        let mut processes = Vec::new();
        watch::descendants(record.guest.pid, &mut processes);
        // The zygote is always there, and where runs have groups, so is a child of it that waits for the next run.
        let at_work = processes.len() > 1 + usize::from(record.leaves);
        folder.unused_for().ok().filter(|_| !at_work)
    }

    /// How long a living sandbox was paused since a moment.
    pub(super) fn look_at_pauses(&self, id: SandboxId, since: Timestamp) -> Duration {
        let folder = LivingFolder::of(&RuntimeFolder::of_caller(), id);
        let is_paused = self.look_at_state(id).is_ok_and(|state| state == SandboxState::Paused);
        folder.paused_since(since.as_millisecond(), is_paused)
    }

    /// Freezes the commands of a sandbox that this process holds, or lets them go on. Says how many bytes of memory were
    /// given back, if that is known soon.
    pub(super) async fn freeze(&self, id: SandboxId, frozen: bool) -> Result<Option<u64>> {
        if !self.cgroups()?.can_freeze() {
            return Err(Error::new(
                ErrorCode::NotSupported,
                "pausing needs control groups, and this user has none here",
            )
            .hint("glovebox doctor says how to get them"));
        }
        let answers = Answers::on(self.order_keeper(id, &Order::Freeze { id, frozen }).await?)?;
        match answers.next().await? {
            (Answer::Done, _) => {}
            (Answer::Failed(failure), _) if failure.errno == libc::ETIMEDOUT => {
                let message = format!("the sandbox {id} cannot be paused now: a process of it waits in the kernel");
                return Err(Error::new(ErrorCode::WrongState, message).hint("it goes on as before; try again later"));
            }
            (Answer::Failed(failure), _) => {
                let what = if frozen { "the sandbox could not be paused" } else { "the sandbox could not go on" };
                return Err(failure.into_error_of(what));
            }
            _ => return Err(gone(id)),
        }
        if !frozen {
            return Ok(None);
        }
        // It goes on when nobody waits for it any more.
        match tokio::time::timeout(RECLAIMING, answers.next()).await {
            Ok(Ok((Answer::Reclaimed(bytes), _))) => Ok(Some(bytes)),
            _ => Ok(None),
        }
    }

    /// Lets those processes of a frozen sandbox end that were killed.
    pub(super) async fn let_killed_die(&self, id: SandboxId) -> Result<()> {
        match answer(self.order_keeper(id, &Order::LetDie { id }).await?).await? {
            (Answer::Done, _) => Ok(()),
            (Answer::Failed(failure), _) => Err(failure.into_error_of("what was killed could not end")),
            _ => Err(gone(id)),
        }
    }

    /// Waits until a living sandbox has outgrown its disk limit.
    pub(super) async fn watched_disk(&self, id: SandboxId, run: Option<RunId>) -> Outgrown {
        tokio::time::sleep(UNWATCHED).await;
        let asked = self.order_keeper(id, &Order::WatchDisk { id, run }).await;
        if let Ok(asked) = asked
            && let Ok((Answer::Outgrown(what), _)) = answer(asked).await
        {
            return what;
        }
        std::future::pending().await
    }

    /// Has the launcher remove the files of a sandbox: an ordinary user's may belong to ids that are theirs only there.
    pub(super) async fn remove_files(&self, store: &Path) -> Result<()> {
        let answers = Answers::on(self.order(&Order::RemoveStore { store: store.to_owned() }, None)?)?;
        match answers.next().await? {
            (Answer::Done, _) => {
                // The end of the stream is that of the process that did it.
                let _ = answers.next().await;
                Ok(())
            }
            (Answer::Failed(failure), _) => Err(failure.into_error_of("not all could be removed")),
            _ => Err(unavailable("the launcher answered another question")),
        }
    }
}

/// What is held of a living sandbox that somebody keeps, before that one has told of it.
fn held_of(folder: &LivingFolder, spec: &SandboxSpec, keeper: OwnedFd, record: LiveRecord) -> Held {
    // As it was made: what it was shown may have gone from the host since, and it still has it.
    let plan = record.plan;
    Held {
        living: Some((folder.clone(), Arc::new(spec.clone()))),
        keeper: Some(keeper),
        channel: None,
        answer: None,
        limits: limits_in_force(spec, &plan, lowered(&spec.limits, &plan)),
        required: Vec::new(),
        layers: Arc::new(Layers::of_living(spec)),
        as_root: plan.as_caller && caller_is_root_outside(),
        made: None,
        created: None,
        ending: None,
        group: None,
    }
}

/// A keeper that lives and does not listen has as many to listen to as it takes.
fn or_turned_away(folder: &LivingFolder, error: Error) -> Error {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    let cause = error.source.as_ref().and_then(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
    let hung_up = cause.is_some_and(|kind| [BrokenPipe, ConnectionReset, UnexpectedEof].contains(&kind));
    if !hung_up || folder.has_no_guest() || !folder.is_kept() {
        return error;
    }
    let message = format!("the keeper of the sandbox {} takes no more commands now", folder.id);
    Error::new(ErrorCode::TooMany, message).hint("wait for commands that work in it to end")
}
