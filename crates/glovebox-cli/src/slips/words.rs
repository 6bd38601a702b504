//! Words of other tools, and what they are here. A hint names what can be typed.
// tidy: table

/// The verbs above, words that are no verb there, and the hint for them.
const VERBS: &[(&str, &[&str], &str)] = &[
    ("", &["rm", "remove", "delete", "del", "rmi", "down"], "glovebox destroy ID ends a sandbox and removes its files"),
    (
        "",
        &["kill", "terminate", "end", "abort"],
        "glovebox cancel RUN ends a run, glovebox stop ID the processes of a sandbox, glovebox destroy ID the sandbox",
    ),
    ("", &["ps"], "glovebox list shows the sandboxes, glovebox runs list --outcome running the runs at work"),
    ("", &["ls", "dir"], "glovebox list shows the sandboxes, glovebox files list ID the files in one"),
    ("", &["sandbox", "sandboxes", "box", "boxes"], "glovebox list shows the sandboxes, glovebox create makes one"),
    (
        "",
        &["logs", "log", "output", "tail"],
        "glovebox runs logs RUN writes what a run wrote, glovebox attach RUN follows one at work",
    ),
    (
        "",
        &["restart", "reboot"],
        "glovebox stop ID, then glovebox start ID; glovebox reset ID also cleans its working directory, outputs and home",
    ),
    (
        "",
        &["inspect", "info", "describe", "status", "state", "details"],
        "glovebox show ID shows a sandbox, glovebox runs show RUN a run",
    ),
    (
        "",
        &["stats", "stat", "htop", "monitor"],
        "glovebox usage ID shows what a sandbox uses, glovebox top watches all",
    ),
    ("", &["history"], "glovebox runs list shows what ran"),
    ("", &["diff"], "glovebox changes RUN shows what a run changed"),
    ("", &["commit", "save"], "glovebox apply RUN brings what a run changed to your folder"),
    (
        "",
        &["prune", "clean", "cleanup", "purge"],
        "glovebox gc removes what dead processes left, glovebox destroy --all every sandbox",
    ),
    (
        "",
        &["watch", "events"],
        "glovebox files watch ID PATH tells what happens to files, glovebox top watches sandboxes",
    ),
    ("", &["new", "make", "up", "init", "add", "launch", "spawn"], "glovebox create makes a sandbox that stays"),
    ("", &["unpause", "continue", "thaw", "unfreeze"], "glovebox resume ID lets a paused sandbox go on"),
    ("", &["freeze", "suspend", "hibernate"], "glovebox pause ID freezes all processes of a sandbox"),
    ("", &["halt", "shutdown", "poweroff"], "glovebox stop ID ends all processes of a sandbox and keeps its files"),
    ("", &["wipe", "revert", "rollback", "restore"], "glovebox reset ID cleans a sandbox and starts it again"),
    (
        "",
        &["sh", "bash", "ssh", "enter", "console", "login", "connect", "it"],
        "glovebox exec -t ID -- bash gives a terminal inside, glovebox run -t -- bash one in a fresh sandbox",
    ),
    ("", &["execute", "command", "cmd", "call", "eval"], "glovebox exec ID -- COMMAND runs something in a sandbox"),
    (
        "",
        &["copy", "upload", "download", "push", "put", "get", "pull", "scp", "rsync"],
        "glovebox cp FILE ID:PATH copies into a sandbox, glovebox cp ID:PATH . out of it",
    ),
    ("", &["cat", "read"], "glovebox files read ID PATH writes a file of a sandbox to standard output"),
    ("", &["write", "touch", "tee"], "glovebox files write ID PATH writes standard input to a file of a sandbox"),
    ("", &["mkdir"], "glovebox files mkdir ID PATH makes a folder in a sandbox"),
    ("", &["mv", "move"], "glovebox files move ID PATH TO gives a file of a sandbox another path"),
    ("", &["chmod"], "glovebox files chmod ID PATH MODE sets permissions in a sandbox"),
    (
        "",
        &["rename", "tag"],
        "a sandbox has the name that glovebox create --name NAME gave it; glovebox create --label K=V marks it",
    ),
    (
        "",
        &["update", "set", "config", "configure"],
        "a sandbox keeps the flags of its glovebox create; make another one",
    ),
    ("", &["version"], "glovebox --version"),
    ("", &["image"], "the programs of this machine are the only image of this version; see glovebox doctor"),
    ("", &["cache", "caches"], "glovebox create --cache pip keeps what pip downloads, glovebox volumes list shows it"),
    ("files", &["ls", "dir", "show"], "glovebox files list ID [PATH]"),
    (
        "files",
        &["tree", "find"],
        "glovebox files list ID [PATH] lists one folder, glovebox exec ID -- find . all below",
    ),
    ("files", &["cat", "get", "print"], "glovebox files read ID PATH"),
    ("files", &["put", "save", "create", "touch", "new", "edit"], "glovebox files write ID PATH takes standard input"),
    ("files", &["rm", "delete", "del", "unlink", "rmdir"], "glovebox files remove ID PATH..."),
    ("files", &["mv", "rename"], "glovebox files move ID PATH TO"),
    ("files", &["info", "inspect"], "glovebox files stat ID PATH"),
    (
        "files",
        &["cp", "copy", "upload", "download", "push", "pull", "add"],
        "glovebox cp FILE ID:PATH copies into a sandbox, glovebox cp ID:PATH . out of it",
    ),
    ("runs", &["ls", "ps"], "glovebox runs list"),
    ("runs", &["inspect", "info", "get", "describe"], "glovebox runs show RUN"),
    ("runs", &["log", "cat", "output", "tail"], "glovebox runs logs RUN"),
    ("runs", &["follow", "attach"], "glovebox attach RUN"),
    ("runs", &["wait"], "glovebox wait RUN"),
    ("runs", &["cancel", "stop", "kill", "end"], "glovebox cancel RUN"),
    ("runs", &["changes"], "glovebox changes RUN"),
    ("runs", &["apply"], "glovebox apply RUN"),
    ("runs", &["rm", "remove", "delete", "del"], "the record of a run stays; glovebox run --no-record leaves none"),
    ("volumes", &["ls"], "glovebox volumes list"),
    ("volumes", &["rm", "delete", "del", "destroy"], "glovebox volumes remove NAME..."),
    ("volumes", &["inspect", "info", "get"], "glovebox volumes show NAME"),
    ("volumes", &["new", "make", "add"], "glovebox volumes create NAME"),
    ("projects", &["ls"], "glovebox projects list"),
    ("projects", &["rm", "delete", "del", "destroy"], "glovebox projects remove NAME..."),
    ("projects", &["inspect", "info", "get"], "glovebox projects show NAME"),
    ("projects", &["new", "make", "init"], "glovebox projects create NAME"),
    ("projects", &["add", "upload", "put", "cp"], "glovebox projects files add NAME FILE..."),
    ("projects files", &["ls"], "glovebox projects files list NAME"),
    ("projects files", &["rm", "delete", "del"], "glovebox projects files remove NAME FILE..."),
    ("projects files", &["cat", "read", "download", "show"], "glovebox projects files get NAME FILE"),
    ("projects files", &["put", "upload", "cp", "write", "create"], "glovebox projects files add NAME FILE..."),
];

