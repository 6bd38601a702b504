//! The zygote's own set-up. Whatever it puts on itself, every command inherits.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd, RawFd},
};

use glovebox_proto::container::{Door, FOLDER, LONGEST_REPORT, Plan, Ready, Report};
use rustix::{
    fs::{FileType, Mode, OFlags},
    net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair},
    process::Resource,
    thread::CapabilitySet,
};

use super::{door, init::report_of};
use crate::{
    own::{self, Failed, FileRules, Restricted, USUAL_UMASK, bound_to, step},
    seccomp,
    sys::{self, Descent},
    zygote::{Identity, serve_by},
};

/// How much sooner than the guest commands are chosen when memory is short, in thousandths of what there is.
const SOONER: &str = "500";

/// Files of /proc that tell of the host, and one that changes it.
const TELLING: [&str; 3] = ["/proc/kcore", "/proc/keys", "/proc/timer_list"];
const CHANGING: &str = "/proc/sysrq-trigger";

/// The guest's handle on the zygote.
pub(super) struct Zygote {
    pub(super) pid: i32,
    pub(super) socket: OwnedFd,
}

/// Forks the zygote. The guest has one thread, and its bounding set is empty.
pub(super) fn start(plan: &Plan, filter: &[libc::sock_filter]) -> io::Result<Zygote> {
    let (guest, zygote) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    match sys::fork()? {
        None => {
            drop(guest);
            let descent = sys::descent().unwrap_or(Descent::Sibling);
            let report = set_up(zygote.as_raw_fd(), plan, filter)
                .map_or_else(|failed| report_of(failed.step, &failed.error), Report::Ready);
            let said = serde_json::to_vec(&report)
                .map_err(io::Error::from)
                .and_then(|text| Ok(send(&zygote, &text, SendFlags::NOSIGNAL)?));
            if said.is_ok() && matches!(report, Report::Ready(_)) {
                let identity = Identity { uid: plan.uid, gid: plan.gid, has_groups: true, alone: true };
                serve_by(zygote, identity, descent);
            }
            sys::exit_now(1)
        }
        Some(pid) => Ok(Zygote { pid: pid.as_raw_nonzero().get(), socket: guest }),
    }
}

impl Zygote {
    /// Waits for what the zygote has to say of its set-up.
    pub(super) fn hear(&self) -> io::Result<Report> {
        let mut text = vec![0; LONGEST_REPORT];
        let length = loop {
            match recv(&self.socket, &mut text[..], RecvFlags::empty()) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other?.0,
            }
        };
        match length {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            length => Ok(serde_json::from_slice(&text[..length])?),
        }
    }
}

fn set_up(socket: RawFd, plan: &Plan, filter: &[libc::sock_filter]) -> Result<Ready, Failed> {
    sys::set_name("glovebox-zygote");
    // The guest's connections end when it closes them. Their owners here are in frames that this process never returns to.
    step("close the guest's descriptors", sys::close_all_but(&[socket]))?;
    // Commands die before the guest, which can tell of it then.
    step("let commands die first", std::fs::write("/proc/self/oom_score_adj", SOONER))?;
    // What a container refuses here, commands could not do either: the filter knows no keys.
    let keyring = sys::new_session_keyring().is_ok();
    step("set resource limits", set_limits(plan))?;
    // What a kernel such as gVisor's does not know as a limit cannot be had without it either; the host is told.
    let rlimits = own::bound().is_ok();
    rustix::process::umask(USUAL_UMASK);
    let namespaces = own::namespaces().into_iter();
    let namespaces = namespaces.map(|(name, link)| (name.to_owned(), link.to_string_lossy().into_owned())).collect();
    let masked_proc = is_proc_masked();
    let rules = FileRules {
        written: plan.written.iter().map(String::as_str).collect(),
        hidden: Some(FOLDER.trim_start_matches('/')),
        own_sockets: plan.network || matches!(plan.door, Door::Bridge { .. }),
    }
    .restrict();
    let rules = step("restrict where can be written", rules)?;
    if rules == Restricted::Not
        && plan.door == Door::Folder
        && !step("look at the door", door::is_closed_to_commands(plan))?
    {
        // Nothing else would keep them from the guest's socket, nor from filling a folder of the host's.
        let error = rustix::io::Errno::NOSYS.into();
        return Err(Failed { step: "keep commands from the guest's socket, which needs Landlock", error });
    }
    own::drop_capabilities(CapabilitySet::SETUID | CapabilitySet::SETGID)?;
    let no_new_privs = rustix::thread::no_new_privs().unwrap_or_default();
    if plan.writes_to_host {
        step("install the filter of modes", sys::install_filter(&seccomp::compile_no_setid()))?;
    }
    step("install the filter", sys::install_filter(filter))?;
    let status = step("look at the zygote", sys::read_small("/proc/self/status"))?;
    let field = |name: &str| sys::status_field(&status, name).unwrap_or_default();
    Ok(Ready {
        version: glovebox_proto::VERSION,
        namespaces,
        keyring,
        landlock: rules == Restricted::All,
        rlimits,
        no_capabilities: !field("CapBnd").is_empty() && field("CapBnd").bytes().all(|digit| digit == b'0'),
        no_new_privs,
        seccomp: field("Seccomp") == "2",
        masked_proc,
        inodes: rustix::fs::statvfs("/workspace").map_or(0, |found| found.f_files),
        environment: Vec::new(),
    })
}

/// Limits of each process. The hard ones cannot be raised again inside.
fn set_limits(plan: &Plan) -> io::Result<()> {
    bound_to(Resource::Nofile, plan.open_files)?;
    bound_to(Resource::Core, 0)?;
    if let Some(most) = plan.largest_file {
        bound_to(Resource::Fsize, most)?;
    }
    Ok(())
}

/// Whether nothing can be read of what tells of the host, nor written to what changes it.
fn is_proc_masked() -> bool {
    TELLING.iter().all(|path| is_out_of_reach(path, OFlags::RDONLY)) && is_out_of_reach(CHANGING, OFlags::WRONLY)
}

/// Whether a file cannot be opened, is not there, or is a device in its place.
fn is_out_of_reach(path: &str, how: OFlags) -> bool {
    match rustix::fs::open(path, how | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => rustix::fs::fstat(&file)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice),
        Err(_) => true,
    }
}
