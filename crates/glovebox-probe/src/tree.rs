//! Processes and threads: many of them, daemons, signals.

use std::io::Write;

use rustix::process::{Pid, Signal, kill_process, setsid, test_kill_process};

use crate::{Tried, errno, report, sys};

/// Forks so many children that wait; prints how many there could be.
pub(crate) fn fork_bomb(count: usize) -> Tried {
    let mut pids = Vec::new();
    let mut stopped = "none".to_owned();
    for _ in 0..count {
        match sys::fork_with(0, || sys::wait_for_ever()) {
            Ok(pid) => pids.push(pid),
            Err(error) => {
                stopped = errno::name(error);
                break;
            }
        }
    }
    println!("forked {}\nstopped {stopped}", pids.len());
    for pid in pids {
        let _ = Pid::from_raw(pid).map(|pid| kill_process(pid, Signal::KILL));
        sys::wait_for(pid);
    }
    Ok(0)
}

/// Forks for ever, and so does every child; what is refused is tried again.
pub(crate) fn fork_for_ever() -> Tried {
    loop {
        // A child goes on with the same loop, so it never comes to the end of its own part.
        let _ = sys::fork_with(0, || fork_for_ever().map_or(1, i32::from));
    }
}

/// Starts so many threads that wait; prints how many there could be.
pub(crate) fn threads(count: usize) -> Tried {
    let mut started = 0;
    let mut stopped = "none".to_owned();
    for _ in 0..count {
        // These threads wait for ever and end with the process; only their number matters.
        match std::thread::Builder::new().stack_size(64 << 10).spawn(|| sys::wait_for_ever()) {
            Ok(_) => started += 1,
            Err(error) => {
                stopped = errno::name(crate::errno_of(&error));
                break;
            }
        }
    }
    println!("started {started}\nstopped {stopped}");
    Ok(0)
}

/// Forks twice into a session of its own; the daemon runs for ever with the output open; prints the daemon's pid.
pub(crate) fn daemon() -> Tried {
    let (reader, writer) = std::io::pipe().map_err(|e| e.to_string())?;
    let middle = sys::fork_with(0, || {
        if setsid().is_err() {
            return 1;
        }
        let grandchild = sys::fork_with(0, || {
            for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT] {
                sys::set_signal(signal, libc::SIG_IGN);
            }
            // Says that signals are ignored from here on.
            let _ = (&writer).write_all(b"x");
            sys::wait_for_ever()
        });
        match grandchild {
            Ok(pid) => {
                println!("daemon {pid}");
                0
            }
            Err(_) => 1,
        }
    });
    let ended = sys::wait_for(middle.map_err(errno::name)?);
    drop(writer);
    if ended != "exited 0" {
        return Err(format!("the daemon did not start: {ended}"));
    }
    std::io::Read::read_exact(&mut &reader, &mut [0]).map_err(|e| e.to_string())?;
    Ok(0)
}

/// Ignores every polite signal, says so, and waits for ever.
pub(crate) fn ignore_term() -> Tried {
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT] {
        sys::set_signal(signal, libc::SIG_IGN);
    }
    println!("ready");
    std::io::stdout().flush().map_err(|e| e.to_string())?;
    sys::wait_for_ever()
}

/// Sends every ending signal to PID 1, then says whether it is still there.
pub(crate) fn signal_pid1() -> Tried {
    for (name, signal) in [("KILL", Signal::KILL), ("TERM", Signal::TERM), ("INT", Signal::INT), ("STOP", Signal::STOP)]
    {
        report(name, kill_process(Pid::INIT, signal).map_err(|e| e.raw_os_error()));
    }
    // Being told that it is not ours to signal also means that it is there.
    let there = match test_kill_process(Pid::INIT) {
        Ok(()) => true,
        Err(error) => error == rustix::io::Errno::PERM,
    };
    println!("alive {there}");
    Ok(0)
}

/// Tries to end a process.
pub(crate) fn kill(pid: i32) -> Tried {
    let pid = Pid::from_raw(pid).ok_or("no process has the number 0")?;
    report("kill", kill_process(pid, Signal::KILL).map_err(|e| e.raw_os_error()));
    Ok(0)
}

/// Ends this process by a signal.
pub(crate) fn kill_self(signal: i32) -> Tried {
    sys::set_signal(signal, libc::SIG_DFL);
    sys::raise(signal);
    Err(format!("signal {signal} did not end the probe"))
}

/// Leaves a daemon behind that stops the next process as soon as it may, which is before that has become its command.
pub(crate) fn stop_next() -> Tried {
    let last = sys::fork_with(0, || 0).map_err(errno::name)?;
    sys::wait_for(last);
    let daemon = sys::fork_with(0, || {
        // The daemon itself is the process after the last one.
        while kill_process(Pid::from_raw(last + 2).expect("ids are above 0"), Signal::STOP).is_err() {}
        sys::wait_for_ever()
    });
    println!("daemon {}", daemon.map_err(errno::name)?);
    Ok(0)
}