/// Verbs (`*` for any), flags that they do not have, and the hint for them.
const FLAGS: &[(&[&str], &[&str], &str)] = &[
    (
        &["run", "exec"],
        &["-i", "--interactive", "--tty"],
        "-t alone gives the program a terminal; its standard input is yours anyway",
    ),
    (&["run", "exec", "create"], &["-e"], "--env K=V sets a variable"),
    (&["run", "create"], &["-m"], "--memory SIZE"),
    (&["run", "create"], &["-u"], "--user USER"),
    (&["run", "exec"], &["-w", "--cwd", "-C"], "--workdir DIR starts in this folder of the sandbox"),
    (&["create"], &["-w", "--cwd"], "--workspace DIR makes a folder of this machine the working directory"),
    (&["run", "create"], &["-p", "--publish", "--port"], "reaching a server inside comes with a later version"),
    (&["run"], &["--rm"], "leave it out: the sandbox of a run is gone afterwards"),
    (
        &["run"],
        &["-d", "--detach"],
        "glovebox create --name box, then glovebox exec --detach box -- COMMAND does not wait",
    ),
    (
        &["run"],
        &["--name"],
        "glovebox create --name NAME makes a sandbox that stays, glovebox exec NAME runs something in it",
    ),
    (
        &["run"],
        &["--idle-timeout", "--max-age"],
        "--keep DURATION leaves the sandbox until it was not used for so long",
    ),
    (&["create"], &["-d", "--detach", "--keep"], "leave it out: a sandbox that is created stays"),
    (&["create"], &["--rm"], "leave it out: --idle-timeout and --max-age say when the sandbox ends by itself"),
    (&["create"], &["-n"], "--name NAME"),
    (
        &["create"],
        &["--timeout"],
        "--timeout belongs to a run: glovebox exec --timeout 5m; --idle-timeout and --max-age say when the sandbox ends",
    ),
    (
        &["create"],
        &["-t", "--terminal", "-i"],
        "glovebox create makes the sandbox, then glovebox exec -t ID -- bash gives a terminal inside",
    ),
    (
        &["create"],
        &["--secret", "--file", "--artifact", "--stdin", "--workdir", "--language", "--code", "-l", "-c"],
        "it belongs to a run: give it to glovebox exec",
    ),
    (
        &["exec"],
        &[
            "--memory",
            "--cpus",
            "--pids",
            "--disk",
            "--inodes",
            "--open-files",
            "--network",
            "--user",
            "-m",
            "-u",
            "--workspace",
            "--workspace-mode",
            "--mount",
            "--volume",
            "--project",
            "--cache",
            "--toolchain",
            "--idle-timeout",
            "--max-age",
            "--image",
            "--isolation",
            "--require-layer",
        ],
        "it belongs to the sandbox: give it to glovebox create",
    ),
    (&["exec"], &["--name"], "the name of the sandbox stands alone: glovebox exec NAME -- COMMAND"),
    (&["list"], &["-a", "--all"], "all that live are shown; --ended adds those that ended by themselves"),
    (&["list"], &["-q", "--quiet"], "--ids prints only the ids"),
    (&["list"], &["--name"], "glovebox show NAME shows one sandbox"),
    (&["list"], &["-f", "--filter", "--project"], "--label K=V and --state STATE choose"),
    (&["runs list"], &["-n"], "--limit NUMBER"),
    (
        &["runs list"],
        &["-a", "--all"],
        "leave it out: all runs are listed, the newest 50 first; --limit NUMBER lists more",
    ),
    (&["runs logs"], &["-f", "--follow"], "glovebox attach RUN follows a run at work"),
    (
        &["stop", "start", "pause", "resume", "reset"],
        &["-a", "--all"],
        "name them: $(glovebox list --ids) are all that live",
    ),
    (&["destroy"], &["-a"], "--all is every sandbox there is"),
    (&["destroy"], &["-f", "--force"], "leave it out: what is named is destroyed at once; --yes answers for --all"),
    (
        &["stop", "files remove", "volumes remove", "projects remove"],
        &["-f", "--force"],
        "leave it out: nothing is asked",
    ),
    (&["files remove"], &["-rf", "-R"], "-r removes folders with all that is in them"),
    (&["files write"], &["-p", "--parents"], "glovebox files mkdir -p ID PATH makes the folders first"),
    (&["files list"], &["-l", "-a", "-la", "-al"], "leave it out: all is listed, with sizes and times"),
    (&["files list"], &["-r", "-R", "--recursive"], "glovebox exec ID -- find . lists all below"),
    (
        &["usage"],
        &["-n", "--interval"],
        "--follow looks every second; glovebox top --interval looks as often as you like",
    ),
];

