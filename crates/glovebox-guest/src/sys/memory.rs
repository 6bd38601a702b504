//! Wiping what a forked process holds of its caller: command line and environment.

use std::{ffi::CString, io};

/// Empties this process's environment and overwrites the memory in which the kernel finds command line and
/// environment, so that `/proc/PID/cmdline` and `/proc/PID/environ` of it and of all its forks tell nothing.
pub fn clean_slate(name: &str) -> io::Result<()> {
    let stat = super::read_small("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(") ").ok_or(io::ErrorKind::InvalidData)?;
    // The field after the name is the third of proc(5), so field n is at n - 3.
    let field = |n: usize| fields.split(' ').nth(n - 3).and_then(|f| f.trim().parse::<usize>().ok()).unwrap_or(0);
    let (arguments, environment) = ((field(48), field(49)), (field(50), field(51)));
    // SAFETY: this runs in a single-threaded process that reads its environment no more.
    unsafe { libc::clearenv() };
    for (start, end) in [arguments, environment] {
        if start != 0 && end > start {
            // SAFETY: the kernel names this range as the process's own argument or environment strings on its stack,
            // which stay mapped and writable for the life of the process; nothing refers to them any more.
            unsafe { std::ptr::write_bytes(start as *mut u8, 0, end - start) };
        }
    }
    let (start, end) = arguments;
    let length = name.len().min(end.saturating_sub(start).saturating_sub(1));
    // SAFETY: `length` bytes lie within the argument range that was wiped above, with a NUL left behind them.
    unsafe { std::ptr::copy_nonoverlapping(name.as_ptr(), start as *mut u8, length) };
    set_name(name);
    Ok(())
}

/// Sets the short name of this process; the kernel cuts it at 15 bytes.
pub fn set_name(name: &str) {
    let name = CString::new(name).unwrap_or_default();
    // SAFETY: the kernel copies a NUL-terminated string.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}
