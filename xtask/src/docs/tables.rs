//! Reference pages that are tables in the code already.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use glovebox_core::{Cache, ErrorCode, Language, Layer, Limits};

use super::{Page, fields};

/// The page of error codes.
pub(super) fn errors() -> Page {
    let mut text = String::from(
        "# Error codes\n\n\
         An error means that Glovebox could not do its part. How a program ended is never an error; it is an\n\
         [outcome](result.md#outcome). With `--json` an error is\n\
         `{\"error\": {\"code\": \"…\", \"message\": \"…\", \"hint\": \"…\"}}` on standard output.\n\
         The codes and exit codes are stable.\n\n\
         | code | exit code | meaning |\n| --- | --- | --- |\n",
    );
    for code in ErrorCode::ALL {
        let _ = writeln!(text, "| `{}` | {} | {} |", code.as_str(), code.exit_code(), code.meaning());
    }
    Page::markdown("errors", &text)
}

/// The page of isolation layers.
pub(super) fn layers() -> Page {
    let mut text = String::from(
        "# Layers of isolation\n\n\
         Outermost first. `isolation.present` of a [result](result.md) lists the layers that were set up and then\n\
         checked; `isolation.missing` lists the rest, by request (`--network full` gives up `network_ns`) or because\n\
         the host cannot give them.\n\n\
         | layer | what it does |\n| --- | --- |\n",
    );
    for layer in Layer::ALL {
        let _ = writeln!(text, "| `{}` | {} |", layer.as_str(), layer.meaning());
    }
    Page::markdown("layers", &text)
}

/// The page of limits and their defaults.
pub(super) fn limits() -> Result<Page> {
    let Limits { memory, cpus, pids, disk, inodes, open_files, timeout, grace, output, output_kill } =
        Limits::default();
    let defaults = [
        ("memory", "--memory", size(memory)),
        ("cpus", "--cpus", cpus.to_string()),
        ("pids", "--pids", pids.to_string()),
        ("disk", "--disk", size(disk)),
        ("inodes", "--inodes", inodes.to_string()),
        ("open_files", "--open-files", open_files.to_string()),
        ("timeout", "--timeout", format!("{} s", timeout.as_secs_f64())),
        ("grace", "--grace", format!("{} s", grace.as_secs_f64())),
        ("output", "--output-limit", size(output)),
        ("output_kill", "--output-limit-kill", if output_kill { "on" } else { "off" }.to_owned()),
    ];
    let fields = fields::of("crates/glovebox-core/src/limits.rs", "Limits")?;
    let mut text = String::from(
        "# Limits\n\n\
         All limits are held from outside of the sandbox. A limit above what the host has is lowered to it, and\n\
         `limits.lowered` of the [result](result.md) says so. Sizes are binary: `512m`, `512mb` and `512MiB` are the\n\
         same. Durations are `500ms`, `30s`, `5m`, `1h30m`. Zero and negative values are refused.\n\n\
         | flag | default | what it holds |\n| --- | --- | --- |\n",
    );
    for (name, flag, default) in defaults {
        let field = fields.iter().find(|field| field.name == name).with_context(|| format!("Limits has no {name}"))?;
        let doc = field.doc.replace("`Limits::output`", "`--output-limit`");
        let _ = writeln!(text, "| `{flag}` | {default} | {doc} |");
    }
    Ok(Page::markdown("limits", &text))
}

/// The page of caches.
pub(super) fn caches() -> Page {
    let mut text = String::from(
        "# Caches\n\n\
         `--cache TOOL` of `run` and `create` shows the sandbox a volume that outlives it, and sets the variables by which the\n\
         tool finds it; `--env` wins over them. `--cache all` gives all of them. A sandbox without a project has the volume\n\
         of this table; a [project](../guides/projects-and-volumes.md) has its own.\n\n\
         | `--cache` | volume | where | variables | what is kept |\n| --- | --- | --- | --- | --- |\n",
    );
    for cache in Cache::ALL {
        let pairs: Vec<String> = cache.variables().iter().map(|(name, value)| format!("`{name}={value}`")).collect();
        let (volume, target) = (cache.volume(), cache.target());
        let _ = writeln!(text, "| `{cache}` | `{volume}` | `{target}` | {} | {} |", pairs.join(", "), cache.holds());
    }
    Page::markdown("caches", &text)
}

