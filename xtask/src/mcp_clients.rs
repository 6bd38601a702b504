//! `glovebox mcp` with clients of other code bases: the official SDKs, from their registries, installed below target/ once.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::{
    suites::{Counts, read, run, run_and_read},
    tree::{built, root},
};

/// The versions that were looked at. Newer ones come when somebody looks at them.
const PYTHON_SDK: &str = "mcp==2.3.0";
const TYPESCRIPT_SDK: &str = "@modelcontextprotocol/sdk@1.32.2";

/// All tests of the official Python SDK, over every version of the protocol.
pub(crate) fn python_sdk() -> Result<Counts> {
    let python = python()?;
    counted(&[text(&python)?, "tests/mcp/python_sdk.py", &glovebox()])
}

/// Those of the newest protocol, with sandboxes of a Docker engine, by the program that the suites of Docker build.
pub(crate) fn python_sdk_on(docker: &str, image: &str) -> Result<Counts> {
    let (python, glovebox) = (python()?, built("debug", "glovebox"));
    let host = format!("DOCKER_HOST={docker}");
    let flags = ["--backend", "docker", "--image", image];
    counted(&[&["env", &host, text(&python)?, "tests/mcp/python_sdk.py", text(&glovebox)?], &flags[..]].concat())
}

/// All tests of the official TypeScript SDK.
pub(crate) fn typescript_sdk() -> Result<Counts> {
    let folder = built("mcp", "typescript");
    if !folder.join("node_modules").exists() {
        std::fs::create_dir_all(&folder)?;
        run(&["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", text(&folder)?, TYPESCRIPT_SDK])?;
    }
    let script = root().join("tests/mcp/typescript_sdk.mjs");
    counted(&["env", "-C", text(&folder)?, "node", text(&script)?, &glovebox()])
}

/// The example of an agent.
pub(crate) fn example() -> Result<Counts> {
    let said = read(&[text(&python()?)?, "examples/agents/mcp_client.py", &glovebox()])?;
    print!("{said}");
    ensure!(said.ends_with("done: median() is mended; 2 tests pass.\n"), "the agent did not finish its task");
    Ok(Counts::one())
}

/// A Python that has the SDK.
fn python() -> Result<PathBuf> {
    let folder = built("mcp", "python");
    let python = folder.join("bin/python");
    let has_sdk = || {
        let found = run_and_read(&[text(&python)?, "-m", "pip", "freeze", "--quiet"])?;
        Ok::<_, anyhow::Error>(found.1.lines().any(|line| line == PYTHON_SDK))
    };
    if !python.exists() || !has_sdk()? {
        // The system's own: a shim of somebody's home would tie the tests to it.
        run(&["/usr/bin/python3", "-m", "venv", "--clear", text(&folder)?])?;
        run(&[text(&python)?, "-m", "pip", "install", "--quiet", PYTHON_SDK])?;
    }
    Ok(python)
}

/// The program that users get, which the suites before have built.
fn glovebox() -> String {
    built("release", "glovebox").to_string_lossy().into_owned()
}

/// Runs a script whose last line says how many passed and failed.
fn counted(argv: &[&str]) -> Result<Counts> {
    let (ok, text) = run_and_read(argv)?;
    let counts = super::test::count_conformance(&text);
    ensure!(ok || counts.failed > 0, "{} ended before a test failed", argv.join(" "));
    ensure!(counts.passed > 0, "{} printed no summary that was understood", argv.join(" "));
    Ok(counts)
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}
