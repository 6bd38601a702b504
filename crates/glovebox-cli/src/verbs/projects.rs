//! `glovebox projects`: files and storage that belong together and outlive sandboxes.

use std::{
    io::{ErrorKind, Write},
    path::PathBuf,
};

use glovebox_core::{Error, ErrorCode, ProjectName, Result, parse_count, parse_size, printable};
use glovebox_engine::{Engine, ProjectFile, ProjectRules, ProjectStatus};
use glovebox_native::NativeBackend;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    living::{engine, making_engine},
    runs::ago,
    runtime,
    several::each,
    volumes::used,
};
use crate::{
    args::{CreateProjectArgs, Globals, ProjectFilesVerb, ProjectsArgs, ProjectsVerb},
    flags::Flags,
    report,
    table::table,
    terminal,
};

pub(crate) fn execute(
    globals: &Globals,
    args: &ProjectsArgs,
    flags: &Flags,
    backend: Option<Result<NativeBackend>>,
) -> Result<u8> {
    match &args.verb {
        ProjectsVerb::Create(args) => create(globals, args, flags),
        ProjectsVerb::List => list(globals, &engine(globals, flags)?),
        ProjectsVerb::Show(args) => show(globals, &engine(globals, flags)?, &name(flags, &args.name)?),
        ProjectsVerb::Remove(args) => {
            let engine = making_engine(globals, flags, backend)?;
            let remove = async |text: &String| {
                let name = name(flags, text)?;
                engine.remove_project(&name).await.map(|()| name)
            };
            runtime()?.block_on(each(globals, &args.names, remove)).report(globals, "removed")
        }
        ProjectsVerb::Files(args) => files(globals, &args.verb, flags),
    }
}

fn name(flags: &Flags, text: &str) -> Result<ProjectName> {
    ProjectName::parse(text).map_err(|forms| flags.not_a_name("project", text, &forms))
}

