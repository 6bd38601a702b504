//! Files that were deleted and are still open. They take room on the disk, and no folder shows them.
//!
//! The kernel shows them among the descriptors of the processes that have them. A file that is only mapped, or on its way through a
//! socket, is not seen.

use std::{collections::HashSet, fs, os::unix::fs::MetadataExt, path::Path};

use rustix::fs::statfs;

use super::Size;

/// What the kernel puts behind the path of a file that has no name any more.
const ENDING: &str = " (deleted)";
/// So many descriptors are looked at. Of more, others are seen each time.
const MOST_DESCRIPTORS: usize = 32 * 1024;
/// The kind of an overlay, whose files lie in the store but have a device of its own.
const OVERLAY: u64 = 0x794c_7630;

/// A place whose files count, by its path inside.
pub struct Place<'a> {
    /// None is all that lies at no other place.
    pub target: Option<&'a str>,
    /// The devices of its files.
    pub devices: Vec<u64>,
}

/// What deleted files take that these processes have open, for each place. What they are is the kernel's word: programs inside mount
/// nothing, so the beginning of a path says where a file lies. `turn` says where to begin when there are very many descriptors.
pub fn find(processes: &[i32], places: &[Place<'_>], turn: usize) -> Vec<Size> {
    let mut sizes = vec![Size::default(); places.len()];
    let mut seen = HashSet::new();
    let (before, behind) = processes.split_at(turn.checked_rem(processes.len()).unwrap_or(0));
    let folders = behind.iter().chain(before).map(|pid| format!("/proc/{pid}/fd"));
    let descriptors = folders.flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    for descriptor in descriptors.take(MOST_DESCRIPTORS) {
        let descriptor = descriptor.path();
        let Some(path) = deleted_path(&descriptor) else { continue };
        // Only what has no name is looked at through the descriptor, which asks the file system.
        let Ok(file) = fs::metadata(&descriptor) else { continue };
        if file.nlink() > 0 || !file.is_file() || !seen.insert((file.dev(), file.ino())) {
            continue;
        }
        let Some(at) = place_of(&path, places) else { continue };
        if places[at].devices.contains(&file.dev()) || is_overlay(&descriptor) {
            sizes[at].bytes = sizes[at].bytes.saturating_add(file.blocks() * 512);
            sizes[at].entries += 1;
        }
    }
    sizes
}

/// The path that a file had, if it was deleted.
fn deleted_path(descriptor: &Path) -> Option<String> {
    let link = fs::read_link(descriptor).ok()?.into_os_string().into_encoded_bytes();
    let path = link.strip_suffix(ENDING.as_bytes())?;
    Some(String::from_utf8_lossy(path).into_owned())
}

/// The place with the longest path that a path lies below, or the one for all others.
fn place_of(path: &str, places: &[Place<'_>]) -> Option<usize> {
    let is_below = |target: &str| path.strip_prefix(target).is_some_and(|rest| rest.starts_with('/'));
    let matching = places.iter().enumerate().filter(|(_, place)| place.target.is_none_or(is_below));
    matching.max_by_key(|(_, place)| place.target.map_or(0, str::len)).map(|(at, _)| at)
}

fn is_overlay(descriptor: &Path) -> bool {
    statfs(descriptor).is_ok_and(|found| found.f_type as u64 == OVERLAY)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_is_counted_once_from_its_end_to_its_last_close() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = fs::File::create(folder.path().join("file")).unwrap();
        file.write_all(&vec![1; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        let devices = vec![file.metadata().unwrap().dev()];
        let inside = folder.path().to_str().unwrap();
        let places = [Place { target: None, devices: devices.clone() }, Place { target: Some(inside), devices }];
        let own = [std::process::id() as i32];
        let look = || find(&own, &places, 7)[1];
        assert_eq!(look(), Size::default());
        fs::remove_file(folder.path().join("file")).unwrap();
        let again = file.try_clone().unwrap();
        assert!(look().bytes >= 1 << 20 && look().entries == 1, "{:?}", look());
        drop((file, again));
        assert_eq!(look(), Size::default());
    }

    #[test]
    fn a_path_belongs_to_the_innermost_place_above_it() {
        let place = |target| Place { target, devices: Vec::new() };
        let places = [place(None), place(Some("/data")), place(Some("/data/inner"))];
        let found = ["/x", "/data/x", "/data/inner/x", "/database/x"].map(|path| place_of(path, &places));
        assert_eq!(found, [Some(0), Some(1), Some(2), Some(0)]);
        assert_eq!(place_of("/x", &places[1..]), None);
    }
}
