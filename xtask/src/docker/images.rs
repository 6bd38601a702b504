//! The images that tests use, made from recipes once and kept below target/.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

use super::daemon::Client;
use crate::{
    need::Tool,
    suites::command,
    tree::{built, root},
};

/// What the recipes use.
pub(crate) const TOOLS: [Tool; 3] =
    [("mmdebstrap", "mmdebstrap"), ("busybox", "busybox-static"), ("musl-gcc", "musl-tools")];

/// An image: how its files are made, and what its configuration says.
struct Recipe {
    name: &'static str,
    script: &'static str,
    /// Lines of a Dockerfile, for `docker import --change`.
    changes: &'static [&'static str],
}

const PROGRAM: &str = include_str!("recipes/says.c");

const RECIPES: [Recipe; 4] = [
    Recipe { name: "debian", script: include_str!("recipes/debian.sh"), changes: &[r#"CMD ["/bin/bash"]"#] },
    // Says everything that an image can say about how it wants to be run.
    Recipe {
        name: "busybox",
        script: include_str!("recipes/busybox.sh"),
        changes: &[
            r#"ENV GREETING="hello from the image" PATH=/bin:/srv/app/bin"#,
            "USER app",
            "WORKDIR /srv/app",
            r#"ENTRYPOINT ["/bin/echo", "entry"]"#,
            r#"CMD ["default"]"#,
            "LABEL test=yes",
        ],
    },
    Recipe { name: "musl", script: include_str!("recipes/musl.sh"), changes: &[r#"CMD ["/bin/sh"]"#] },
    Recipe {
        name: "distroless",
        script: include_str!("recipes/distroless.sh"),
        changes: &["USER 65532:65532", r#"ENTRYPOINT ["/says"]"#],
    },
];

/// All that there are.
pub(crate) const NAMES: [&str; 4] = ["debian", "busybox", "musl", "distroless"];

/// Makes the files of these images where they are missing.
pub(crate) fn make(names: &[&str]) -> Result<()> {
    RECIPES.iter().filter(|recipe| names.contains(&recipe.name)).try_for_each(|recipe| recipe.tar().map(drop))
}

/// The files of an image, made where they are missing.
pub(crate) fn tar(name: &str) -> Result<PathBuf> {
    RECIPES.iter().find(|recipe| recipe.name == name).context("there is no such image")?.tar()
}

/// Puts the images of these names where they are missing, as `glovebox-test/NAME`.
pub(crate) fn load(client: &Client, names: &[&str]) -> Result<()> {
    for recipe in RECIPES.iter().filter(|recipe| names.contains(&recipe.name)) {
        let tar = recipe.tar()?;
        let reference = reference(recipe.name);
        if client.docker(&["image", "inspect", &reference]).is_ok() {
            continue;
        }
        let mut argv = vec!["import"];
        argv.extend(recipe.changes.iter().flat_map(|change| ["--change", *change]));
        argv.extend([text(&tar)?, &reference]);
        client.docker(&argv)?;
    }
    Ok(())
}

/// What an image of ours is called.
pub(crate) fn reference(name: &str) -> String {
    format!("glovebox-test/{name}:latest")
}

impl Recipe {
    /// The files of the image, made when the recipe changed.
    fn tar(&self) -> Result<PathBuf> {
        let folder = built("docker-images", "");
        let suite = suite()?;
        let hash = Sha256::digest([self.script, PROGRAM, &suite].concat());
        let key: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let tar = folder.join(format!("{}-{key}.tar", self.name));
        if tar.exists() {
            return Ok(tar);
        }
        self.forget_older(&folder)?;
        let work = folder.join(format!("{}-unfinished", self.name));
        fs::create_dir_all(&work)?;
        fs::write(work.join("recipe.sh"), self.script)?;
        fs::write(work.join("sources"), host_sources()?)?;
        let unfinished = work.join("root.tar");
        eprintln!("making {}", reference(self.name));
        let status = command(&["sh", "recipe.sh"])
            .current_dir(&work)
            .env("TAR", &unfinished)
            .env("SUITE", suite)
            .env("SOURCES", work.join("sources"))
            .env("RECIPES", root().join("xtask/src/docker/recipes"))
            .stdout(std::io::stderr())
            .status()?;
        ensure!(status.success(), "the recipe of {} ended with {status}", reference(self.name));
        fs::rename(unfinished, &tar)?;
        fs::remove_dir_all(&work)?;
        Ok(tar)
    }

    /// Removes what another recipe of this name made, and what a recipe that was killed left.
    fn forget_older(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder)?;
        let of_this = format!("{}-", self.name);
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if !entry.file_name().to_string_lossy().starts_with(&of_this) {
                continue;
            }
            if entry.file_type()?.is_dir() {
                fs::remove_dir_all(entry.path())?;
            } else {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

/// The name of the host's own release, so that packages come from where the host's come.
pub(crate) fn suite() -> Result<String> {
    let release = fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    let suite = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME=")).unwrap_or("bookworm");
    Ok(suite.to_owned())
}

/// Where the host's own packages come from, as mmdebstrap reads it.
pub(crate) fn host_sources() -> Result<String> {
    let candidates =
        ["/etc/apt/sources.list", "/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list.d/ubuntu.sources"];
    let lists = candidates.iter().filter_map(|path| fs::read_to_string(path).ok());
    let filled = |text: &String| text.lines().any(|line| line.starts_with("deb ") || line.starts_with("Types:"));
    lists.into_iter().find(filled).context("no list of package sources was found below /etc/apt")
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}
