//! Whose a container is: labels that name the process which made it, so that what the dead left is found by anybody.
//!
//! A process is named by the boot of its kernel, its process namespace, its id and its start, so that neither a reused id nor
//! a caller in another container is taken for it; and by its mount namespace, as another one may lack folders that it saw. Of an owner that cannot be looked at from here nothing is touched but what
//! does not run and is an hour old.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bollard::models::{ContainerSummary, ContainerSummaryStateEnum as State, Volume};
use glovebox_core::{Lifetime, SANDBOXES_DIR, SandboxId, SandboxSpec, living_store};
use jiff::Timestamp;
use rustix::{
    io::Errno,
    process::{Pid, test_kill_process},
};

use crate::process::Stat;

/// Says that a container is Glovebox's.
pub(crate) const MANAGED: &str = "glovebox.managed";
/// The sandbox's id.
pub(crate) const SANDBOX: &str = "glovebox.sandbox";
/// The process that made it. A one-shot sandbox ends with it, and one that stays before its start.
pub(crate) const OWNER: &str = "glovebox.owner";
/// Whether it outlives who made it.
const LIVING: &str = "glovebox.living";
/// When it ends at the latest, seconds since 1970.
const EXPIRES: &str = "glovebox.expires";
/// The folder of the host that knows of a living one.
const STORE: &str = "glovebox.store";
/// What registries call its image.
pub(crate) const DIGEST: &str = "glovebox.image_digest";
/// Its project.
const PROJECT: &str = "glovebox.project";

/// Says that a volume is one of a caller's, by its name; it outlives sandboxes, and only its owner removes it.
pub(crate) const VOLUME: &str = "glovebox.volume";

/// All labels of a container.
const ALL: [&str; 8] = [MANAGED, SANDBOX, OWNER, LIVING, EXPIRES, STORE, DIGEST, PROJECT];

/// Says that a volume holds our guest, and which.
pub(crate) const GUEST: &str = "glovebox.guest";

/// What the names of such volumes begin with.
pub(crate) const GUESTS: &str = "glovebox-guest-";

/// What the name of a container ends with that only fills a volume.
pub(crate) const FILLS: &str = "-fill";

/// A volume of nobody who can be looked at is left alone for so long, seconds: it may be about to be used.
const VOLUME_UNKNOWN_FOR: i64 = 24 * 3600;

/// What does not run and belongs to nobody who can be looked at is left alone for so long, seconds.
const UNKNOWN_FOR: i64 = 3600;

/// The labels of a sandbox's container and volumes.
pub(crate) fn labels(id: SandboxId, spec: &SandboxSpec) -> HashMap<String, String> {
    // One that says nothing is there too: a container has the labels of its image beside, and those are not to be taken for ours.
    let mut labels: HashMap<String, String> = ALL.map(|name| (name.to_owned(), String::new())).into();
    labels.insert(MANAGED.to_owned(), "true".to_owned());
    labels.insert(SANDBOX.to_owned(), id.to_string());
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

/// What a label says, if it says anything.
pub(crate) fn label<'a>(labels: &'a HashMap<String, String>, name: &str) -> Option<&'a str> {
    labels.get(name).map(String::as_str).filter(|text| !text.is_empty())
}

/// The id of the sandbox that a container is of. Its name says the same: an image brings labels along, and no name.
pub(crate) fn sandbox(found: &ContainerSummary) -> Option<SandboxId> {
    let id: SandboxId = label(found.labels.as_ref()?, SANDBOX)?.parse().ok()?;
    let names = found.names.iter().flatten().map(|name| name.trim_start_matches('/'));
    let is_ours = |name: &str| {
        let rest = name.strip_prefix("glovebox-").map(|rest| rest.strip_suffix(FILLS).unwrap_or(rest));
        rest.and_then(|rest| rest.strip_suffix(&id.to_string()))
            .is_some_and(|before| before.is_empty() || before.ends_with('-'))
    };
    names.into_iter().any(is_ours).then_some(id)
}

/// Whether a container only fills a volume for a sandbox.
pub(crate) fn only_fills(found: &ContainerSummary) -> bool {
    found.names.iter().flatten().all(|name| name.ends_with(FILLS))
}

/// Where this process has the records of living sandboxes. What a label says of folders is never believed.
#[derive(Clone, Debug)]
pub(crate) struct Stores {
    data_folder: PathBuf,
    /// Those that somebody named who made or used them here.
    named: Arc<Mutex<HashMap<SandboxId, PathBuf>>>,
}

impl Stores {
    /// Those below a data folder.
    pub(crate) fn below(data_folder: PathBuf) -> Self {
        Stores { data_folder, named: Arc::default() }
    }

