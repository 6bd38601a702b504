//! Hello world in every language, run by the program as users get it.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use glovebox_core::Language;

use crate::{
    need,
    suites::{Counts, command, read},
    toolchains,
    tree::built,
};

/// Languages whose toolchain is not installed for a test: the ending of the example, the program, and why not.
const NOT_INSTALLED: [(&str, &str, &str); 2] = [
    ("ps1", "pwsh", "Debian, npm and PyPI have no PowerShell for Linux that does not come from elsewhere"),
    ("kts", "kotlinc", "Debian's kotlin brings 71 packages, of the year 2019"),
];

/// Programs in C# that do not end well, what they end with, and what they say.
const WRONG_CSHARP: [(&str, i32, &str); 3] = [
    ("class X { static void Main() { int y = \"a\"; } }", 1, "error CS0029"),
    ("class X { static void Main() { throw new System.Exception(\"boom\"); } }", 134, "System.Exception: boom"),
    ("class X { static int Main() { System.Console.Error.WriteLine(\"said\"); return 7; } }", 7, "said"),
];

/// The suite. Toolchains that are not the system's are listed as a caller would.
pub(crate) fn examples() -> Result<Counts> {
    let glovebox = built("release", "glovebox").to_string_lossy().into_owned();
    let mut counts = Counts::default();
    for language in Language::ALL {
        let ending = language.endings[0];
        let example = format!("examples/hello.{ending}");
        let absent = NOT_INSTALLED.iter().find(|(of, program, _)| *of == ending && need::find(program).is_none());
        if let Some((_, program, why)) = absent {
            counts.skipped += 1;
            counts.reasons.push(format!("{example}: there is no {program} here, and {why}"));
            continue;
        }
        let mut argv = vec![glovebox.clone(), "run".into()];
        if let Some(folder) = own_toolchain(ending)? {
            argv.extend(["--toolchain".into(), folder.to_string_lossy().into_owned()]);
        }
        let hello: Vec<&str> = argv.iter().map(String::as_str).chain([example.as_str()]).collect();
        let text = read(&hello)?;
        print!("{example}: {text}");
        ensure!(text.starts_with("hello, world!"), "{example} did not say hello");
        counts.passed += 1;
        if ending == "cs" {
            counts.passed += wrong_csharp(&argv)?;
        }
    }
    Ok(counts)
}

/// The folder of a toolchain that is not the system's: Rust's is the one of whoever tests.
fn own_toolchain(ending: &str) -> Result<Option<PathBuf>> {
    match ending {
        "rs" => Ok(Some(read(&["rustc", "--print", "sysroot"])?.trim_end().into())),
        "cs" if need::find("dotnet").is_none() => Ok(Some(toolchains::dotnet()?)),
        _ => Ok(None),
    }
}

fn wrong_csharp(run: &[String]) -> Result<u64> {
    for (code, status, words) in WRONG_CSHARP {
        let argv: Vec<&str> = run.iter().map(String::as_str).chain(["-l", "c#", "-c", code]).collect();
        let output = command(&argv).output().context("glovebox cannot be started")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(status) && said.contains(words), "{code}: {}: {said}", output.status);
    }
    Ok(WRONG_CSHARP.len() as u64)
}
