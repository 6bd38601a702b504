//! Which range of host ids a sandbox of root has: one that no other sandbox has while either lives.
//!
//! Theory of operation. `RUNTIME/ids/N` is the file of range N, and whoever holds the lock on it has the range. It is a lock of
//! the open file, which a fork hands on, so the kernel releases it with the last process that has the file open, however that
//! ends. A launcher holds the ranges of its one-shot sandboxes, which die with it, and uses them for one sandbox after the other.
//! The range of a living sandbox is held by its guest, since the guest outlives its keeper.
//!
//! The file says to whose control groups the range belongs. The kernel closes the files of a process before it ends the
//! others of its namespace, so a lock may be free for a moment while something still runs with those ids: a range is not given
//! away while these groups are there. Whoever ends a sandbox in order removes the file; the rest is garbage, and is collected.

use std::{
    fs, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};

use crate::{
    cgroup::Cgroups,
    idmap::RANGES,
    owner::{RuntimeFolder, make_private},
};

/// How many ranges a launcher holds that it does not use at the moment.
const SPARES: usize = 4;

/// More than the longest holder.
const LONGEST: usize = 256;

/// Longer than anybody who collects looks at a range.
const OF_A_LOOK: Duration = Duration::from_millis(200);

/// A range that nobody else has while this value, or a process that inherited its lock, lives.
#[derive(Debug)]
pub(crate) struct Range {
    pub(crate) number: u32,
    pub(crate) lock: OwnedFd,
}

/// Takes ranges for one launcher.
#[derive(Debug)]
pub(crate) struct Ranges {
    folder: PathBuf,
    launcher: String,
    spare: Vec<Range>,
}

impl Ranges {
    /// Those of a launcher.
    pub(crate) fn of(runtime: &RuntimeFolder, launcher: &str) -> io::Result<Self> {
        make_private(&runtime.ids())?;
        Ok(Ranges { folder: runtime.ids(), launcher: launcher.to_owned(), spare: Vec::new() })
    }

    /// Any range, for a sandbox that ends with this launcher.
    pub(crate) fn take_any(&mut self, cgroups: &Cgroups) -> io::Result<Range> {
        if let Some(range) = self.spare.pop() {
            return Ok(range);
        }
        let wanted = u64::from_str_radix(&self.launcher, 16).unwrap_or_default() % u64::from(RANGES);
        take(&self.folder, wanted as u32, &self.launcher, |holder| has_groups(cgroups, holder))
    }

    /// A range for the sandbox that has these groups: the wanted one, or the next that is free.
    pub(crate) fn take(&self, wanted: u32, groups: &str, cgroups: &Cgroups) -> io::Result<Range> {
        take(&self.folder, wanted, groups, |holder| has_groups(cgroups, holder))
    }

    /// Takes the range of the next sandbox ahead.
    pub(crate) fn make_spare(&mut self, cgroups: &Cgroups) -> io::Result<()> {
        let range = self.take_any(cgroups)?;
        self.spare.push(range);
        Ok(())
    }

    /// Takes back the range of a sandbox of which nothing is left.
    pub(crate) fn give_back(&mut self, range: Range) {
        if self.spare.len() < SPARES {
            self.spare.push(range);
        } else {
            self.remove(range);
        }
    }

    /// Gives up a range of which nobody has the lock but this process.
    pub(crate) fn remove(&self, range: Range) {
        let _ = fs::remove_file(self.folder.join(range.number.to_string()));
    }

    /// Gives up the range of a living sandbox of which nothing is left. What somebody still holds is left to the collection.
    pub(crate) fn release(&self, number: u32, groups: &str) {
        // Whoever collects has it for the moment of a look, and there is no lock that is waited for with an end.
        let deadline = Instant::now() + OF_A_LOOK;
        let taken = loop {
            match lock(&self.folder, number, OFlags::empty()) {
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
                taken => break taken,
            }
        };
        if let Ok(Some((range, holder))) = taken
            && holder == groups
        {
            self.remove(range);
        }
    }

