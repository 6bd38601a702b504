//! Using much of something, to meet its limit.

use std::{
    fs,
    io::Write,
    path::Path,
    time::{Duration, Instant},
};

use rustix::{
    process::{Pid, Signal, kill_process},
    time::{ClockId, clock_gettime},
};

use crate::{Tried, errno, errno_of, sys};

const MIB: usize = 1 << 20;

/// Touches so much anonymous memory and keeps it.
pub(crate) fn eat_memory(mib: usize) -> Tried {
    let _held = touch(mib);
    println!("ate {mib}");
    Ok(0)
}

fn touch(mib: usize) -> Vec<Vec<u8>> {
    // Blocks are filled one by one, so that what is touched never runs ahead of what is written.
    (0..mib).map(|_| std::hint::black_box(vec![1u8; MIB])).collect()
}

/// Lets a child eat, and outlives it.
pub(crate) fn eat_memory_in_child(mib: usize) -> Tried {
    let child = sys::fork_with(0, || {
        let _held = touch(mib);
        0
    });
    println!("child {}", sys::wait_for(child.map_err(errno::name)?));
    Ok(0)
}

/// Lets many children eat, each a little. A child that has eaten stops and holds what it ate until all have eaten.
pub(crate) fn eat_memory_in_many(children: usize, mib: usize) -> Tried {
    let mut pids = Vec::new();
    for _ in 0..children {
        let pid = sys::fork_with(0, || {
            let _held = touch(mib);
            sys::raise(libc::SIGSTOP);
            0
        });
        pids.push(pid.map_err(errno::name)?);
    }
    let mut killed = 0;
    let mut holding = Vec::new();
    for pid in pids {
        match sys::wait_for(pid).as_str() {
            "signaled 9" => killed += 1,
            _ => holding.push(pid),
        }
    }
    for pid in holding {
        // A child that was killed while it held has no need of the signal.
        let _ = Pid::from_raw(pid).map(|pid| kill_process(pid, Signal::CONT));
        if sys::wait_for(pid) == "signaled 9" {
            killed += 1;
        }
    }
    println!("killed {killed}");
    Ok(0)
}

/// Fills a memory file.
pub(crate) fn memfd(mib: usize) -> Tried {
    let file = rustix::fs::memfd_create(c"probe", rustix::fs::MemfdFlags::CLOEXEC).map_err(|e| e.to_string())?;
    let written = write_blocks(fs::File::from(file), mib);
    println!("wrote {}", written.map_err(|e| errno::name(errno_of(&e)))?);
    Ok(0)
}

/// Touches shared anonymous memory.
pub(crate) fn shared_memory(mib: usize) -> Tried {
    sys::touch_shared_memory(mib * MIB).map_err(errno::name)?;
    println!("ate {mib}");
    Ok(0)
}

/// Writes a file of so many MiB; exit code 1 when it did not fit.
pub(crate) fn write_file(path: &str, mib: usize) -> Tried {
    let file = fs::File::create(path).map_err(|e| e.to_string())?;
    match write_blocks(file, mib) {
        Ok(_) => println!("wrote {mib}"),
        Err(error) => {
            println!("stopped {}", errno::name(errno_of(&error)));
            return Ok(1);
        }
    }
    Ok(0)
}

fn write_blocks(mut file: fs::File, mib: usize) -> std::io::Result<usize> {
    let block = vec![b'x'; MIB];
    for _ in 0..mib {
        file.write_all(&block)?;
    }
    Ok(mib)
}

/// Writes until there is no room; prints how much fitted and why it ended; exit code 1.
pub(crate) fn fill_disk(path: &str) -> Tried {
    let mut file = fs::File::create(path).map_err(|e| e.to_string())?;
    let block = vec![b'x'; 64 << 10];
    let mut written = 0usize;
    loop {
        match file.write(&block) {
            Ok(count) => written += count,
            Err(error) => {
                println!("wrote {written}\nstopped {}", errno::name(errno_of(&error)));
                return Ok(1);
            }
        }
    }
}

/// Makes empty files until there is no room; prints how many fitted and why it ended; exit code 1.
pub(crate) fn fill_inodes(folder: &str) -> Tried {
    for made in 0u64.. {
        if let Err(error) = fs::File::create(Path::new(folder).join(format!("inode-{made}"))) {
            println!("made {made}\nstopped {}", errno::name(errno_of(&error)));
            return Ok(1);
        }
    }
    Ok(0)
}

/// Spins until so much CPU time is used; prints the wall time.
pub(crate) fn burn_cpu(ms: u64) -> Tried {
    let start = Instant::now();
    let used = || Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default();
    while used() < Duration::from_millis(ms) {
        std::hint::black_box((0..1000u64).sum::<u64>());
    }
    println!("wall_ms {}", start.elapsed().as_millis());
    Ok(0)
}

/// Prints so many bytes, as fast as they are taken: lines of 64 characters that count upwards.
pub(crate) fn print_bytes(count: usize) -> Tried {
    let mut out = std::io::stdout().lock();
    let lines: Vec<u8> = (0..1024).flat_map(|line| format!("{line:063}\n").into_bytes()).collect();
    let mut left = count;
    while left > 0 {
        let part = left.min(lines.len());
        out.write_all(&lines[..part]).map_err(|e| e.to_string())?;
        left -= part;
    }
    out.flush().map_err(|e| e.to_string())?;
    Ok(0)
}

/// Opens one file so many times and keeps all of them.
pub(crate) fn open_files(count: usize) -> Tried {
    let mut held = Vec::new();
    for _ in 0..count {
        match fs::File::open("/dev/null") {
            Ok(file) => held.push(file),
            Err(error) => {
                println!("opened {}\nstopped {}", held.len(), errno::name(errno_of(&error)));
                return Ok(1);
            }
        }
    }
    println!("opened {}", held.len());
    Ok(0)
}
