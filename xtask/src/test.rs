//! The verb `test`: everything that must hold before a change goes in, from a machine that has Rust and nothing else.

use anyhow::{Result, ensure};

use crate::{
    beside::Beside,
    distribution, docker, docs, examples, mcp_clients, need,
    suites::{Counts, Suites, read, run, run_and_read},
    tidy,
    tree::{built, source_files},
};

/// What the suites use beside Rust, from the system's own folders: sandboxes see only those.
const TOOLS: [need::Tool; 35] = [
    ("cc", "gcc"),
    ("g++", "g++"),
    ("python3", "python3"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("tsc", "node-typescript"),
    ("bash", "bash"),
    ("git", "git"),
    ("ps", "procps"),
    ("setpriv", "util-linux"),
    ("newuidmap", "uidmap"),
    ("make", "make"),
    ("cmake", "cmake"),
    ("go", "golang-go"),
    ("javac", "default-jdk-headless"),
    ("ruby", "ruby"),
    ("php", "php-cli"),
    ("perl", "perl"),
    ("lua5.4", "lua5.4"),
    ("Rscript", "r-base-core"),
    ("sqlite3", "sqlite3"),
    ("zstd", "zstd"),
    ("shellcheck", "shellcheck"),
    ("dpkg-deb", "dpkg"),
    ("xz", "xz-utils"),
    ("tmux", "tmux"),
    ("vim", "vim"),
    ("htop", "htop"),
    ("less", "less"),
    ("/usr/lib/python3/dist-packages/numpy", "python3-numpy"),
    ("/usr/lib/python3/dist-packages/pandas", "python3-pandas"),
    ("/usr/lib/python3/dist-packages/matplotlib", "python3-matplotlib"),
    ("/usr/lib/python3/dist-packages/pip", "python3-pip"),
    ("/usr/share/python-wheels", "python3-venv"),
    ("lowntfs-3g", "ntfs-3g"),
];

/// The verb `test`.
pub(crate) fn test() -> Result<()> {
    need::root()?;
    need::tools(&TOOLS)?;
    let mut suites = Suites::new();
    suites.run("tidy", || Ok(Counts { passed: tidy::check()?, ..Counts::default() }));
    suites.run("format", || one(&["cargo", "fmt", "--all", "--check"]));
    suites.run("unit and integration tests", cargo_tests);
    suites.run("build of the suite", || {
        one(&["cargo", "build", "--locked", "--workspace", "--bins", "--example", "long_living"])
    });
    let clippy = Beside::build(
        "clippy",
        &["cargo", "clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"],
    );
    let release = Beside::build("release build", &["cargo", "build", "--release", "--locked"]);
    suites.run("conformance, native", || conformance(&[]));
    suites.run("… without namespaces", || conformance(&["--without-namespaces"]));
    suites.run("… as a user there", || conformance(&["--without-namespaces", "--as-user", "one-id"]));
    suites.run("… with files through the guest", || {
        conformance(&[
            "--through-guest",
            "workspace",
            "run_changes",
            "change_records",
            "artifacts",
            "mounts",
            "secrets",
        ])
    });
    suites.run("… as a user with sub-ids", || conformance(&["--as-user", "sub-ids"]));
    suites.run("… as a user without", || conformance(&["--as-user", "one-id"]));
    suites.run("… with groups of their own", || conformance(&["--as-user", "sub-ids", "--delegate"]));
    docker::suites(&mut suites);
    suites.run("clippy", || clippy?.wait().map(|()| Counts::one()));
    suites.run("the README's first command", || {
        release?.wait()?;
        first_command()
    });
    suites.run("examples", examples::examples);
    for example in ["embed", "coding_loop", "notebook"] {
        let words = ["cargo", "run", "--locked", "-p", "glovebox-engine", "--example", example];
        suites.run(&format!("example {example}"), || one(&words));
    }
    suites.run("MCP, the Python SDK", mcp_clients::python_sdk);
    suites.run("MCP, the TypeScript SDK", mcp_clients::typescript_sdk);
    suites.run("example mcp_client", mcp_clients::example);
    suites.run("shell scripts", shell_scripts);
    suites.run("install, use, remove", || distribution::like_this_machine(&built("release", "glovebox")));
    suites.run("generated docs", || {
        docs::check()?;
        Ok(Counts::one())
    });
    suites.finish()
}

fn one(argv: &[&str]) -> Result<Counts> {
    run(argv)?;
    Ok(Counts::one())
}

/// Every shell script of the tree, by its first line.
fn shell_scripts() -> Result<Counts> {
    let files = source_files()?;
    let is_script = |text: &str| text.lines().next().is_some_and(|line| line.starts_with("#!") && line.ends_with("sh"));
    let scripts: Vec<&str> = files.iter().filter(|file| is_script(&file.text)).map(|file| file.path.as_str()).collect();
    ensure!(scripts.contains(&"install.sh"), "install.sh was not found");
    run(&[&["shellcheck"], scripts.as_slice()].concat())?;
    Ok(Counts { passed: scripts.len() as u64, ..Counts::default() })
}

/// `cargo test`, whose summary lines are counted. Ignored tests are skips and named.
fn cargo_tests() -> Result<Counts> {
    let (ok, text) = run_and_read(&["cargo", "test", "--workspace", "--locked", "--no-fail-fast"])?;
    let counts = count_libtest(&text);
    ensure!(ok || counts.failed > 0, "cargo test failed before a test did");
    ensure!(counts.passed > 0, "no test ran");
    Ok(counts)
}

/// Adds up `test result: ok. 12 passed; 0 failed; 1 ignored; …`, takes the reasons from `test x ... ignored, why`, and what
/// failed from `thread 'x' panicked at`.
fn count_libtest(text: &str) -> Counts {
    let mut counts = Counts::default();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some((_, result)) = line.split_once("test result: ") {
            let number = |word: &str| {
                let head = result.split(word).next().unwrap_or_default();
                head.split_whitespace().next_back().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0)
            };
            counts.passed += number(" passed");
            counts.failed += number(" failed");
            counts.skipped += number(" ignored");
        } else if line.starts_with("test ") && line.contains(" ... ignored") {
            counts.reasons.push(line.trim_start_matches("test ").to_owned());
        } else if line.starts_with("thread '") && line.contains("panicked at") {
            // A test that did not hold says where, and on the next line why.
            counts.failures.push([line, lines.next().unwrap_or_default()].join(" "));
        }
    }
    counts
}

