//! Whose a container is: labels that name the process which made it, so that what the dead left is found by anybody.
//!
//! A process is named by the boot of its kernel, its process namespace, its id and its start, so that neither a reused id nor
//! a caller in another container is taken for it. Of an owner that cannot be looked at from here nothing is touched but what
//! does not run and is an hour old.

use std::{collections::HashMap, fs, path::Path};

use bollard::models::{ContainerSummary, ContainerSummaryStateEnum as State, Volume};
use glovebox_core::{Lifetime, SandboxId, SandboxSpec};
use jiff::Timestamp;

/// Says that a container is Glovebox's.
pub(crate) const MANAGED: &str = "glovebox.managed";
/// The sandbox's id.
pub(crate) const SANDBOX: &str = "glovebox.sandbox";
/// The process that made it. A one-shot sandbox ends with it, and one that stays before its start.
const OWNER: &str = "glovebox.owner";
/// Whether it outlives who made it.
const LIVING: &str = "glovebox.living";
/// When it ends at the latest, seconds since 1970.
const EXPIRES: &str = "glovebox.expires";
/// The folder of the host that knows of a living one.
pub(crate) const STORE: &str = "glovebox.store";
/// Its project.
const PROJECT: &str = "glovebox.project";

/// Says that a volume holds our guest, and which.
pub(crate) const GUEST: &str = "glovebox.guest";

/// A volume of nobody who can be looked at is left alone for so long, seconds: it may be about to be used.
const VOLUME_UNKNOWN_FOR: i64 = 24 * 3600;

/// What does not run and belongs to nobody who can be looked at is left alone for so long, seconds.
const UNKNOWN_FOR: i64 = 3600;

/// The labels of a sandbox's container and volumes.
pub(crate) fn labels(id: SandboxId, spec: &SandboxSpec) -> HashMap<String, String> {
    let mut labels: HashMap<String, String> =
        [(MANAGED.to_owned(), "true".to_owned()), (SANDBOX.to_owned(), id.to_string())].into();
    labels.insert(OWNER.to_owned(), this_process());
    if let Some(living) = &spec.living {
        labels.insert(LIVING.to_owned(), "true".to_owned());
        labels.insert(STORE.to_owned(), living.store.to_string_lossy().into_owned());
        if let Some(at) = Lifetime::expires_at(&living.lifetime, living.created_at) {
            labels.insert(EXPIRES.to_owned(), at.as_second().to_string());
        }
    }
    if let Some(project) = &spec.project {
        labels.insert(PROJECT.to_owned(), project.to_string());
    }
    labels
}

/// The name of a container: `glovebox-PROJECT-ID`, or without a project `glovebox-ID`.
pub(crate) fn name(id: SandboxId, spec: &SandboxSpec) -> String {
    match &spec.project {
        Some(project) => format!("glovebox-{project}-{id}"),
        None => format!("glovebox-{id}"),
    }
}

/// What is to be done with a container that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Somebody needs it.
    Owned,
    /// Nobody does.
    Left,
}

/// The id of the sandbox that a container is of.
pub(crate) fn sandbox(found: &ContainerSummary) -> Option<SandboxId> {
    found.labels.as_ref()?.get(SANDBOX)?.parse().ok()
}

/// Whether somebody needs a container.
pub(crate) fn judge(found: &ContainerSummary, now: Timestamp) -> Verdict {
    let label = |name: &str| found.labels.as_ref().and_then(|labels| labels.get(name)).map(String::as_str);
    let runs = matches!(found.state, Some(State::RUNNING | State::PAUSED | State::RESTARTING));
    let age = now.as_second() - found.created.unwrap_or_default();
    let verdict = |needed: bool| if needed { Verdict::Owned } else { Verdict::Left };
    if label(LIVING).is_some() && found.state != Some(State::CREATED) {
        let expired = label(EXPIRES).and_then(|at| at.parse::<i64>().ok()).is_some_and(|at| at < now.as_second());
        let forgotten = found.labels.as_ref().is_some_and(is_forgotten);
        // One that does not run has ended by itself; its files are in volumes, which its record names.
        return verdict(runs && !expired && !forgotten);
    }
    match label(OWNER).map(is_alive) {
        Some(Some(alive)) => verdict(alive),
        _ => verdict(runs || age < UNKNOWN_FOR),
    }
}