/// The page of languages.
pub(super) fn languages() -> Page {
    let mut text = String::from(
        "# Languages\n\n\
         `glovebox run FILE` takes the language from the file's ending, else from its `#!` line;\n\
         `glovebox run -l LANGUAGE -c CODE` takes it by name. The first way whose program is there is taken. Programs are\n\
         those of the system's own folders (`/usr`, `/opt`), and those of the folders that `--toolchain DIR` or your own\n\
         configuration file names (`toolchain = [\"~/.rustup/toolchains/stable-x86_64-unknown-linux-gnu\"]`).\n\n\
         | language | also called | files | run by | how to get it |\n| --- | --- | --- | --- | --- |\n",
    );
    let listed = |words: &[&str], before: &str| -> String {
        words.iter().map(|word| format!("`{before}{word}`")).collect::<Vec<_>>().join(", ")
    };
    for Language { name, aliases, endings, ways, .. } in Language::ALL {
        for (i, way) in ways.iter().enumerate() {
            let first = |text: String| if i == 0 { text } else { String::new() };
            let (name, aliases, endings) =
                (first((*name).into()), first(listed(aliases, "")), first(listed(endings, ".")));
            let step = if way.compile.is_some() { ", compiled" } else { "" };
            let programs = listed(way.programs, "");
            let _ = writeln!(text, "| {name} | {aliases} | {endings} | {programs}{step} | {} |", way.install);
        }
    }
    text.push_str(
        "\n## Compiled languages\n\n\
         The compile step runs in the sandbox of the run, before the program and within the same limits; its environment is\n\
         clean: neither `--env` nor `--secret` reaches it. The result tells the steps apart: [`compile`](result.md#compile)\n\
         holds the compiler's own output, outcome and usage, and `step` says which step the outcome is of.\n\n\
         What a lone file was compiled to is kept below the data folder, in `programs/`, and used again for the same\n\
         source, compiler and command line. With a workspace, `--file` or `--mount` every run compiles.\n\n\
         Go from 1.20 on comes without a compiled standard library, so each new program compiles what it needs of it: ten\n\
         seconds for hello world. `GODEBUG=installgoroot=all go install std`, once on your machine, makes it half a second.\n\n\
         | language | compile step | run step |\n| --- | --- | --- |\n",
    );
    for language in Language::ALL {
        for way in language.ways {
            let Some(form) = &way.compile else { continue };
            let _ = writeln!(text, "| {} | {} | {} |", language.name, shown(form.argv), shown(way.file));
        }
    }
    text.push_str(
        "\n## Variables\n\nSet where the language is known, unless `--env` says something else; `{cpus}` is the limit.\n\n\
         | language | variables |\n| --- | --- |\n",
    );
    for language in Language::ALL {
        for way in language.ways.iter().filter(|way| !way.env.is_empty()) {
            let pairs: Vec<String> = way.env.iter().map(|(name, value)| format!("`{name}={value}`")).collect();
            let _ = writeln!(text, "| {} | {} |", language.name, pairs.join(", "));
        }
    }
    Page::markdown("languages", &text)
}

/// A command line for a page; a script in it is not repeated there.
fn shown(words: &[&str]) -> String {
    let words: Vec<&str> = words.iter().map(|word| if word.contains('\n') { "SCRIPT" } else { word }).collect();
    format!("`{}`", words.join(" "))
}

fn size(bytes: u64) -> String {
    match bytes {
        b if b % (1 << 30) == 0 => format!("{} GiB", b >> 30),
        b if b % (1 << 20) == 0 => format!("{} MiB", b >> 20),
        b => format!("{b} bytes"),
    }
}
