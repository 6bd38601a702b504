//! Finding what runs a language: among the programs of the image `host`, and in folders that the caller lists.
//!
//! A toolchain in somebody's home is not part of the image. Listed by the caller it appears inside read-only, at the same
//! path, because many toolchains have that path written into them.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command as HostCommand, Stdio},
};

use glovebox_core::{Access, Error, ErrorCode, Language, Mount, Result, Way, parse_version};

/// Where programs of the image `host` are.
const SYSTEM: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

/// What the image `host` shows of programs.
const IMAGE: [&str; 4] = ["/usr", "/bin", "/sbin", "/opt"];

/// The folders in which the programs of languages are looked for.
#[derive(Clone, Debug, Default)]
pub struct Toolchains {
    listed: Vec<PathBuf>,
    /// They are in an image, which cannot be looked into from here.
    of_image: bool,
}

/// A program that runs a language, and the way to use it.
#[derive(Clone, Debug)]
pub struct Tool {
    /// The row of the table.
    pub way: &'static Way,
    /// The program's name; inside, it is the first of that name in PATH.
    pub program: &'static str,
    /// Where it is on the host.
    pub path: PathBuf,
}

impl Tool {
    /// What tells this program from another version of itself.
    pub(crate) fn fingerprint(&self) -> String {
        let real = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let facts = fs::metadata(&real).map(|m| (m.len(), m.mtime(), m.mtime_nsec(), m.ino()));
        format!("{} {facts:?}", real.display())
    }
}

impl Toolchains {
    /// The programs of the image, and before them those of these folders. A folder is a toolchain's own: it holds `bin`,
    /// or the programs themselves.
    pub fn new(listed: impl IntoIterator<Item = PathBuf>) -> Result<Self> {
        let mut folders = Vec::new();
        for folder in listed {
            let wrong = |why: &str| {
                let message = format!("the toolchain {} cannot be used: {why}", folder.display());
                Error::new(ErrorCode::InvalidMount, message)
            };
            if !folder.is_absolute() || !folder.is_dir() {
                return Err(wrong("it is not a folder"));
            }
            // The rules for mounts keep it away from what makes the sandbox work.
            let text = folder.to_str().ok_or_else(|| wrong("its path is not valid UTF-8"))?;
            Mount::parse(&format!("{text}:{text}:ro")).map_err(|error| wrong(&error.message))?;
            folders.push(folder);
        }
        Ok(Toolchains { listed: folders, of_image: false })
    }

    /// Those of an image that is not the host's: the usual program of each language is there, or is missed when it starts.
    pub fn of_image() -> Self {
        Toolchains { listed: Vec::new(), of_image: true }
    }

    /// The way to run a language here, or an error that says what to install.
    pub fn find(&self, language: &'static Language) -> Result<Tool> {
        if self.of_image
            && let Some(way) = language.ways.first()
            && let Some(program) = way.programs.first()
        {
            return Ok(Tool { way, program, path: PathBuf::from(program) });
        }
        let mut too_old = None;
        for way in language.ways {
            let found = way.programs.iter().find_map(|name| Some((*name, self.path_of(name)?)));
            let Some((program, path)) = found else { continue };
            if !way.needs.iter().all(|name| self.path_of(name).is_some()) {
                continue;
            }
            // What the caller lists is shown to sandboxes and nothing more. It may hold anything, so it is never run here,
            // and counts as new enough.
            if let Some((major, minor)) = way.at_least
                && is_below(&path, IMAGE.map(PathBuf::from))
                && version(&path).is_none_or(|version| version < (major, minor))
            {
                too_old = Some(format!("{program} is here, but older than {major}.{minor}"));
                continue;
            }
            return Ok(Tool { way, program, path });
        }
        Err(not_found(language, too_old))
    }

    /// Whether a program is there.
    pub fn has(&self, program: &str) -> bool {
        self.of_image || self.path_of(program).is_some()
    }

    /// The listed folders as mounts. [`Engine::start`](crate::Engine::start) adds them by itself; who makes a sandbox
    /// that stays adds them to its spec.
    pub fn mounts(&self) -> Result<Vec<Mount>> {
        let mount = |folder: &PathBuf| {
            let text = folder.to_string_lossy();
            Mount::parse(&format!("{text}:{text}:ro")).inspect(|mount| debug_assert_eq!(mount.access, Access::ReadOnly))
        };
        self.listed.iter().map(mount).collect()
    }

    /// PATH with the listed folders' programs before those of the image.
    pub(crate) fn search_path(&self, usual: &str) -> String {
        let folders = self.listed.iter().flat_map(|folder| program_folders(folder));
        let folders = folders.map(|folder| folder.to_string_lossy().into_owned());
        folders.chain([usual.to_owned()]).collect::<Vec<_>>().join(":")
    }

    /// Whether the caller listed any.
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    fn path_of(&self, program: &str) -> Option<PathBuf> {
        let listed = self.listed.iter().flat_map(|folder| program_folders(folder));
        let places = listed.chain(SYSTEM.map(PathBuf::from)).map(|folder| folder.join(program));
        places.into_iter().find(|path| is_program(path) && self.is_inside(path))
    }

    /// Whether what a path leads to is in the sandbox. A link of /usr/local/bin into somebody's home leads nowhere there.
    fn is_inside(&self, path: &Path) -> bool {
        let listed = self.listed.iter().filter_map(|folder| fs::canonicalize(folder).ok());
        is_below(path, listed.chain(IMAGE.map(PathBuf::from)))
    }
}

