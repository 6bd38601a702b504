//! From the flags of `run`, which are text, to a request that the engine takes. Everything is checked here, once.

use std::{ffi::OsString, path::PathBuf};

use glovebox_core::{
    Command, Error, ErrorCode, Image, Label, Language, Layer, Limits, Network, Result, SandboxSpec, Tier, User,
    parse_count, parse_cpus, parse_duration, parse_memory, parse_open_files, parse_size,
};
use glovebox_engine::{Capture, RunRequest, Toolchains};

use crate::{
    args::{CommandArgs, Globals, RunArgs, SandboxArgs},
    backends::{self, Chosen},
    environment, files,
    flags::{Flags, Origin},
    program::{self, Typed},
    session::Wanted,
    stdio, terminal,
    verbs::attach,
};

/// A run that is ready to start, and what is needed to speak about it afterwards.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The request.
    pub(crate) request: RunRequest,
    /// The language, where one is known.
    pub(crate) language: Option<&'static Language>,
    /// The host's folder of a FILE that was copied in without its neighbours.
    pub(crate) left_behind: Option<PathBuf>,
}

/// Checks the flags of `run`. Nothing has started yet when this fails.
pub(crate) fn plan(
    globals: &Globals,
    args: &RunArgs,
    flags: &Flags,
    after_dashes: Option<Vec<OsString>>,
    (kind, fell_back): Chosen,
) -> Result<Plan> {
    let spec = sandbox_spec(&args.sandbox, flags)?;
    let toolchains = backends::toolchains(kind, files::toolchains(&args.sandbox, flags)?)?;
    let typed = Typed { call: "glovebox run".to_owned(), program: &args.program, after_dashes };
    let mut plan = command_plan(globals, typed, &args.command, flags, (spec, toolchains))?;
    backends::choose_image(&mut plan.request.spec, flags, kind, plan.language)?;
    plan.request.warnings.extend(fell_back);
    Ok(plan)
}

/// Checks the flags of a command that runs in a sandbox of this spec.
pub(crate) fn command_plan(
    globals: &Globals,
    typed: Typed<'_>,
    args: &CommandArgs,
    flags: &Flags,
    (mut spec, toolchains): (SandboxSpec, Toolchains),
) -> Result<Plan> {
    check_combinations(globals, args)?;
    limit_run(&mut spec.limits, args, flags)?;
    let program = program::find(typed, args, &spec, &toolchains)?;
    let mut command = Command::argv(program.argv)?;
    for (name, value) in &program.env {
        command = command.env(name, value)?;
    }
    let mut command = environment::add_variables(command, args, flags)?;
    if let Some(workdir) = &args.workdir {
        command = command.cwd(workdir).map_err(|error| flags.named("workdir", error))?;
    }
    command.language = program.language.map(|language| language.name.to_owned());
    let mut request = RunRequest::new(command);
    request.files = files::input_files(args, flags, &spec)?;
    request.files.extend(program.file);
    request.artifacts = artifacts(args, flags)?;
    request.labels = labels(&args.label, flags)?;
    request.spec = spec;
    request.compile = program.compile;
    request.toolchains = toolchains;
    request.capture = if globals.json || !args.no_record { Capture::Keep } else { Capture::Count };
    if args.terminal {
        request.command = terminal::with_terminal_type(request.command)?;
        // Its keys are read once it has started.
        request.terminal = Some(match attach::size_for_follower() {
            Some(size) => size,
            None => terminal::size()?,
        });
    } else {
        // Last, because a thread may start to read: nothing that can fail comes after it.
        request.stdin = stdio::standard_input(args.stdin.as_deref())?;
    }
    Ok(Plan { request, language: program.language, left_behind: program.left_behind })
}

