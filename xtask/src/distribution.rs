//! Building programs as they are distributed: static, optimised as a whole, for any Linux of this architecture.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::{
    need,
    suites::{read, run},
    tree::built,
};

/// Programs for this target need nothing of the system that they run on.
const TARGET: &str = "x86_64-unknown-linux-musl";

/// Builds packages, and says where their programs are.
pub(crate) fn build(packages: &[&str]) -> Result<PathBuf> {
    add_target()?;
    // SQLite and zstd are C code.
    need::tools(&[("musl-gcc", "musl-tools")])?;
    let mut argv = vec!["cargo", "build", "--profile", "dist", "--locked", "--target", TARGET];
    argv.extend(packages.iter().flat_map(|package| ["-p", package]));
    run(&argv)?;
    Ok(built(TARGET, "dist"))
}

/// Sees to it that the compiler knows the target.
fn add_target() -> Result<()> {
    let installed = read(&["rustup", "target", "list", "--installed"]).context("rustup is needed to add a target")?;
    if !installed.lines().any(|line| line == TARGET) {
        run(&["rustup", "target", "add", TARGET])?;
    }
    Ok(())
}