/// Whether nobody can ever name what carries these labels of a living sandbox: who made it is dead, and was a process of this machine, which
/// has no record of it. It was killed while it made the sandbox.
fn is_forgotten(labels: &HashMap<String, String>) -> bool {
    let is_dead = labels.get(OWNER).and_then(|owner| is_alive(owner)) == Some(false);
    let folder = labels.get(STORE).and_then(|store| Path::new(store).parent());
    is_dead && folder.is_some_and(|folder| matches!(folder.try_exists(), Ok(false)))
}

/// Whether nobody needs a volume, unless a container has it. What an owner on another machine has is left when it would have expired
/// there, or, where it is no sandbox that stays, when it is old.
pub(crate) fn is_left(volume: &Volume, now: Timestamp) -> bool {
    let Volume { labels, .. } = volume;
    let alive = labels.get(OWNER).and_then(|owner| is_alive(owner));
    if labels.contains_key(LIVING) {
        let expired = labels.get(EXPIRES).and_then(|at| at.parse::<i64>().ok()).is_some_and(|at| at < now.as_second());
        let folder = labels.get(STORE).and_then(|store| Path::new(store).parent());
        let is_here = folder.is_some_and(|folder| !matches!(folder.try_exists(), Ok(false)));
        return is_forgotten(labels) || (alive.is_none() && expired && !is_here);
    }
    match alive {
        Some(alive) => !alive,
        None => is_older(volume, now, VOLUME_UNKNOWN_FOR),
    }
}

/// Whether a volume holds the guest of another version, which nobody has used for a while unless a container has it.
pub(crate) fn is_old_guest(volume: &Volume, now: Timestamp) -> bool {
    volume.labels.get(GUEST).is_some_and(|hash| hash != glovebox_embedded_guest::HASH)
        && is_older(volume, now, VOLUME_UNKNOWN_FOR)
}

fn is_older(volume: &Volume, now: Timestamp, seconds: i64) -> bool {
    let made = volume.created_at.as_ref().and_then(|at| at.parse::<Timestamp>().ok());
    made.is_some_and(|made| now.as_second() - made.as_second() > seconds)
}

/// This process, as it stands in a label.
fn this_process() -> String {
    let pid = std::process::id();
    format!("{} {} {pid} {}", boot(), process_namespace(), start_of(pid).unwrap_or_default())
}

