//! `glovebox prove`: which guarantees hold on this very host.

use std::{ffi::OsString, os::unix::process::CommandExt, process::Command, sync::Arc};

use glovebox_core::{Backend, Error, ErrorCode, Image, Result, SandboxId, SandboxSpec, Tier};
use glovebox_engine::Engine;
use glovebox_native::NativeBackend;

use super::{data_dir, runtime};
use crate::{
    args::{Globals, ProveArgs},
    backends::{self, Kind},
    check,
    flags::Flags,
    prove::{self, Canaries, Ground, Tried},
};

/// The hidden verb by which this program is the probe. It never comes as far as the command line.
pub(crate) const PROBE: &str = "__probe";

pub(crate) fn execute(globals: &Globals, args: &ProveArgs, flags: &Flags) -> Result<u8> {
    let kind = backends::kind(globals, flags)?;
    let isolation = flags.check("isolation", &args.isolation, Tier::parse)?;
    let image = flags.check("image", &args.image, Image::parse)?;
    let mut spec = SandboxSpec { isolation, image, runtime: args.runtime.clone(), ..SandboxSpec::default() };
    backends::choose_image(&mut spec, flags, kind, None)?;
    let Some(token) = std::env::var(prove::VARIABLE).ok().filter(|token| is_token(token)) else {
        return Err(again_with_a_canary());
    };
    let mut canaries = Canaries::plant(token, &data_dir(globals))?;
    let (backend, guest) = backend(globals, kind, &spec)?;
    let checks = runtime()?.block_on(async {
        let features = backend.probe().await?;
        let ground = match (kind, features.host_kernel) {
            (Kind::Native, _) => Ground::Native,
            (Kind::Docker, true) => Ground::Docker,
            (Kind::Docker, false) => Ground::OwnKernel,
        };
        let engine = Engine::new(backend).with_data_dir(canaries.workspace().with_file_name("data"));
        prove::all(&Tried { engine, guest, spec, ground, one_store: features.one_store }, &mut canaries).await
    })?;
    check::print(&checks, None, &prove::summary(&checks, &globals.backend), globals.json)
}

/// The backend, and the one who knows its guests.
fn backend(globals: &Globals, kind: Kind, spec: &SandboxSpec) -> Result<(Arc<dyn Backend>, prove::Guests)> {
    Ok(match kind {
        Kind::Native => {
            let backend = Arc::new(NativeBackend::start()?);
            (backend.clone(), Box::new(move |id: SandboxId| backend.guest_pid(id)))
        }
        Kind::Docker => {
            let backend = Arc::new(backends::docker_with_runtime(&data_dir(globals), spec.runtime.clone())?);
            (backend.clone(), Box::new(move |id: SandboxId| backend.guest_pid(id)))
        }
    })
}

fn is_token(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Starts this program again with a word in its environment that must not be seen inside. Everything that is forked later
/// inherits it, as it would inherit the secrets that people have there. Returns only when it fails.
fn again_with_a_canary() -> Error {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return no_program(error),
    };
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    no_program(Command::new(program).args(args).env(prove::VARIABLE, prove::new_token()).exec())
}

/// This program cannot be found or started again.
pub(crate) fn no_program(error: std::io::Error) -> Error {
    Error::new(ErrorCode::HostIo, "glovebox cannot read its own program file").because(error)
}
