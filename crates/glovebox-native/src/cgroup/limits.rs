//! Limits as the kernel's files take them.

use std::{io, path::Path};

use super::{Controller, Hierarchy, Side, Version};

/// The period that every new group has.
const PERIOD_US: u64 = 100_000;

/// The guest's own process is small; these bounds only matter if it is taken over.
const GUEST_MEMORY: u64 = 128 << 20;
const GUEST_PIDS: u64 = 32;

/// What both groups of a sandbox may use.
#[derive(Clone, Debug)]
pub(crate) struct GroupLimits {
    run: Numbers,
    guest: Numbers,
}

/// Limits of one group.
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    memory: u64,
    pids: u64,
    cpus: f64,
}

impl GroupLimits {
    /// The limits of a sandbox: `memory` is the hard limit of the commands' group. The zygote is one process more
    /// than the commands are allowed. What the guest writes for the host counts as the guest's
    /// memory where the store lives there, up to `store`.
    pub(crate) fn new(memory: u64, store: u64, pids: u64, cpus: f64) -> Self {
        let of_guest = GUEST_MEMORY.saturating_add(store).min(i64::MAX as u64);
        GroupLimits {
            run: Numbers { memory, pids: pids + 1, cpus },
            guest: Numbers { memory: of_guest, pids: GUEST_PIDS, cpus: cpus.max(1.0) },
        }
    }

    pub(super) fn of(&self, side: Side) -> &Numbers {
        match side {
            Side::Run => &self.run,
            Side::Guest => &self.guest,
        }
    }
}

impl Numbers {
    /// Writes the limits that a hierarchy's controllers hold.
    pub(super) fn write(&self, hierarchy: &Hierarchy, group: &Path) -> io::Result<()> {
        let put = |file: &str, value: String| write_file(&group.join(file), &value);
        // Swap has its own accounting, which a kernel may lack; then there is no file, and no swap to limit by it.
        let put_if_there = |file: &str, value: String| match put(file, value) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        };
        let quota = (self.cpus * PERIOD_US as f64) as u64;
        for controller in &hierarchy.controllers {
            match (controller, hierarchy.version) {
                (Controller::Memory, Version::One) => {
                    put("memory.limit_in_bytes", self.memory.to_string())?;
                    put_if_there("memory.memsw.limit_in_bytes", self.memory.to_string())?;
                }
                (Controller::Memory, Version::Two) => {
                    put("memory.max", self.memory.to_string())?;
                    put_if_there("memory.swap.max", "0".into())?;
                }
                (Controller::Pids, _) => put("pids.max", self.pids.to_string())?,
                (Controller::Cpu, Version::One) => {
                    put("cpu.cfs_quota_us", quota.to_string())?;
                }
                (Controller::Cpu, Version::Two) => put("cpu.max", format!("{quota} {PERIOD_US}"))?,
                (Controller::CpuAccount | Controller::Freezer, _) => {}
            }
        }
        Ok(())
    }
}

/// Writes one of the kernel's files. Unlike an ordinary file it is neither created nor cut.
fn write_file(path: &Path, value: &str) -> io::Result<()> {
    use rustix::fs::{Mode, OFlags};
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, value.as_bytes())?;
    Ok(())
}
