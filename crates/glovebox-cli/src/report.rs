//! Glovebox's own words: on standard error, each line with its name before it, and only when there is something to say.

use std::{
    borrow::Cow,
    fmt::Write as _,
    io::{ErrorKind, Write, stderr, stdout},
    path::Path,
    time::Duration,
};

use glovebox_core::{
    Enforcement, Error, ErrorCode, Isolation, Layer, LimitKind, LimitsInForce, Network, Outcome, Result, RunResult,
    SandboxSpec, Step, Tier, Warning, printable,
};
use serde::Serialize;

/// Says a line. Names in it may come from inside a sandbox or from somebody's folder; what would steer the terminal is
/// shown instead of sent.
pub(crate) fn say(line: &str) {
    // A standard error that cannot be written leaves nobody to tell.
    let _ = writeln!(stderr().lock(), "glovebox: {}", printable(line));
}

/// Prints what a verb was asked for on standard output.
pub(crate) fn print(text: &str) -> Result<()> {
    write_all(stdout().lock(), text.as_bytes())
}

/// Writes to the caller. A reader that went away has what it wanted.
pub(crate) fn write_all(mut to: impl Write, bytes: &[u8]) -> Result<()> {
    match to.write_all(bytes).and_then(|()| to.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Error::new(ErrorCode::HostIo, "the output cannot be written").because(error))
        }
        _ => Ok(()),
    }
}

/// Prints a text with colours on standard output, or without them where they are not wanted.
pub(crate) fn print_coloured(text: &str) -> Result<()> {
    print(&coloured(text))
}

/// A text with colours, or without them where standard output wants none.
pub(crate) fn coloured(text: &str) -> Cow<'_, str> {
    match anstream::AutoStream::choice(&stdout()) {
        anstream::ColorChoice::Never => anstream::adapter::strip_str(text).to_string().into(),
        _ => text.into(),
    }
}

/// A number of things: `1 file`, `2 files`.
pub(crate) fn counted(number: usize, thing: &str) -> String {
    match number {
        1 => format!("1 {thing}"),
        _ if thing.ends_with('x') => format!("{number} {thing}es"),
        _ => format!("{number} {thing}s"),
    }
}

/// Prints a JSON document.
pub(crate) fn document(document: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_string(document)
        .map_err(|error| Error::new(ErrorCode::Internal, "the document cannot be written as JSON").because(error))?;
    text.push('\n');
    print(&text)
}

/// An error as the contract writes it.
#[derive(Serialize)]
pub(crate) struct ErrorDocument<'a> {
    error: ErrorBody<'a>,
}

impl<'a> ErrorDocument<'a> {
    pub(crate) fn of(error: &'a Error) -> Self {
        let (message, hint) = (&error.message, error.hint.as_deref());
        ErrorDocument { error: ErrorBody { code: error.code.as_str(), message, hint } }
    }
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    code: &'a str,
    message: &'a str,
    hint: Option<&'a str>,
}

/// Reports an error in the way that the caller asked for, and returns the exit code.
pub(crate) fn error(error: &Error, as_json: bool) -> u8 {
    if as_json {
        // Nothing is left to try when standard output is gone.
        let _ = document(&ErrorDocument::of(error));
    } else {
        say(&format!("error: {} [{}]", error.message, error.code));
        if let Some(hint) = &error.hint {
            say(&format!("hint: {hint}"));
        }
    }
    error.code.exit_code()
}

