//! `glovebox top`: a full-screen view of all living sandboxes.

use std::time::Duration;

use glovebox_core::{Error, ErrorCode, Result, parse_duration};
use glovebox_ledger::Ledger;
use glovebox_native::NativeBackend;

use super::{attach, data_dir, living::making_engine};
use crate::{
    args::{Globals, TopArgs},
    flags::Flags,
    report, terminal, top,
};

/// To look more often costs more than it shows.
const SHORTEST: Duration = Duration::from_millis(100);
/// To look less often is not live.
const LONGEST: Duration = Duration::from_secs(3600);

pub(crate) fn execute(
    globals: &Globals,
    args: &TopArgs,
    flags: &Flags,
    backend: Option<Result<NativeBackend>>,
) -> Result<u8> {
    let interval = flags.check("interval", &args.interval, parse_interval)?;
    if globals.json || !terminal::is_here() || !terminal::can_be_drawn_on() {
        return Err(Error::new(ErrorCode::Usage, "top needs a terminal to draw on")
            .hint("for programs: glovebox list --json, and glovebox usage --follow --json ID"));
    }
    let engine = making_engine(globals, flags, backend)?;
    attach::follow_left_behind(globals);
    top::show(engine, Ledger::below(data_dir(globals)), interval)
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)?;
    if (SHORTEST..=LONGEST).contains(&interval) {
        return Ok(interval);
    }
    Err(format!("expected {} to {}", report::duration(SHORTEST), report::duration(LONGEST)))
}
