//! `glovebox images`.

use clap::{Args, Subcommand};

const EXAMPLES: &str = "\
Examples:
  glovebox images list --backend docker
  glovebox images pull --backend docker python:3.12-slim
  glovebox images pull --backend docker --all       # all that languages start from
  glovebox images remove --backend docker python:3.12-slim";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ImagesArgs {
    #[command(subcommand)]
    pub(crate) verb: ImagesVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImagesVerb {
    /// List the images that sandboxes can start from without fetching anything
    #[command(after_help = "Examples:\n  glovebox images list --backend docker")]
    List,
    /// Fetch images from their registries, or newer ones of their names
    ///
    /// A run or a new sandbox fetches what is missing by itself; this does it beforehand. Registries are shown what docker login
    /// left for them. One that cannot be fetched does not keep the others.
    #[command(
        after_help = "Examples:\n  glovebox images pull --backend docker python:3.12-slim node:22-slim\n  glovebox images pull --backend docker --all"
    )]
    Pull(PullArgs),
    /// Remove images, unless a container is of them
    ///
    /// One that cannot be removed does not keep the others.
    #[command(after_help = "Examples:\n  glovebox images remove --backend docker python:3.12-slim")]
    Remove(ImagesArg),
}

#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// The images
    #[arg(value_name = "IMAGE", required_unless_present = "all")]
    pub(crate) images: Vec<String>,
    /// All that languages start from when no image is named
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ImagesArg {
    /// The images
    #[arg(value_name = "IMAGE", num_args = 1.., required = true)]
    pub(crate) images: Vec<String>,
}