/// Says what a finished run leaves to be said. Of a fresh sandbox, whose spec is given, also what it lacked; of one that stays
/// that was said when it was made.
pub(crate) fn run(result: &RunResult, fresh: Option<&SandboxSpec>, artifact_dir: &Path) {
    if result.step == Step::Compile {
        // As it came from the compiler; a standard error that cannot be written leaves nobody to tell.
        let _ = stderr().lock().write_all(&result.stderr.to_bytes());
    }
    let made = if fresh.is_some() { Made::ForIt } else { Made::Before };
    match (outcome(result, made), result.step) {
        (Some(line), Step::Run) => say(&line),
        (Some(line), Step::Compile) => say(&format!("while compiling: {line}")),
        (None, Step::Compile) if result.outcome != Outcome::Cancelled => {
            let code = result.outcome.exit_code();
            say(&format!("the program did not run: its compile step failed with exit code {code}"));
        }
        (None, _) => {}
    }
    for limit in &result.limits_hit {
        if let Some(line) = limit_hit(*limit, result, made) {
            say(&line);
        }
    }
    if let Some(spec) = fresh {
        missing(&result.isolation, spec);
        not_held(&result.limits);
    }
    for denial in &result.denials {
        say(&format!("refused ({}): {}; {}", denial.kind, denial.target, denial.hint));
    }
    if !result.artifacts.is_empty() {
        say(&format!("kept {} in {}", counted(result.artifacts.len(), "file"), artifact_dir.display()));
    }
}

/// Says how a run in a sandbox that stays ended, where that does not speak for itself.
pub(crate) fn ending(result: &RunResult) {
    if let Some(line) = outcome(result, Made::Before) {
        say(&line);
    }
}

/// The layers that are missing although nobody asked for that, in words.
pub(crate) fn missing_words(isolation: &Isolation, spec: &SandboxSpec) -> Option<String> {
    let missing = missing_layers(isolation, spec);
    (!missing.is_empty()).then(|| missing.join(", "))
}

/// Says which layers are missing although nobody asked for that.
pub(crate) fn missing(isolation: &Isolation, spec: &SandboxSpec) {
    let missing = missing_layers(isolation, spec);
    if isolation.tier == Tier::Landlock {
        say(&format!(
            "this machine gives no namespaces: the run was isolated by Landlock, seccomp and resource limits alone; missing: {}",
            missing.join(", ")
        ));
    } else if !missing.is_empty() {
        say(&format!(
            "these layers of isolation are not given here: {}; --require-layer makes that an error",
            missing.join(", ")
        ));
    }
}

/// Says which limits nothing holds here.
pub(crate) fn not_held(limits: &LimitsInForce) {
    let not_held = limits.enforcement.iter().filter(|(_, by)| **by == Enforcement::None);
    let not_held: Vec<&str> = not_held.map(|(limit, _)| limit.as_str()).collect();
    if !not_held.is_empty() {
        say(&format!("nothing holds these limits here: {}", not_held.join(", ")));
    }
}

/// Says what Glovebox could not do for a run. The result document says it too, but the run's caller may not look there.
pub(crate) fn warnings(result: &RunResult) {
    // Why a run was lost is told with its outcome.
    let is_told = |warning: &&Warning| why_lost(result) == Some(warning.message.as_str());
    for warning in result.warnings.iter().filter(|warning| !is_told(warning)) {
        self::warning(warning);
    }
}

/// Says one of them.
pub(crate) fn warning(warning: &Warning) {
    say(&format!("warning: {} [{}]", warning.message, warning.code));
    if let Some(hint) = &warning.hint {
        say(&format!("hint: {hint}"));
    }
}

/// Says what `--verbose` adds.
pub(crate) fn details(result: &RunResult) {
    say(&format!("{} in {} on {}, image {}", result.run, result.sandbox, result.backend, result.image));
    say(&format!("command: {:?} in {}", result.command.argv, result.command.cwd));
    if let Some(compile) = &result.compile {
        say(&format!("compile step: {:?}", compile.argv));
        match compile.cached {
            true => say("it was not needed: the same source was compiled before"),
            false => say(&format!("it took {:.1} ms of the wall time below", compile.duration_ms)),
        }
        if result.step == Step::Run {
            let said = [compile.stdout.to_bytes(), compile.stderr.to_bytes()].concat();
            let _ = stderr().lock().write_all(&said);
        }
    }
    let usage = &result.usage;
    say(&format!(
        "{:.1} ms wall time, {:.1} ms CPU time, {} memory, {} processes at most",
        result.duration_ms,
        usage.cpu_ms,
        size(usage.memory_peak_bytes),
        usage.processes_peak
    ));
    if !result.limits.lowered.is_empty() {
        say(&format!("lowered to what this machine has: {:?}", result.limits.lowered));
    }
    say(&format!("layers in place: {}", names(&result.isolation.present).join(", ")));
}

