//! The folders that Glovebox keeps things in.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use glovebox_native::NativeBackend;
use rustix::fs::Access;

use crate::check::{Check, Status};

const STORES: &str = "stores";
const FIX: &str = "glovebox doctor --fix";

/// Checks of what is kept on this host.
pub(crate) fn stores(data_dir: &Path) -> Vec<Check> {
    vec![
        folder("data folder", data_dir, Openness::Readable),
        folder("runtime folder", &NativeBackend::runtime_folder(), Openness::Private),
        store(),
        leftovers(),
    ]
}

/// Who else may enter a folder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Openness {
    /// Others may look, but not write.
    Readable,
    /// Nobody else.
    Private,
}

fn folder(name: &str, path: &Path, openness: Openness) -> Check {
    let shown = path.display();
    let check = |status, detail: String| Check::new(STORES, name, status, detail);
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let above = path.ancestors().skip(1).find(|above| above.exists()).unwrap_or(Path::new("/"));
            return match may_write(above) {
                true => check(Status::Ok, format!("{shown} is made when it is needed")),
                false => {
                    check(Status::Missing, format!("{shown} cannot be made: {} cannot be written", above.display()))
                        .fix("--data-dir DIR, or GLOVEBOX_DATA_DIR")
                }
            };
        }
        Err(error) => return check(Status::Missing, format!("{shown}: {error}")).fix(FIX),
    };
    let wrong = if !found.is_dir() {
        Some("is not a folder")
    } else if found.uid() != rustix::process::geteuid().as_raw() {
        Some("belongs to somebody else")
    } else if !may_write(path) {
        Some("cannot be written")
    } else if found.permissions().mode() & too_open(openness) != 0 {
        Some("is open to others")
    } else {
        None
    };
    match wrong {
        None => check(Status::Ok, shown.to_string()),
        Some(why) => check(Status::Missing, format!("{shown} {why}")).fix(format!("ls -ld {shown}, then {FIX}")),
    }
}

/// The permission bits that such a folder must not have.
fn too_open(openness: Openness) -> u32 {
    match openness {
        Openness::Readable => 0o022,
        Openness::Private => 0o077,
    }
}

fn may_write(path: &Path) -> bool {
    rustix::fs::access(path, Access::WRITE_OK).is_ok()
}

/// What is written inside lives in memory, so memory is the store.
fn store() -> Check {
    let info = rustix::system::sysinfo();
    let unit = u64::from(info.mem_unit);
    let total = (info.totalram as u64 * unit) >> 20;
    Check::new(STORES, "store", Status::Ok, format!("tmpfs: what is written inside lives in memory, {total} MiB here"))
}

fn leftovers() -> Check {
    match NativeBackend::find_garbage() {
        Ok(found) if found.is_empty() => Check::new(STORES, "leftovers", Status::Ok, "none").optional(),
        Ok(found) => Check::new(STORES, "leftovers", Status::Degraded, found.join(", ")).fix("glovebox gc").optional(),
        Err(error) => Check::new(STORES, "leftovers", Status::Degraded, error.message).optional(),
    }
}