/// Verbs that take no argument, or fewer, and the hint; `{}` is the word that was too many.
const ARGUMENTS: &[(&str, &str)] = &[
    ("create", "--name {} gives the sandbox that name; glovebox exec ID -- COMMAND then runs something in it"),
    ("list", "glovebox show {} shows one sandbox, glovebox files list {} its files"),
    ("top", "glovebox usage --follow {} watches one sandbox; in glovebox top Enter shows one alone"),
    ("runs list", "--sandbox {} lists the runs of a sandbox, glovebox runs show {} shows a run"),
    ("volumes list", "glovebox volumes show {}"),
    ("projects list", "glovebox projects show {}"),
    ("show", "glovebox show ID takes one sandbox"),
    ("usage", "glovebox usage ID takes one sandbox; glovebox top watches all"),
    ("gc", "glovebox gc removes what dead processes left; glovebox destroy ID ends a sandbox"),
    ("cp", "glovebox cp SRC DST takes two paths; a folder is copied with all that is in it, without -r"),
    (
        "files write",
        "glovebox files write ID PATH takes its content from standard input, as in: echo hi | glovebox files write ID PATH",
    ),
    ("files read", "glovebox files read ID PATH takes one file"),
    ("files mkdir", "glovebox files mkdir ID PATH makes one folder"),
    ("files list", "glovebox files list ID PATH takes one folder"),
    ("attach", "glovebox attach RUN takes one run"),
    ("wait", "glovebox wait RUN takes one run"),
    ("cancel", "glovebox cancel RUN takes one run"),
];