/// Who ended the sandbox of a run that was lost, where that is known.
pub(crate) fn why_lost(result: &RunResult) -> Option<&str> {
    let mut warnings = result.warnings.iter().filter(|_| result.outcome == Outcome::Lost);
    warnings.find(|warning| warning.code == ErrorCode::SandboxLost.as_str()).map(|warning| warning.message.as_str())
}

fn outcome(result: &RunResult, made: Made) -> Option<String> {
    Some(match &result.outcome {
        // These speak for themselves: the program had its say, or the caller asked for the end.
        Outcome::Exited { .. } | Outcome::Cancelled => return None,
        Outcome::Signaled { signal } => format!("ended by signal {signal}{}", signal_name(*signal)),
        Outcome::TimedOut { limit_ms } => {
            format!("timed out after {}; raise the limit with --timeout", duration(Duration::from_millis(*limit_ms)))
        }
        Outcome::OutOfMemory { limit_bytes, process, .. } => format!(
            "ran out of memory: limit {} ({process} was killed); raise it with {}",
            size(*limit_bytes),
            made.flag("--memory")
        ),
        Outcome::OutputExceeded { limit_bytes } => format!(
            "wrote more than {} to one stream and was ended; raise it with --output-limit, or leave out \
             --output-limit-kill",
            size(*limit_bytes)
        ),
        Outcome::DiskFull { limit: LimitKind::Inodes, .. } => format!(
            "there was no room for more files: limit {} files and folders; raise it with {}",
            result.limits.inodes,
            made.flag("--inodes")
        ),
        Outcome::DiskFull { limit: LimitKind::Volume, .. } => "a volume was full".to_owned(),
        Outcome::DiskFull { .. } => {
            let limit = size(result.limits.disk_bytes);
            format!("the disk was full: limit {limit}; raise it with {}", made.flag("--disk"))
        }
        Outcome::Lost => match why_lost(result) {
            Some(why) => format!("{why} while the run was at work"),
            None => "the sandbox went away under the run".to_owned(),
        },
        other => format!("{other:?}"),
    })
}

/// When the sandbox of a run was made, which decides where its limits are raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    /// For the run.
    ForIt,
    /// Before it, by `glovebox create`.
    Before,
}

impl Made {
    /// How a flag of the sandbox is given.
    fn flag(self, flag: &str) -> String {
        match self {
            Made::ForIt => flag.to_owned(),
            Made::Before => format!("glovebox create {flag}"),
        }
    }
}

fn limit_hit(limit: LimitKind, result: &RunResult, made: Made) -> Option<String> {
    let limits = &result.limits;
    let (what, flag) = match limit {
        LimitKind::Memory => (format!("memory limit of {}", size(limits.memory_bytes)), "--memory"),
        LimitKind::Cpus => (format!("limit of {} CPUs", limits.cpus), "--cpus"),
        LimitKind::Pids => (format!("limit of {} processes", limits.pids), "--pids"),
        LimitKind::Disk if result.limits_hit.contains(&LimitKind::Inodes) => return None,
        LimitKind::Inodes => (format!("limit of {} files and folders", limits.inodes), "--inodes"),
        LimitKind::Disk => (format!("disk limit of {}", size(limits.disk_bytes)), "--disk"),
        LimitKind::Volume => return Some("a volume was full".to_owned()),
        LimitKind::OpenFiles => (format!("limit of {} open files", limits.open_files), "--open-files"),
        // The caller has seen all of the output; only the result document would have been cut.
        LimitKind::Output => return None,
    };
    Some(format!("the {what} was reached ({})", made.flag(flag)))
}