/// The conformance suite against the native backend. Its last line with counts is the summary.
fn conformance(flags: &[&str]) -> Result<Counts> {
    suite(&[], &[&["--backend", "native"], flags].concat())
}

/// One run of the suite: what starts it, and its flags.
pub(crate) fn suite(by: &[&str], flags: &[&str]) -> Result<Counts> {
    let program = built("debug", "conformance").to_string_lossy().into_owned();
    let argv = [by, &[program.as_str()], flags].concat();
    let (ok, text) = run_and_read(&argv)?;
    let counts = count_conformance(&text);
    ensure!(ok || counts.failed > 0, "the conformance suite ended before a case failed");
    ensure!(counts.passed > 0, "the conformance suite printed no summary that was understood");
    Ok(counts)
}

/// Reads the last line that holds `N passed`, and the reasons from the lines `skipped: CASE: WHY` behind it.
pub(crate) fn count_conformance(text: &str) -> Counts {
    let words = |line: &str| -> Vec<String> {
        line.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    let number = |words: &[String], word: &str| {
        let at = words.iter().position(|found| found == word)?;
        words.get(at.checked_sub(1)?)?.parse::<u64>().ok()
    };
    let summary = text.lines().rev().map(words).find(|words| number(words, "passed").is_some()).unwrap_or_default();
    let count = |word: &str| number(&summary, word).unwrap_or(0);
    Counts {
        passed: count("passed"),
        failed: count("failed"),
        skipped: count("skipped"),
        reasons: text.lines().filter_map(|line| line.trim().strip_prefix("skipped: ")).map(str::to_owned).collect(),
        failures: failed_cases(text),
    }
}

/// The lines `FAILED CASE`, each with the first of the indented lines behind it that say why.
fn failed_cases(text: &str) -> Vec<String> {
    let mut failures: Vec<String> = Vec::new();
    let mut of_failure = 0;
    for line in text.lines() {
        match (line.strip_prefix("FAILED "), failures.last_mut()) {
            (Some(name), _) => {
                failures.push(name.to_owned());
                of_failure = 3;
            }
            (None, Some(failure)) if of_failure > 0 && line.starts_with("    ") => {
                failure.push_str(&format!(" | {}", line.trim()));
                of_failure -= 1;
            }
            _ => of_failure = 0,
        }
    }
    failures
}

/// The first command of the README, word for word.
fn first_command() -> Result<Counts> {
    let text = read(&["cargo", "run", "--release", "--locked", "--", "run", "examples/hello.py"])?;
    print!("{text}");
    ensure!(!text.trim().is_empty(), "examples/hello.py printed nothing");
    Ok(Counts::one())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libtest_summaries_add_up() {
        let text = "test a ... ignored, needs v2\ntest result: ok. 3 passed; 0 failed; 1 ignored; 0 measured\n\
                    test result: FAILED. 2 passed; 4 failed; 0 ignored; 0 measured\n";
        let counts = count_libtest(text);
        assert_eq!((counts.passed, counts.failed, counts.skipped), (5, 4, 1));
        assert_eq!(counts.reasons, ["a ... ignored, needs v2"]);
        let text = "---- a stdout ----\nthread 'a' (7) panicked at x.rs:1:2:\nnot so\nnote: run with\n";
        assert_eq!(count_libtest(text).failures, ["thread 'a' (7) panicked at x.rs:1:2: not so"]);
    }

    #[test]
    fn the_last_line_with_counts_is_the_summary_of_the_conformance_suite() {
        let text = "ok a run passed\nskipped b\n    mounts\nconformance native: 84 passed, 1 failed, 1 skipped\n  skipped: b: mounts\n";
        let counts = count_conformance(text);
        assert_eq!((counts.passed, counts.failed, counts.skipped), (84, 1, 1));
        assert_eq!(counts.reasons, ["b: mounts"]);
        assert_eq!(count_conformance("nothing here"), Counts::default());
        let text = "ok a\nFAILED b\n    b.rs:1: why\n    more\nok c\n    not of b\nFAILED d\n";
        assert_eq!(count_conformance(text).failures, ["b | b.rs:1: why | more", "d"]);
    }
}
