//! An engine on another machine: what a network and its certificates may do to a caller.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Ground, failed, fails, on_docker, said, succeeds, until};
use crate::{
    docker::{
        daemon::{Lifetime, of_lifetime},
        images,
        registry::{Door, Registry},
        relay::{Relay, Target},
        remote::{Remote, Request, authority, sign},
    },
    suites::read,
};

/// The program for an engine at this address, with TLS by the certificates of a folder if there is one.
fn at(ground: &Ground, address: &str, certificates: Option<&PathBuf>, argv: &[&str]) -> Command {
    let mut command = ground.glovebox_at(&format!("tcp://{address}"), &on_docker(argv));
    command.env_remove("DOCKER_TLS_VERIFY").env_remove("DOCKER_CERT_PATH");
    if let Some(folder) = certificates {
        command.env("DOCKER_TLS_VERIFY", "1").env("DOCKER_CERT_PATH", folder);
    }
    command
}

/// A run that succeeds as soon as the engine is reached.
fn run(ground: &Ground, address: &str, certificates: Option<&PathBuf>) -> Command {
    at(ground, address, certificates, &["run", "--image", &images::reference("busybox"), "--", "echo", "inside"])
}

/// A folder of certificates of the caller's, as this daemon takes them.
fn copied(remote: &Remote, name: &str) -> Result<PathBuf> {
    let folder = remote.certificates.join(name);
    fs::create_dir_all(&folder)?;
    for file in ["ca.pem", "ca-key.pem", "cert.pem", "key.pem"] {
        fs::copy(remote.certificates.join(file), folder.join(file))?;
    }
    Ok(folder)
}

pub(super) fn certificates(ground: &Ground) -> Result<()> {
    let remote = Remote::of(&ground.daemon.places)?;
    let told = succeeds(run(ground, &remote.address, Some(&remote.certificates)))?;
    ensure!(told == "inside\n", "it said {told:?}");
    // The daemon at another address of this machine, which its certificate does not have.
    let other = Relay::start("127.0.0.2", Target::Port(remote.address.clone()))?;
    let words = ["its certificate is for another name"];
    fails(run(ground, &other.address, Some(&remote.certificates)), "backend_unavailable", &words)?;
    let strange = copied(&remote, "another-authority")?;
    authority(&strange)?;
    let words = ["not signed by the authority of ca.pem", "DOCKER_CERT_PATH"];
    fails(run(ground, &remote.address, Some(&strange)), "backend_unavailable", &words)?;
    // A caller whom the daemon's authority does not know.
    sign(&strange, &Request { name: "cert", of: "DNS:caller", days: "2" })?;
    fs::rename(strange.join("cert-key.pem"), strange.join("key.pem"))?;
    fs::copy(remote.certificates.join("ca.pem"), strange.join("ca.pem"))?;
    let words = ["it does not take our certificate"];
    fails(run(ground, &remote.address, Some(&strange)), "backend_unavailable", &words)?;
    for name in ["cert.pem", "key.pem"] {
        fs::remove_file(strange.join(name))?;
    }
    fails(run(ground, &remote.address, Some(&strange)), "backend_unavailable", &words)?;
    fs::remove_file(strange.join("ca.pem"))?;
    fails(run(ground, &remote.address, Some(&strange)), "backend_unavailable", &["ca.pem cannot be used for TLS"])?;
    fails(run(ground, &remote.address, None), "backend_unavailable", &["it wants TLS", "DOCKER_TLS_VERIFY=1"])
}

