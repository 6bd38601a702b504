//! End-to-end tests of the `glovebox` binary: what people type, and what they get.

mod as_user;
mod bad_input;
mod changes;
mod configuration;
mod detached;
mod doctor;
mod endings;
mod files;
mod flags;
mod help;
mod hosts;
mod images;
mod languages;
mod left_terminals;
mod living;
mod mcp;
mod prove;
mod result;
mod running;
mod runs;
mod secrets;
mod sessions;
mod several;
mod slips;
mod storage;
mod terminal;
mod tmux;
mod top;
mod trust;
mod views;
mod without_namespaces;

use std::{
    ffi::OsStr,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

/// A folder to stand in and a way to call the binary from there, with nothing of the tester's own settings.
struct Bench {
    dir: TempDir,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir_all(dir.path().join("home/.config/glovebox")).expect("a home");
        std::fs::create_dir(dir.path().join("work")).expect("a folder to work in");
        Bench { dir }
    }

    /// The folder that commands are called in.
    fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.work().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
        std::fs::write(&path, text).expect("a file");
        path
    }

    /// The binary with these arguments, no input, and a data folder of its own.
    fn glovebox<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_glovebox"));
        command.args(args).current_dir(self.work()).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("GLOVEBOX_") {
                command.env_remove(name);
            }
        }
        command.env_remove("XDG_CONFIG_HOME").env("HOME", self.home());
        command.env("GLOVEBOX_DATA_DIR", self.data());
        command
    }

    /// The data folder of all calls.
    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Calls the binary and returns what it did.
    fn call<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Called {
        Called::new(self.glovebox(args).output().expect("the binary runs"))
    }

    /// The same with input.
    fn call_with_input<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>, input: &[u8]) -> Called {
        let child = spawn_piped(&mut self.glovebox(args));
        Called::new(feed(child, input))
    }

    /// Calls `glovebox run --json ARGS` and returns the document.
    fn result(&self, args: &[&str]) -> Value {
        self.call(["run", "--json"].iter().chain(args)).document()
    }

    /// Calls `glovebox run --json ARGS`, which must fail, and returns the code of the error and the exit code.
    fn error(&self, args: &[&str]) -> (String, i32) {
        let called = self.call(["run", "--json"].iter().chain(args));
        let document = called.document();
        let error = document.get("error").unwrap_or_else(|| panic!("{args:?} gave no error: {document}"));
        assert!(!error["message"].as_str().expect("a message").is_empty());
        (error["code"].as_str().expect("a code").to_owned(), called.code)
    }
}

/// What a call gave.
#[derive(Debug)]
struct Called {
    code: i32,
    stdout: Vec<u8>,
    stderr: String,
}

impl Called {
    fn new(output: Output) -> Self {
        Called {
            code: output.status.code().unwrap_or_else(|| panic!("glovebox was killed: {output:?}")),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("text on standard output")
    }

    /// The one document on standard output.
    fn document(&self) -> Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("not one JSON document ({error}): {self:?}"))
    }

    #[track_caller]
    fn expect(&self, code: i32, stdout: &str) {
        assert_eq!((self.code, self.text()), (code, stdout), "stderr: {}", self.stderr);
    }
}

fn spawn_piped(command: &mut Command) -> Child {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    piped.spawn().expect("the binary starts")
}

/// Writes the input from a thread while the output is read, as a shell would.
fn feed(mut child: Child, input: &[u8]) -> Output {
    let mut stdin = child.stdin.take().expect("a pipe");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // A program that does not read its input closes the pipe; that is its right.
            let _ = stdin.write_all(input);
        });
        child.wait_with_output().expect("the binary ends")
    })
}

/// Puts a copy of the binary where an ordinary user may start it.
///
/// Another process writes it: what this one has open for writing is for a moment open in each child that another test starts, and a file
/// that anybody may write cannot be executed.
fn copy_of_the_binary(target: &Path) {
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_glovebox")).arg(target).status().expect("cp runs");
    assert!(copied.success(), "the binary cannot be copied to {}", target.display());
}

/// Whether a process of the host has this word among its arguments.
fn is_running(word: &str) -> bool {
    let entries = std::fs::read_dir("/proc").expect("/proc");
    entries.filter_map(Result::ok).any(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())
    })
}

/// Folders below `root` whose name holds `word`.
fn folders_with(root: &Path, word: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name().to_string_lossy().contains(word) {
                    found.push(entry.path());
                }
                open.push(entry.path());
            }
        }
    }
    found
}
