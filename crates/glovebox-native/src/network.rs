//! Networks of sandboxes: namespaces with nothing in them but loopback.
//!
//! Making one takes the kernel as long as forking a program, so the launcher makes the next one while it has nothing else
//! to do. A network belongs to the launcher's user namespace, not to the sandbox's: root inside has no rights over it. A
//! guest is born in its network: the launcher goes there, forks, and comes back.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{Mode, OFlags},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

use crate::sys;

/// The host's network, and at most one that was made ahead and never used.
pub(crate) struct Networks {
    host: OwnedFd,
    spare: Option<OwnedFd>,
}

impl Networks {
    /// Remembers the network that this process is in.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Networks { host: current()?, spare: None })
    }

    /// Whether the next network is still to be made.
    pub(crate) fn wants_spare(&self) -> bool {
        self.spare.is_none()
    }

    /// Makes the next network.
    pub(crate) fn make_spare(&mut self) -> io::Result<()> {
        sys::unshare(libc::CLONE_NEWNET)?;
        let made = sys::loopback_up().and_then(|()| current());
        self.leave()?;
        self.spare = Some(made?);
        Ok(())
    }

    /// Goes into a network that nobody has used.
    pub(crate) fn enter(&mut self) -> io::Result<()> {
        if self.spare.is_none() {
            self.make_spare()?;
        }
        self.spare.take().map_or(Ok(()), |network| enter(&network))
    }

    /// Comes back to the host's network.
    pub(crate) fn leave(&self) -> io::Result<()> {
        enter(&self.host)
    }
}

fn current() -> io::Result<OwnedFd> {
    Ok(rustix::fs::open("/proc/self/ns/net", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

fn enter(network: &OwnedFd) -> io::Result<()> {
    Ok(move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?)
}