pub(super) fn expired(ground: &Ground) -> Result<()> {
    let remote = Remote::of(&ground.daemon.places)?;
    let folder = copied(&remote, "expired")?;
    sign(&folder, &Request { name: "old", of: "IP:127.0.0.1", days: "-1" })?;
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let mut server = of_lifetime(Lifetime::OfThisProcess)
        .args(["openssl", "s_server", "-quiet", "-accept", &address])
        .arg("-cert")
        .arg(folder.join("old.pem"))
        .arg("-key")
        .arg(folder.join("old-key.pem"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let told = until("a server with an old certificate", || Ok(TcpStream::connect(&address).is_ok()))
        .and_then(|()| fails(run(ground, &address, Some(&folder)), "backend_unavailable", &["has expired", "clock"]));
    server.kill()?;
    server.wait()?;
    told
}

pub(super) fn no_engine(ground: &Ground) -> Result<()> {
    let remote = Remote::of(&ground.daemon.places)?;
    let nobody = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    fails(run(ground, &nobody, Some(&remote.certificates)), "backend_unavailable", &["cannot be reached"])?;
    let mute = Relay::start("127.0.0.1", Target::Nobody)?;
    for certificates in [Some(&remote.certificates), None] {
        fails(run(ground, &mute.address, certificates), "backend_unavailable", &["did not answer"])?;
    }
    let mut by_ssh = ground.glovebox_at("ssh://ann@engine", &on_docker(&["run", "--image", "x", "--", "true"]));
    by_ssh.env_remove("DOCKER_TLS_VERIFY");
    let output = by_ssh.output()?;
    ensure!(output.status.code() == Some(2) && said(&output).contains("ssh -nNT"), "{}", said(&output));
    Ok(())
}

pub(super) fn without_tls(ground: &Ground) -> Result<()> {
    let socket = Target::Socket(ground.daemon.places.run.join("docker.sock"));
    let near = Relay::start("127.0.0.1", socket.clone())?;
    let quiet = run(ground, &near.address, None).output()?;
    ensure!(quiet.status.success() && !said(&quiet).contains("no_tls"), "{}", said(&quiet));
    let remote = Remote::of(&ground.daemon.places)?;
    fails(run(ground, &near.address, Some(&remote.certificates)), "backend_unavailable", &["does not speak TLS"])?;
    let far = Relay::start(&ground.daemon.places.address, socket)?;
    let warned = run(ground, &far.address, None).output()?;
    ensure!(warned.status.success() && said(&warned).contains("without TLS"), "{}", said(&warned));
    ensure!(said(&warned).contains("[no_tls]"), "{}", said(&warned));
    Ok(())
}

pub(super) fn cut(ground: &Ground) -> Result<()> {
    let remote = Remote::of(&ground.daemon.places)?;
    let relay = Relay::start("127.0.0.1", Target::Port(remote.address.clone()))?;
    let image = images::reference("busybox");
    let by = |argv: &[&str]| at(ground, &relay.address, Some(&remote.certificates), argv);
    let script = "echo started; exec sleep 1000";
    let running = super::Running::start(by(&["run", "--image", &image, "--", "sh", "-c", script]))?;
    ensure!(ground.containers()?.len() == 1, "there are {:?}", ground.containers()?);
    relay.cut();
    let (output, _) = running.finish()?;
    ensure!(output.status.code() == Some(125), "{}", said(&output));
    until("the end of the container", || Ok(ground.containers()?.is_empty()))?;
    // One that stays goes on without us.
    let id = succeeds(by(&["create", "--image", &image]))?.trim().to_owned();
    let script = "echo started; sleep 2; echo kept > file";
    let running = super::Running::start(by(&["exec", &id, "--", "sh", "-c", script]))?;
    relay.cut();
    running.finish()?;
    until("the end of the run", || {
        let found = by(&["exec", &id, "--", "cat", "file"]).output()?;
        Ok(found.stdout == b"kept\n")
    })?;
    succeeds(by(&["destroy", &id]))?;
    succeeds(by(&["gc"]))?;
    let left = [ground.containers()?, ground.volumes()?].concat();
    ensure!(left.is_empty(), "left: {left:?}");
    Ok(())
}

pub(super) fn caller_killed(ground: &Ground) -> Result<()> {
    let remote = Remote::of(&ground.daemon.places)?;
    let by = |argv: &[&str]| at(ground, &remote.address, Some(&remote.certificates), argv);
    let image = images::reference("busybox");
    // A file that is mounted is copied there, and is gone with it.
    let given = ground.folder.join("given");
    fs::write(&given, "given\n")?;
    let mount = format!("{}:/data/file:ro", given.display());
    let script = "cat /data/file; exec sleep 1000";
    let mut running = super::Running::start_with(
        by(&["run", "--image", &image, "--mount", &mount, "--", "sh", "-c", script]),
        "given\n",
    )?;
    running.child.kill()?;
    until("the end of the container", || Ok(ground.containers()?.is_empty()))?;
    succeeds(by(&["gc"]))?;
    let left = [ground.containers()?, ground.volumes()?].concat();
    ensure!(left.is_empty(), "left: {left:?}");
    // At any moment before.
    for step in 0..8 {
        let mut run = by(&["run", "--image", &image, "--mount", &mount, "--", "sleep", "1000"]).spawn()?;
        std::thread::sleep(Duration::from_millis(step * 80));
        run.kill()?;
        run.wait()?;
    }
    // A guest that nobody came to waits for a while before it ends.
    until("the end of all containers", || {
        succeeds(by(&["gc"]))?;
        Ok(ground.containers()?.is_empty() && ground.volumes()?.is_empty())
    })
}

pub(super) fn living(ground: &Ground) -> Result<()> {
    let remote = Remote::of(&ground.daemon.places)?;
    let by = |argv: &[&str]| at(ground, &remote.address, Some(&remote.certificates), argv);
    let id = succeeds(by(&["create", "--image", &images::reference("busybox")]))?.trim().to_owned();
    succeeds(by(&["exec", &id, "--", "sh", "-c", "echo kept > file"]))?;
    succeeds(by(&["stop", &id]))?;
    succeeds(by(&["start", &id]))?;
    let document: Value = serde_json::from_str(&succeeds(by(&["exec", &id, "--json", "--", "cat", "file"]))?)?;
    ensure!(document["stdout"]["text"] == "kept\n", "{document}");
    succeeds(by(&["pause", &id]))?;
    succeeds(by(&["resume", &id]))?;
    // Nobody gets in by the engine alone: the key is not there.
    let text = read(&["docker", "--host", &ground.daemon.places.host(), "inspect", &format!("glovebox-{id}")])?;
    let key = fs::read_dir(ground.folder.join("data")).ok().and_then(|_| find_key(&ground.folder.join("data")));
    let key = key.context("the key is not kept")?;
    ensure!(key.len() == 64 && !text.contains(&key), "the key is in the container's description");
    succeeds(by(&["destroy", &id]))?;
    succeeds(by(&["gc"]))?;
    let left = [ground.containers()?, ground.volumes()?].concat();
    ensure!(left.is_empty(), "left: {left:?}");
    Ok(())
}

/// The key of the one living sandbox.
fn find_key(folder: &std::path::Path) -> Option<String> {
    fs::read_dir(folder).ok()?.flatten().find_map(|entry| match entry.path() {
        path if path.is_dir() => find_key(&path),
        path if path.ends_with("docker-key") => fs::read_to_string(path).ok(),
        _ => None,
    })
}

pub(super) fn mute_registry(ground: &Ground) -> Result<()> {
    let mute = Relay::start("127.0.0.1", Target::Nobody)?;
    let image = format!("{}/nothing:1", mute.address);
    let pull = ground.docker(&["images", "pull", &image]).spawn()?;
    let run = ground.docker(&["run", "--image", &image, "--", "true"]).spawn()?;
    failed(pull, "image_unavailable", &["registry"])?;
    failed(run, "image_unavailable", &["registry"])
}

/// A registry that hangs up for a while, and gives the image then.
pub(super) fn registry_comes_back(ground: &Ground) -> Result<()> {
    /// The daemon asks with TLS first and then without, so more were asked for by another try.
    const OF_ONE_TRY: usize = 2;
    let registry = Registry::start(&ground.daemon, Door::Open)?;
    let pushed = registry.push(&ground.daemon, &images::reference("busybox"))?;
    let relay = Relay::start("127.0.0.1", Target::Port(registry.address.clone()))?;
    relay.set_closed(true);
    let image = pushed.replace(&registry.address, &relay.address);
    let pull = ground.docker(&["images", "pull", &image]).spawn()?;
    until("another try", || Ok(relay.turned_away() > OF_ONE_TRY))?;
    relay.set_closed(false);
    let output = super::ended(pull)?;
    ensure!(output.status.success(), "{}", said(&output));
    succeeds(ground.docker(&["images", "remove", &image])).map(drop)
}

/// A registry that greets, and is silent from then on.
pub(super) fn registry_falls_silent(ground: &Ground) -> Result<()> {
    use std::io::{Read, Write};
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let image = format!("{}/nothing:1", listener.local_addr()?);
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap_or(0);
            if request[..length].starts_with(b"GET /v2/ ") {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}");
            } else {
                kept.push(stream);
            }
        }
    });
    let child = ground.docker(&["images", "pull", &image]).spawn()?;
    let output = super::ended_within(child, Duration::from_secs(100))?;
    let told = said(&output);
    ensure!(output.status.code() == Some(125) && told.contains("image_unavailable"), "{told}");
    ensure!(told.contains("nothing was heard"), "{told}");
    Ok(())
}
