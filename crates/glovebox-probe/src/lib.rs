//! Tries things from inside a sandbox and prints what happened, one plain fact a line.
//!
//! The conformance suite mounts this as a program into sandboxes; `glovebox prove` puts the command line itself there,
//! which has all of it as a hidden verb. It never trusts the sandbox and never judges: each subcommand does one thing and
//! prints `ok`, an errno name or a `name value` pair; whoever asked decides what is right. A few subcommands (`hold`,
//! `hold-shm`, `key-add`) are also run on the host, to plant what must not be reachable inside; `without-namespaces` makes
//! the host one that refuses them, as a default container does.

mod bare_host;
mod errno;
mod harm;
mod hoard;
mod look;
mod network;
mod ordinary;
mod refused;
mod resources;
mod sys;
mod tree;

/// What a subcommand returns: the exit code, or why it could not be tried.
type Tried = Result<u8, String>;

/// Does what the words ask for and returns the exit code; 99 when it could not be tried.
pub fn run(words: &[String]) -> u8 {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    try_words(&words).unwrap_or_else(|why| {
        eprintln!("probe: {why}");
        99
    })
}

fn try_words(words: &[&str]) -> Tried {
    let Some((command, rest)) = words.split_first() else {
        return Err("a subcommand is needed".into());
    };
    match (*command, rest) {
        ("syscall", names) => refused::try_all(names),
        ("works", names) => ordinary::try_all(names),
        ("status", []) => look::status(),
        ("fds", []) => look::descriptors(),
        ("raw-fd-scan", []) => look::scan_descriptors(),
        ("env", []) => look::environment(),
        ("read", paths) => look::read(paths),
        ("identify", paths) => look::identify(paths),
        ("show", paths) => look::show(paths),
        ("devices", []) => look::devices(),
        ("search-processes", []) => look::search_processes(),
        ("make-files", [name, folders @ ..]) => look::make_files(name, folders),
        ("mount-flags", paths) => look::mount_flags(paths),
        ("hold", [_]) => look::hold(),
        ("open-for-writing", paths) => look::open_for_writing(paths),
        ("key-add", [name]) => look::key_add(name),
        ("key-reach", [name, serial]) => look::key_reach(name, number(serial)?),
        ("hold-shm", [key]) => look::hold_shm(number(key)?),
        ("ipc", [key]) => look::ipc(number(key)?),
        ("eat-memory", [mib]) => resources::eat_memory(number(mib)?),
        ("eat-memory-child", [mib]) => resources::eat_memory_in_child(number(mib)?),
        ("eat-memory-many", [children, mib]) => resources::eat_memory_in_many(number(children)?, number(mib)?),
        ("memfd", [mib]) => resources::memfd(number(mib)?),
        ("shared-memory", [mib]) => resources::shared_memory(number(mib)?),
        ("fill-disk", [path]) => resources::fill_disk(path),
        ("write-file", [path, mib]) => resources::write_file(path, number(mib)?),
        ("fill-inodes", [folder]) => resources::fill_inodes(folder),
        ("burn-cpu", [ms]) => resources::burn_cpu(number(ms)?),
        ("print-bytes", [count]) => resources::print_bytes(number(count)?),
        ("open-files", [count]) => resources::open_files(number(count)?),
        ("hoard", names) => hoard::hoard(names),
        ("take", names) => hoard::take_all(names),
        ("fork-bomb", [count]) => tree::fork_bomb(number(count)?),
        ("fork-for-ever", []) => tree::fork_for_ever(),
        ("threads", [count]) => tree::threads(number(count)?),
        ("daemon", []) => tree::daemon(),
        ("ignore-term", []) => tree::ignore_term(),
        ("signal-pid1", []) => tree::signal_pid1(),
        ("harm", [pid, file, socket]) => harm::all(number(pid)?, file, socket),
        ("run-away", []) => harm::run_away(),
        ("without-namespaces", [who, program, args @ ..]) => bare_host::run(who, program, args),
        ("kill", [pid]) => tree::kill(number(pid)?),
        ("stop-next", []) => tree::stop_next(),
        ("kill-self", [signal]) => tree::kill_self(number(signal)?),
        ("exit", [code]) => Ok(number(code)?),
        ("interfaces", []) => network::interfaces(),
        ("connect", [address]) => network::connect(address),
        ("listen-loopback", []) => network::listen_loopback(),
        ("abstract-socket", [name]) => network::abstract_socket(name),
        _ => Err(format!("unknown subcommand or wrong arguments: {}", words.join(" "))),
    }
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number that fits"))
}

/// Prints `name ok` or `name ERRNO`.
fn report(name: &str, result: Result<(), i32>) {
    match result {
        Ok(()) => println!("{name} ok"),
        Err(errno) => println!("{name} {}", errno::name(errno)),
    }
}

/// The errno of an I/O error; 0 where there is none.
fn errno_of(error: &std::io::Error) -> i32 {
    error.raw_os_error().unwrap_or(0)
}
