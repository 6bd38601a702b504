//! What is done by another process than the one that runs the suites. Most suites wait more than they work, so builds go on beside them with what they
//! leave of the processors; Docker's suites have a process and an output of their own.

use std::{
    fs::{self, File},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
};

use anyhow::{Context, Result, ensure};

use crate::tree::{built, root};

/// A command that runs beside the suites.
pub(crate) struct Beside {
    name: &'static str,
    child: Child,
}

impl Beside {
    /// Starts a build.
    pub(crate) fn build(name: &'static str, argv: &[&str]) -> Result<Beside> {
        Beside::start(name, &[&["chrt", "--idle", "0"], argv].concat())
    }

    /// Starts a command. What it prints is shown when it is waited for. It ends with this process.
    fn start(name: &'static str, argv: &[&str]) -> Result<Beside> {
        fs::create_dir_all(built("", "beside"))?;
        let output = File::create(Beside::log(name))?;
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "TERM"])
            .args(argv)
            .current_dir(root())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot start {name} beside the suites"))?;
        Ok(Beside { name, child })
    }

    /// Starts a verb of this program that runs suites and writes to this file what became of them.
    pub(crate) fn suites(name: &'static str, verb: &[&str], told: &Path) -> Result<Beside> {
        if told.exists() {
            fs::remove_file(told)?;
        }
        // Not that of this process: a build of everything may have put another file in its place.
        let program = built("debug", "xtask");
        let program = program.to_str().context("the path of this program is not UTF-8")?;
        let beside = Beside::start(name, &[&[program], verb].concat())?;
        println!(
            "\n=== {name}: what they print comes at their end, and is until then in {}",
            Beside::log(name).display()
        );
        Ok(beside)
    }

    /// Waits for its end, and shows what it printed. An error unless it exits with 0.
    pub(crate) fn wait(self) -> Result<()> {
        let name = self.name;
        let status = self.end()?;
        ensure!(status.success(), "{name} ended with {status}");
        Ok(())
    }

    /// Waits for its end, and shows what it printed.
    pub(crate) fn end(mut self) -> Result<ExitStatus> {
        let status = self.child.wait()?;
        eprint!("{}", String::from_utf8_lossy(&fs::read(Beside::log(self.name))?));
        Ok(status)
    }

    fn log(name: &str) -> std::path::PathBuf {
        built("beside", &format!("{name}.log"))
    }
}
