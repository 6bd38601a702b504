//! Programs as they are distributed: static, optimised as a whole, for any Linux of this architecture; and the verb
//! `dist`, which packs them.
//!
//! The same commit and the same compiler give the same bytes: times come from the commit, names are sorted, owners are
//! fixed, and no path of the machine that builds is in the program.

mod archive;
mod notices;
mod trial;

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

use crate::{
    need,
    suites::{command, read, run},
    tree::{built, root},
};
use archive::Entry;
pub(crate) use trial::like_this_machine;

/// Programs for this target need nothing of the system that they run on.
const TARGET: &str = "x86_64-unknown-linux-musl";

/// The profile of what is published.
const PROFILE: &str = "dist";

/// What compiles the C code of dependencies for the target: SQLite and zstd.
const C_COMPILER: need::Tool = ("musl-gcc", "musl-tools");

/// The version of everything in this tree.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The verb `dist`.
pub(crate) fn dist(args: &[String]) -> Result<()> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let try_them = match args[..] {
        [] => false,
        ["--try"] => true,
        _ => bail!("the only flag is --try"),
    };
    let program = build(&["glovebox-cli"])?.join("glovebox");
    let packages = pack(&program, &built(PROFILE, ""))?;
    for path in &packages {
        println!("{}", path.display());
    }
    if changed_files()? {
        eprintln!("xtask dist: there are changes that are not committed; do not publish this");
    }
    if try_them {
        trial::everywhere(&packages)?;
    }
    Ok(())
}

/// Builds packages, and says where their programs are.
pub(crate) fn build(packages: &[&str]) -> Result<PathBuf> {
    add_target()?;
    need::tools(&[C_COMPILER])?;
    let compiler = format!("CC_{}={}", TARGET.replace('-', "_"), C_COMPILER.0);
    let flags = format!("target.{TARGET}.rustflags=[{}]", forgotten_paths()?);
    let mut argv = vec!["env", &compiler, "cargo", "build", "--profile", PROFILE, "--locked", "--target", TARGET];
    argv.extend(["--config", &flags]);
    argv.extend(packages.iter().flat_map(|package| ["-p", package]));
    run(&argv)?;
    Ok(built(TARGET, PROFILE))
}

/// Sees to it that the compiler knows the target.
fn add_target() -> Result<()> {
    let installed = read(&["rustup", "target", "list", "--installed"]).context("rustup is needed to add a target")?;
    if !installed.lines().any(|line| line == TARGET) {
        run(&["rustup", "target", "add", TARGET])?;
    }
    Ok(())
}

/// Flags that keep the paths of this machine out of the program, where messages of panics would have them.
fn forgotten_paths() -> Result<String> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| env::home_dir().map(|home| home.join(".cargo"))).context("there is no home of cargo")?;
    let flags = [(root(), "glovebox"), (home.as_path(), "cargo")]
        .map(|(path, name)| format!("'--remap-path-prefix={}={name}'", path.display()));
    Ok(flags.join(","))
}

/// Writes the archive, the Debian package, the install script and their checksums to a folder. Says what it wrote.
fn pack(program: &Path, folder: &Path) -> Result<Vec<PathBuf>> {
    let seconds = source_date()?;
    let entries = entries(program)?;
    let name = format!("glovebox-{VERSION}-x86_64-linux");
    // A version such as 1.0.0-rc.1 comes before 1.0.0, which dpkg knows when it is written with a tilde.
    let debian_version = VERSION.replacen('-', "~", 1);
    let debian_files = debian_files(&entries)?;
    let files = [
        ("install.sh".to_owned(), fs::read(root().join("install.sh"))?),
        (format!("{name}.tar.gz"), archive::tar_gz(&format!("{name}/"), &entries, seconds)?),
        (
            format!("glovebox_{debian_version}_amd64.deb"),
            archive::deb(&control(&debian_version, &debian_files), &debian_files, seconds)?,
        ),
    ];
    fs::create_dir_all(folder)?;
    let mut sums = String::new();
    let mut written = Vec::new();
    for (name, bytes) in &files {
        let hash: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        sums.push_str(&format!("{hash}  {name}\n"));
        written.push(folder.join(name));
        fs::write(folder.join(name), bytes)?;
    }
    written.push(folder.join("SHA256SUMS"));
    fs::write(folder.join("SHA256SUMS"), sums)?;
    Ok(written)
}

/// The time that all packed files have: that of the commit, unless the usual variable says another.
fn source_date() -> Result<u64> {
    let text = match env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => read(&["git", "log", "-1", "--format=%ct"])
            .context("there is no commit to take the time from; set SOURCE_DATE_EPOCH")?,
    };
    text.trim().parse().with_context(|| format!("'{}' is not a time in seconds", text.trim()))
}

fn changed_files() -> Result<bool> {
    Ok(!read(&["git", "status", "--porcelain"]).context("git cannot say what was changed")?.is_empty())
}