    /// Gives up what is held for sandboxes to come.
    pub(crate) fn clear(&mut self) {
        for range in std::mem::take(&mut self.spare) {
            self.remove(range);
        }
    }
}

/// The ranges that nobody has and whose files are there, with a name for what each is. While one is looked at, nobody can
/// take it.
pub(crate) fn left_behind<'a>(folder: &'a Path, cgroups: &'a Cgroups) -> impl Iterator<Item = (Range, String)> + 'a {
    let numbers = fs::read_dir(folder).into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let locked = numbers.filter_map(move |number| lock(folder, number, OFlags::empty()).ok()?);
    let left = locked.filter(|(_, holder)| !has_groups(cgroups, holder));
    left.map(|(range, holder)| (range, format!("ids of {holder}")))
}

/// Removes the files of ranges that nobody has, and says whose they were.
pub(crate) fn collect(folder: &Path, cgroups: &Cgroups) -> Vec<String> {
    let removed =
        |(range, what): (Range, String)| fs::remove_file(folder.join(range.number.to_string())).is_ok().then_some(what);
    left_behind(folder, cgroups).filter_map(removed).collect()
}

/// Whether there are groups of a living sandbox, or of any sandbox of a launcher.
fn has_groups(cgroups: &Cgroups, holder: &str) -> bool {
    let is_of = |name: &String| name.strip_prefix(holder).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    cgroups.names().iter().any(is_of)
}

/// Takes the wanted range or the next that is free, and writes down whose it is now.
fn take(folder: &Path, wanted: u32, holder: &str, is_in_use: impl Fn(&str) -> bool) -> io::Result<Range> {
    for step in 0..RANGES {
        let Some((range, before)) = lock(folder, (wanted + step) % RANGES, OFlags::CREATE)? else { continue };
        if !before.is_empty() && is_in_use(&before) {
            continue;
        }
        fs::write(folder.join(range.number.to_string()), holder)?;
        return Ok(range);
    }
    Err(rustix::io::Errno::USERS.into())
}

