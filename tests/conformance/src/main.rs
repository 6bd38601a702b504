//! Runs the conformance suite, or one of the soak tests, against a backend.

use std::{
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, ExitCode},
    rc::Rc,
    time::Duration,
};

use anyhow::{Context, bail};
use clap::{Parser, Subcommand};
use glovebox_conformance::{
    APART, CALLER_MARK, DockerSubject, NativeSubject, Options, Subject, UserKind, run_actor, run_as, run_client,
    run_suite, run_without_namespaces, soak,
};
use glovebox_native::NativeBackend;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Runs the conformance suite against a backend.
#[derive(Parser)]
#[command(subcommand_precedence_over_arg = true)]
struct Args {
    /// The backend.
    #[arg(long, default_value = "native", global = true)]
    backend: String,
    /// The image of sandboxes, for backends that have no image `host`.
    #[arg(long, default_value = "glovebox-test/debian", global = true)]
    image: String,
    /// Where the suite itself asks the Docker engine what is there, when DOCKER_HOST is none of this machine's sockets.
    #[arg(long, value_name = "PATH", global = true, env = "CONFORMANCE_DOCKER_SOCKET")]
    docker_socket: Option<PathBuf>,
    /// The runtime of sandboxes, for the backend docker.
    #[arg(long, global = true)]
    runtime: Option<String>,
    /// Only cases whose group is one of these, or whose sentence holds one of them.
    filter: Vec<String>,
    /// Prints the cases and runs none.
    #[arg(long)]
    list: bool,
    /// Prints one JSON document in place of lines.
    #[arg(long)]
    json: bool,
    /// The program of glovebox-probe; by default the one beside this program.
    #[arg(long)]
    probe: Option<PathBuf>,
    /// No case takes so long; one that does hangs. An emulated machine needs more.
    #[arg(long, value_name = "SECONDS", default_value_t = 40)]
    longest: u64,
    /// Runs the suite as an ordinary user, whom it makes itself. Only root can.
    #[arg(long, value_name = "KIND")]
    as_user: Option<UserKind>,
    /// With --as-user: in control groups that belong to that user.
    #[arg(long, requires = "as_user")]
    delegate: bool,
    /// Runs the suite on a host that gives no namespaces, which it makes for itself. Only root can.
    #[arg(long)]
    without_namespaces: bool,
    /// Hides the files of sandboxes from the host, so that the guest is asked for them, as it is where no folder of the host
    /// holds them.
    #[arg(long, global = true)]
    through_guest: bool,
    #[command(subcommand)]
    soak: Option<Soak>,
}

/// Long tests, each with a one-line JSON summary, and what a case starts as another process.
#[derive(Subcommand)]
enum Soak {
    /// Many runs, one after the other.
    #[command(name = "soak-runs")]
    Runs {
        /// How many.
        #[arg(long, default_value_t = 1000)]
        count: usize,
    },
    /// Many runs, some at a time.
    #[command(name = "soak-concurrent")]
    Concurrent {
        /// How many.
        #[arg(long, default_value_t = 200)]
        count: usize,
        /// How many at a time.
        #[arg(long, default_value_t = 20)]
        at_once: usize,
    },
    /// Many sandboxes that are made to stay, used once and destroyed, some at a time.
    #[command(name = "soak-living")]
    Living {
        /// How many.
        #[arg(long, default_value_t = 10_000)]
        count: usize,
        /// How many at a time.
        #[arg(long, default_value_t = 4)]
        at_once: usize,
    },
    /// Ends the glovebox process, its launcher or both at random moments, and looks for what is left.
    #[command(name = "soak-kill")]
    Kill {
        /// How many times.
        #[arg(long, default_value_t = 100)]
        count: usize,
        /// The glovebox program.
        #[arg(long)]
        glovebox: PathBuf,
    },
    /// Runs a line of the shell in a living sandbox, and prints the run's id and its output. For cases that kill it.
    #[command(name = "client", hide = true)]
    Client {
        /// The data folder.
        #[arg(long)]
        data_dir: PathBuf,
        /// The sandbox.
        #[arg(long)]
        sandbox: String,
        /// The line.
        #[arg(long)]
        line: String,
        /// Its time.
        #[arg(long)]
        timeout_ms: u64,
    },
    /// Works with living sandboxes as it is told on its standard input. For cases that kill it.
    #[command(name = "actor", hide = true)]
    Actor {
        /// The data folder.
        #[arg(long)]
        data_dir: PathBuf,
    },
    /// Lists a folder with very many entries.
    #[command(name = "soak-folder")]
    Folder {
        /// How many.
        #[arg(long, default_value_t = 1_000_000)]
        count: u64,
    },
    /// Leads living sandboxes through random lives by two processes, against a model.
    #[command(name = "soak-states")]
    States {
        /// How long.
        #[arg(long, default_value_t = 120)]
        seconds: u64,
        /// The seed of a life that is to be lived again.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Ends the glovebox process at random moments of a short run, and looks for half a record.
    #[command(name = "soak-record")]
    Record {
        /// How many times.
        #[arg(long, default_value_t = 100)]
        count: usize,
        /// The glovebox program.
        #[arg(long)]
        glovebox: PathBuf,
    },
}

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("conformance: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whether everything held.
fn run(args: Args) -> anyhow::Result<bool> {
    if args.list {
        list();
        return Ok(true);
    }
    if args.as_user.is_some() || args.without_namespaces {
        let mut rest: Vec<std::ffi::OsString> = vec!["--backend".into(), args.backend.clone().into()];
        if args.backend == "docker" {
            rest.extend(["--image".into(), args.image.into()]);
            rest.extend(args.runtime.into_iter().flat_map(|runtime| ["--runtime".into(), runtime.into()]));
        }
        rest.extend(["--longest".into(), args.longest.to_string().into()]);
        rest.extend(args.through_guest.then(|| "--through-guest".into()));
        rest.extend(args.json.then(|| "--json".into()));
        rest.extend(args.filter.into_iter().map(Into::into));
        let probe = find_probe(args.probe)?;
        return match (args.as_user, args.without_namespaces) {
            (Some(kind), false) => run_as(kind, args.delegate, &probe, &rest),
            (kind, _) => run_without_namespaces(kind, &probe, &rest),
        };
    }
    match &args.soak {
        Some(Soak::Kill { count, glovebox }) => return soak::kill(*count, glovebox),
        Some(Soak::Record { count, glovebox }) => return soak::record(*count, glovebox),
        _ => {}
    }
    let _inheritable = become_a_leaky_caller(&args.backend)?;
    if args.soak.is_none() {
        have_few_descriptors()?;
    }
    let subject = start_backend(&args)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match args.soak {
            Some(Soak::Runs { count }) => soak::runs(subject, count).await,
            Some(Soak::Concurrent { count, at_once }) => soak::concurrent(subject, count, at_once).await,
            Some(Soak::Actor { data_dir }) => run_actor(&*subject, &data_dir).await.map(|()| true),
            Some(Soak::Folder { count }) => soak::folder(&*subject, count).await,
            Some(Soak::States { seconds, seed }) => soak::states(&*subject, Duration::from_secs(seconds), seed).await,
            Some(Soak::Living { count, at_once }) => soak::living(subject, count, at_once).await,
            Some(Soak::Client { data_dir, sandbox, line, timeout_ms }) => {
                let timeout = Duration::from_millis(timeout_ms);
                run_client(&*subject, &data_dir, &sandbox, &line, timeout).await.map(|()| true)
            }
            Some(Soak::Kill { .. } | Soak::Record { .. }) => unreachable!("handled before a backend is started"),
            None => {
                let (probe, longest) = (find_probe(args.probe)?, Duration::from_secs(args.longest));
                let options = Options { filter: args.filter, json: args.json, probe, longest };
                Ok(run_suite(subject, &options).await?.failed.is_empty())
            }
        }
    })
}