/// What is packed, by its path below a prefix such as /usr/local.
fn entries(program: &Path) -> Result<Vec<Entry>> {
    let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let mut entries = vec![Entry { executable: true, ..Entry::new("bin/glovebox", bytes) }];
    let program = program.to_string_lossy();
    for (shell, path) in [
        ("bash", "share/bash-completion/completions/glovebox"),
        ("fish", "share/fish/vendor_completions.d/glovebox.fish"),
        ("zsh", "share/zsh/site-functions/_glovebox"),
    ] {
        entries.push(Entry::new(path, read_clean(&[&program, "completions", shell])?));
    }
    let pages = built("man", "");
    // A page of an earlier build, whose verb is gone, must not be packed.
    let _ = fs::remove_dir_all(&pages);
    read_clean(&[&program, "man", &pages.to_string_lossy()])?;
    for page in fs::read_dir(&pages)? {
        let page = page?;
        entries
            .push(Entry::new(format!("share/man/man1/{}", page.file_name().to_string_lossy()), fs::read(page.path())?));
    }
    let doc = |name: &str| format!("share/doc/glovebox/{name}");
    entries.push(Entry::new(doc("LICENSE"), fs::read(root().join("LICENSE"))?));
    entries.push(Entry::new(doc("README.md"), readme_excerpt(&fs::read_to_string(root().join("README.md"))?)?));
    entries.push(Entry::new(doc("THIRD-PARTY"), notices::third_party("glovebox-cli", TARGET)?));
    Ok(entries)
}

/// What a program says when nobody's configuration or variables speak to it.
fn read_clean(argv: &[&str]) -> Result<String> {
    let output =
        command(argv).env_clear().current_dir("/").output().with_context(|| format!("cannot start {}", argv[0]))?;
    ensure!(output.status.success(), "`{}`: {}", argv.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8(output.stdout)?)
}

/// The parts of the README for somebody who has the program and not the tree. Links into the tree become their text.
fn readme_excerpt(readme: &str) -> Result<String> {
    let between = |from: &str, to: &str| -> Result<&str> {
        let start = readme.find(from).with_context(|| format!("the README has no '{from}'"))?;
        let length = readme[start..].find(to).with_context(|| format!("the README has no '{to}' behind '{from}'"))?;
        Ok(&readme[start..start + length])
    };
    let parts = [
        between("# Glovebox", "\n## ")?,
        between("\n## Every day", "\nAs a library:")?,
        between("\n## What is isolated", "\n## Numbers")?,
    ];
    Ok(format!("{}\n", without_links(&parts.concat()).trim_end()))
}

fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("](") {
        let (head, words) = before.rsplit_once('[').unwrap_or((before, ""));
        plain.push_str(head);
        plain.push_str(words);
        rest = behind.split_once(')').map_or("", |(_, rest)| rest);
    }
    plain + rest
}

/// The same files where Debian wants them, man pages compressed, as its policy asks.
fn debian_files(entries: &[Entry]) -> Result<Vec<Entry>> {
    let place = |entry: &Entry| -> Result<Entry> {
        let path = entry.path.replace("zsh/site-functions", "zsh/vendor-completions").replace("/LICENSE", "/copyright");
        if path.starts_with("share/man/") {
            return Ok(Entry::new(format!("usr/{path}.gz"), archive::gz(&entry.bytes)?));
        }
        Ok(Entry { path: format!("usr/{path}"), ..entry.clone() })
    };
    entries.iter().map(place).collect()
}

/// The control file. The program is static, so it depends on nothing.
fn control(version: &str, files: &[Entry]) -> String {
    let kib: usize = files.iter().map(|file| file.bytes.len().div_ceil(1024)).sum();
    format!(
        "Package: glovebox
Version: {version}
Architecture: amd64
Maintainer: The Glovebox maintainers <maintainers@example.invalid>
Installed-Size: {kib}
Section: admin
Priority: optional
Description: runs code that nobody has read, in sandboxes
 Glovebox runs untrusted programs in sandboxes that start in milliseconds: one
 static program, without Docker, KVM or a daemon. Every run is held to limits
 from outside, and its end is explained.
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_excerpt_of_the_readme_has_the_commands_and_no_links() {
        let readme = fs::read_to_string(root().join("README.md")).unwrap();
        let excerpt = readme_excerpt(&readme).unwrap();
        assert!(excerpt.contains("glovebox run script.py arg1 arg2"), "{excerpt}");
        assert!(excerpt.contains("run by the toolchains of your machine"), "{excerpt}");
        assert!(!excerpt.contains("](") && !excerpt.contains("cargo"), "{excerpt}");
    }

    #[test]
    fn a_readme_without_the_parts_is_an_error() {
        assert!(readme_excerpt("# Glovebox\n## Other\n").is_err());
    }
}
