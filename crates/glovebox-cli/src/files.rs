//! Files and folders of the host that the caller names. All of them are checked before anything starts.

use std::{
    fs::{self, File, Metadata},
    io::{self, Read},
    os::{linux::fs::MetadataExt, unix::fs::PermissionsExt},
    path::{Path, PathBuf},
};

use glovebox_core::{
    Access, Cache, Error, ErrorCode, InsidePath, Mount, ProjectName, Result, SandboxSpec, VolumeMount, WORKING_DIR,
    Workspace, WorkspaceMode,
};
use glovebox_engine::{FileContent, InputFile, Toolchains};
use rustix::fs::{Mode, OFlags, makedev};
use zeroize::Zeroizing;

use crate::{
    args::{CommandArgs, SandboxArgs},
    flags::Flags,
};

/// The largest setting that is read, from a file or from a command.
pub(crate) const LARGEST_SETTING: u64 = 1 << 20;

/// The workspace, the mounts and the storage of a sandbox.
pub(crate) fn add_host_folders(spec: &mut SandboxSpec, args: &SandboxArgs, flags: &Flags) -> Result<()> {
    let mode = flags.check("workspace-mode", &args.workspace_mode, parse_mode)?;
    spec.workspace = args.workspace.as_deref().map(|dir| workspace(dir, mode)).transpose()?;
    for text in flags.list("mount", &args.mount) {
        let mut mount = Mount::parse(text).map_err(|error| flags.named("mount", error))?;
        look_at(&mount.source)?;
        mount.source = canonical(&mount.source)?;
        spec.mounts.push(mount);
    }
    for text in flags.list("volume", &args.volume) {
        spec.volumes.push(VolumeMount::parse(text).map_err(|error| flags.named("volume", error))?);
    }
    for text in flags.list("cache", &args.cache) {
        spec.caches.extend(flags.check("cache", text, Cache::parse)?);
    }
    spec.project = args.project.as_deref().map(|text| flags.check("project", text, ProjectName::parse)).transpose()?;
    Ok(())
}

/// The toolchains of `--toolchain`.
pub(crate) fn toolchains(args: &SandboxArgs, flags: &Flags) -> Result<Toolchains> {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let folder = |text: &str| {
        let path = match (text.strip_prefix("~/"), &home) {
            (Some(below), Some(home)) => home.join(below),
            _ => PathBuf::from(text),
        };
        let path = std::path::absolute(&path).map_err(|error| cannot_read(&path, error))?;
        let is_dir = look_at(&path)?.is_dir();
        let real = canonical(&path)?;
        let holds_home =
            home.as_ref().and_then(|home| canonical(home).ok()).is_some_and(|home| home.starts_with(&real));
        if !is_dir || holds_home {
            return Err(flags.wrong("toolchain", text, "expected the folder of one toolchain, with bin in it"));
        }
        Ok(path)
    };
    let listed = flags.list("toolchain", &args.toolchain).into_iter().map(folder).collect::<Result<Vec<_>>>()?;
    Toolchains::new(listed).map_err(|error| flags.named("toolchain", error))
}

/// The files of `--file`.
pub(crate) fn input_files(args: &CommandArgs, flags: &Flags, spec: &SandboxSpec) -> Result<Vec<InputFile>> {
    flags.list("file", &args.file).into_iter().map(|text| input_file(text, flags, spec)).collect()
}

/// A file or folder of the host, to be copied to `target`.
pub(crate) fn copied(source: &Path, target: InsidePath) -> Result<InputFile> {
    let metadata = look_at(source)?;
    // Whoever runs inside must be able to read it, whatever the host's own bits say.
    let mode = metadata.permissions().mode() & 0o777 | 0o400;
    Ok(InputFile { target, content: FileContent::Host(canonical(source)?), mode })
}

/// The working directory inside.
pub(crate) fn working_dir() -> InsidePath {
    InsidePath::absolute(WORKING_DIR).expect("the working directory is a checked path")
}

/// Makes sure that a file or folder is there and can be read.
pub(crate) fn look_at(path: &Path) -> Result<Metadata> {
    let metadata = fs::metadata(path).map_err(|error| cannot_read(path, error))?;
    if metadata.is_dir() {
        fs::read_dir(path).map_err(|error| cannot_read(path, error))?;
    } else if metadata.is_file() {
        open_at_once(path)?;
    }
    Ok(metadata)
}

/// Reads a file of settings: configuration, variables, a secret. A pipe or a device could keep us waiting or never end,
/// so only an ordinary file is read, at most 1 MiB of it, and `/dev/null`, which is nothing.
pub(crate) fn read_setting(path: &Path) -> Result<Zeroizing<Vec<u8>>> {
    let file = open_ordinary(path)?;
    // With room for all of it the bytes are not moved while they are read, which would leave copies of a secret.
    let expected = file.metadata().map_or(0, |metadata| metadata.len()).min(LARGEST_SETTING);
    let mut bytes = Zeroizing::new(Vec::with_capacity(expected as usize + 64));
    file.take(LARGEST_SETTING + 1).read_to_end(&mut bytes).map_err(|error| cannot_read(path, error))?;
    if bytes.len() as u64 > LARGEST_SETTING {
        let message = format!("{} is larger than 1 MiB, the most that is read here", path.display());
        return Err(Error::new(ErrorCode::FileUnreadable, message));
    }
    Ok(bytes)
}

/// Opens an ordinary file, or `/dev/null`.
pub(crate) fn open_ordinary(path: &Path) -> Result<File> {
    let file = open_at_once(path)?;
    let metadata = file.metadata().map_err(|error| cannot_read(path, error))?;
    if metadata.is_dir() {
        return Err(is_a_folder(path));
    }
    if !metadata.is_file() && !is_null(&file) {
        let message = format!("{} is not an ordinary file", path.display());
        let hint = "a pipe or a device may never end; put what it gives into a file first";
        return Err(Error::new(ErrorCode::FileUnreadable, message).hint(hint));
    }
    Ok(file)
}