/// Takes the lock of a range, unless somebody has it, and reads whose it was. Its file is made only where that is asked for.
fn lock(folder: &Path, number: u32, create: OFlags) -> io::Result<Option<(Range, String)>> {
    // A guest gets it, and must not be able to write what the host's memory or disk would have to hold.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | create;
    loop {
        let lock = rustix::fs::open(folder.join(number.to_string()), flags, Mode::from_raw_mode(0o600))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            taken => taken?,
        }
        // Somebody may have removed the file between the two; the lock of a file without a name is worth nothing.
        if rustix::fs::fstat(&lock)?.st_nlink == 0 {
            continue;
        }
        let mut holder = [0; LONGEST];
        let length = rustix::io::pread(&lock, &mut holder[..], 0)?;
        return Ok(Some((Range { number, lock }, String::from_utf8_lossy(&holder[..length]).into_owned())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(_: &str) -> bool {
        false
    }

    /// Looks until there is something to see. Other tests of this process fork, and their children have all of its descriptors
    /// for a moment.
    fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(seen) = look() {
                return seen;
            }
            assert!(Instant::now() < deadline, "{what}");
            std::thread::yield_now();
        }
    }

    /// Waits until a range is free, and says whose it was.
    fn until_free(folder: &Path, number: u32) -> String {
        let look = || lock(folder, number, OFlags::empty()).unwrap().map(|(_range, holder)| holder);
        until(&format!("range {number} stays taken"), look)
    }

    #[test]
    fn two_who_want_the_same_range_get_two_and_each_keeps_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let first = take(folder.path(), 7, "living.one", free).unwrap();
        let second = take(folder.path(), 7, "living.two", free).unwrap();
        assert_eq!((first.number, second.number), (7, 8));
        drop(first);
        until_free(folder.path(), 7);
        assert_eq!(take(folder.path(), 7, "living.three", free).unwrap().number, 7);
        assert_eq!(take(folder.path(), 8, "living.four", free).unwrap().number, 9);
    }

    #[test]
    fn the_last_range_is_followed_by_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let _last = take(folder.path(), RANGES - 1, "living.one", free).unwrap();
        assert_eq!(take(folder.path(), RANGES - 1, "living.two", free).unwrap().number, 0);
    }

    #[test]
    fn a_range_stays_taken_while_a_process_lives_that_inherited_its_lock() {
        let folder = tempfile::tempdir().unwrap();
        let range = take(folder.path(), 7, "living.one", free).unwrap();
        // A fork gives the child another descriptor of the same open file, and so does this.
        let guest = range.lock.try_clone().unwrap();
        drop(range);
        assert!(lock(folder.path(), 7, OFlags::empty()).unwrap().is_none());
        drop(guest);
        assert_eq!(until_free(folder.path(), 7), "living.one");
    }

    #[test]
    fn a_range_whose_lock_is_free_is_not_given_away_while_its_groups_are_there() {
        let folder = tempfile::tempdir().unwrap();
        drop(take(folder.path(), 7, "living.one", free).unwrap());
        until_free(folder.path(), 7);
        assert_eq!(take(folder.path(), 7, "living.two", |holder| holder == "living.one").unwrap().number, 8);
        until_free(folder.path(), 7);
        assert_eq!(take(folder.path(), 7, "living.two", free).unwrap().number, 7);
    }

    #[test]
    fn what_was_used_is_used_again_and_nothing_is_left_of_it_in_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let launcher = || Ranges { folder: folder.path().into(), launcher: format!("{:016x}", 7), spare: Vec::new() };
        let (mut one, mut other) = (launcher(), launcher());
        let cgroups = Cgroups::default();
        let first = one.take_any(&cgroups).unwrap();
        let second = one.take_any(&cgroups).unwrap();
        assert_eq!((first.number, second.number), (7, 8));
        one.give_back(first);
        assert_eq!(other.take_any(&cgroups).unwrap().number, 9, "a spare one belongs to its launcher");
        assert_eq!(one.take_any(&cgroups).unwrap().number, 7);
        one.give_back(second);
        one.clear();
        assert!(!folder.path().join("8").exists());
        other.release(9, "living.other");
        assert!(folder.path().join("9").exists(), "it is not that sandbox's");
        other.release(8, "living.other");
        assert!(!folder.path().join("8").exists(), "who gives up what was collected leaves nothing");
    }

    #[test]
    fn who_gives_up_a_range_while_a_collector_looks_at_it_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let ranges = Ranges { folder: folder.path().into(), launcher: String::new(), spare: Vec::new() };
        drop(take(folder.path(), 8, "living.one", free).unwrap());
        let looks = until("range 8 stays taken", || lock(folder.path(), 8, OFlags::empty()).unwrap());
        std::thread::scope(|scope| {
            let released = scope.spawn(|| ranges.release(8, "living.one"));
            std::thread::sleep(Duration::from_millis(20));
            drop(looks);
            released.join().unwrap();
        });
        assert!(!folder.path().join("8").exists());
    }

    #[test]
    fn only_what_nobody_has_is_found_and_collected() {
        let folder = tempfile::tempdir().unwrap();
        let _held = take(folder.path(), 7, "living.one", free).unwrap();
        drop(take(folder.path(), 8, "living.two", free).unwrap());
        let cgroups = Cgroups::default();
        let found = until("range 8 stays taken", || left_behind(folder.path(), &cgroups).next());
        assert_eq!((found.0.number, found.1.as_str()), (8, "ids of living.two"));
        drop(found);
        assert!(folder.path().join("8").exists(), "to look removes nothing");
        let collected = until("range 8 stays taken", || collect(folder.path(), &cgroups).pop());
        assert_eq!(collected, "ids of living.two");
        assert!(folder.path().join("7").exists() && !folder.path().join("8").exists());
    }
}
