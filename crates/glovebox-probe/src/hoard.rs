//! Taking all there is of what the kernel shares out, and keeping it.

use std::{
    fs::File,
    io::{Read, Write},
};

use crate::{Tried, errno_of, report, sys};

/// No host gives more of one thing, so that a hoarder comes to its end.
const MOST: usize = 200_000;

/// Takes one of each by its name, and says whether it was to be had. What was taken is kept.
pub(crate) fn take_all(names: &[&str]) -> Tried {
    for name in names {
        report(name, take(name)?);
    }
    Ok(0)
}

/// Takes of each as much as there is, says how much that was, and keeps it until the input ends.
pub(crate) fn hoard(names: &[&str]) -> Tried {
    for name in names {
        let mut taken = 0;
        while taken < MOST && take(name)?.is_ok() {
            taken += 1;
        }
        println!("{name} {taken}");
    }
    println!("held");
    std::io::stdout().flush().map_err(|e| e.to_string())?;
    std::io::stdin().read_to_end(&mut Vec::new()).map_err(|e| e.to_string())?;
    Ok(0)
}

/// Takes one thing and never gives it back.
fn take(name: &str) -> Result<Result<(), i32>, String> {
    const CLOCK_MONOTONIC: i64 = 1;
    const EVENTS: i64 = 1024;
    Ok(match name {
        "inotify" => sys::call(libc::SYS_inotify_init1, &[sys::Arg::Int(0)]).map(drop),
        "timers" => sys::call_for_word(libc::SYS_timer_create, [CLOCK_MONOTONIC, 0, sys::WORD]).map(drop),
        "aio" => sys::call_for_word(libc::SYS_io_setup, [EVENTS, sys::WORD, 0]).map(drop),
        "terminals" => File::open("/dev/ptmx").map(std::mem::forget).map_err(|e| errno_of(&e)),
        _ => return Err(format!("nothing of the name {name:?} is shared out")),
    })
}
