//! What guest and zygote put on themselves before anything hostile runs, on whatever they stand.
//!
//! Everything here is for good: nothing that a process has given up comes back to it or to what it starts. The order is the
//! business of whoever calls: rules need what is to be restricted, dropping from the bounding set needs a capability, and the
//! filter refuses most of the calls above.

mod privileges;
mod rules;
mod view;

use std::io;

use rustix::{
    fs::Mode,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

pub use privileges::{drop_capabilities, empty_bounding_set};
pub(crate) use rules::WRITTEN;
pub use rules::{FileRules, Restricted};
pub use view::{NAMESPACES, has_clean_environment, namespaces};

/// What programs expect, where our own processes have an empty one to make files with exactly the modes that they ask for.
pub const USUAL_UMASK: Mode = Mode::WGRP.union(Mode::WOTH);

/// Signals that wait, and timers, which are counted with them.
const SIGNALS: u64 = 4096;

/// A step that failed.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {error}")]
pub struct Failed {
    /// Which one.
    pub step: &'static str,
    /// Why.
    #[source]
    pub error: io::Error,
}

/// Names a step for errors.
pub(crate) fn step<T>(step: &'static str, result: Result<T, impl Into<io::Error>>) -> Result<T, Failed> {
    result.map_err(|error| Failed { step, error: error.into() })
}

/// Bounds what a process has for itself, whatever its caller may have: signals that wait, and no better place among those
/// who want the CPU, which no control group would hold.
pub fn bound() -> io::Result<()> {
    for (resource, most) in [(Resource::Sigpending, SIGNALS), (Resource::Rtprio, 0), (Resource::Nice, 0)] {
        bound_to(resource, most)?;
    }
    Ok(())
}

/// Bounds one resource. Where less is allowed already, it stays at that.
pub(crate) fn bound_to(resource: Resource, most: u64) -> io::Result<()> {
    let most = getrlimit(resource).maximum.map_or(most, |maximum| maximum.min(most));
    Ok(setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?)
}