    /// Keeps where that of a sandbox is, if it stays.
    pub(crate) fn note(&self, id: SandboxId, spec: &SandboxSpec) {
        if let Some(living) = &spec.living {
            self.named().insert(id, living.store.clone());
        }
    }

    /// Forgets that of a sandbox which is no more.
    pub(crate) fn forget(&self, id: SandboxId) {
        self.named().remove(&id);
    }

    /// The store of the sandbox that a container is of, if the record is here.
    pub(crate) fn of(&self, found: &ContainerSummary) -> Option<PathBuf> {
        let id = sandbox(found)?;
        let named = self.named().get(&id).cloned();
        let store = named.unwrap_or_else(|| living_store(&self.data_folder.join(SANDBOXES_DIR), id));
        (label(found.labels.as_ref()?, STORE).map(Path::new) == Some(&store)).then_some(store)
    }

    fn named(&self) -> MutexGuard<'_, HashMap<SandboxId, PathBuf>> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether somebody needs a container, as far as one can tell who has these records.
pub(crate) fn judge(found: &ContainerSummary, now: Timestamp, stores: &Stores) -> Verdict {
    let label = |name: &str| found.labels.as_ref().and_then(|labels| label(labels, name));
    let runs = matches!(found.state, Some(State::RUNNING | State::PAUSED | State::RESTARTING));
    let age = now.as_second() - found.created.unwrap_or_default();
    let verdict = |needed: bool| if needed { Verdict::Owned } else { Verdict::Left };
    if label(LIVING).is_some() && found.state != Some(State::CREATED) {
        let expired = label(EXPIRES).and_then(|at| at.parse::<i64>().ok()).is_some_and(|at| at < now.as_second());
        let forgotten = found.labels.as_ref().is_some_and(is_forgotten);
        // One that does not run has ended by itself; its files are in volumes, which its record names. Who has that record notes why.
        return verdict((runs || stores.of(found).is_none()) && !expired && !forgotten);
    }
    match label(OWNER).map(is_alive) {
        Some(Some(alive)) => verdict(alive),
        _ => verdict(runs || age < UNKNOWN_FOR),
    }
}

/// Whether who made a container is known to be dead.
pub(crate) fn is_alone(found: &ContainerSummary) -> bool {
    found.labels.as_ref().and_then(|labels| label(labels, OWNER)).and_then(is_alive) == Some(false)
}

/// Whether nobody can ever name what carries these labels of a living sandbox: who made it is dead, was a process of this machine, and saw the same
/// folders as this one, in which there is no record of it, although those of others would be there. It was killed while it made the sandbox.
fn is_forgotten(labels: &HashMap<String, String>) -> bool {
    let owner = label(labels, OWNER).unwrap_or_default();
    let saw_the_same = owner.split(' ').nth(4).is_some_and(|namespace| namespace == namespace_of("mnt"));
    saw_the_same
        && is_alive(owner) == Some(false)
        && record(labels).is_some_and(|folder| {
            // What is out of sight with all else, as on a disk that is not mounted, is not gone.
            let is_in_sight = folder.parent().is_some_and(|records| matches!(records.try_exists(), Ok(true)));
            is_in_sight && matches!(folder.try_exists(), Ok(false))
        })
}

/// The folder of the host that holds the record of a living sandbox.
fn record(labels: &HashMap<String, String>) -> Option<&Path> {
    label(labels, STORE).and_then(|store| Path::new(store).parent())
}

/// Whether nobody needs what is noted with the labels of a sandbox on this machine, whichever engine it is of.
pub(crate) fn is_over(labels: &HashMap<String, String>) -> bool {
    match label(labels, LIVING) {
        Some(_) => is_forgotten(labels),
        None => label(labels, OWNER).and_then(is_alive) == Some(false),
    }
}

/// Whether nobody needs a volume, unless a container has it. What an owner on another machine has is left when it would have expired
/// there, or, where it is no sandbox that stays, when it is old.
pub(crate) fn is_left(volume: &Volume, now: Timestamp) -> bool {
    let Volume { labels, name, .. } = volume;
    let is_ours = label(labels, SANDBOX).is_some_and(|id| name.starts_with(&format!("glovebox-{id}-")));
    if !is_ours || label(labels, MANAGED) != Some("true") {
        return false;
    }
    let alive = label(labels, OWNER).and_then(is_alive);
    if label(labels, LIVING).is_some() {
        let expired =
            label(labels, EXPIRES).and_then(|at| at.parse::<i64>().ok()).is_some_and(|at| at < now.as_second());
        let is_here = record(labels).is_some_and(|folder| !matches!(folder.try_exists(), Ok(false)));
        return is_forgotten(labels) || (alive.is_none() && expired && !is_here);
    }
    match alive {
        Some(alive) => !alive,
        None => is_older(volume, now, VOLUME_UNKNOWN_FOR),
    }
}

/// Whether a volume holds the guest of another version, which nobody has used for a while unless a container has it.
pub(crate) fn is_old_guest(volume: &Volume, now: Timestamp) -> bool {
    volume.name.starts_with(GUESTS)
        && label(&volume.labels, GUEST).is_some_and(|hash| hash != glovebox_embedded_guest::HASH)
        && is_older(volume, now, VOLUME_UNKNOWN_FOR)
}

fn is_older(volume: &Volume, now: Timestamp, seconds: i64) -> bool {
    let made = volume.created_at.as_ref().and_then(|at| at.parse::<Timestamp>().ok());
    made.is_some_and(|made| now.as_second() - made.as_second() > seconds)
}

/// This process, as it stands in a label.
fn this_process() -> String {
    let pid = std::process::id();
    let (processes, folders) = (namespace_of("pid"), namespace_of("mnt"));
    format!("{} {processes} {pid} {} {folders}", boot(), start_of(pid).unwrap_or_default())
}

/// Whether the process of a label lives; none when that cannot be known here.
fn is_alive(owner: &str) -> Option<bool> {
    let mut words = owner.split(' ');
    let (its_boot, namespace, pid, start) = (words.next()?, words.next()?, words.next()?, words.next()?);
    if its_boot != boot() || namespace != namespace_of("pid") {
        return None;
    }
    let pid = pid.parse().ok()?;
    match start_of(pid) {
        Some(now) => Some(now.to_string() == start),
        // Processes of others may be hidden from this one.
        None if is_hidden(pid) => None,
        None => Some(false),
    }
}

/// Whether there is a process of this number of which nothing is shown.
fn is_hidden(pid: u32) -> bool {
    let known = pid.try_into().ok().and_then(|pid| Some((Pid::from_raw(pid)?, pid)));
    known.is_some_and(|(raw, pid)| Stat::of(pid).is_none() && test_kill_process(raw) == Err(Errno::PERM))
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// The number of a namespace of this process.
fn namespace_of(kind: &str) -> String {
    let link = fs::read_link(Path::new("/proc/self/ns").join(kind)).unwrap_or_default();
    link.to_string_lossy().chars().filter(char::is_ascii_digit).collect()
}

/// When a process started. One that has ended, and that nobody has asked about yet, is none.
fn start_of(pid: u32) -> Option<u64> {
    Stat::of(pid.try_into().ok()?).filter(|process| !process.has_ended).map(|process| process.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "sb_01M7H8VXJZE6JBTYYY1PZ2NDJ0";
    const DATA: &str = "/data";

    fn found(labels: &[(&str, &str)], state: State, created: i64) -> ContainerSummary {
        let labels = [&[(SANDBOX, ID)], labels].concat();
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let (names, created) = (Some(vec![format!("/glovebox-project-{ID}")]), Some(created));
        ContainerSummary { labels: Some(labels), names, state: Some(state), created, ..Default::default() }
    }

    fn judge(found: &ContainerSummary, now: Timestamp) -> Verdict {
        super::judge(found, now, &stores())
    }

    fn stores() -> Stores {
        Stores::below(DATA.into())
    }

    fn store() -> String {
        format!("{DATA}/sandboxes/{ID}/files")
    }

    #[test]
    fn a_container_is_ours_by_its_name_whatever_labels_its_image_gave_it() {
        let named = |name: &str| {
            let names = Some(vec![name.to_owned()]);
            ContainerSummary { names, ..found(&[(LIVING, "true"), (STORE, &store())], State::EXITED, 0) }
        };
        for name in [format!("/glovebox-{ID}"), format!("/glovebox-a-b-{ID}"), format!("/glovebox-{ID}-fill")] {
            assert_eq!(sandbox(&named(&name)).unwrap().to_string(), ID, "{name}");
        }
        for name in ["/web", &format!("/{ID}"), &format!("/glovebox{ID}"), &format!("/glovebox-{ID}-x"), "/glovebox-"] {
            assert_eq!(sandbox(&named(name)), None, "{name}");
            assert_eq!(stores().of(&named(name)), None, "{name}");
        }
    }

    #[test]
    fn a_folder_is_never_what_a_label_says() {
        let of = |store: &str| stores().of(&found(&[(LIVING, "true"), (STORE, store)], State::EXITED, 0));
        assert_eq!(of(&store()), Some(store().into()));
        for other in ["/", "/home/ann/papers", "/data/sandboxes/../../home", "/data/volumes/x/files", ""] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn every_label_is_said_so_that_none_comes_from_an_image() {
        let labels = labels(ID.parse().unwrap(), &SandboxSpec::default());
        assert!(ALL.iter().all(|name| labels.contains_key(*name)), "{labels:?}");
        assert_eq!((label(&labels, LIVING), label(&labels, EXPIRES), label(&labels, STORE)), (None, None, None));
    }

    #[test]
    fn what_a_live_process_made_is_its_own_and_what_a_dead_one_left_is_not() {
        let now = Timestamp::now();
        let mine = this_process();
        assert_eq!(judge(&found(&[(OWNER, &mine)], State::CREATED, 0), now), Verdict::Owned);
        assert_eq!(judge(&found(&[(OWNER, &dead())], State::RUNNING, now.as_second()), now), Verdict::Left);
    }

    /// This process, if it had started at another time.
    fn dead() -> String {
        let (mine, start) = (this_process(), start_of(std::process::id()).unwrap());
        mine.replace(&format!(" {start} "), " 1 ")
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
            judge(&found(&[(LIVING, "true"), (EXPIRES, &at), (STORE, &store())], state, 0), now)
        };
        assert_eq!(of(100, State::RUNNING), Verdict::Owned);
        assert_eq!(of(100, State::PAUSED), Verdict::Owned);
        assert_eq!(of(-100, State::RUNNING), Verdict::Left);
        assert_eq!(of(100, State::EXITED), Verdict::Left);
        let elsewhere = [(LIVING, "true"), (STORE, "/nonexistent/sandbox/store")];
        let judged = judge(&found(&elsewhere, State::EXITED, 0), now);
        assert_eq!(judged, Verdict::Owned, "why it ended is for who has its record");
    }

    #[test]
    fn a_living_one_is_left_when_its_maker_is_dead_and_nothing_of_its_record_is_there() {
        let now = Timestamp::now();
        let (mine, dead) = (this_process(), dead());
        let of = |owner: &str, store: &str| {
            judge(&found(&[(LIVING, "true"), (OWNER, owner), (STORE, store)], State::RUNNING, 0), now)
        };
        let records = tempfile::tempdir().unwrap();
        let store = records.path().join("sandbox/store");
        let store = store.to_str().unwrap();
        assert_eq!(of(&dead, store), Verdict::Left);
        assert_eq!(of(&dead, "/nonexistent/sandbox/store"), Verdict::Owned, "all records are out of sight");
        assert_eq!(of(&mine, store), Verdict::Owned);
        assert_eq!(of("another-boot 1 2 3", store), Verdict::Owned);
        assert_eq!(of(&dead, "/proc/self/store"), Verdict::Owned);
        let saw_others = format!("{}1", dead);
        assert_eq!(of(&saw_others, store), Verdict::Owned, "it may have seen other folders");
    }

    #[test]
    fn volumes_are_left_by_the_dead_and_by_those_who_cannot_be_looked_at_when_they_have_expired_or_are_old() {
        let now = Timestamp::now();
        let (mine, dead) = (this_process(), dead());
        let other = "another-boot 1 2 3";
        let at = |ago: i64| (now - jiff::SignedDuration::from_secs(ago)).to_string();
        let of = |labels: &[(&str, &str)], ago: i64| {
            let labels = [&[(MANAGED, "true"), (SANDBOX, ID)], labels].concat();
            let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let (name, created_at) = (format!("glovebox-{ID}-home"), Some(at(ago)));
            let volume = Volume { labels, name, created_at, ..Volume::default() };
            let guest = Volume { name: format!("{GUESTS}x"), ..volume.clone() };
            let strange = Volume { name: "photos".to_owned(), ..volume.clone() };
            assert!(!is_left(&strange, now) && !is_old_guest(&strange, now), "a name that is not ours");
            (is_left(&volume, now), is_old_guest(&guest, now))
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
        assert!(!living(&dead, &future, "/nonexistent/sandbox/store"));
        let records = tempfile::tempdir().unwrap();
        assert!(living(&dead, &future, records.path().join("sandbox/store").to_str().unwrap()));
        assert!(!of(&[(GUEST, glovebox_embedded_guest::HASH)], year).1);
        assert!(!of(&[(GUEST, "another")], 60).1);
        assert!(of(&[(GUEST, "another")], year).1);
    }

    #[test]
    fn a_living_one_that_has_not_started_is_needed_as_long_as_somebody_is_about_to_start_it() {
        let now = Timestamp::now();
        let (mine, dead) = (this_process(), dead());
        let of = |owner: &str| judge(&found(&[(LIVING, "true"), (OWNER, owner)], State::CREATED, now.as_second()), now);
        assert_eq!(of(&mine), Verdict::Owned);
        assert_eq!(of(&dead), Verdict::Left);
    }
}