/// Verbs whose arguments read better than as they are listed.
const SHAPES: &[(&str, &str)] = &[
    ("exec", "glovebox exec ID -- COMMAND, or glovebox exec ID FILE"),
    ("cp", "glovebox cp FILE ID:PATH, or glovebox cp ID:PATH FILE"),
];

/// The hint for a word that is no verb below `verbs`.
pub(super) fn verb(verbs: &str, word: &str) -> Option<&'static str> {
    let word = word.to_ascii_lowercase();
    VERBS.iter().find(|(below, words, _)| *below == verbs && words.contains(&word.as_str())).map(|(_, _, hint)| *hint)
}

/// The hint for a flag that a verb does not have.
pub(super) fn flag(verbs: &str, flag: &str) -> Option<&'static str> {
    FLAGS.iter().find(|(of, flags, _)| of.contains(&verbs) && flags.contains(&flag)).map(|(_, _, hint)| *hint)
}

/// The hint for a word too many.
pub(super) fn argument(verbs: &str, word: &str) -> Option<String> {
    ARGUMENTS.iter().find(|(of, _)| *of == verbs).map(|(_, hint)| hint.replace("{}", word))
}

/// How the arguments of a verb are typed.
pub(super) fn shape(verbs: &str) -> Option<&'static str> {
    SHAPES.iter().find(|(of, _)| *of == verbs).map(|(_, shape)| *shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{args, later};

    fn find<'a>(command: &'a clap::Command, verbs: &str) -> &'a clap::Command {
        verbs
            .split_whitespace()
            .fold(command, |at, verb| at.find_subcommand(verb).unwrap_or_else(|| panic!("{verbs:?} is no verb")))
    }

    #[test]
    fn no_word_of_another_tool_is_one_of_ours() {
        let command = args::command();
        for (below, words, _) in VERBS {
            let at = find(&command, below);
            for word in *words {
                assert!(at.find_subcommand(word).is_none(), "{below} {word} is a verb");
                assert!(!later::has_verb(below, word), "{below} {word} comes later");
                assert_eq!(
                    VERBS.iter().filter(|(b, w, _)| b == below && w.contains(word)).count(),
                    1,
                    "{below} {word}"
                );
            }
        }
    }

    #[test]
    fn no_flag_of_another_tool_is_one_of_ours() {
        let command = args::command();
        for (verbs, flags, _) in FLAGS {
            for verb in *verbs {
                let verb = find(&command, verb);
                for flag in *flags {
                    let is_ours = verb.get_arguments().any(|arg| {
                        arg.get_long().is_some_and(|long| *flag == format!("--{long}"))
                            || arg.get_short().is_some_and(|short| *flag == format!("-{short}"))
                    });
                    assert!(!is_ours, "{} has {flag}", verb.get_name());
                }
            }
        }
        ARGUMENTS.iter().for_each(|(verbs, _)| assert!(!find(&command, verbs).has_subcommands()));
        SHAPES.iter().for_each(|(verbs, _)| assert!(!find(&command, verbs).has_subcommands()));
    }

    #[test]
    fn every_verb_and_flag_that_a_hint_names_is_there() {
        let command = args::command();
        let all = VERBS.iter().map(|row| row.2).chain(FLAGS.iter().map(|row| row.2));
        let all = all.chain(ARGUMENTS.iter().chain(SHAPES).map(|row| row.1)).chain(later::hints());
        for hint in all {
            for call in hint.split("glovebox ").skip(1) {
                let mut verb = &command;
                let call = call.split([';', ',', ')']).next().unwrap_or_default();
                for word in call.split(' ').take_while(|word| *word != "--") {
                    if let Some(flag) = word.strip_prefix("--") {
                        let has = |at: &clap::Command| at.get_arguments().any(|arg| arg.get_long() == Some(flag));
                        assert!(has(verb) || flag == "version", "{hint}: {flag}");
                    } else if let Some(below) = verb.find_subcommand(word) {
                        verb = below;
                    } else {
                        assert!(verb.get_name() != "glovebox" || word.starts_with('-'), "{hint}: {word}");
                    }
                }
            }
        }
    }
}
