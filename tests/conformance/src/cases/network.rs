//! No network, or that of the host.

use std::{
    io::Write,
    net::{SocketAddr, TcpListener, TcpStream},
    thread::JoinHandle,
};

use glovebox_core::Layer;

use crate::{World, case::cases};

cases!["network":
    without_a_network_there_is_only_loopback,
    without_a_network_nothing_outside_is_reached,
    without_a_network_a_listener_of_the_host_is_not_reached,
    two_sandboxes_do_not_share_their_loopback,
    with_the_hosts_network_its_interfaces_are_seen needs(network_full),
    with_the_hosts_network_a_listener_of_the_host_is_reached needs(network_full),
    with_the_hosts_network_the_layer_is_said_to_be_missing needs(network_full),
    with_the_hosts_network_names_can_be_resolved needs(network_full),
];

/// A listener on the host's loopback that greets whoever connects first.
struct Greeter {
    address: SocketAddr,
    thread: JoinHandle<()>,
}

impl Greeter {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the host can listen");
        let address = listener.local_addr().expect("a listener has an address");
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("somebody connects");
            // Whoever connected may be gone already.
            let _ = stream.write_all(b"hello-from-the-host");
        });
        Greeter { address, thread }
    }

    /// Waits until somebody was greeted.
    fn end(self) {
        self.thread.join().expect("the greeter does not panic");
    }
}

async fn without_a_network_there_is_only_loopback(w: World) {
    w.sandbox().probe("interfaces").await.expect_exit(0).expect_out("lo\n");
    w.sandbox()
        .probe("listen-loopback")
        .await
        .expect_exit(0)
        .expect_out("tcp-ipv4 ok\nudp-ipv4 ok\ntcp-ipv6 ok\nudp-ipv6 ok\n");
}

async fn without_a_network_nothing_outside_is_reached(w: World) {
    for address in ["192.0.2.1:80", "[2001:db8::1]:80"] {
        let run = w.sandbox().probe(&format!("connect {address}")).await.expect_exit(0);
        assert_eq!(run.fact("connect"), "ENETUNREACH", "{address}");
    }
}

async fn without_a_network_a_listener_of_the_host_is_not_reached(w: World) {
    let greeter = Greeter::start();
    let run = w.sandbox().probe(&format!("connect {}", greeter.address)).await.expect_exit(0);
    // The host itself reaches it, which also lets the greeter go home.
    let host = TcpStream::connect(greeter.address);
    greeter.end();
    assert!(host.is_ok());
    assert_eq!(run.fact("connect"), "ECONNREFUSED");
}

async fn two_sandboxes_do_not_share_their_loopback(w: World) {
    let one = w.sandbox().create().await;
    let two = w.sandbox().create().await;
    let (a, b) = (w.sandbox().inside(&one).probe("status").await, w.sandbox().inside(&two).probe("status").await);
    assert_ne!(a.fact("ns_net"), b.fact("ns_net"));
    one.destroy().await.expect("the sandbox can be destroyed");
    two.destroy().await.expect("the sandbox can be destroyed");
}

async fn with_the_hosts_network_its_interfaces_are_seen(w: World) {
    let host = std::process::Command::new(w.probe()).arg("interfaces").output().expect("the probe runs on the host");
    let run = w.sandbox().network_full().probe("interfaces").await.expect_exit(0);
    assert_eq!(run.out(), String::from_utf8_lossy(&host.stdout));
}

async fn with_the_hosts_network_a_listener_of_the_host_is_reached(w: World) {
    let greeter = Greeter::start();
    let setup = w.sandbox().network_full();
    let run = setup.probe(&format!("connect {}", greeter.address)).await.expect_exit(0);
    drop(TcpStream::connect(greeter.address));
    greeter.end();
    assert_eq!(run.fact("greeting"), "hello-from-the-host");
}

async fn with_the_hosts_network_the_layer_is_said_to_be_missing(w: World) {
    let run = w.sandbox().network_full().probe("status").await.expect_exit(0);
    assert!(run.isolation.missing.contains(&Layer::NetworkNs), "{:?}", run.isolation);
    assert!(!run.isolation.has(Layer::NetworkNs));
    assert!(run.isolation.has(Layer::Seccomp) && run.isolation.has(Layer::UserNs), "{:?}", run.isolation);
}

async fn with_the_hosts_network_names_can_be_resolved(w: World) {
    let run = w.sandbox().network_full().sh("test -s /etc/resolv.conf && getent hosts localhost").await;
    assert!(run.expect_exit(0).out().contains("localhost"));
}