fn list() {
    for case in glovebox_conformance::all() {
        println!("{}: {}", case.group, case.name());
    }
}

/// Starts a backend by its name. Must come before any runtime: the launcher is forked from a single thread.
fn start_backend(args: &Args) -> anyhow::Result<Rc<dyn Subject>> {
    match args.backend.as_str() {
        "native" if args.through_guest => Ok(Rc::new(NativeSubject::new(NativeBackend::start()?).through_guest())),
        "native" => Ok(Rc::new(NativeSubject::new(NativeBackend::start()?))),
        "docker" => Ok(Rc::new(DockerSubject::new(&args.image, args.runtime.clone(), args.docker_socket.as_deref())?)),
        other => bail!("there is no backend {other:?} to test; known: native, docker"),
    }
}

/// Whether this host lets a program have mounts of its own.
fn has_mounts_of_its_own() -> bool {
    let tried = Command::new(APART[0]).args(["--mount", "true"]).stderr(std::process::Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

/// Gives this process what must not be seen inside: a variable in its environment, which needs a new start of this
/// program, and a descriptor that survives an exec.
fn become_a_leaky_caller(backend: &str) -> anyhow::Result<std::os::fd::OwnedFd> {
    let (name, value) = CALLER_MARK;
    if std::env::var_os(name).is_none() {
        let program = std::env::current_exe()?;
        let mut again = Command::new(&program);
        if rustix::process::geteuid().is_root() && has_mounts_of_its_own() {
            // What cases mount is seen by whom this process starts, and is gone with it. An engine has to see it too.
            let shared = [APART[0], "--mount", "--propagation", "shared", "--"];
            let words = if backend == "native" { [&APART[..], &shared].concat() } else { shared.to_vec() };
            again = Command::new(words[0]);
            again.args(&words[1..]).arg(program);
        }
        let error = again.args(std::env::args_os().skip(1)).env(name, value).exec();
        return Err(error).context("this program could not be started again");
    }
    let secret = std::fs::File::open("/proc/self/cmdline")?;
    Ok(rustix::io::dup(&secret)?)
}

/// Lets this process have no more open files than a login shell gives, as most callers do: what is behind it must not be held
/// to that.
fn have_few_descriptors() -> anyhow::Result<()> {
    const USUAL: u64 = 1024;
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = maximum.map_or(USUAL, |maximum| maximum.min(USUAL));
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum })?)
}

fn find_probe(given: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let probe = match given {
        Some(path) => path,
        None => std::env::current_exe()?.with_file_name("glovebox-probe"),
    };
    probe.canonicalize().with_context(|| {
        format!("there is no probe at {}; build it with: cargo build -p glovebox-probe", probe.display())
    })
}
