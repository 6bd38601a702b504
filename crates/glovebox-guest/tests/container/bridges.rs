//! A guest that is reached through bridges.

use std::{
    io::Write,
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Child, Command},
};

use glovebox_guest::container::Carried;
use glovebox_proto::{
    EndReason, StartRun,
    container::{Door, ENDED_IDLE, Plan, Ready, Report},
};
use sha2::{Digest, Sha256};
use tokio::io::AsyncReadExt;

use super::{Client, Container, from_std, greet, in_time, plan};

const KEY: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn bridged() -> Door {
    let hash = Sha256::digest(KEY.as_bytes());
    Door::Bridge { key_sha256: hash.iter().map(|byte| format!("{byte:02x}")).collect() }
}

impl Container {
    /// A bridge that says a key, as the host starts it inside.
    fn bridge(&mut self, key: &str) -> (UnixStream, Child) {
        let name =
            |container: &Self| std::fs::read_to_string(format!("/proc/{}/comm", container.first_process()?)).ok();
        self.wait_until("begins", |container| name(container).as_deref() == Some("glovebox-guest\n"));
        let (mut ours, theirs) = UnixStream::pair().expect("a pair can be made");
        let theirs = OwnedFd::from(theirs);
        let child = Command::new("nsenter")
            .args(["--target", &self.first_process().expect("it is there").to_string()])
            .args(["--pid", "--mount", "--net", "--root", "/.glovebox/guest", "bridge"])
            .stdin(theirs.try_clone().expect("a descriptor can be copied"))
            .stdout(theirs)
            .spawn()
            .expect("nsenter can be started");
        ours.write_all(format!("{key}\n").as_bytes()).expect("the bridge reads");
        (ours, child)
    }
}

/// Speaks with the guest on what a bridge carries, and lets the bridge go.
fn talk_over<F: Future<Output = ()>>(bridge: UnixStream, work: impl FnOnce(Bridge) -> F) {
    in_time(async { work(Bridge(greet(from_std(bridge)).await)).await });
}

/// A bridge that was told a key.
struct Bridge(Client);

impl Bridge {
    /// One more connection.
    async fn carry(&self) -> Carried {
        let request = http::Request::post("http://guest/").body(()).expect("a request can be made");
        let mut bridge = self.0.0.clone().ready().await.expect("the bridge is there");
        let (response, sending) = bridge.send_request(request, false).expect("the bridge is asked");
        let response = response.await.expect("the bridge answers");
        assert_eq!(response.status(), http::StatusCode::OK);
        Carried::new(sending, response.into_body())
    }

    /// One more connection, on which the guest has reported.
    async fn connect(&self) -> (Ready, Client) {
        let (ready, carried) = self.meet().await;
        (ready, greet(carried).await)
    }

    async fn meet(&self) -> (Ready, Carried) {
        let mut carried = self.carry().await;
        let mut text = vec![0; carried.read_u32_le().await.expect("the guest says how long its report is") as usize];
        carried.read_exact(&mut text).await.expect("the guest reports");
        match serde_json::from_slice(&text).expect("a report is JSON") {
            Report::Ready(ready) => (ready, carried),
            failed => panic!("{failed:?}"),
        }
    }
}

#[test]
fn a_bridge_with_the_key_is_the_channel_and_one_without_is_hung_up_on() {
    let mut container = Container::start(&Plan { door: bridged(), ..plan() });
    let (wrong, mut stranger) = container.bridge(&KEY.replace('0', "1"));
    talk_over(wrong, |bridge| async move {
        let mut rest = Vec::new();
        bridge.carry().await.read_to_end(&mut rest).await.expect("the guest hangs up");
        assert!(rest.is_empty(), "{rest:?}");
    });
    stranger.wait().expect("a child can be waited for");
    let (channel, mut bridge) = container.bridge(KEY);
    talk_over(channel, |bridge| async move {
        let (ready, client) = bridge.connect().await;
        assert!(ready.landlock);
        assert_eq!(client.output_of("echo over the bridge").await, "over the bridge\n");
        // A run that is ended takes all commands along, and not the bridge.
        let (ended, _) = client.run(&["sh", "-c", "setsid sleep 100 & sleep 100"], Some(200)).await.expect("it starts");
        assert_eq!(ended.reason(), EndReason::TimedOut);
        assert_eq!(client.output_of("pgrep -c sleep").await, "0\n");
    });
    assert!(container.end().success());
    bridge.wait().expect("a child can be waited for");
}

