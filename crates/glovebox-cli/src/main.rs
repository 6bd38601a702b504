//! The command line of Glovebox.
//!
//! The way of an invocation: `main` starts the launcher, [`command_line`] turns arguments, variables and configuration
//! files into one [`CommandLine`](command_line::CommandLine), a file in [`verbs`] does the work, and [`report`] says on
//! standard error what there is to say. Invariant: only the program that runs, and the documents of `--json`, write on
//! standard output while a run lasts.

mod args;
mod backends;
mod check;
mod command_line;
mod config;
mod doctor;
mod environment;
mod fetching;
mod files;
mod flags;
mod later;
mod pager;
mod patch;
mod program;
mod prove;
mod report;
mod request;
mod review;
mod session;
mod signals;
mod slips;
mod stdio;
mod table;
mod terminal;
mod top;
mod trust;
mod variables;
mod verbs;

use std::{
    ffi::OsString,
    panic::{AssertUnwindSafe, catch_unwind},
};

use glovebox_core::{Error, ErrorCode, Result};
use glovebox_native::NativeBackend;

use command_line::{CommandLine, Parsed};
use verbs::states::Act;

/// musl's allocator asks the kernel for nearly every page on its own, which costs a short run a tenth of its time.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

/// Verbs that make sandboxes, or remove their files.
const MAKING: [&str; 8] = ["run", "create", "start", "reset", "destroy", "top", "shell", "mcp"];

fn main() {
    let args: Vec<OsString> = std::env::args_os().collect();
    if args.get(1).is_some_and(|verb| verb == verbs::living::KEEP) {
        std::process::exit(verbs::living::keep(args.get(2)).into());
    }
    if args.get(1).is_some_and(|verb| verb == verbs::prove::PROBE) {
        let words: Vec<String> = args[2..].iter().map(|word| word.to_string_lossy().into_owned()).collect();
        std::process::exit(glovebox_probe::run(&words).into());
    }
    if args.get(1).is_some_and(|verb| verb == verbs::attach::FOLLOW) {
        std::process::exit(verbs::attach::follow(&args[2..]).into());
    }
    // The launcher is forked before anything else: while this process has one thread and owns nothing worth leaking.
    // It prepares sandboxes while the command line is being read.
    let backend = args.iter().any(|arg| MAKING.iter().any(|verb| arg == verb)).then(|| {
        glovebox_native::give_way();
        NativeBackend::start()
    });
    let json_wanted = command_line::asks_for_json(&args);
    let code = catch_unwind(AssertUnwindSafe(|| glovebox(args, backend, json_wanted))).unwrap_or_else(|_| {
        let error = Error::new(ErrorCode::Internal, "glovebox met a fault of its own; please report what is above");
        report::error(&error, json_wanted)
    });
    std::process::exit(code.into());
}

/// Does what the arguments ask for and returns the exit code.
fn glovebox(args: Vec<OsString>, backend: Option<Result<NativeBackend>>, json_wanted: bool) -> u8 {
    let line = match command_line::parse(args) {
        Ok(Parsed::Line(line)) => *line,
        Ok(Parsed::Help(help)) => {
            // A reader that went away, as in `glovebox --help | head -1`, is no failure.
            let _ = help.print();
            return 0;
        }
        Err(error) => return report::error(&error, json_wanted),
    };
    let json = line.cli.globals.json;
    variables::warn_of_unknown();
    match dispatch(line, backend) {
        Ok(code) => code,
        Err(error) => report::error(&error, json),
    }
}

fn dispatch(line: CommandLine, backend: Option<Result<NativeBackend>>) -> Result<u8> {
    let CommandLine { cli, flags, after_dashes } = line;
    flags.refuse_untrusted()?;
    match cli.verb {
        None => verbs::help(),
        Some(args::Verb::Run(args)) => verbs::run::execute(&cli.globals, &args, &flags, after_dashes, backend),
        Some(args::Verb::Create(args)) => verbs::create::execute(&cli.globals, &args, &flags, backend),
        Some(args::Verb::List(args)) => verbs::living::list(&cli.globals, &args, &flags),
        Some(args::Verb::Show(args)) => verbs::living::show(&cli.globals, &args, &flags),
        Some(args::Verb::Exec(args)) => verbs::exec::execute(&cli.globals, &args, &flags, after_dashes),
        Some(args::Verb::Shell(args)) => verbs::shell::execute(&cli.globals, *args, &flags, after_dashes, backend),
        Some(args::Verb::Attach(args)) => verbs::attach::attach(&cli.globals, &args, &flags),
        Some(args::Verb::Wait(args)) => verbs::attach::wait(&cli.globals, &args, &flags),
        Some(args::Verb::Cancel(args)) => verbs::attach::cancel(&cli.globals, &args, &flags),
        Some(args::Verb::Usage(args)) => verbs::usage::execute(&cli.globals, &args, &flags),
        Some(args::Verb::Top(args)) => verbs::top::execute(&cli.globals, &args, &flags, backend),
        Some(args::Verb::Stop(args)) => verbs::states::act(Act::Stop, &cli.globals, &args, &flags, backend),
        Some(args::Verb::Start(args)) => verbs::states::act(Act::Start, &cli.globals, &args, &flags, backend),
        Some(args::Verb::Pause(args)) => verbs::states::act(Act::Pause, &cli.globals, &args, &flags, backend),
        Some(args::Verb::Resume(args)) => verbs::states::act(Act::Resume, &cli.globals, &args, &flags, backend),
        Some(args::Verb::Reset(args)) => verbs::states::act(Act::Reset, &cli.globals, &args, &flags, backend),
        Some(args::Verb::Cp(args)) => verbs::cp::execute(&cli.globals, &args, &flags),
        Some(args::Verb::Files(args)) => verbs::files::execute(&cli.globals, &args, &flags),
        Some(args::Verb::Destroy(args)) => verbs::states::destroy(&cli.globals, &args, &flags, backend),
        Some(args::Verb::Sessions(args)) => verbs::sessions::execute(&cli.globals, &args, &flags),
        Some(args::Verb::Volumes(args)) => verbs::volumes::execute(&cli.globals, &args, &flags, backend),
        Some(args::Verb::Projects(args)) => verbs::projects::execute(&cli.globals, &args, &flags, backend),
        Some(args::Verb::Images(args)) => verbs::images::execute(&cli.globals, &args, &flags),
        Some(args::Verb::Runs(args)) => verbs::runs::execute(&cli.globals, &args, &flags),
        Some(args::Verb::Changes(args)) => verbs::changes::execute(&cli.globals, &args, &flags),
        Some(args::Verb::Apply(args)) => verbs::apply::execute(&cli.globals, &args, &flags),
        Some(args::Verb::Mcp(args)) => verbs::mcp::execute(&cli.globals, &args, &flags, backend),
        Some(args::Verb::Doctor(args)) => verbs::doctor::execute(&cli.globals, &args, &flags),
        Some(args::Verb::Prove(args)) => verbs::prove::execute(&cli.globals, &args, &flags),
        Some(args::Verb::Gc) => verbs::gc::execute(&cli.globals, &flags),
        Some(args::Verb::Completions(args)) => verbs::completions::execute(&cli.globals, &args),
        Some(args::Verb::Man(args)) => verbs::man::execute(&cli.globals, &args),
    }
}
