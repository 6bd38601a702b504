//! A registry of images on loopback, with Debian's own server: open, or behind a name and a password.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Stdio},
};

use anyhow::{Context, Result};
use serde_json::json;

use super::daemon::{Daemon, Lifetime, of_lifetime};
use crate::need::{self, Tool};

const TOOLS: [Tool; 1] = [("docker-registry", "docker-registry")];

/// Who may use the registry that asks.
pub(crate) const USER: &str = "tester";
/// The password of a registry that holds test images for a minute. It is no secret.
pub(crate) const PASSWORD: &str = "correct horse";
/// Both as the registry wants them: the output of `htpasswd -nbB tester 'correct horse'`.
const HTPASSWD: &str = "tester:$2y$05$ZHImP5zvEAA43rpgzYL6cOwkHx3mtNFKrpWEpcFf3p2GmgD.Dr48i\n";

/// Whether a registry asks who is there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    /// Everybody may read and write.
    Open,
    /// Only [`USER`] may.
    Locked,
}

/// A registry that answers. It ends when this is dropped, and with this process.
pub(crate) struct Registry {
    /// `127.0.0.1:PORT`, the beginning of the names of its images. Docker speaks plain HTTP to loopback.
    pub(crate) address: String,
    child: Child,
}

impl Registry {
    /// Starts a registry at a free port, with its files in memory.
    pub(crate) fn start(daemon: &Daemon, door: Door) -> Result<Registry> {
        need::tools(&TOOLS)?;
        let run = &daemon.places.run;
        let (name, auth) = match door {
            Door::Open => ("open", json!({})),
            Door::Locked => {
                let users = run.join("registry-users");
                fs::write(&users, HTPASSWD)?;
                ("locked", json!({ "htpasswd": { "realm": "tests", "path": users } }))
            }
        };
        // JSON is YAML too.
        let config = json!({
            "version": 0.1,
            "log": { "level": "info", "accesslog": { "disabled": true } },
            "storage": { "inmemory": {} },
            "http": { "addr": "127.0.0.1:0" },
            "auth": auth,
        });
        let path = run.join(format!("registry-{name}.json"));
        fs::write(&path, config.to_string())?;
        let mut child = of_lifetime(Lifetime::OfThisProcess)
            .args(["docker-registry", "serve"])
            .arg(&path)
            .env("OTEL_TRACES_EXPORTER", "none")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start docker-registry")?;
        let mut log = BufReader::new(child.stderr.take().context("the registry has no standard error")?).lines();
        let mut said = String::new();
        // It says its port once it listens; its log ends when it does.
        while let Some(line) = log.next().transpose()? {
            if let Some((_, rest)) = line.split_once("listening on ") {
                let address = rest.split(['"', ' ']).next().unwrap_or_default().to_owned();
                // Somebody has to read what it says from now on.
                std::thread::spawn(move || log.for_each(drop));
                return Ok(Registry { address, child });
            }
            said.push_str(&line);
            said.push('\n');
        }
        let _ = child.wait();
        anyhow::bail!("docker-registry does not listen:\n{said}")
    }

    /// Puts an image of the daemon into the registry. Gives the name by which it can be pulled.
    pub(crate) fn push(&self, daemon: &Daemon, reference: &str) -> Result<String> {
        self.push_as(daemon, reference, reference)
    }

    /// The same by another name.
    pub(crate) fn push_as(&self, daemon: &Daemon, reference: &str, name: &str) -> Result<String> {
        let name = format!("{}/{name}", self.address);
        daemon.docker(&["tag", reference, &name])?;
        daemon.docker(&["push", "--quiet", &name])?;
        daemon.docker(&["image", "rm", &name])?;
        Ok(name)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