/// Layers that are missing although nobody asked for that.
fn missing_layers(isolation: &Isolation, spec: &SandboxSpec) -> Vec<&'static str> {
    let by_request = |layer: &Layer| match layer {
        Layer::NetworkNs => spec.network == Network::Full,
        Layer::UnprivilegedUser => spec.user.uid == 0,
        _ => false,
    };
    let missing: Vec<Layer> = isolation.missing.iter().copied().filter(|layer| !by_request(layer)).collect();
    names(&missing)
}

fn names(layers: &[Layer]) -> Vec<&'static str> {
    layers.iter().map(|layer| layer.as_str()).collect()
}

pub(crate) fn signal_name(signal: i32) -> &'static str {
    match signal {
        1 => " (SIGHUP)",
        2 => " (SIGINT)",
        4 => " (SIGILL: not a valid instruction)",
        6 => " (SIGABRT: the program gave up)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE: a division by zero or the like)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV: a wrong memory access)",
        13 => " (SIGPIPE)",
        15 => " (SIGTERM)",
        24 => " (SIGXCPU)",
        25 => " (SIGXFSZ: a file would have become larger than the sandbox may hold)",
        31 => " (SIGSYS: a system call that the sandbox refuses)",
        _ => "",
    }
}

/// A size as people write it: `64 MiB`, `1.5 GiB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match UNITS.iter().find(|(_, shift)| bytes >= 1 << shift) {
        Some((unit, shift)) if bytes.is_multiple_of(1 << shift) => format!("{} {unit}", bytes >> shift),
        Some((unit, shift)) => format!("{:.1} {unit}", bytes as f64 / (1u64 << shift) as f64),
        None if bytes == 1 => "1 byte".to_owned(),
        None => format!("{bytes} bytes"),
    }
}

/// A duration as people write it: `1h30m`, `30s`, `500ms`.
pub(crate) fn duration(duration: Duration) -> String {
    let mut rest = duration.as_millis();
    let mut text = String::new();
    for (unit, length) in [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)] {
        if rest >= length {
            // Writing to a String cannot fail.
            let _ = write!(text, "{}{unit}", rest / length);
            rest %= length;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// A duration in its largest unit: `3h`, `5m`.
pub(crate) fn coarse(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m", seconds / 60),
        seconds @ 3600..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// A moment, to the second.
pub(crate) fn time(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_of_a_thing_have_its_plural() {
        assert_eq!(counted(1, "sandbox"), "1 sandbox");
        assert_eq!(counted(0, "sandbox"), "0 sandboxes");
        assert_eq!(counted(2, "file"), "2 files");
    }

    #[test]
    fn sizes_and_durations_read_as_they_are_typed() {
        assert_eq!(size(64 << 20), "64 MiB");
        assert_eq!(size((3 << 30) / 2), "1.5 GiB");
        assert_eq!((size(900).as_str(), size(1).as_str(), size(0).as_str()), ("900 bytes", "1 byte", "0 bytes"));
        assert_eq!(duration(Duration::from_secs(30)), "30s");
        assert_eq!(duration(Duration::from_secs(5400)), "1h30m");
        assert_eq!(duration(Duration::from_millis(1500)), "1s500ms");
    }

    #[test]
    fn a_layer_that_was_asked_away_is_not_reported_as_missing() {
        let isolation = Isolation { missing: vec![Layer::NetworkNs, Layer::Landlock], ..Isolation::default() };
        let mut spec = SandboxSpec::default();
        assert_eq!(missing_layers(&isolation, &spec), ["network_ns", "landlock"]);
        spec.network = Network::Full;
        assert_eq!(missing_layers(&isolation, &spec), ["landlock"]);
    }
}
