//! A process that lives long and uses Docker, whatever becomes of Docker meanwhile.
//!
//! Each line of its input is the text that a run prints in a fresh sandbox. It answers with what was printed, or with the code of the
//! error. What dead owners left is removed every second, so that nobody has to wait an hour to see it.
//!
//! `echo hello | cargo run -p glovebox-docker --example long_living -- IMAGE`

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use glovebox_core::{Command, Image};
use glovebox_docker::{DockerBackend, Settings};
use glovebox_engine::{Engine, RunRequest};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let image = std::env::args().nth(1).context("the name of an image is missing")?;
    let folder = tempfile::tempdir()?;
    let settings = Settings {
        host: None,
        runtime: None,
        image: None,
        progress: None,
        runtime_folder: folder.path().join("run"),
        data_folder: folder.path().join("data"),
    };
    let backend = DockerBackend::new(settings)?.with_sweeps_every(Duration::from_secs(1));
    let engine = Engine::new(Arc::new(backend)).with_data_dir(folder.path().join("data"));
    // The runtime has other things to do while nobody asks for a run.
    while let Some(line) = tokio::task::spawn_blocking(|| std::io::stdin().lines().next().transpose()).await?? {
        let mut request = RunRequest::new(Command::argv(["echo", line.as_str()])?);
        request.spec.image = Image::parse(&image).map_err(anyhow::Error::msg)?;
        match engine.run(request).await {
            Ok(result) => print!("{}", String::from_utf8_lossy(&result.stdout.to_bytes())),
            Err(error) => println!("{}", error.code),
        }
    }
    Ok(())
}