#[test]
fn a_living_guest_takes_one_bridge_after_the_other() {
    let mut container = Container::start(&Plan { living: true, idle_ms: Some(500), door: bridged(), ..plan() });
    for round in 1..=2 {
        let (channel, mut bridge) = container.bridge(KEY);
        talk_over(channel, |bridge| async move {
            let (_, client) = bridge.connect().await;
            assert_eq!(client.output_of("echo x >> /tmp/lines; wc -l < /tmp/lines").await, format!("{round}\n"));
            // Not even a process that would know the key reaches the guest from inside.
            let connect = "use Socket; socket(my $s, AF_UNIX, SOCK_STREAM, 0); \
                           print connect($s, pack('S a*', AF_UNIX, \"\\0glovebox-guest\")) ? 'connected' : \"$!\";";
            let said = client.run(&["perl", "-e", connect], None).await.expect("it starts").1;
            assert_eq!(said, "Operation not permitted");
        });
        bridge.wait().expect("a child can be waited for");
    }
    assert_eq!(container.end().code(), Some(ENDED_IDLE.into()));
}

#[test]
fn a_bridge_carries_many_connections_by_one_process_and_one_that_nobody_reads_holds_up_no_other() {
    let mut container = Container::start(&Plan { living: true, door: bridged(), ..plan() });
    let (channel, mut bridge) = container.bridge(KEY);
    talk_over(channel, |bridge| async move {
        // The guest has far more to say on this one than the bridge holds, and nobody hears it.
        let much = 1 << 30;
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(much).initial_connection_window_size(much);
        let (client, still) = builder.handshake(bridge.meet().await.1).await.expect("the guest speaks HTTP/2");
        let mut still = std::pin::pin!(still);
        let argv = ["yes", "it is said in vain"].map(str::to_owned).to_vec();
        let began = async {
            let answer = Client(client).ask(StartRun { argv, ..StartRun::default() }).await.await;
            answer.expect("the guest answers").into_body().data().await
        };
        tokio::select! {
            said = began => drop(said.expect("it says something")),
            ended = &mut still => panic!("{ended:?}"),
        }
        let mut clients = Vec::new();
        for _ in 0..50 {
            clients.push(bridge.connect().await.1);
        }
        for (number, client) in clients.iter().enumerate() {
            assert_eq!(client.output_of(&format!("echo {number}")).await, format!("{number}\n"));
        }
        let large = clients[7].output_of("head -c 3000000 /dev/zero | tr '\\0' x").await;
        assert_eq!(large.len(), 3_000_000);
        let bridges = "cat /proc/$(pgrep -f 'guest bridge' | head -1)/status | grep Threads";
        assert_eq!(clients[49].output_of(bridges).await, "Threads:\t1\n");
    });
    bridge.wait().expect("a child can be waited for");
}

#[test]
fn who_is_root_inside_finds_the_key_in_no_bridge() {
    let root = Plan { uid: 0, gid: 0, living: true, door: bridged(), ..plan() };
    let mut container = Container::start(&root);
    let (channel, mut bridge) = container.bridge(KEY);
    talk_over(channel, |bridge| async move {
        let (_, client) = bridge.connect().await;
        let found = client.output_of("pgrep -f 'guest bridge' | head -1").await;
        for refused in ["cat /proc/$P/environ", "readlink /proc/$P/fd/0", "head -c 1 /proc/$P/mem", "cat /proc/$P/maps"]
        {
            let script = format!("P={}; out=$({refused} 2>/dev/null); echo \"$? $out\"", found.trim());
            let said = client.output_of(&script).await;
            assert_eq!(said, "1 \n", "{refused} of {found}");
        }
    });
    bridge.wait().expect("a child can be waited for");
}
