//! `glovebox man DIR`: writes the man pages, for packages and for the docs.

use std::{fs, io, path::Path};

use glovebox_core::{Error, ErrorCode, Result};
use serde_json::json;

use crate::{
    args::{self, Globals, ManArgs},
    report,
};

pub(crate) fn execute(globals: &Globals, args: &ManArgs) -> Result<u8> {
    let pages = write_pages(&args.dir).map_err(|error| {
        Error::new(ErrorCode::HostIo, format!("cannot write man pages to {}", args.dir.display())).because(error)
    })?;
    if globals.json {
        report::document(&json!({ "pages": pages }))?;
    } else {
        report::print(&pages.iter().map(|page| format!("{page}\n")).collect::<String>())?;
    }
    Ok(0)
}

/// Writes a page for the program and one for each verb that is not hidden.
fn write_pages(dir: &Path) -> io::Result<Vec<String>> {
    fs::create_dir_all(dir)?;
    let mut command = args::command();
    command.build();
    let mut pages = vec![write_page(dir, &command, "glovebox".to_owned())?];
    write_pages_below(dir, &command, "glovebox", &mut pages)?;
    Ok(pages)
}

fn write_pages_below(dir: &Path, command: &clap::Command, name: &str, pages: &mut Vec<String>) -> io::Result<()> {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help") {
        let name = format!("{name}-{}", verb.get_name());
        pages.push(write_page(dir, verb, name.clone())?);
        write_pages_below(dir, verb, &name, pages)?;
    }
    Ok(())
}

fn write_page(dir: &Path, command: &clap::Command, name: String) -> io::Result<String> {
    let path = dir.join(format!("{name}.1"));
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone().name(name)).render(&mut page)?;
    fs::write(&path, page)?;
    Ok(path.display().to_string())
}
