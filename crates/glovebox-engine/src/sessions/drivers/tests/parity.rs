//! Scripts that do the same in a session as by `python3 FILE`, `node FILE` and `bash FILE`: same output, same end.
//!
//! The scripts lie in `tests/conformance/parity`. What must differ in one is said in it, in a line `differs: STREAM: why`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{Session, system_python};

fn scripts(language: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance/parity").join(language);
    let mut found: Vec<_> =
        fs::read_dir(folder).expect("they are there").map(|e| e.expect("readable").path()).collect();
    found.sort();
    found
}

/// Compares each script, run by a program and in a session.
fn compare(language: &'static str, program: &Path, at_least: usize) {
    let scripts = scripts(language);
    assert!(scripts.len() >= at_least, "only {} scripts in {language}", scripts.len());
    let mut different = Vec::new();
    for script in scripts {
        let script = script.canonicalize().expect("it is there");
        let code = fs::read_to_string(&script).expect("a script is text");
        let differs = |stream: &str| code.lines().any(|line| line.contains(&format!("differs: {stream}: ")));
        let (plain_folder, session_folder) =
            (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let plain = Command::new("env")
            .arg("--default-signal=INT,QUIT")
            .arg(program)
            .arg(&script)
            .current_dir(plain_folder.path())
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::null())
            .output()
            .expect("the program is there");
        let mut session =
            Session::start_in(language, session_folder.path(), Some(program).filter(|_| language != "bash"));
        let seen = session.run(&code);
        let status = seen.code.map(i32::from).or(seen.died.and_then(|status| status.code()));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut unlike = |stream: &str, plain: String, session: String| {
            if plain != session && !differs(stream) {
                different.push(format!("{}: {stream}\n--- plain\n{plain}\n--- session\n{session}", script.display()));
            }
        };
        unlike("stdout", text(&plain.stdout), seen.out.clone());
        unlike("stderr", without_names(&text(&plain.stderr), &script), without_names(&seen.err, &script));
        unlike("code", format!("{:?}", plain.status.code()), format!("{status:?}"));
    }
    assert!(different.is_empty(), "{}", different.join("\n\n"));
}

/// What is written without what always differs: the name of the source, frames of node, where it sets its marks, and its
/// version.
fn without_names(text: &str, script: &Path) -> String {
    let name = script.to_str().expect("text");
    let text = text.replace(name, "SOURCE").replace("<run 1>", "SOURCE").replace("<run-1>", "SOURCE");
    let is_node = script.extension().is_some_and(|ending| ending == "js");
    let marks = |line: &str| is_node && !line.is_empty() && line.chars().all(|c| c == ' ' || c == '^');
    let same = |line: &&str| !line.trim_start().starts_with("at ") && !line.starts_with("Node.js v") && !marks(line);
    let lines: Vec<String> = text.lines().filter(same).map(|line| shell_place(line, "SOURCE")).collect();
    lines.join("\n").trim_end().to_owned()
}

/// A message of bash without the place that stands before it.
fn shell_place(line: &str, name: &str) -> String {
    let rest = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(": line "));
    match rest.and_then(|rest| rest.split_once(": ")) {
        Some((_, message)) => format!("bash: {message}"),
        None => line.to_owned(),
    }
}

#[test]
fn python_scripts_do_the_same_in_a_session() {
    compare("python", system_python("python").unwrap_or(Path::new("python3")), 32);
}

#[test]
fn javascript_scripts_do_the_same_in_a_session() {
    compare("javascript", Path::new("node"), 20);
}

#[test]
fn bash_scripts_do_the_same_in_a_session() {
    compare("bash", Path::new("bash"), 10);
}
