//! `glovebox images`: what sandboxes start from.

use glovebox_core::{Error, ErrorCode, Image, ImageReference, Result};
use glovebox_docker::{DockerBackend, FoundImage};
use serde_json::{Value, json};

use super::{data_dir, runtime, several::each};
use crate::{
    args::{Globals, ImagesArgs, ImagesVerb, PullArgs},
    backends::{self, Kind},
    flags::Flags,
    report,
    table::table,
    terminal,
};

pub(crate) fn execute(globals: &Globals, args: &ImagesArgs, flags: &Flags) -> Result<u8> {
    let kind = backends::kind(globals, flags)?;
    match (&args.verb, kind) {
        (ImagesVerb::List, Kind::Native) => list(globals, &[json!({ "image": "host", "digest": null, "bytes": null })]),
        (ImagesVerb::Pull(_) | ImagesVerb::Remove(_), Kind::Native) => {
            let message = "the backend native has one image, `host`, which is this machine's own programs";
            Err(Error::new(ErrorCode::NotSupported, message).hint("add --backend docker for images of registries"))
        }
        (ImagesVerb::List, Kind::Docker) => {
            let docker = backends::docker(&data_dir(globals))?;
            let found = runtime()?.block_on(docker.images())?;
            let rows = found.iter().flat_map(|image| image.names.iter().map(|name| described(name, image)));
            list(globals, &rows.collect::<Vec<_>>())
        }
        (ImagesVerb::Pull(args), Kind::Docker) => pull(globals, args, &backends::docker(&data_dir(globals))?),
        (ImagesVerb::Remove(args), Kind::Docker) => {
            let docker = backends::docker(&data_dir(globals))?;
            let remove = async |text: &String| docker.remove_image(&parse(text)?).await.map(|()| text.clone());
            runtime()?.block_on(each(globals, &args.images, remove)).report(globals, "removed")
        }
    }
}

fn pull(globals: &Globals, args: &PullArgs, docker: &DockerBackend) -> Result<u8> {
    let mut names = args.images.clone();
    if args.all {
        names.extend(backends::catalog().map(|image| image.to_string()).filter(|name| !args.images.contains(name)));
    }
    let pull = async |text: &String| {
        let image = docker.pull(&parse(text)?).await?;
        if !globals.json {
            report::print(&format!("{text}\n"))?;
        }
        Ok(described(text, &image))
    };
    runtime()?.block_on(each(globals, &names, pull)).report(globals, "images")
}

/// An image of a registry, by its name.
fn parse(text: &str) -> Result<ImageReference> {
    match Image::parse(text) {
        Ok(Image::Reference(reference)) => Ok(reference),
        Ok(Image::Host) => {
            let message = "the image `host` is this machine's own programs, and is neither fetched nor removed";
            Err(Error::new(ErrorCode::InvalidValue, message).hint("name an image such as python:3.12-slim"))
        }
        Err(forms) => Err(Error::new(ErrorCode::InvalidValue, format!("{text:?} is no image: {forms}"))),
    }
}

fn described(name: &str, image: &FoundImage) -> Value {
    json!({ "image": name, "id": image.id, "digest": image.digest(), "bytes": image.bytes })
}

fn list(globals: &Globals, images: &[Value]) -> Result<u8> {
    if globals.json {
        report::document(&json!({ "images": images }))?;
    } else if images.is_empty() {
        report::say("there is no image; glovebox images pull fetches one");
    } else {
        let row = |image: &Value| {
            let text = |key: &str| image[key].as_str().unwrap_or("-").to_owned();
            [text("image"), image["bytes"].as_u64().map_or_else(|| "-".to_owned(), report::size), text("digest")]
        };
        let rows: Vec<_> = images.iter().map(row).collect();
        report::print(&table(["IMAGE", "SIZE", "DIGEST"], &rows, terminal::output_columns()))?;
    }
    Ok(0)
}
