//! `glovebox files`: the files of a sandbox, one by one.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, BufWriter, Write, stdout},
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::Path,
};

use base64::Engine as _;
use glovebox_core::{Error, ErrorCode, FilePath, Result, parse_count, parse_size, shown};
use glovebox_engine::{
    Cursor, Entry, EntryKind, FileEvent, Files, FollowLinks, Page, Parents, Range, Recursion, Replace, Sandbox,
    WriteOptions,
};
use serde_json::{Map, Value, json};

use super::{living, runtime, several::each};
use crate::{
    args::{FileArg, FilesAct, FilesArgs, Globals, ListFilesArgs, ReadArgs, RemoveArgs, WatchArgs},
    files::working_dir,
    flags::Flags,
    report, stdio,
};

/// So many entries are sorted by name; a larger folder is printed as it comes.
const SORTED: usize = 10_000;

pub(crate) fn execute(globals: &Globals, args: &FilesArgs, flags: &Flags) -> Result<u8> {
    let id = match &args.act {
        FilesAct::List(args) => &args.id,
        FilesAct::Remove(args) => &args.id,
        FilesAct::Read(args) => &args.file.id,
        FilesAct::Write(args) => &args.file.id,
        FilesAct::Watch(args) => &args.file.id,
        FilesAct::Stat(args) => &args.file.id,
        FilesAct::Mkdir(args) => &args.file.id,
        FilesAct::Move(args) => &args.file.id,
        FilesAct::Chmod(args) => &args.file.id,
    };
    let engine = living::engine(globals, flags)?;
    runtime()?.block_on(async {
        let sandbox = engine.open(id).await?;
        let acted = act(globals, &args.act, flags, &sandbox).await;
        acted.map_err(|error| engine.explain_lost(sandbox.id(), error))
    })
}

async fn act(globals: &Globals, act: &FilesAct, flags: &Flags, sandbox: &Sandbox) -> Result<u8> {
    let files = sandbox.files();
    let done = match act {
        FilesAct::List(args) => list(globals, args, flags, &files).await,
        FilesAct::Read(args) => read(args, flags, &files).await,
        FilesAct::Watch(args) => watch(globals, args, &files).await,
        FilesAct::Remove(args) => return remove(globals, args, &files).await,
        FilesAct::Write(args) => {
            let path = inside(&args.file.path)?;
            let mode = args.mode.as_deref().map(|text| flags.check("mode", text, parse_mode)).transpose()?;
            let options = WriteOptions { mode, sync: args.sync };
            let written = files.write(&path, options, stdio::content()?).await;
            let bytes = written.map_err(|error| explain_no_folder(error, &args.file))?;
            done(globals, with_path(&path, [("bytes", json!(bytes))]))
        }
        FilesAct::Stat(args) => {
            let links = if args.follow { FollowLinks::Yes } else { FollowLinks::No };
            let entry = files.stat(&inside(&args.file.path)?, links).await?;
            match globals.json {
                true => report::document(&document(&entry)),
                false => report::print(&line(&entry, &entry.path.to_string())),
            }
        }
        FilesAct::Mkdir(args) => {
            let path = inside(&args.file.path)?;
            let mode = flags.check("mode", &args.mode, parse_mode)?;
            let parents = if args.parents { Parents::Make } else { Parents::Require };
            files.make_folder(&path, mode, parents).await.map_err(|error| match error.code {
                ErrorCode::FileNotFound => error.hint("-p makes the folders on the way, too"),
                ErrorCode::FileExists => error.hint("-p is fine with a folder that is there"),
                _ => error,
            })?;
            done(globals, with_path(&path, []))
        }
        FilesAct::Move(args) => {
            let from = inside(&args.file.path)?;
            let mut to = inside(&args.to)?;
            if args.to.as_bytes().ends_with(b"/") {
                to = to.join(from.name())?;
            }
            let replace = if args.no_replace { Replace::No } else { Replace::Yes };
            files.rename(&from, &to, replace).await?;
            done(globals, with_path(&to, [("from", json!(text(from.as_bytes())))]))
        }
        FilesAct::Chmod(args) => {
            let path = inside(&args.file.path)?;
            let mode = parse_mode(&args.mode)
                .map_err(|forms| Error::new(ErrorCode::InvalidValue, format!("the mode {:?}: {forms}", args.mode)))?;
            files.set_mode(&path, mode).await?;
            done(globals, with_path(&path, [("mode", json!(mode))]))
        }
    };
    done.map(|()| 0)
}

