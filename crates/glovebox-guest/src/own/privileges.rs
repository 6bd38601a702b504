//! Giving up what is no longer needed.

use std::io;

use rustix::thread::{CapabilitySet, CapabilitySets};

use super::{Failed, step};
use crate::sys;

/// No kernel has more capabilities than this.
const CAPABILITIES: u32 = 64;

/// Takes every capability out of the bounding set. Nothing changes for this process until it drops its own.
pub fn empty_bounding_set() -> io::Result<()> {
    for capability in 0..CAPABILITIES {
        if !sys::drop_from_bounding_set(capability)? {
            break;
        }
    }
    Ok(())
}

/// Keeps these capabilities and no others, gains none ever again, and lets nobody look inside.
pub fn drop_capabilities(keep: CapabilitySet) -> Result<(), Failed> {
    let sets = CapabilitySets { effective: keep, permitted: keep, inheritable: CapabilitySet::empty() };
    step("drop capabilities", rustix::thread::set_capabilities(None, sets))?;
    step("set no_new_privs", rustix::thread::set_no_new_privs(true))?;
    step("become opaque", sys::set_dumpable(false))
}