/// Checks the flags of a run in a session of a sandbox of this spec.
pub(crate) fn session_plan(
    globals: &Globals,
    (wanted, language): (Wanted, &'static Language),
    args: &CommandArgs,
    flags: &Flags,
    mut spec: SandboxSpec,
) -> Result<Plan> {
    limit_run(&mut spec.limits, args, flags)?;
    let mut request = RunRequest::in_session(wanted.name, language.name, wanted.code)?;
    request.command = environment::add_variables(request.command, args, flags)?;
    if let Some(workdir) = &args.workdir {
        request.command = request.command.cwd(workdir).map_err(|error| flags.named("workdir", error))?;
        let cwd = request.command.cwd.clone();
        request.session.iter_mut().for_each(|session| session.workdir = Some(cwd.clone()));
    }
    request.files = files::input_files(args, flags, &spec)?;
    request.artifacts = artifacts(args, flags)?;
    request.labels = labels(&args.label, flags)?;
    request.spec = spec;
    request.capture = if globals.json || !args.no_record { Capture::Keep } else { Capture::Count };
    Ok(Plan { request, language: Some(language), left_behind: None })
}

/// Refuses what does not go together.
fn check_combinations(globals: &Globals, args: &CommandArgs) -> Result<()> {
    let refuse = |message: &str, hint: &str| Err(Error::new(ErrorCode::Usage, message).hint(hint));
    if !args.terminal {
        return Ok(());
    }
    if globals.json {
        return refuse("--terminal and --json do not go together", "a terminal's output cannot be a JSON document");
    }
    if args.stdin.is_some() {
        return refuse("--terminal and --stdin do not go together", "what you type is the input of a terminal");
    }
    if !terminal::is_here() && attach::size_for_follower().is_none() {
        return refuse("--terminal needs a terminal as standard input", "leave out -t when input comes from a pipe");
    }
    Ok(())
}

/// Checks the flags of a sandbox. Time and output limits belong to its runs.
pub(crate) fn sandbox_spec(args: &SandboxArgs, flags: &Flags) -> Result<SandboxSpec> {
    if args.workspace.is_none() && flags.origin("workspace-mode") == Origin::Flag {
        let error = Error::new(ErrorCode::Usage, "--workspace-mode needs --workspace");
        return Err(error.hint("name the folder with --workspace DIR"));
    }
    let mut spec = SandboxSpec {
        image: flags.check("image", &args.image, Image::parse)?,
        runtime: args.runtime.as_deref().map(|name| flags.check("runtime", name, parse_runtime)).transpose()?,
        limits: Limits {
            memory: flags.check("memory", &args.memory, parse_memory)?,
            cpus: flags.check("cpus", &args.cpus, parse_cpus)?,
            pids: flags.check("pids", &args.pids, parse_count)?,
            disk: flags.check("disk", &args.disk, parse_size)?,
            inodes: flags.check("inodes", &args.inodes, parse_count)?,
            open_files: flags.check("open-files", &args.open_files, parse_open_files)?,
            ..Limits::default()
        },
        network: flags.check("network", &args.network, parse_network)?,
        user: flags.check("user", &args.user, User::parse)?,
        isolation: flags.check("isolation", &args.isolation, Tier::parse)?,
        ..SandboxSpec::default()
    };
    for name in flags.list("require-layer", &args.require_layer) {
        spec.required_layers.push(flags.check("require-layer", name, parse_layer)?);
    }
    files::add_host_folders(&mut spec, args, flags)?;
    Ok(spec)
}

fn limit_run(limits: &mut Limits, args: &CommandArgs, flags: &Flags) -> Result<()> {
    limits.timeout = flags.check("timeout", &args.timeout, parse_duration)?;
    limits.grace = flags.check("grace", &args.grace, parse_duration)?;
    limits.output = flags.check("output-limit", &args.output_limit, parse_size)?;
    limits.output_kill = args.output_limit_kill;
    Ok(())
}

/// The labels of a `--label`.
pub(crate) fn labels(texts: &[String], flags: &Flags) -> Result<Vec<Label>> {
    flags.list("label", texts).into_iter().map(|text| flags.check("label", text, Label::parse)).collect()
}

fn artifacts(args: &CommandArgs, flags: &Flags) -> Result<Vec<String>> {
    flags.list("artifact", &args.artifact).into_iter().map(|text| flags.check("artifact", text, parse_glob)).collect()
}

fn parse_glob(text: &str) -> Result<String, String> {
    let climbs = text.split('/').any(|part| part == "..");
    if text.is_empty() || text.starts_with('/') || climbs || text.chars().any(char::is_control) {
        return Err("expected a pattern below /workspace such as outputs/*.png or **/*.log".to_owned());
    }
    Ok(text.to_owned())
}

fn parse_runtime(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let is_name = !text.is_empty() && text.len() <= 128 && !text.starts_with('-') && text.chars().all(fits);
    if is_name { Ok(text.to_owned()) } else { Err("expected the name of a runtime, such as runsc".to_owned()) }
}

fn parse_network(text: &str) -> Result<Network, String> {
    match text {
        "none" => Ok(Network::None),
        "full" => Ok(Network::Full),
        _ => Err("expected none or full".to_owned()),
    }
}

fn parse_layer(text: &str) -> Result<Layer, String> {
    let names = || Layer::ALL.iter().map(|layer| layer.as_str()).collect::<Vec<_>>().join(", ");
    let found = Layer::ALL.iter().find(|layer| layer.as_str() == text).copied();
    found.ok_or_else(|| format!("expected one of {}", names()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        args::Verb,
        backends::Kind,
        command_line::{Parsed, parse_with},
        config::Places,
    };

    fn plan_of(words: &[&str]) -> Result<Plan> {
        let args = ["glovebox", "run", "--stdin", "/dev/null"].iter().chain(words).map(Into::into).collect();
        let Parsed::Line(line) = parse_with(args, &Places::nowhere())? else { panic!("unexpected help") };
        let Some(Verb::Run(run)) = line.cli.verb else { panic!("not a run") };
        plan(&line.cli.globals, &run, &line.flags, line.after_dashes, (Kind::Native, None))
    }

    #[test]
    fn the_defaults_of_the_flags_are_the_defaults_of_the_limits() {
        let plan = plan_of(&["--", "true"]).unwrap();
        assert_eq!(plan.request.spec.limits, Limits::default());
        assert_eq!(plan.request.spec.user, User::default());
        assert_eq!(plan.request.spec.network, Network::None);
        assert_eq!(plan.request.capture, Capture::Keep);
        assert_eq!(plan_of(&["--no-record", "--", "true"]).unwrap().request.capture, Capture::Count);
    }

    #[test]
    fn a_value_that_does_not_parse_names_the_flag_the_value_and_the_forms() {
        for flag in ["memory", "cpus", "pids", "disk", "inodes", "open-files", "timeout", "grace", "output-limit"] {
            for value in ["0", "-1", "nonsense", ""] {
                let error = plan_of(&[&format!("--{flag}"), value, "--", "true"]).unwrap_err();
                assert_eq!(error.code, ErrorCode::InvalidValue, "--{flag} {value:?}");
                for part in [format!("--{flag}"), format!("{value:?}"), "expected".to_owned()] {
                    assert!(error.message.contains(&part), "{}", error.message);
                }
            }
        }
    }

    #[test]
    fn code_runs_by_its_language_and_the_rest_are_its_arguments() {
        let plan = plan_of(&["-l", "sh", "-c", "echo $1", "one", "--", "two"]).unwrap();
        assert_eq!(plan.request.command.argv, ["sh", "-c", "echo $1", "sh", "one", "two"]);
        let long = "#".repeat(200_000);
        let plan = plan_of(&["-l", "sh", "-c", &long]).unwrap();
        assert_eq!(plan.request.command.argv, ["sh", "main.sh"]);
        assert_eq!(plan.request.files.len(), 1);
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        for (words, code) in [
            (&["-c", "x"][..], ErrorCode::Usage),
            (&["-l", "cobol", "-c", "x"], ErrorCode::UnknownLanguage),
            (&["-l", "python", "--", "ls"], ErrorCode::Usage),
            (&[], ErrorCode::Usage),
            (&["--"], ErrorCode::Usage),
            (&["--workspace-mode", "read-only", "--", "ls"], ErrorCode::Usage),
            (&["--image", "Debian", "--", "ls"], ErrorCode::InvalidValue),
            (&["--image", "debian", "--", "ls"], ErrorCode::NotSupported),
            (&["--artifact", "../x", "--", "ls"], ErrorCode::InvalidValue),
            (&["--require-layer", "magic", "--", "ls"], ErrorCode::InvalidValue),
            (&["--network", "some", "--", "ls"], ErrorCode::InvalidValue),
            (&["--isolation", "none", "--", "ls"], ErrorCode::InvalidValue),
        ] {
            assert_eq!(plan_of(words).unwrap_err().code, code, "{words:?}");
        }
    }

    #[test]
    fn a_secret_on_the_command_line_is_refused_and_never_repeated() {
        for text in ["A=hunter2", "A=env:hunter2!", "hunter2-x", "=hunter2", "A=", "A=keyring:hunter2"] {
            let error = plan_of(&["--secret", text, "--", "true"]).unwrap_err();
            assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        }
    }
}