fn create(globals: &Globals, args: &CreateProjectArgs, flags: &Flags) -> Result<u8> {
    let name = name(flags, &args.name)?;
    let types = flags.list("type", &args.r#type).into_iter().map(|text| flags.check("type", text, parse_ending));
    let rules = ProjectRules {
        size_bytes: flags.check("size", &args.size, parse_size)?,
        file_bytes: flags.check("file-size", &args.file_size, parse_size)?,
        files: flags.check("file-count", &args.file_count, parse_count)?,
        types: types.collect::<Result<_>>()?,
    };
    let engine = engine(globals, flags)?;
    engine.projects().create(&name, rules)?;
    if globals.json {
        report::document(&engine.show_project(&name)?)?;
    } else {
        report::print(&format!("{name}\n"))?;
    }
    Ok(0)
}

fn parse_ending(text: &str) -> Result<String, String> {
    let ending = text.trim_start_matches('.');
    if ending.is_empty() || ending.len() > 19 || !ending.chars().all(|c| c.is_ascii_alphanumeric()) {
        return Err("expected an ending such as csv or pdf".to_owned());
    }
    Ok(ending.to_ascii_lowercase())
}

fn list(globals: &Globals, engine: &Engine) -> Result<u8> {
    let projects = engine.list_projects()?;
    if globals.json {
        report::document(&json!({ "projects": projects }))?;
    } else if projects.is_empty() {
        report::say("there is no project; glovebox projects create NAME makes one");
    } else {
        let now = Timestamp::now();
        let row = |project: &ProjectStatus| {
            let sandboxes = if project.sandboxes.is_empty() { "-".to_owned() } else { project.sandboxes.join(", ") };
            let (name, files) = (project.name.to_string(), project.file_count.to_string());
            [name, files, used(project.used_bytes), ago(now, project.created_at), sandboxes]
        };
        let rows: Vec<_> = projects.iter().map(row).collect();
        let heading = ["PROJECT", "FILES", "VOLUME", "CREATED", "SANDBOXES"];
        report::print(&table(heading, &rows, terminal::output_columns()))?;
    }
    Ok(0)
}

fn show(globals: &Globals, engine: &Engine, name: &ProjectName) -> Result<u8> {
    let project = engine.show_project(name)?;
    let files = engine.projects().files(name)?.list()?;
    if globals.json {
        let unwritable =
            |error| Error::new(ErrorCode::Internal, "the project cannot be written as JSON").because(error);
        let mut document = serde_json::to_value(&project).map_err(unwritable)?;
        document["files"] = json!(files);
        report::document(&document)?;
        return Ok(0);
    }
    let rules = &project.rules;
    let types = if rules.types.is_empty() { "of any type".to_owned() } else { rules.types.join(", ") };
    let mut lines = vec![
        ("created", report::time(project.created_at)),
        ("volume", format!("{} of {}", used(project.used_bytes), report::size(rules.size_bytes))),
        ("takes", format!("{} files, each up to {}, {types}", rules.files, report::size(rules.file_bytes))),
    ];
    lines.extend(project.sandboxes.iter().map(|sandbox| ("sandbox", sandbox.clone())));
    lines
        .extend(files.iter().map(|file| ("file", printable(&format!("{} ({})", file.name, report::size(file.bytes))))));
    let body: String = lines.iter().map(|(name, text)| format!("  {name:10}{text}\n")).collect();
    report::print(&format!("{}\n{body}", project.name))?;
    Ok(0)
}

fn files(globals: &Globals, verb: &ProjectFilesVerb, flags: &Flags) -> Result<u8> {
    let of = |text: &str| engine(globals, flags)?.projects().files(&name(flags, text)?);
    match verb {
        ProjectFilesVerb::Add(args) => {
            let files = of(&args.name)?;
            let add = async |path: &PathBuf| {
                let file = files.add(path)?;
                if !globals.json {
                    report::print(&format!("{}\n", printable(&file.name)))?;
                }
                Ok(file)
            };
            return runtime()?.block_on(each(globals, &args.files, add)).report(globals, "files");
        }
        ProjectFilesVerb::List(args) => list_files(globals, &of(&args.name)?.list()?)?,
        ProjectFilesVerb::Get(args) => get(globals, &of(&args.name)?, &args.file)?,
        ProjectFilesVerb::Remove(args) => {
            let files = of(&args.name)?;
            let remove = async |file: &String| files.remove(file).map(|()| file.clone());
            return runtime()?.block_on(each(globals, &args.files, remove)).report(globals, "removed");
        }
    }
    Ok(0)
}

fn list_files(globals: &Globals, files: &[ProjectFile]) -> Result<()> {
    if globals.json {
        return report::document(&json!({ "files": files }));
    }
    if files.is_empty() {
        report::say("the project has no files; glovebox projects files add NAME FILE adds one");
        return Ok(());
    }
    let now = Timestamp::now();
    let row = |file: &ProjectFile| {
        let hash = file.sha256.chars().take(12).collect();
        [report::size(file.bytes), ago(now, file.added_at), hash, printable(&file.name)]
    };
    let rows: Vec<_> = files.iter().map(row).collect();
    report::print(&table(["SIZE", "ADDED", "SHA-256", "FILE"], &rows, terminal::output_columns()))
}

/// Writes a file to standard output, or what is known of it as a document.
fn get(globals: &Globals, files: &glovebox_engine::ProjectFiles, file: &str) -> Result<()> {
    if globals.json {
        let document: Value = json!(files.show(file)?);
        return report::document(&document);
    }
    let mut out = std::io::stdout().lock();
    let copied = std::io::copy(&mut files.open(file)?, &mut out).and_then(|_| out.flush());
    match copied {
        // A reader that went away is no failure.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Error::new(ErrorCode::HostIo, "the file cannot be written to standard output").because(error))
        }
        _ => Ok(()),
    }
}
