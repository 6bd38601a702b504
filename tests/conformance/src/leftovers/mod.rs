//! What a sandbox may leave on the host: nothing. Traces are taken before and after each case and compared.

mod native;
mod orphans;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::{Duration, Instant},
};

pub(crate) use native::{owner_name, traces as native_traces, traces_of as native_traces_of};
pub(crate) use orphans::{lock_holders, orphaned_things};

/// Everything of a backend that is on the host at one moment.
#[derive(Clone, Debug, Default)]
pub struct Traces {
    /// Things by kind and name: processes, groups, mounts, files.
    pub things: BTreeSet<String>,
    /// What can only be counted: descriptors of each process.
    pub counts: BTreeMap<&'static str, usize>,
}

/// What is there and was not there before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftovers(pub Vec<String>);

impl Traces {
    /// Things that are there and were not there before.
    pub fn things_since(&self, before: &Traces) -> Leftovers {
        Leftovers(self.things.difference(&before.things).cloned().collect())
    }

    /// Counts that are higher than before.
    pub fn counts_since(&self, before: &Traces) -> Leftovers {
        let higher = self.counts.iter().filter_map(|(name, count)| {
            let earlier = before.counts.get(name).copied().unwrap_or(0);
            (*count > earlier).then(|| format!("{name}: {count}, {earlier} before"))
        });
        Leftovers(higher.collect())
    }
}

/// Looks for leftovers again and again until there are none or the deadline is over. Only for endings that are
/// asynchronous by their nature; everything else is looked at once.
pub(crate) async fn wait_until_clean(mut look: impl FnMut() -> Leftovers, patience: Duration) -> Leftovers {
    let deadline = Instant::now() + patience;
    loop {
        let left = look();
        if left.0.is_empty() || Instant::now() > deadline {
            return left;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Files of an engine's data folder that are neither artifacts nor compiled programs.
pub(crate) fn strangers_in_data_dir(data_dir: &Path) -> Leftovers {
    let mut files = Vec::new();
    collect_files(data_dir, &mut files);
    let is_artifact = |path: &String| {
        let inside = path.strip_prefix(&*data_dir.to_string_lossy()).unwrap_or(path);
        matches!(
            inside.split('/').collect::<Vec<_>>()[..],
            ["", "runs", _, "artifacts", _, ..] | ["", "programs", _, _]
        )
    };
    files.retain(|path| !is_artifact(path));
    Leftovers(files)
}

/// All that is not a folder, below a folder. A folder that is not there holds nothing.
/// The files in folders that were left.
pub(crate) fn files_in(left: &Leftovers) -> Vec<String> {
    let mut files = Vec::new();
    let folders = left.0.iter().filter_map(|thing| thing.strip_prefix("folder "));
    folders.for_each(|folder| collect_files(Path::new(folder), &mut files));
    files
}

fn collect_files(folder: &Path, files: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => collect_files(&entry.path(), files),
            _ => files.push(entry.path().to_string_lossy().into_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_new_is_left_over() {
        let traces = |things: &[&str], count| Traces {
            things: things.iter().map(|thing| (*thing).to_owned()).collect(),
            counts: BTreeMap::from([("descriptors", count)]),
        };
        let before = traces(&["mount a", "process 1"], 5);
        let fewer = traces(&["mount a"], 4);
        assert_eq!((fewer.things_since(&before).0, fewer.counts_since(&before).0), (vec![], vec![]));
        let more = traces(&["mount a", "process 2"], 6);
        assert_eq!(more.things_since(&before).0, ["process 2"]);
        assert_eq!(more.counts_since(&before).0, ["descriptors: 6, 5 before"]);
    }

    #[test]
    fn artifacts_and_programs_are_no_strangers_in_the_data_folder_and_everything_else_is() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let artifact = folder.path().join("runs/run_1/artifacts/outputs/a");
        std::fs::create_dir_all(artifact.parent().expect("it has a folder")).expect("the folder can be made");
        std::fs::write(&artifact, "a").expect("the file can be written");
        std::fs::create_dir_all(folder.path().join("programs/1f")).expect("the folder can be made");
        std::fs::write(folder.path().join("programs/1f/main"), "a").expect("the file can be written");
        assert_eq!(strangers_in_data_dir(folder.path()), Leftovers::default());
        std::fs::write(folder.path().join("runs/run_1/partial"), "x").expect("the file can be written");
        assert_eq!(strangers_in_data_dir(folder.path()).0.len(), 1);
    }
}
