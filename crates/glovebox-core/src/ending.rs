//! What is said of a sandbox that was killed and does not end.

use std::fs;

use crate::{Error, ErrorCode, SandboxId, printable};

/// A process of this machine by its name and number, and where in the kernel it waits, if it does so without a chance to be killed.
pub fn waiting_in_kernel(pid: i32) -> Option<String> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    let (head, rest) = stat.rsplit_once(") ")?;
    let name = printable(head.split_once('(')?.1);
    let place = fs::read_to_string(format!("/proc/{pid}/wchan")).ok();
    let place = place.filter(|place| !["", "0"].contains(&place.trim()));
    let place = place.map(|place| format!(", in {}", place.trim())).unwrap_or_default();
    rest.starts_with('D').then(|| format!("{name} (process {pid}{place})"))
}

impl Error {
    /// What is said of a sandbox that was killed and in which somebody [waits in the kernel](waiting_in_kernel).
    pub fn still_ending(id: SandboxId, waiting: &str) -> Self {
        let message = format!("the sandbox {id} was killed, but does not end: {waiting} waits in the kernel");
        Error::new(ErrorCode::StillEnding, message)
            .hint("end what it waits for, a mount that does not answer perhaps; the rest is then removed")
    }
}
