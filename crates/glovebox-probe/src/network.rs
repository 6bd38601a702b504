//! Interfaces, connections, loopback and abstract sockets.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr as UnixAddr, UnixStream},
    },
    time::Duration,
};

use crate::{Tried, errno, errno_of, report, sys};

/// Prints the names of all network interfaces.
pub(crate) fn interfaces() -> Tried {
    for name in sys::interface_names().map_err(errno::name)? {
        println!("{name}");
    }
    Ok(0)
}

/// Connects, and prints what comes from there.
pub(crate) fn connect(address: &str) -> Tried {
    let address: SocketAddr = address.parse().map_err(|_| format!("{address:?} is not HOST:PORT"))?;
    match TcpStream::connect_timeout(&address, Duration::from_secs(3)) {
        Ok(mut stream) => {
            let mut greeting = String::new();
            stream.read_to_string(&mut greeting).map_err(|e| e.to_string())?;
            println!("connect ok\ngreeting {greeting}");
        }
        Err(error) => report("connect", Err(errno_of(&error))),
    }
    Ok(0)
}

/// Listens on loopback and talks to itself, over IPv4 and IPv6, TCP and UDP.
pub(crate) fn listen_loopback() -> Tried {
    for (name, address) in [("ipv4", "127.0.0.1:0"), ("ipv6", "[::1]:0")] {
        report(&format!("tcp-{name}"), talk_tcp(address).map_err(|e| errno_of(&e)));
        report(&format!("udp-{name}"), talk_udp(address).map_err(|e| errno_of(&e)));
    }
    Ok(0)
}

fn talk_tcp(address: &str) -> std::io::Result<()> {
    let listener = TcpListener::bind(address)?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    client.write_all(b"hello")?;
    server.read_exact(&mut [0; 5])
}

fn talk_udp(address: &str) -> std::io::Result<()> {
    let (one, two) = (UdpSocket::bind(address)?, UdpSocket::bind(address)?);
    one.send_to(b"hello", two.local_addr()?)?;
    two.recv(&mut [0; 5]).map(drop)
}

/// Connects to an abstract socket.
pub(crate) fn abstract_socket(name: &str) -> Tried {
    let address = UnixAddr::from_abstract_name(name).map_err(|e| e.to_string())?;
    report("connect", UnixStream::connect_addr(&address).map(drop).map_err(|e| errno_of(&e)));
    Ok(0)
}