/// Whether a file is `/dev/null`.
pub(crate) fn is_null(file: &File) -> bool {
    const MAJOR: u32 = 1;
    const MINOR: u32 = 3;
    file.metadata().is_ok_and(|metadata| metadata.st_rdev() == makedev(MAJOR, MINOR))
}

/// Opens a file without waiting, as a pipe that nobody writes to would make us do.
fn open_at_once(path: &Path) -> Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| cannot_read(path, error.into()))?;
    Ok(File::from(file))
}

/// Opens what the program is to read. A pipe is fine here, and is waited for.
pub(crate) fn open(path: &Path) -> Result<File> {
    let file = File::open(path).map_err(|error| cannot_read(path, error))?;
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Err(is_a_folder(path));
    }
    Ok(file)
}

/// The error for a folder where a file belongs.
pub(crate) fn is_a_folder(path: &Path) -> Error {
    Error::new(ErrorCode::FileUnreadable, format!("{} is a folder, and a file is needed", path.display()))
}

/// The path without links and `..`.
pub(crate) fn canonical(path: &Path) -> Result<PathBuf> {
    fs::canonicalize(path).map_err(|error| cannot_read(path, error))
}

/// The error for a path of the host that could not be used.
pub(crate) fn cannot_read(path: &Path, error: io::Error) -> Error {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            Error::new(ErrorCode::FileNotFound, format!("there is no file or folder {path}"))
        }
        _ => Error::new(ErrorCode::FileUnreadable, format!("cannot read {path}")).because(error),
    }
}

fn workspace(dir: &Path, mode: WorkspaceMode) -> Result<Workspace> {
    if !look_at(dir)?.is_dir() {
        let message = format!("the workspace {} is not a folder", dir.display());
        return Err(Error::new(ErrorCode::NotADirectory, message).hint("--file copies a single file in"));
    }
    Ok(Workspace { source: canonical(dir)?, mode })
}

fn parse_mode(text: &str) -> Result<WorkspaceMode, String> {
    match text {
        "overlay" => Ok(WorkspaceMode::Overlay),
        "read-only" => Ok(WorkspaceMode::ReadOnly),
        "read-write" => Ok(WorkspaceMode::ReadWrite),
        _ => Err("expected overlay, read-only or read-write".to_owned()),
    }
}

/// Splits `SRC[:DST]`. A source that exists under the whole text is meant as it stands, colons and all.
pub(crate) fn source_and_target(text: &str) -> (&str, &str) {
    match text.rsplit_once(':') {
        Some((source, target)) if !Path::new(text).exists() => (source, target),
        _ => (text, ""),
    }
}

fn input_file(text: &str, flags: &Flags, spec: &SandboxSpec) -> Result<InputFile> {
    let (source, target) = source_and_target(text);
    if source.is_empty() {
        return Err(flags.wrong("file", text, "expected SRC or SRC:DST"));
    }
    let path = Path::new(source);
    let kind = look_at(path)?;
    if !kind.is_file() && !kind.is_dir() {
        let message = format!("{source} is neither a file nor a folder and cannot be copied");
        return Err(Error::new(ErrorCode::FileUnreadable, message));
    }
    let target = match target {
        "" => own_name(path)?,
        folder if folder.ends_with('/') => format!("{folder}{}", own_name(path)?),
        target => target.to_owned(),
    };
    let target = InsidePath::relative_to(&working_dir(), &target).map_err(|error| flags.named("file", error))?;
    check_target(&target, spec).map_err(|error| flags.named("file", error))?;
    copied(path, target)
}

/// Refuses a copy that would land in a folder of the host: what is copied in belongs to the sandbox.
pub(crate) fn check_target(target: &InsidePath, spec: &SandboxSpec) -> Result<()> {
    let refuse = |message: String| {
        let hint = "copy it elsewhere, as in --file SRC:/tmp/DST, or leave out what makes the folder your own";
        Err(Error::new(ErrorCode::Usage, message).hint(hint))
    };
    let mount = spec.mounts.iter().find(|mount| target.is_under(mount.target.as_str()));
    match (mount, &spec.workspace) {
        (Some(mount), _) if mount.access == Access::ReadWrite => {
            refuse(format!("{target} would be written into your {}, which is mounted", mount.source.display()))
        }
        (Some(mount), _) => {
            refuse(format!("{target} lies in the mount of {}, which is read-only", mount.source.display()))
        }
        (None, Some(workspace)) if target.is_under(WORKING_DIR) => match workspace.mode {
            WorkspaceMode::Overlay => Ok(()),
            WorkspaceMode::ReadOnly => refuse(format!("{target} lies in the workspace, which is read-only")),
            WorkspaceMode::ReadWrite => refuse(format!(
                "{target} would be written into your folder {}, because the workspace is read-write",
                workspace.source.display()
            )),
        },
        _ => Ok(()),
    }
}

/// The last part of a path: that of the folder itself for `.`.
fn own_name(path: &Path) -> Result<String> {
    let absolute = canonical(path)?;
    let name = path.file_name().or(absolute.file_name());
    let name = name.ok_or_else(|| Error::new(ErrorCode::InvalidPath, format!("{} has no name", path.display())))?;
    let text = name.to_str().ok_or_else(|| {
        Error::new(ErrorCode::InvalidPath, format!("the name of {} is not valid UTF-8", path.display()))
    })?;
    Ok(text.to_owned())
}
