//! The program `glovebox-guest` as the first process of a container, with the real kernel and without Docker. Only root can.

mod bridges;

use std::{
    fs::Permissions,
    io::Read,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use glovebox_proto::{
    Decoder, Exited, Frame, FrameKind, StartFailed, StartRun, bound,
    container::{Door, ENDED_IDLE, ENDED_OLD, LONGEST_REPORT, PLAN, Plan, Ready, Report},
    path,
    session::SessionRun,
};
use h2::client::{ResponseFuture, SendRequest};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncRead, AsyncWrite};

/// Nothing here takes so long.
const LONGEST: Duration = Duration::from_secs(20);
/// The runs that were asked for, each with an id of its own.
static RUNS: AtomicU32 = AtomicU32::new(0);

fn plan() -> Plan {
    Plan {
        uid: 1000,
        gid: 1000,
        largest_file: None,
        open_files: 512,
        living: false,
        network: false,
        written: Vec::new(),
        own_volumes: Vec::new(),
        writes_to_host: false,
        awaits_mounts: false,
        idle_ms: None,
        expires_ms: None,
        own_kernel: false,
        door: Door::Folder,
    }
}

/// A container, which ends with this value.
struct Container {
    process: Child,
    folder: tempfile::TempDir,
    host: UnixListener,
}

impl Container {
    fn start(plan: &Plan) -> Self {
        Self::start_with(&serde_json::to_string(plan).expect("a plan is JSON"), "masked")
    }

    fn start_with(plan: &str, masks: &str) -> Self {
        Self::start_for(0, plan, masks)
    }

    /// One whose channel is that of this user alone.
    fn start_for(owner: u32, plan: &str, masks: &str) -> Self {
        assert!(rustix::process::geteuid().is_root(), "only root can make a container");
        let folder = tempfile::tempdir().expect("a folder can be made");
        let (root, channel) = (folder.path().join("root"), folder.path().join("channel"));
        for path in [&root, &channel] {
            std::fs::create_dir(path).expect("a folder can be made");
        }
        let host = UnixListener::bind(channel.join("host")).expect("a socket can be made");
        for (path, mode) in [(&channel, 0o700), (&channel.join("host"), 0o600)] {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("a mode can be set");
            std::os::unix::fs::chown(path, Some(owner), Some(owner)).expect("root can give it away");
        }
        let process = Command::new("unshare")
            .args(["--mount", "--pid", "--net", "--ipc", "--uts", "--cgroup", "--fork", "--kill-child", "sh"])
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/container/make.sh"))
            .args([root, PathBuf::from(env!("CARGO_BIN_EXE_glovebox-guest")), channel])
            .arg(masks)
            .env_clear()
            .envs([("PATH", "/usr/bin:/usr/sbin"), ("GREETING", "hello"), (PLAN, plan)])
            .stdin(Stdio::null())
            .spawn()
            .expect("unshare can be started");
        Container { process, folder, host }
    }

    /// The guest's connection, when there is one.
    fn accept(&mut self) -> UnixStream {
        self.host.set_nonblocking(true).expect("a socket can be set");
        let mut accepted = None;
        self.wait_until("connects", |container| {
            accepted = container.host.accept().ok();
            accepted.is_some()
        });
        let (stream, _) = accepted.expect("it was waited for");
        stream.set_nonblocking(false).expect("a socket can be set");
        stream
    }