/// Whether the process of a label lives; none when that cannot be known here.
fn is_alive(owner: &str) -> Option<bool> {
    let mut words = owner.split(' ');
    let (its_boot, namespace, pid, start) = (words.next()?, words.next()?, words.next()?, words.next()?);
    if its_boot != boot() || namespace != process_namespace() {
        return None;
    }
    Some(start_of(pid.parse().ok()?).is_some_and(|now| now.to_string() == start))
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn process_namespace() -> String {
    let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    link.to_string_lossy().chars().filter(char::is_ascii_digit).collect()
}

/// When a process started, in ticks since the boot. One that has ended, and that nobody has asked about yet, is none.
fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    let mut words = stat.rsplit_once(") ")?.1.split(' ');
    words.next().filter(|state| !["Z", "X"].contains(state))?;
    words.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(labels: &[(&str, &str)], state: State, created: i64) -> ContainerSummary {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        ContainerSummary { labels: Some(labels), state: Some(state), created: Some(created), ..Default::default() }
    }

    #[test]
    fn what_a_live_process_made_is_its_own_and_what_a_dead_one_left_is_not() {
        let now = Timestamp::now();
        let mine = this_process();
        assert_eq!(judge(&found(&[(OWNER, &mine)], State::CREATED, 0), now), Verdict::Owned);
        let (rest, _) = mine.rsplit_once(' ').unwrap();
        let dead = format!("{rest} 1");
        assert_eq!(judge(&found(&[(OWNER, &dead)], State::RUNNING, now.as_second()), now), Verdict::Left);
    }

    #[test]
    fn what_an_unknown_owner_has_is_touched_only_when_it_is_old_and_does_not_run() {
        let now = Timestamp::now();
        let other = "another-boot 1 2 3";
        let of = |state, age: i64| judge(&found(&[(OWNER, other)], state, now.as_second() - age), now);
        assert_eq!(of(State::RUNNING, 100_000), Verdict::Owned);
        assert_eq!(of(State::CREATED, 10), Verdict::Owned);
        assert_eq!(of(State::EXITED, 100_000), Verdict::Left);
    }

    #[test]
    fn a_living_one_is_needed_until_it_ends_or_expires() {
        let now = Timestamp::now();
        let of = |expires: i64, state| {
            let at = (now.as_second() + expires).to_string();
            judge(&found(&[(LIVING, "true"), (EXPIRES, &at)], state, 0), now)
        };
        assert_eq!(of(100, State::RUNNING), Verdict::Owned);
        assert_eq!(of(100, State::PAUSED), Verdict::Owned);
        assert_eq!(of(-100, State::RUNNING), Verdict::Left);
        assert_eq!(of(100, State::EXITED), Verdict::Left);
    }

    #[test]
    fn a_living_one_is_left_when_its_maker_is_dead_and_nothing_of_its_record_is_there() {
        let now = Timestamp::now();
        let mine = this_process();
        let dead = format!("{} 1", mine.rsplit_once(' ').unwrap().0);
        let of = |owner: &str, store: &str| {
            judge(&found(&[(LIVING, "true"), (OWNER, owner), (STORE, store)], State::RUNNING, 0), now)
        };
        assert_eq!(of(&dead, "/nonexistent/sandbox/store"), Verdict::Left);
        assert_eq!(of(&mine, "/nonexistent/sandbox/store"), Verdict::Owned);
        assert_eq!(of("another-boot 1 2 3", "/nonexistent/sandbox/store"), Verdict::Owned);
        assert_eq!(of(&dead, "/proc/self/store"), Verdict::Owned);
    }

    #[test]
    fn volumes_are_left_by_the_dead_and_by_those_who_cannot_be_looked_at_when_they_have_expired_or_are_old() {
        let now = Timestamp::now();
        let mine = this_process();
        let dead = format!("{} 1", mine.rsplit_once(' ').unwrap().0);
        let other = "another-boot 1 2 3";
        let at = |ago: i64| (now - jiff::SignedDuration::from_secs(ago)).to_string();
        let of = |labels: &[(&str, &str)], ago: i64| {
            let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let volume = Volume { labels, created_at: Some(at(ago)), ..Volume::default() };
            (is_left(&volume, now), is_old_guest(&volume, now))
        };
        let year = 365 * 24 * 3600;
        assert_eq!(of(&[(OWNER, &mine)], year), (false, false));
        assert_eq!(of(&[(OWNER, &dead)], 1), (true, false));
        assert_eq!(of(&[(OWNER, other)], 3600), (false, false));
        assert_eq!(of(&[(OWNER, other)], year), (true, false));
        let (past, future) = ((now.as_second() - 1).to_string(), (now.as_second() + 100).to_string());
        let living = |owner: &str, expires: &str, store: &str| {
            of(&[(LIVING, "true"), (OWNER, owner), (EXPIRES, expires), (STORE, store)], year).0
        };
        assert!(living(other, &past, "/nonexistent/sandbox/store"));
        assert!(!living(other, &future, "/nonexistent/sandbox/store"));
        assert!(!living(other, &past, "/proc/self/store"), "a record of this machine says what becomes of it");
        assert!(living(&dead, &future, "/nonexistent/sandbox/store"));
        assert!(!of(&[(GUEST, glovebox_embedded_guest::HASH)], year).1);
        assert!(!of(&[(GUEST, "another")], 60).1);
        assert!(of(&[(GUEST, "another")], year).1);
    }

    #[test]
    fn a_living_one_that_has_not_started_is_needed_as_long_as_somebody_is_about_to_start_it() {
        let now = Timestamp::now();
        let mine = this_process();
        let dead = format!("{} 1", mine.rsplit_once(' ').unwrap().0);
        let of = |owner: &str| judge(&found(&[(LIVING, "true"), (OWNER, owner)], State::CREATED, now.as_second()), now);
        assert_eq!(of(&mine), Verdict::Owned);
        assert_eq!(of(&dead), Verdict::Left);
    }
}
