//! What the launcher waits for.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use rustix::event::{Timespec, epoll};

/// Has events of a descriptor told under a number.
pub(super) fn watch_for(events: &OwnedFd, what: impl AsFd, number: u64) -> io::Result<()> {
    Ok(epoll::add(events, what, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?)
}

/// The numbers of what happened, within a time or whenever it comes.
pub(super) fn wait_for_events(events: &OwnedFd, wait: Option<Duration>) -> rustix::io::Result<Vec<u64>> {
    let mut space = [MaybeUninit::<epoll::Event>::uninit(); 32];
    let timeout = wait.map(|wait| Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() });
    let (happened, _) = epoll::wait(events, &mut space, timeout.as_ref())?;
    Ok(happened.iter().map(|event| event.data.u64()).collect())
}
