//! The Docker backend against `docker` itself: the same engine, the same image, the same programs.

use std::{
    process::{Child, Command as Process, Stdio},
    sync::Arc,
};

use anyhow::{Result, ensure};
use glovebox_core::{Command, ImageReference};
use glovebox_docker::{DockerBackend, Settings};
use glovebox_engine::{Engine, NewSandbox, RunRequest, Sandbox};
use tokio::task::{JoinSet, LocalSet};

use crate::{
    Bench,
    peers::{self, Container},
    report::{Goal, Report},
    samples::{Contestant, Samples, take_turns},
    succeeded, true_request,
};

/// Sandboxes that are made at one time.
const AT_ONCE: usize = 20;

/// What is long is measured so many times less often.
const SELDOM: usize = 5;

const BYTES: u64 = 1 << 30;

pub(super) fn measure(bench: &Bench, report: &mut Report) -> Result<()> {
    // What the caller has is left alone.
    let folder = tempfile::tempdir()?;
    let peers = &bench.flags.peers;
    let settings = Settings {
        host: Some(peers.docker_host.clone()),
        image: Some(ImageReference::parse(&peers.docker_image).map_err(anyhow::Error::msg)?),
        runtime: None,
        runtime_folder: folder.path().join("run"),
        data_folder: folder.path().join("data"),
        progress: None,
    };
    let engine = Engine::new(Arc::new(DockerBackend::new(settings)?)).with_data_dir(folder.path().join("data"));
    cold(bench, &engine, report)?;
    command_line(bench, folder.path(), report)?;
    living(bench, &engine, report)?;
    output(bench, &engine, report)?;
    at_once(bench, &engine, report)
}

fn cold(bench: &Bench, engine: &Engine, report: &mut Report) -> Result<()> {
    let peers = &bench.flags.peers;
    let contestants = vec![
        Contestant::new("glovebox, backend docker", || {
            succeeded(&bench.runtime.block_on(engine.run(true_request()?))?)
        }),
        Contestant::new("docker run --rm --network none", || peers.docker()),
    ];
    let samples = take_turns(bench.flags.count, contestants)?;
    let goal = ("≤ 1.0 × `docker run --rm` of the same image", Goal::AtMost(1.0));
    let [ours, docker] = [0, 1].map(|at| samples[at].median());
    report.compare("Docker, library: create + first run + removal", goal, ours, ("docker run", docker));
    report.samples("docker, cold", samples);
    Ok(())
}

fn command_line(bench: &Bench, folder: &std::path::Path, report: &mut Report) -> Result<()> {
    let (peers, glovebox) = (&bench.flags.peers, bench.flags.glovebox.to_string_lossy());
    let (data, image) = (folder.join("data"), &peers.docker_image);
    let run = format!(
        "DOCKER_HOST={} \"$0\" --backend docker --data-dir {} run --image {image} -- /bin/true",
        peers.docker_host,
        data.display()
    );
    let contestants = vec![
        Contestant::new("sh -c 'glovebox run --backend docker'", || peers::shell(&run, &glovebox)),
        Contestant::new("docker run --rm --network none", || peers.docker()),
    ];
    let samples = take_turns(bench.flags.count, contestants)?;
    let goal = ("≤ 1.0 × `docker run --rm` of the same image", Goal::AtMost(1.0));
    let [ours, docker] = [0, 1].map(|at| samples[at].median());
    report.compare("Docker, CLI: `glovebox run -- /bin/true` from the shell", goal, ours, ("docker run", docker));
    report.samples("docker, CLI", samples);
    Ok(())
}

fn living(bench: &Bench, engine: &Engine, report: &mut Report) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let native = bench.engine.clone().with_data_dir(folder.path());
    // First the container, of which nothing is left whatever fails; sandboxes stay until they are destroyed.
    let container = bench.flags.peers.container()?;
    let ours = bench.runtime.block_on(engine.create_living(NewSandbox::default()))?;
    let native = bench.runtime.block_on(native.create_living(NewSandbox::default()));
    let measured = native.map_err(anyhow::Error::from).and_then(|native| {
        let measured = compare_living(bench, (&ours, &native), &container);
        bench.runtime.block_on(native.destroy())?;
        measured
    });
    bench.runtime.block_on(ours.destroy())?;
    let (beside_native, beside_docker) = measured?;
    let measure = "Docker: run in a container that stays, library";
    let goal = ("≥ 40 × faster than `docker exec`", Goal::AtLeast(40.0));
    report.compare(measure, goal, beside_docker[0].median(), ("docker exec", beside_docker[1].median()));
    let goal = ("≤ 2 × a run in a native sandbox that stays", Goal::AtMost(2.0));
    report.compare(measure, goal, beside_native[0].median(), ("native", beside_native[1].median()));
    report.samples("docker, living, beside native", beside_native);
    report.samples("docker, living, beside docker exec", beside_docker);
    Ok(())
}