/// Adds the verb that makes the folder to the error for a file whose folder is not there.
fn explain_no_folder(error: Error, file: &FileArg) -> Error {
    let folder = Path::new(&file.path).parent().filter(|folder| *folder != Path::new(""));
    match folder.filter(|_| error.code == ErrorCode::FileNotFound) {
        Some(folder) => {
            error.hint(format!("glovebox files mkdir -p {} {} makes the folder", file.id, folder.display()))
        }
        None => error,
    }
}

/// A path inside, as it was typed.
pub(super) fn inside(typed: &OsStr) -> Result<FilePath> {
    FilePath::relative_to(&working_dir(), typed.as_bytes())
}

async fn list(globals: &Globals, args: &ListFilesArgs, flags: &Flags, files: &Files) -> Result<()> {
    let most = args.limit.as_deref().map(|text| flags.check("limit", text, parse_count)).transpose()?;
    let cursor = |text: &str| text.parse().map(Cursor).map_err(|_| "expected `next` of another page".to_owned());
    let after = args.after.as_deref().map(|text| flags.check("after", text, cursor)).transpose()?;
    let mut entries = files.list(&inside(&args.path)?, Page { after, most }).await?;
    let mut first = Vec::new();
    while first.len() < SORTED
        && let Some(entry) = entries.next().await?
    {
        first.push(entry);
    }
    if first.len() < SORTED {
        first.sort_by(|a, b| a.path.cmp(&b.path));
    }
    let mut out = Lines::new(globals.json)?;
    for entry in &first {
        out.entry(entry)?;
    }
    while let Some(entry) = entries.next().await? {
        out.entry(&entry)?;
    }
    out.end(entries.cursor())
}

/// Entries on their way to standard output, as they come.
struct Lines {
    out: BufWriter<File>,
    json: bool,
    any: bool,
}

impl Lines {
    fn new(json: bool) -> Result<Self> {
        let mut out = BufWriter::with_capacity(64 * 1024, own_output()?);
        if json {
            written(out.write_all(b"{\"entries\":["))?;
        }
        Ok(Lines { out, json, any: false })
    }

    fn entry(&mut self, entry: &Entry) -> Result<()> {
        let text = match self.json {
            true => format!("{}{}", if self.any { "," } else { "" }, document(entry)),
            false => line(entry, &shown(entry.path.name())),
        };
        self.any = true;
        written(self.out.write_all(text.as_bytes()))
    }

    fn end(mut self, cursor: Option<Cursor>) -> Result<()> {
        if self.json {
            let next = json!(cursor.map(|cursor| cursor.0.to_string()));
            written(self.out.write_all(format!("],\"next\":{next}}}\n").as_bytes()))?;
        } else if let Some(cursor) = cursor {
            report::say(&format!("there may be more: --after {}", cursor.0));
        }
        written(self.out.flush())
    }
}

/// An entry for programs. A path that is no text comes as `path_base64`, too.
pub(super) fn document(entry: &Entry) -> Value {
    let mut fields = with_path(
        &entry.path,
        [
            ("kind", json!(entry.kind.as_str())),
            ("bytes", json!(entry.bytes)),
            ("mode", json!(entry.mode)),
            ("modified_at", json!(entry.modified.to_string())),
        ],
    );
    if let Some(target) = &entry.target {
        fields.insert("target".to_owned(), json!(text(target)));
    }
    Value::Object(fields)
}