    fn wait_until(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let start = Instant::now();
        while !is_so(self) {
            let ended = self.process.try_wait().expect("a child can be waited for");
            assert!(ended.is_none() && start.elapsed() < LONGEST, "the guest never {what}: {ended:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// How the first process ends, which it does by itself.
    fn end(mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().expect("a child can be waited for") {
                return status;
            }
            assert!(start.elapsed() < LONGEST, "the guest does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A new connection to the guest of a living sandbox.
    fn connect(&self) -> UnixStream {
        UnixStream::connect(self.folder.path().join("channel/guest")).expect("the guest listens")
    }

    /// The first process, by its number outside.
    fn first_process(&self) -> Option<u32> {
        let unshare = self.process.id();
        let children = std::fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).ok()?;
        children.split_ascii_whitespace().next()?.parse().ok()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // A guest that took the commands' id for files no longer ends with who started it.
        let first = self.first_process().and_then(|pid| Pid::from_raw(pid as i32));
        let _ = first.map(|pid| kill_process(pid, Signal::KILL));
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn report(stream: &mut UnixStream) -> Report {
    stream.set_read_timeout(Some(LONGEST)).expect("a socket can be set");
    let mut length = [0; 4];
    stream.read_exact(&mut length).expect("the guest says how long its report is");
    let length = u32::from_le_bytes(length) as usize;
    assert!(length <= LONGEST_REPORT);
    let mut text = vec![0; length];
    stream.read_exact(&mut text).expect("the guest reports");
    serde_json::from_slice(&text).expect("a report is JSON")
}

fn ready(stream: &mut UnixStream) -> Ready {
    match report(stream) {
        Report::Ready(ready) => ready,
        failed => panic!("{failed:?}"),
    }
}

/// Speaks with the guest on a connection.
fn talk<F: Future<Output = ()>>(stream: UnixStream, work: impl FnOnce(Client) -> F) {
    in_time(async { work(greet(from_std(stream)).await).await });
}

fn in_time(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be made");
    runtime.block_on(async { tokio::time::timeout(LONGEST, work).await.expect("it takes not so long") });
}

fn from_std(stream: UnixStream) -> tokio::net::UnixStream {
    stream.set_nonblocking(true).expect("a socket can be set");
    tokio::net::UnixStream::from_std(stream).expect("a stream can be made")
}

/// Speaks HTTP/2 with the windows of a host.
async fn greet(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Client {
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(bound::CARRIED_WINDOW).initial_connection_window_size(bound::BRIDGE_WINDOW);
    let (client, connection) = builder.handshake(stream).await.expect("the other side speaks HTTP/2");
    tokio::spawn(connection);
    Client(client)
}

struct Client(SendRequest<Bytes>);

impl Client {
    /// Runs a shell's command; its end and its output.
    async fn shell(&self, script: &str) -> Result<(Exited, String), StartFailed> {
        self.run(&["sh", "-c", &format!("{{ {script}\n}} 2>&1")], None).await
    }

    async fn run(&self, argv: &[&str], timeout_ms: Option<u64>) -> Result<(Exited, String), StartFailed> {
        let argv = argv.iter().map(|word| (*word).to_owned()).collect();
        self.start(StartRun { argv, timeout_ms, ..StartRun::default() }).await
    }

    /// Asks for a run, whose answer nobody has read yet.
    async fn ask(&self, asked: StartRun) -> ResponseFuture {
        let start = StartRun {
            env: vec!["PATH=/usr/bin:/usr/sbin".to_owned()],
            cwd: "/workspace/agent_workspace".to_owned(),
            stdin_empty: true,
            run: RUNS.fetch_add(1, Ordering::Relaxed).to_string(),
            ..asked
        };
        let request =
            http::Request::post(format!("http://guest{}", path::RUN)).body(()).expect("a request can be made");
        let mut client = self.0.clone().ready().await.expect("the guest is there");
        let (response, mut sending) = client.send_request(request, false).expect("the guest is asked");
        sending.send_data(Frame::message(FrameKind::Start, &start), true).expect("the guest is told");
        response
    }

    async fn start(&self, asked: StartRun) -> Result<(Exited, String), StartFailed> {
        let mut body = self.ask(asked).await.await.expect("the guest answers").into_body();
        let (mut decoder, mut output) = (Decoder::new(), Vec::new());
        while let Some(chunk) = body.data().await {
            let chunk = chunk.expect("the guest goes on");
            body.flow_control().release_capacity(chunk.len()).expect("room can be made");
            decoder.push(chunk);
            while let Some(frame) = decoder.next().expect("frames are well formed") {
                match frame.kind {
                    FrameKind::Stdout => output.extend_from_slice(&frame.payload),
                    FrameKind::StartFailed => return Err(frame.read().expect("a message")),
                    FrameKind::Exited => {
                        return Ok((frame.read().expect("a message"), String::from_utf8(output).expect("text")));
                    }
                    _ => {}
                }
            }
        }
        panic!("the run has no end")
    }

    async fn output_of(&self, script: &str) -> String {
        self.shell(script).await.expect("it starts").1
    }
}

#[test]
fn a_one_shot_guest_reports_what_is_in_place_runs_commands_and_ends_with_its_connection() {
    let mut container = Container::start(&plan());
    let mut channel = container.accept();
    let ready = ready(&mut channel);
    assert_eq!(ready.version, glovebox_proto::VERSION);
    assert!(ready.landlock && ready.rlimits && ready.no_capabilities && ready.no_new_privs && ready.seccomp);
    assert!(ready.masked_proc);
    for name in ["mnt", "pid", "net", "ipc", "uts", "cgroup"] {
        let ours = std::fs::read_link(format!("/proc/self/ns/{name}")).expect("a namespace has a link");
        let theirs = ready.namespaces.iter().find(|(known, _)| known == name).map(|(_, link)| link.as_str());
        assert!(theirs.is_some_and(|theirs| ours.to_str() != Some(theirs)), "{name}");
    }
    assert!(ready.environment.contains(&("GREETING".to_owned(), "hello".to_owned())), "{:?}", ready.environment);
    assert!(ready.environment.iter().all(|(name, _)| name != PLAN));
    talk(channel, |client| async move {
        let (ended, output) =
            client.shell("id -u; id -g; id -G; umask; ulimit -n; pwd; exit 7").await.expect("it starts");
        assert_eq!(
            (ended.code, output.as_str()),
            (Some(7), "1000\n1000\n1000\n0022\n512\n/workspace/agent_workspace\n")
        );
        let status = client.output_of("grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status").await;
        assert!(status.lines().filter(|line| line.starts_with("Cap")).all(|line| line.ends_with("\t0000000000000000")));
        assert!(status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2"), "{status}");
        let owners = "stat -c '%u %g %a %n' /workspace /workspace/* /home/user";
        let wanted = "0 0 755 /workspace\n1000 1000 755 /workspace/agent_workspace\n1000 1000 755 /workspace/outputs\n\
                      1000 1000 755 /workspace/project_files\n1000 1000 755 /home/user\n";
        assert_eq!(client.output_of(owners).await, wanted);
        assert_eq!(client.output_of("echo 1 > /workspace/outputs/a && cat /workspace/outputs/a").await, "1\n");
        assert_eq!(client.output_of("cat /proc/self/oom_score_adj").await, "500\n");
        let environ = client.output_of("tr '\\0' '\\n' < /proc/self/environ | grep -c GLOVEBOX").await;
        assert_eq!(environ, "0\n");
    });
    assert!(container.end().success());
}

#[test]
fn what_was_not_masked_is_not_reported() {
    let plan = serde_json::to_string(&plan()).expect("a plan is JSON");
    let mut container = Container::start_with(&plan, "bare");
    let ready = ready(&mut container.accept());
    assert!(ready.landlock && !ready.masked_proc, "{ready:?}");
}

#[test]
fn root_inside_reaches_neither_the_guest_nor_what_is_its_own() {
    let mut container = Container::start(&Plan { uid: 0, gid: 0, living: true, ..plan() });
    ready(&mut container.accept());
    talk(container.connect(), |client| async move {
        assert_eq!(client.output_of("id -u; grep CapEff /proc/self/status").await, "0\nCapEff:\t0000000000000000\n");
        for refused in [
            "cat /.glovebox/guest",
            "/.glovebox/guest --version",
            "rm /.glovebox/channel/guest",
            "touch /.glovebox/channel/more",
            "cat /proc/1/environ",
            "readlink /proc/1/fd/3",
            "ls /proc/1/root/",
            "kill -STOP 1 && grep -q 'State:.T' /proc/1/status",
        ] {
            let (ended, output) = client.shell(refused).await.expect("it starts");
            assert_ne!(ended.code, Some(0), "{refused}: {output}");
        }
        // The socket can be connected to, and the guest hangs up on whoever is inside.
        let connect = "use IO::Socket::UNIX; my $s = IO::Socket::UNIX->new('/.glovebox/channel/guest') or die; \
                       print sysread($s, my $b, 9) ? 'spoke' : 'hung up';";
        assert_eq!(client.run(&["perl", "-e", connect], None).await.expect("it starts").1, "hung up");
    });
}

#[test]
fn a_living_guest_outlives_its_connections_and_ends_when_nobody_uses_it() {
    let mut container = Container::start(&Plan { living: true, writes_to_host: true, idle_ms: Some(700), ..plan() });
    let mut first = container.accept();
    ready(&mut first);
    assert_eq!(first.read(&mut [0]).expect("the guest hangs up when it has reported"), 0);
    for _ in 0..2 {
        talk(container.connect(), |client| async move {
            let output = client.output_of("echo x >> /tmp/lines; wc -l < /tmp/lines; chmod 4755 /tmp/lines").await;
            assert!(output.contains("Operation not permitted"), "{output}");
        });
    }
    let start = Instant::now();
    talk(container.connect(), |client| async move {
        // What goes on behind a run is use.
        client.shell("sleep 1.5 > /dev/null 2>&1 &").await.expect("it starts");
    });
    assert_eq!(container.end().code(), Some(ENDED_IDLE.into()));
    assert!(start.elapsed() >= Duration::from_millis(1500 + 700), "it ended after {:?}", start.elapsed());
}

#[test]
fn an_interpreter_that_only_waits_keeps_no_sandbox_alive() {
    let mut container = Container::start(&Plan { living: true, idle_ms: Some(500), ..plan() });
    ready(&mut container.accept());
    talk(container.connect(), |client| async move {
        let interpreter = "read opening <&3; while read code token <&3; do echo $code; echo done 0 $token >&3; done";
        let session = SessionRun {
            name: "main".to_owned(),
            language: "sh".to_owned(),
            key: "two".to_owned(),
            opening: Bytes::from_static(b"begin\n"),
            input: Bytes::from_static(b"hello t1\n"),
            token: "t1".to_owned(),
        };
        let argv = ["sh", "-c", interpreter].map(str::to_owned).to_vec();
        let run = StartRun { argv, session: Some(session), ..StartRun::default() };
        assert_eq!(client.start(run).await.expect("it starts").1, "hello\n");
        assert_eq!(client.output_of("pgrep -fc 'read opening'").await.trim(), "2", "it and the shell that asks");
    });
    assert_eq!(container.end().code(), Some(ENDED_IDLE.into()));
}

#[test]
fn a_living_guest_ends_when_its_time_has_come_whoever_uses_it() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_millis() as i64;
    let mut container = Container::start(&Plan { living: true, expires_ms: Some(now + 1500), ..plan() });
    ready(&mut container.accept());
    let open = container.connect();
    assert_eq!(container.end().code(), Some(ENDED_OLD.into()));
    let later = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_millis() as i64;
    assert!(later >= now + 1500, "it ended {} ms too early", now + 1500 - later);
    drop(open);
}

#[test]
fn a_plan_that_cannot_be_read_is_told_to_the_host() {
    let mut container = Container::start_with("{}", "masked");
    assert_failed(report(&mut container.accept()), "read the plan");
    assert_eq!(container.end().code(), Some(1));
}

#[test]
fn a_folder_that_is_reached_through_a_link_is_given_to_nobody() {
    let plan = serde_json::to_string(&plan()).expect("a plan is JSON");
    let mut container = Container::start_with(&plan, "linked");
    assert_failed(report(&mut container.accept()), "make the folders");
    let channel = std::fs::metadata(container.folder.path().join("channel")).expect("the folder is there");
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&channel), 0);
    assert_eq!(container.end().code(), Some(1));
}

#[test]
fn a_volume_of_the_image_where_commands_write_is_refused_unless_it_is_covered() {
    let plan = serde_json::to_string(&plan()).expect("a plan is JSON");
    let own = "have nothing but what is the sandbox's own mounted where it writes: there is a volume of the image's at";
    for (special, place) in [("volume", "/workspace/v"), ("twice", "/home/user")] {
        let mut container = Container::start_with(&plan, special);
        assert_failed(report(&mut container.accept()), &format!("{own} {place:?}"));
        assert_eq!(container.end().code(), Some(1));
    }
    let mut container = Container::start_with(&plan, "covered");
    let mut channel = container.accept();
    ready(&mut channel);
    talk(channel, |client| async move {
        assert_eq!(client.output_of("touch /workspace/v/x || echo refused").await.lines().last(), Some("refused"));
    });
}

#[test]
fn a_channel_that_a_link_of_the_image_led_elsewhere_is_refused() {
    for living in [false, true] {
        let plan = serde_json::to_string(&Plan { uid: 0, gid: 0, living, ..plan() }).expect("a plan is JSON");
        let mut container = Container::start_with(&plan, "led");
        assert_failed(report(&mut container.accept()), "find /.glovebox without a link of the image's in its place");
        assert_eq!(container.end().code(), Some(1));
    }
}

#[test]
fn without_landlock_root_inside_has_no_sandbox_that_stays() {
    let living = Plan { uid: 0, gid: 0, living: true, ..plan() };
    let start = |plan: &Plan| Container::start_with(&serde_json::to_string(plan).expect("a plan is JSON"), "old");
    let refused = "keep commands from the guest's socket, which needs Landlock";
    assert_failed(report(&mut start(&living).accept()), refused);
    for plan in [Plan { living: false, ..living.clone() }, Plan { uid: 1000, gid: 1000, ..living }] {
        assert!(!ready(&mut start(&plan).accept()).landlock);
    }
}

#[test]
fn the_channel_of_an_ordinary_user_is_reached_and_stays_theirs() {
    let living = Plan { living: true, ..plan() };
    let start = |owner, plan: &Plan, masks| {
        Container::start_for(owner, &serde_json::to_string(plan).expect("a plan is JSON"), masks)
    };
    let mut container = start(1234, &living, "masked");
    assert!(ready(&mut container.accept()).landlock);
    let socket = std::fs::symlink_metadata(container.folder.path().join("channel/guest")).expect("the guest listens");
    assert_eq!((socket.uid(), socket.gid(), socket.mode() & 0o777), (1234, 1234, 0o600));
    // Who has the id of the commands is told from them by Landlock alone.
    let refused = "keep commands from the guest's socket, which needs Landlock";
    assert_failed(report(&mut start(living.uid, &living, "old").accept()), refused);
    assert!(!ready(&mut start(1234, &living, "old").accept()).landlock);
}

fn assert_failed(report: Report, wanted: &str) {
    match report {
        Report::Failed { step, errno } => assert!(step == wanted && errno != 0, "{step} {errno}"),
        ready => panic!("{ready:?}"),
    }
}