/// One peer at a time: what a daemon still has to do after `docker exec` would be in the time of whoever comes next.
fn compare_living(
    bench: &Bench,
    (ours, native): (&Sandbox, &Sandbox),
    container: &Container<'_>,
) -> Result<(Vec<Samples>, Vec<Samples>)> {
    let run = |sandbox: &Sandbox| succeeded(&bench.runtime.block_on(sandbox.run(true_request()?))?);
    let docker = || Contestant::new("glovebox, backend docker", || run(ours));
    let count = bench.flags.count;
    let beside_native = take_turns(count, vec![docker(), Contestant::new("glovebox, backend native", || run(native))])?;
    let beside_docker = take_turns(count, vec![docker(), Contestant::new("docker exec", || container.exec())])?;
    Ok((beside_native, beside_docker))
}

fn output(bench: &Bench, engine: &Engine, report: &mut Report) -> Result<()> {
    let argv = ["head", "-c", &BYTES.to_string(), "/dev/zero"];
    let contestants = vec![
        Contestant::new("glovebox, backend docker", || {
            let result = bench.runtime.block_on(engine.run(RunRequest::new(Command::argv(argv)?)))?;
            succeeded(&result)?;
            ensure!(result.stdout.bytes == BYTES, "{} bytes arrived", result.stdout.bytes);
            Ok(())
        }),
        Contestant::new("docker run --rm --network none, through a pipe", || {
            peers::read_output(bench.flags.peers.docker_run().args(argv), BYTES)
        }),
    ];
    let samples = take_turns((bench.flags.count / SELDOM).max(1), contestants)?;
    let goal = ("≥ 3 × faster than `docker run` through a pipe", Goal::AtLeast(3.0));
    let [ours, docker] = [0, 1].map(|at| samples[at].median());
    report.compare("Docker: a new sandbox that gives 1 GiB of output", goal, ours, ("docker run", docker));
    report.samples("docker, output", samples);
    Ok(())
}

fn at_once(bench: &Bench, engine: &Engine, report: &mut Report) -> Result<()> {
    let contestants = vec![
        Contestant::new("glovebox, backend docker", || {
            LocalSet::new().block_on(&bench.runtime, sandboxes_at_once(engine))
        }),
        Contestant::new("docker run --rm --network none", || containers_at_once(bench)),
    ];
    let samples = take_turns((bench.flags.count / SELDOM).max(1), contestants)?;
    let goal = ("≤ 1.0 × `docker run --rm` of 20 at once", Goal::AtMost(1.0));
    let [ours, docker] = [0, 1].map(|at| samples[at].median());
    report.compare("Docker: 20 sandboxes at once, each with a first run", goal, ours, ("docker run", docker));
    report.samples("docker, 20 at once", samples);
    Ok(())
}

async fn sandboxes_at_once(engine: &Engine) -> Result<()> {
    let mut runs = JoinSet::new();
    for _ in 0..AT_ONCE {
        let engine = engine.clone();
        runs.spawn_local(async move { succeeded(&engine.run(true_request()?).await?) });
    }
    while let Some(run) = runs.join_next().await {
        run??;
    }
    Ok(())
}

fn containers_at_once(bench: &Bench) -> Result<()> {
    let start = || -> Result<Child> {
        let mut docker: Process = bench.flags.peers.docker_run();
        Ok(docker.arg("/bin/true").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
    };
    let mut children = (0..AT_ONCE).map(|_| start()).collect::<Result<Vec<Child>>>()?;
    for child in &mut children {
        let status = child.wait()?;
        ensure!(status.success(), "docker run ended with {status}");
    }
    Ok(())
}