/// Where a toolchain has its programs.
fn program_folders(toolchain: &Path) -> Vec<PathBuf> {
    let bin = toolchain.join("bin");
    if bin.is_dir() { vec![bin] } else { vec![toolchain.to_owned()] }
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Whether a path leads to something in one of these folders.
fn is_below(path: &Path, folders: impl IntoIterator<Item = PathBuf>) -> bool {
    let Ok(real) = fs::canonicalize(path) else { return false };
    folders.into_iter().any(|folder| real.starts_with(folder))
}

/// Asks a program of the host's own for its version. It gets nothing of the caller's environment.
fn version(program: &Path) -> Option<(u32, u32)> {
    let mut command = HostCommand::new(program);
    command.arg("--version").env_clear().current_dir("/").stdin(Stdio::null()).stderr(Stdio::null());
    parse_version(&String::from_utf8_lossy(&command.output().ok()?.stdout))
}

/// The error for a language that nothing here runs.
pub fn not_found(language: &Language, detail: Option<String>) -> Error {
    let mut programs: Vec<&str> = language.ways.iter().flat_map(|way| way.programs).copied().collect();
    programs.dedup();
    let detail = detail.map(|detail| format!("; {detail}")).unwrap_or_default();
    let message =
        format!("nothing that runs {} is in the sandbox (looked for {}){detail}", language.name, programs.join(", "));
    let mut installs: Vec<&str> = language.ways.iter().map(|way| way.install).collect();
    installs.dedup();
    let install = format!("install it on this machine: {}", installs.join(", or "));
    let listed = |folder: &str| format!("--toolchain {folder}, or toolchain = [\"{folder}\"] in your config.toml");
    let hint = match in_home(language) {
        Some(folder) => format!(
            "{install}; there is one in your home, which a sandbox sees only when you list it: {}",
            listed(&folder.to_string_lossy())
        ),
        None => {
            format!("{install}; one that lives in a home directory is seen only when you list it: {}", listed("DIR"))
        }
    };
    Error::new(ErrorCode::ToolchainNotFound, message).hint(hint)
}

/// A toolchain of the language in the caller's home, at one of its usual places.
fn in_home(language: &Language) -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute())?;
    let places = language.ways.iter().flat_map(|way| way.homes.iter().map(move |place| (way, place)));
    places.into_iter().find_map(|(way, place)| {
        let has_program = |folder: &PathBuf| {
            let folders = program_folders(folder);
            way.programs.iter().any(|name| folders.iter().any(|folder| is_program(&folder.join(name))))
        };
        expand(&home, place).into_iter().rev().find(has_program)
    })
}

/// The folders that a place such as `~/.rustup/toolchains/*` means, sorted.
fn expand(home: &Path, place: &str) -> Vec<PathBuf> {
    let mut found = vec![home.to_owned()];
    for part in place.trim_start_matches("~/").split('/') {
        found = match part {
            "*" => found.iter().flat_map(|folder| folders_in(folder)).collect(),
            name => found.into_iter().map(|folder| folder.join(name)).collect(),
        };
    }
    found
}

fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    static MISSING: Language = Language {
        name: "klingon",
        aliases: &[],
        endings: &["kl"],
        ways: &[
            Way {
                programs: &["sh"],
                at_least: Some((1000, 0)),
                needs: &[],
                compile: None,
                file: &["{program}", "{file}"],
                code: None,
                env: &[],
                install: "a newer sh",
                homes: &[],
            },
            Way {
                programs: &["klingonc-of-nowhere"],
                at_least: None,
                needs: &[],
                compile: None,
                file: &["{program}", "{file}"],
                code: None,
                env: &[],
                install: "apt install klingon",
                homes: &["~/.klingon/*"],
            },
        ],
        strict_endings: false,
        opening: None,
        dialect_of: None,
    };

    #[test]
    fn a_missing_toolchain_names_what_was_looked_for_what_to_install_and_the_key() {
        let error = Toolchains::default().find(&MISSING).unwrap_err();
        assert_eq!(error.code, ErrorCode::ToolchainNotFound);
        assert!(error.message.contains("sh, klingonc-of-nowhere"), "{}", error.message);
        assert!(error.message.contains("sh is here, but older than 1000.0"), "{}", error.message);
        let hint = error.hint.unwrap();
        assert!(hint.contains("a newer sh, or apt install klingon") && hint.contains("toolchain = ["), "{hint}");
    }

    #[test]
    fn a_program_of_a_listed_folder_is_never_run_on_the_host() {
        let folder = std::env::temp_dir().join(format!("glovebox-toolchain-{}", glovebox_core::RunId::new()));
        fs::create_dir_all(folder.join("bin")).unwrap();
        let (program, mark) = (folder.join("bin/sh"), folder.join("it-ran"));
        fs::write(&program, format!("#!/bin/sh\ntouch {}\n", mark.display())).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let found = Toolchains::new([folder.clone()]).unwrap().find(&MISSING).unwrap();
        assert_eq!(found.path, program);
        assert!(!mark.exists());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn listed_folders_come_first_and_only_folders_can_be_listed() {
        let sh = Language::by_name("sh").unwrap();
        assert_eq!(Toolchains::default().find(sh).unwrap().program, "sh");
        let listed = Toolchains::new([PathBuf::from("/usr")]).unwrap();
        assert_eq!(listed.find(sh).unwrap().path, Path::new("/usr/bin/sh"));
        assert_eq!(listed.search_path("/x"), "/usr/bin:/x");
        for wrong in ["/", "/proc", "/etc/passwd", "relative", "/nowhere"] {
            assert!(Toolchains::new([PathBuf::from(wrong)]).is_err(), "{wrong}");
        }
    }
}
