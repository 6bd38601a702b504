//! Builds beside the suites, which wait more than they work, with what they leave of the processors.

use std::{
    fs::{self, File},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, ensure};

use crate::tree::{built, root};

/// A build beside the suites.
pub(crate) struct Beside {
    name: &'static str,
    child: Child,
}

impl Beside {
    /// Starts a build. What it prints is shown when it is waited for. It ends with this process.
    pub(crate) fn build(name: &'static str, argv: &[&str]) -> Result<Beside> {
        fs::create_dir_all(built("", "beside"))?;
        let output = File::create(Beside::log(name))?;
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "chrt", "--idle", "0"])
            .args(argv)
            .current_dir(root())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot start {name} beside the suites"))?;
        Ok(Beside { name, child })
    }

    /// Waits for its end, and shows what it printed. An error unless it exits with 0.
    pub(crate) fn wait(mut self) -> Result<()> {
        let status = self.child.wait()?;
        eprint!("{}", String::from_utf8_lossy(&fs::read(Beside::log(self.name))?));
        ensure!(status.success(), "{} ended with {status}", self.name);
        Ok(())
    }

    fn log(name: &str) -> std::path::PathBuf {
        built("beside", &format!("{name}.log"))
    }
}