fn with_path<const N: usize>(path: &FilePath, more: [(&str, Value); N]) -> Map<String, Value> {
    let mut fields = Map::new();
    put_path(&mut fields, "path", path);
    fields.extend(more.map(|(name, value)| (name.to_owned(), value)));
    fields
}

fn put_path(fields: &mut Map<String, Value>, name: &str, path: &FilePath) {
    fields.insert(name.to_owned(), json!(text(path.as_bytes())));
    if str::from_utf8(path.as_bytes()).is_err() {
        let encoded = base64::engine::general_purpose::STANDARD.encode(path.as_bytes());
        fields.insert(format!("{name}_base64"), json!(encoded));
    }
}

/// Bytes as they stand in JSON: as they are when they are text, else with `\xHH` for what is none.
fn text(bytes: &[u8]) -> String {
    match str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => shown(bytes),
    }
}

/// An entry for people.
fn line(entry: &Entry, name: &str) -> String {
    let kind = match entry.kind {
        EntryKind::File => '-',
        EntryKind::Directory => 'd',
        EntryKind::Symlink => 'l',
        EntryKind::Other => '?',
    };
    let permission = |bit: u32, letter: char| if entry.mode & bit == 0 { '-' } else { letter };
    let mode: String = (0..9).map(|at| permission(0o400 >> at, ['r', 'w', 'x'][at % 3])).collect();
    let modified = entry.modified.strftime("%Y-%m-%d %H:%M:%S");
    let target = entry.target.as_ref().map_or(String::new(), |target| format!(" -> {}", shown(target)));
    format!("{kind}{mode}  {:>10}  {modified}  {name}{target}\n", report::size(entry.bytes))
}

async fn read(args: &ReadArgs, flags: &Flags, files: &Files) -> Result<()> {
    let number = |flag: &str, text: &Option<String>| {
        let parse = |text: &str| if text == "0" { Ok(0) } else { parse_size(text) };
        text.as_deref().map(|text| flags.check(flag, text, parse)).transpose()
    };
    let range = Range { offset: number("offset", &args.offset)?.unwrap_or(0), length: number("length", &args.length)? };
    let mut stream = files.read(&inside(&args.file.path)?, range).await?;
    let mut out = own_output()?;
    while let Some(bytes) = stream.next().await? {
        if !goes_on(out.write_all(&bytes))? {
            break;
        }
    }
    Ok(())
}

async fn remove(globals: &Globals, args: &RemoveArgs, files: &Files) -> Result<u8> {
    let recursion = if args.recursive { Recursion::All } else { Recursion::None };
    let remove = async |typed: &OsString| {
        let path = inside(typed)?;
        files.remove(&path, recursion).await.map(|()| text(path.as_bytes()))
    };
    each(globals, &args.paths, remove).await.report(globals, "removed")
}

async fn watch(globals: &Globals, args: &WatchArgs, files: &Files) -> Result<()> {
    let path = inside(&args.file.path)?;
    let recursion = if args.flat { Recursion::None } else { Recursion::All };
    let mut events = files.watch(&path, recursion).await?;
    let mut out = own_output()?;
    if globals.json {
        let ready = Value::Object(with_path(&path, [("event", json!("ready"))]));
        written(writeln!(out, "{ready}"))?;
    } else if globals.verbose {
        report::say(&format!("watching {path}"));
    }
    while let Some(event) = events.next().await? {
        let line = if globals.json { event_document(&event).to_string() } else { event_line(&event) };
        if !goes_on(writeln!(out, "{line}"))? {
            break;
        }
    }
    Ok(())
}

