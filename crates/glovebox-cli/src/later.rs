//! Verbs and flags that are promised and not there yet. Whoever types one is told so, instead of what else it resembles.

/// Verbs of later versions.
const VERBS: [&str; 14] = [
    "port",
    "ports",
    "network",
    "snapshot",
    "snapshots",
    "fork",
    "build",
    "test",
    "detect",
    "check",
    "templates",
    "serve",
    "token",
    "bench",
];

/// Verbs of later versions below `runs`.
const VERBS_OF_RUNS: [&str; 4] = ["diff", "export", "prune", "verify"];

/// Verbs of later versions below `images`.
const VERBS_OF_IMAGES: [&str; 2] = ["import", "build"];

/// Flags of later versions, without their dashes.
const FLAGS: [&str; 6] = ["allow", "check", "mode", "server", "task", "template"];

/// What does nearly the same until then.
const UNTIL_THEN: [(&str, &str); 3] = [
    ("prune", "glovebox gc removes what dead processes left; records of runs stay"),
    ("test", "glovebox run --workspace . -- COMMAND runs tests in this folder"),
    ("build", "glovebox run --workspace . -- COMMAND builds in this folder"),
];

/// Whether a later version has this verb, below the verbs `below`.
pub(crate) fn has_verb(below: &str, name: &str) -> bool {
    match below {
        "" => VERBS.contains(&name),
        "runs" => VERBS_OF_RUNS.contains(&name),
        "images" => VERBS_OF_IMAGES.contains(&name),
        _ => false,
    }
}

/// What does nearly the same as a verb of a later version. Of an image nothing does.
pub(crate) fn until_then(below: &str, verb: &str) -> Option<&'static str> {
    UNTIL_THEN.iter().filter(|_| below != "images").find(|(name, _)| *name == verb).map(|(_, hint)| *hint)
}

/// Whether a later version has this flag.
pub(crate) fn has_flag(name: &str) -> bool {
    FLAGS.contains(&name)
}

/// All that is said of what does nearly the same.
#[cfg(test)]
pub(crate) fn hints() -> impl Iterator<Item = &'static str> {
    UNTIL_THEN.iter().map(|(_, hint)| *hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_there_is_said_to_come_later() {
        let command = crate::args::command();
        for verb in command.get_subcommands() {
            assert!(!has_verb("", verb.get_name()), "{}", verb.get_name());
            verb.get_subcommands().for_each(|below| assert!(!has_verb(verb.get_name(), below.get_name())));
        }
        let all = std::iter::once(&command).chain(command.get_subcommands()).flat_map(clap::Command::get_arguments);
        for flag in all.filter_map(clap::Arg::get_long) {
            assert!(!has_flag(flag), "{flag}");
        }
    }
}
