//! `glovebox usage`: what a sandbox uses.

use std::{
    io::{self, Write},
    ops::ControlFlow,
    time::Duration,
};

use glovebox_core::{Error, ErrorCode, Result, UsageNow};

use super::{living, runtime};
use crate::{
    args::{Globals, UsageArgs},
    flags::Flags,
    report,
    table::table,
    terminal,
};

/// How often it is looked at.
const INTERVAL: Duration = Duration::from_secs(1);

const HEADING: [&str; 7] = ["CPU", "MEMORY", "PEAK", "PROCESSES", "READ", "WRITTEN", "DISK"];

pub(crate) fn execute(globals: &Globals, args: &UsageArgs, flags: &Flags) -> Result<u8> {
    let engine = living::engine(globals, flags)?;
    runtime()?.block_on(async {
        let first = engine.usage(&args.id).await?;
        if show(globals, &first, true)?.is_break() || !args.follow {
            return Ok(0);
        }
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            match engine.usage(&args.id).await {
                Ok(usage) if show(globals, &usage, false)?.is_break() => return Ok(0),
                Ok(_) => {}
                // It was stopped, or it ended.
                Err(error)
                    if [ErrorCode::WrongState, ErrorCode::SandboxNotFound, ErrorCode::SandboxLost]
                        .contains(&error.code) =>
                {
                    return Ok(0);
                }
                Err(error) => return Err(error),
            }
        }
    })
}

/// Prints a line, below a heading where that is for people. Breaks when nobody reads any more.
fn show(globals: &Globals, usage: &UsageNow, first: bool) -> Result<ControlFlow<()>> {
    let text = if globals.json {
        serde_json::to_string(usage).map(|text| text + "\n").map_err(io::Error::other)
    } else {
        let text = table(HEADING, &[row(usage)], terminal::output_columns());
        Ok(if first { text } else { text.split_once('\n').map_or_else(String::new, |(_, line)| line.to_owned()) })
    };
    let mut out = io::stdout().lock();
    match text.and_then(|text| out.write_all(text.as_bytes()).and_then(|()| out.flush())) {
        Ok(()) => Ok(ControlFlow::Continue(())),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
        Err(error) => Err(Error::new(ErrorCode::HostIo, "the output cannot be written").because(error)),
    }
}

/// The cells of a line, each as wide as it can become, so that lines stand below each other.
fn row(usage: &UsageNow) -> [String; 7] {
    let size = |bytes: u64| format!("{:10}", report::size(bytes));
    [
        format!("{:8}", format!("{:.2} s", usage.cpu_ms / 1000.0)),
        size(usage.memory_bytes),
        size(usage.memory_peak_bytes),
        usage.processes.to_string(),
        size(usage.read_bytes),
        size(usage.written_bytes),
        usage.disk_bytes.map_or_else(|| "unknown".to_owned(), report::size),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_nobody_could_look_at_is_unknown() {
        let usage = UsageNow {
            cpu_ms: 1500.0,
            memory_bytes: 0,
            memory_peak_bytes: 0,
            processes: 0,
            read_bytes: 0,
            written_bytes: 0,
            disk_bytes: None,
        };
        assert_eq!(row(&usage)[6], "unknown");
        assert_eq!(row(&UsageNow { disk_bytes: Some(0), ..usage })[6], report::size(0));
    }
}
