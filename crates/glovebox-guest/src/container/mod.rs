//! The guest as the first process of a container: a program of its own, which is handed its orders in a variable.
//!
//! Theory of operation. Whoever made the container has mounted all there is, and given its first process five capabilities and
//! nothing else: nothing here mounts. Folders of the host are attached by a process of the host's root (`attach`), which the guest waits for. Guest and zygote are made in the order of the native backend: what needs rights first,
//! then everything is given up, and nothing hostile runs before the last step.
//!
//! ```text
//! host                guest (PID 1)                      zygote
//!    | start            .
//!    |----------------> | read the plan, wipe it
//!    |<---- connect --- | open the door
//!    |                  | make the folders, give them away
//!    |<---- waiting --- |   where there are mounts
//!    | attach them      .
//!    |---- go on -----> |
//!    |                  | empty the bounding set
//!    |                  | fork ------------------------> .
//!    |                  | limits, ids for files          | keyring, limits, Landlock
//!    |                  | capabilities, filter           | capabilities, filters
//!    |                  |<------------ report ---------- | serve the guest
//!    |<---- report ---- | serve the host
//! ```
//!
//! What is between code inside and the guest when commands are root themselves (without capabilities): the guest is opaque, so
//! that nobody looks into it or takes its descriptors; the first process of a process namespace takes no signal from inside that it
//! did not ask for; its socket takes nobody whom its process namespace knows; and Landlock refuses every change below
//! [`FOLDER`](glovebox_proto::container::FOLDER). On a kernel without Landlock they can remove the guest's socket, and so nobody
//! reaches that sandbox any more; they still cannot speak with guest or host, as long as the host stops to listen when it
//! has heard its report.

mod attach;
mod bridge;
mod carried;
mod door;
mod folders;
mod init;
mod life;
mod mounted;
mod zygote;

use std::process::ExitCode;

pub use carried::Carried;

/// How the program is used.
const USAGE: &str = "usage: glovebox-guest init | bridge | attach | --version";

/// The program `glovebox-guest`.
pub fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (mode, more) = (arguments.next().unwrap_or_default(), arguments.next());
    match (mode.to_str(), more) {
        (Some("init"), None) => init::init(),
        (Some("bridge"), None) => match bridge::bridge() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error),
        },
        (Some("attach"), None) => attach::attach_all(),
        (Some("--version"), None) => {
            println!("glovebox-guest {} (protocol {})", env!("CARGO_PKG_VERSION"), glovebox_proto::VERSION);
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Says why the program ends, where the container's log shows it.
fn fail(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("glovebox-guest: {error}");
    ExitCode::FAILURE
}
