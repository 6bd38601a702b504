//! The first process of a container, from its first instruction to the moment it serves.

use std::{io, process::ExitCode};

use glovebox_proto::container::{PLAN, Plan, Ready, Report};
use rustix::{
    fs::Mode,
    process::{Resource, Rlimit, getrlimit, setrlimit, umask},
    thread::CapabilitySet,
};
use zeroize::Zeroizing;

use super::{door, door::Door, fail, folders, life, mounted, zygote};
use crate::{
    Ground, Server,
    own::{self, Failed, bound_to, step},
    seccomp,
    server::Guest,
    sys,
};

/// So much is told of the path of a mount that does not belong there.
const LONGEST_NAME: usize = 200;

/// The guest's life.
pub(super) fn init() -> ExitCode {
    if std::process::id() != 1 || !rustix::process::geteuid().is_root() {
        return fail(&io::Error::other("init is the first process of a container and its root, and this is not"));
    }
    match live() {
        // Nothing of the container is left when its first process ends.
        Ok(code) => ExitCode::from(code),
        Err(Refusal { step, error }) => fail(&io::Error::other(format!("{step}: {error}"))),
    }
}

/// Why there is no sandbox: a step of the guest's, or of the zygote's.
struct Refusal {
    step: String,
    error: io::Error,
}

impl From<Failed> for Refusal {
    fn from(failed: Failed) -> Self {
        Refusal { step: failed.step.to_owned(), error: failed.error }
    }
}

impl Refusal {
    /// As the host is told of it.
    fn report(&self) -> Report {
        report_of(&self.step, &self.error)
    }
}

fn live() -> Result<u8, Refusal> {
    let (plan, environment) = match read_orders().and_then(in_own_places) {
        Ok(orders) => orders,
        Err(failed) => {
            let _ = door::refuse_without_door(&failed.report());
            return Err(failed);
        }
    };
    let mut door = step("open the door", open_door(&plan))?;
    let (server, zygote, ready) = match set_up(&plan, &mut door) {
        Ok(made) => made,
        Err(failed) => {
            let _ = door.refuse(&failed.report());
            return Err(failed);
        }
    };
    let ground = Ground { environment: environment.clone(), unknown_peers: plan.own_kernel, ..Ground::default() };
    let report = Report::Ready(Ready { environment, ..ready });
    Ok(step("serve the host", server.see_through(serve(&plan, door, (zygote, ground), &report)))?)
}

/// What the container's description says: the plan, and all other variables. Nothing of it stays where others could read it.
fn read_orders() -> Result<(Plan, Vec<(String, String)>), Refusal> {
    let text = Zeroizing::new(std::env::var(PLAN).unwrap_or_default());
    // Two that no image says but its engine, of the container and not of the sandbox.
    let not_of_image = [PLAN, "HOSTNAME", "HOME"];
    let known = std::env::vars_os().filter(|(name, _)| !not_of_image.iter().any(|other| name == other));
    // Podman says so in each of its own.
    let known = known.filter(|(name, value)| name != "container" || value != "podman");
    // What is no text cannot be said; no program of an image's maker relies on it.
    let environment = known.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let environment = environment.collect();
    step("wipe the environment", sys::clean_slate("glovebox-guest"))?;
    let plan = step("read the plan", serde_json::from_str(&text))?;
    Ok((plan, environment))
}

/// Goes on with these orders only where the guest and the door are what they seem to be.
fn in_own_places(orders: (Plan, Vec<(String, String)>)) -> Result<(Plan, Vec<(String, String)>), Refusal> {
    step("find /.glovebox without a link of the image's in its place", mounted::own_places(&orders.0))?;
    Ok(orders)
}

fn open_door(plan: &Plan) -> io::Result<Door> {
    sys::close_all_but(&[])?;
    // Files are made with exactly the modes that are asked for.
    umask(Mode::empty());
    Door::open(plan)
}

/// Makes the sandbox, and gives up what that took.
fn set_up(plan: &Plan, door: &mut Door) -> Result<(Server, zygote::Zygote, Ready), Refusal> {
    if plan.own_kernel && !step("look at the door", door::is_closed_to_commands(plan))? {
        // Nothing else would keep these commands from the guest's socket.
        return Err(Refusal {
            step: "tell commands from the host".to_owned(),
            error: io::ErrorKind::Unsupported.into(),
        });
    }
    if let Some(place) = step("look at the mounts", mounted::stranger(plan))? {
        let place: String = place.to_string_lossy().chars().take(LONGEST_NAME).collect();
        let step = format!(
            "have nothing but what is the sandbox's own mounted where it writes: there is a volume of the image's at {place:?}"
        );
        return Err(Refusal { step, error: rustix::io::Errno::PERM.into() });
    }
    step("make the folders", folders::make(plan))?;
    if plan.awaits_mounts {
        step("wait for the mounts", door.await_mounts())?;
    }
    // The image may have root in groups that commands are not in.
    step("leave groups", sys::give_up_groups())?;
    step("empty the bounding set", own::empty_bounding_set())?;
    step("have descriptors for runs", take_descriptors())?;
    let filter = seccomp::compile();
    let zygote = step("start the zygote", zygote::start(plan, &filter))?;
    // Where the container has its keyring from its maker, it keeps that one.
    let _ = sys::new_session_keyring();
    let server = step("make the server", Server::new())?;
    step("limit the guest's processes", bound_to(Resource::Nproc, 0))?;
    // Its file accesses become those of the commands, so that it can never be talked into opening what they could not.
    step("take the commands' id for files", sys::set_file_ids(plan.uid, plan.gid))?;
    own::drop_capabilities(CapabilitySet::KILL)?;
    step("install the filter", sys::install_filter(&filter))?;
    match step("hear from the zygote", zygote.hear())? {
        Report::Ready(ready) => Ok((server, zygote, ready)),
        Report::Waiting { .. } => {
            Err(Refusal { step: "hear from the zygote".to_owned(), error: io::ErrorKind::InvalidData.into() })
        }
        Report::Failed { step, errno } => Err(Refusal { step, error: io::Error::from_raw_os_error(errno) }),
    }
}

/// As many descriptors as a guest could ever need for its runs, or as many as there may be. The zygote has its own limit.
pub(super) fn take_descriptors() -> io::Result<()> {
    const ENOUGH: u64 = 65_536;
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(u64::MAX).min(ENOUGH).max(limit.current.unwrap_or(u64::MAX));
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum })?)
}

/// Serves until the host lets the sandbox end, or its time has come. Says with which code it ends. No signal asks it to: whoever is
/// root inside could send it as well.
async fn serve(plan: &Plan, door: Door, (zygote, ground): (zygote::Zygote, Ground), report: &Report) -> io::Result<u8> {
    let guest = Guest::new(zygote.socket, zygote.pid, plan.living, ground)?;
    tokio::select! {
        served = door.serve(guest.clone(), report) => served.map(|()| 0),
        code = life::over(&guest, plan) => Ok(code),
    }
}

/// A step that failed, as the host is told of it.
pub(super) fn report_of(step: &str, error: &io::Error) -> Report {
    Report::Failed { step: step.to_owned(), errno: error.raw_os_error().unwrap_or(libc::EIO) }
}