fn event_document(event: &FileEvent) -> Value {
    let kind = |folder: bool| json!(if folder { "directory" } else { "file" });
    Value::Object(match event {
        FileEvent::Create { path, folder } => with_path(path, [("event", json!("create")), ("kind", kind(*folder))]),
        FileEvent::Write { path } => with_path(path, [("event", json!("write")), ("kind", kind(false))]),
        FileEvent::Remove { path, folder } => with_path(path, [("event", json!("remove")), ("kind", kind(*folder))]),
        FileEvent::Rename { from, to, folder } => {
            let mut fields = with_path(to, [("event", json!("rename")), ("kind", kind(*folder))]);
            put_path(&mut fields, "from", from);
            fields
        }
        FileEvent::Lost { path, why } => with_path(path, [("event", json!("lost")), ("why", json!(why))]),
        _ => Map::new(),
    })
}

fn event_line(event: &FileEvent) -> String {
    let name = |path: &FilePath, folder: &bool| format!("{path}{}", if *folder { "/" } else { "" });
    match event {
        FileEvent::Create { path, folder } => format!("create  {}", name(path, folder)),
        FileEvent::Write { path } => format!("write   {path}"),
        FileEvent::Remove { path, folder } => format!("remove  {}", name(path, folder)),
        FileEvent::Rename { from, to, folder } => format!("rename  {} -> {}", name(from, folder), name(to, folder)),
        FileEvent::Lost { path, why } => format!("lost    {path}: {}", shown(why.as_bytes())),
        _ => String::new(),
    }
}

/// Reads permissions as they are typed.
fn parse_mode(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o1777)
        .ok_or_else(|| "expected permissions in octal, 0 to 1777, as in 644 or 755".to_owned())
}

/// Says what was done, to programs only.
fn done(globals: &Globals, fields: Map<String, Value>) -> Result<()> {
    if globals.json { report::document(&Value::Object(fields)) } else { Ok(()) }
}

/// Our standard output, past the buffers of the standard library.
pub(super) fn own_output() -> Result<File> {
    stdout().as_fd().try_clone_to_owned().map(File::from).map_err(cannot_write)
}

/// Whether somebody still reads what was written.
pub(super) fn goes_on(result: io::Result<()>) -> Result<bool> {
    match result {
        Ok(()) => Ok(true),
        // A reader that went away has what it wanted.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(cannot_write(error)),
    }
}

fn written(result: io::Result<()>) -> Result<()> {
    goes_on(result).map(drop)
}

fn cannot_write(error: io::Error) -> Error {
    Error::new(ErrorCode::HostIo, "cannot write to standard output").because(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &[u8]) -> Entry {
        Entry {
            path: FilePath::absolute(path).unwrap(),
            kind: EntryKind::File,
            bytes: 2048,
            mode: 0o640,
            modified: "2026-11-15T01:02:03.456Z".parse().unwrap(),
            target: None,
        }
    }

    #[test]
    fn a_path_that_is_no_text_also_comes_as_base64() {
        let plain = document(&entry(b"/a\nb"));
        assert_eq!(plain["path"], "/a\nb");
        assert!(plain.get("path_base64").is_none());
        assert_eq!((&plain["kind"], &plain["bytes"], &plain["mode"]), (&json!("file"), &json!(2048), &json!(0o640)));
        assert_eq!(plain["modified_at"], "2026-11-15T01:02:03.456Z");
        let odd = document(&entry(b"/a\xff"));
        assert_eq!((&odd["path"], &odd["path_base64"]), (&json!("/a\\xff"), &json!("L2H/")));
    }

    #[test]
    fn a_line_for_people_cannot_steer_their_terminal() {
        let entry = entry(b"/x\x1b[2J");
        assert_eq!(
            line(&entry, &shown(entry.path.name())),
            "-rw-r-----       2 KiB  2026-11-15 01:02:03  x\\u{1b}[2J\n"
        );
    }

    #[test]
    fn modes_are_octal_and_give_no_rights_of_others() {
        assert_eq!(parse_mode("755"), Ok(0o755));
        assert_eq!(parse_mode("0644"), Ok(0o644));
        for wrong in ["4755", "rwx", "-1", "8", ""] {
            assert!(parse_mode(wrong).is_err(), "{wrong}");
        }
    }
}
