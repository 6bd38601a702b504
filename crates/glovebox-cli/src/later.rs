//! Verbs and flags that are promised and not there yet. Whoever types one is told so, instead of what else it resembles.

/// Verbs of later versions.
const VERBS: [&str; 17] = [
    "port",
    "ports",
    "network",
    "shell",
    "snapshot",
    "snapshots",
    "fork",
    "build",
    "test",
    "detect",
    "check",
    "images",
    "templates",
    "serve",
    "mcp",
    "token",
    "bench",
];

/// Flags of later versions, without their dashes.
const FLAGS: [&str; 7] = ["allow", "check", "mode", "runtime", "server", "task", "template"];

/// Whether a later version has this verb.
pub(crate) fn has_verb(name: &str) -> bool {
    VERBS.contains(&name)
}

/// Whether a later version has this flag.
pub(crate) fn has_flag(name: &str) -> bool {
    FLAGS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_there_is_said_to_come_later() {
        let command = crate::args::command();
        for verb in command.get_subcommands() {
            assert!(!has_verb(verb.get_name()), "{}", verb.get_name());
        }
        let all = std::iter::once(&command).chain(command.get_subcommands()).flat_map(clap::Command::get_arguments);
        for flag in all.filter_map(clap::Arg::get_long) {
            assert!(!has_flag(flag), "{flag}");
        }
    }
}
