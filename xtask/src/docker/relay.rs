//! What carries connections from one place to another, and can be cut like a cable.

use std::{
    io,
    net::{Shutdown, TcpListener, TcpStream},
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use anyhow::Result;

/// Where connections are carried to.
#[derive(Clone)]
pub(crate) enum Target {
    /// A port.
    Port(String),
    /// A socket.
    Socket(PathBuf),
    /// Nowhere: whoever connects is never answered.
    Nobody,
}

/// A port whose connections lead elsewhere, for as long as the process lives.
pub(crate) struct Relay {
    /// `HOST:PORT`.
    pub(crate) address: String,
    open: Arc<Mutex<Vec<TcpStream>>>,
    is_closed: Arc<AtomicBool>,
    turned_away: Arc<AtomicUsize>,
}

impl Relay {
    /// Listens at a free port of this address.
    pub(crate) fn start(host: &str, target: Target) -> Result<Relay> {
        let listener = TcpListener::bind((host, 0))?;
        let address = listener.local_addr()?.to_string();
        let open = Arc::new(Mutex::new(Vec::new()));
        let (is_closed, turned_away) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (known, closed, away) = (Arc::clone(&open), Arc::clone(&is_closed), Arc::clone(&turned_away));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if closed.load(Ordering::Relaxed) {
                    away.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                let Ok(other) = stream.try_clone() else { continue };
                known.lock().unwrap_or_else(PoisonError::into_inner).push(other);
                let target = target.clone();
                thread::spawn(move || carry(stream, &target));
            }
        });
        Ok(Relay { address, open, is_closed, turned_away })
    }

    /// From now on whoever connects is hung up on, or is carried again.
    pub(crate) fn set_closed(&self, closed: bool) {
        self.is_closed.store(closed, Ordering::Relaxed);
    }

    /// How many were hung up on.
    pub(crate) fn turned_away(&self) -> usize {
        self.turned_away.load(Ordering::Relaxed)
    }

    /// Ends all connections, in the midst of whatever they carry. New ones are taken.
    pub(crate) fn cut(&self) {
        for stream in self.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn carry(stream: TcpStream, target: &Target) -> io::Result<()> {
    let there = match target {
        Target::Nobody => loop {
            thread::park();
        },
        Target::Port(address) => TcpStream::connect(address)?,
        // Once it is connected, what is done with it is the same for every kind of socket.
        Target::Socket(path) => TcpStream::from(OwnedFd::from(UnixStream::connect(path)?)),
    };
    let (one, two) = (stream.try_clone()?, there.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut &one, &mut &two);
        let _ = two.shutdown(Shutdown::Write);
    });
    let _ = io::copy(&mut &there, &mut &stream);
    stream.shutdown(Shutdown::Write)
}
