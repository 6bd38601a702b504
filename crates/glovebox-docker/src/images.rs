//! Images: which are there, and fetching those that are not.

use std::{collections::HashMap, time::Duration};

use bollard::{
    auth::DockerCredentials,
    errors::Error as DockerError,
    models::CreateImageInfo,
    query_parameters::{CreateImageOptionsBuilder, ListImagesOptionsBuilder, RemoveImageOptionsBuilder},
};
use futures_util::StreamExt;
use glovebox_core::{Error, ErrorCode, ImageReference, Result};

use crate::{
    client::{Client, QUICK, SLOW, status},
    credentials,
};

/// Nothing is heard of a fetch for so long, and it is given up.
const SILENCE: Duration = Duration::from_secs(60);

/// How often a fetch is tried that a network may have broken, and how long is waited before the second time.
const TRIES: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// What is said of the image `host`, which no engine has.
pub fn host_is_native_only() -> Error {
    Error::new(ErrorCode::NotSupported, "the image `host` is of the backend native only")
        .hint("name one with --image, such as --image python:3.12-slim, or use --backend native")
}

/// An image that Docker has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundImage {
    /// Docker's own id, a digest of its configuration.
    pub id: String,
    /// Its names.
    pub names: Vec<String>,
    /// What registries call exactly this one.
    pub digests: Vec<String>,
    /// Its size.
    pub bytes: u64,
    /// Where it says that it has volumes, as it is written there; nothing is known of that in a list.
    pub volumes: Vec<String>,
}

impl FoundImage {
    /// What registries call it, or what Docker does.
    pub fn digest(&self) -> Option<String> {
        let named = self.digests.first().and_then(|name| name.split_once('@')).map(|(_, digest)| digest.to_owned());
        named.or_else(|| Some(self.id.clone()).filter(|id| !id.is_empty()))
    }
}

/// Hears how far the fetch of one image is, and that it is over when it is dropped.
pub type Listener = Box<dyn FnMut(&Progress) + Send>;

/// How far a fetch is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that came.
    pub bytes: u64,
    /// Bytes that there are, as far as is known.
    pub total: u64,
    /// What is being done.
    pub status: String,
}

impl Client {
    /// The image of a name, if it is there.
    pub(crate) async fn image(&self, reference: &ImageReference) -> Result<Option<FoundImage>> {
        let asked = self.docker.inspect_image(reference.as_str());
        let found = self.ask_if_there("look for an image", QUICK, asked).await?;
        Ok(found.map(|image| FoundImage {
            id: image.id.unwrap_or_default(),
            names: image.repo_tags.unwrap_or_default(),
            digests: image.repo_digests.unwrap_or_default(),
            bytes: image.size.unwrap_or_default() as u64,
            volumes: image.config.and_then(|config| config.volumes).unwrap_or_default(),
        }))
    }

    /// The images that are there, those with names.
    pub(crate) async fn images(&self) -> Result<Vec<FoundImage>> {
        let asked = self.docker.list_images(Some(ListImagesOptionsBuilder::new().build()));
        let found = self.ask("list the images", SLOW, asked).await?;
        let mut images: Vec<FoundImage> = found
            .into_iter()
            .filter(|image| !image.repo_tags.is_empty())
            .map(|image| FoundImage {
                id: image.id,
                names: image.repo_tags,
                digests: image.repo_digests,
                bytes: image.size as u64,
                volumes: Vec::new(),
            })
            .collect();
        images.sort_by(|a, b| a.names.cmp(&b.names));
        Ok(images)
    }

    /// Removes an image.
    pub(crate) async fn remove_image(&self, reference: &ImageReference) -> Result<()> {
        let options = RemoveImageOptionsBuilder::new().build();
        let asked = self.docker.remove_image(reference.as_str(), Some(options), None);
        match self.answer("remove an image", SLOW, asked).await? {
            Ok(_) => Ok(()),
            Err(error) if status(&error) == Some(404) => Err(no_such_image(reference)),
            Err(error) if status(&error) == Some(409) => {
                let message = format!("the image {reference} is in use by a container, or has other names");
                let hint = "`glovebox list` and `docker ps --all` show what uses it; remove it by each of its names";
                Err(Error::new(ErrorCode::InUse, message).because(error).hint(hint))
            }
            Err(error) => Err(self.failed("remove an image", error)),
        }
    }

    /// Fetches an image, trying again where a network may have failed.
    pub(crate) async fn pull(&self, reference: &ImageReference, mut tell: impl FnMut(&Progress)) -> Result<()> {
        let info = self.ask("describe itself", QUICK, self.docker.info()).await?;
        let shown = credentials::find(reference, &info.index_server_address.unwrap_or_default()).await;
        let mut pause = FIRST_PAUSE;
        for tried in 1.. {
            match self.pull_once(reference, shown.credentials.clone(), &mut tell).await {
                Ok(()) => return Ok(()),
                Err(error) if tried < TRIES && may_pass(&error) => tokio::time::sleep(pause).await,
                Err(error) => {
                    return Err(match (&shown.trouble, &error.hint) {
                        (Some(trouble), Some(hint)) if error.code == ErrorCode::ImageNotFound => {
                            let hint = format!("{hint}; nobody was named to the registry, as {trouble}");
                            error.hint(hint)
                        }
                        _ => error,
                    });
                }
            }
            pause *= 2;
        }
        unreachable!("the last try returns")
    }

    async fn pull_once(
        &self,
        reference: &ImageReference,
        credentials: Option<DockerCredentials>,
        tell: &mut impl FnMut(&Progress),
    ) -> Result<()> {
        let options = CreateImageOptionsBuilder::new().from_image(&full_name(reference)).build();
        let mut steps = std::pin::pin!(self.docker.create_image(Some(options), None, credentials));
        let mut layers: HashMap<String, (u64, u64)> = HashMap::new();
        loop {
            let step = match tokio::time::timeout(SILENCE, steps.next()).await {
                Ok(Some(Ok(step))) => step,
                Ok(Some(Err(error))) => return Err(self.not_fetched(reference, error)),
                Ok(None) => return Ok(()),
                Err(_) => {
                    let message = format!("nothing was heard of {reference} for {} s", SILENCE.as_secs());
                    return Err(
                        Error::new(ErrorCode::ImageUnavailable, message).hint("see whether its registry answers")
                    );
                }
            };
            tell(&add_up(&mut layers, step));
        }
    }

    /// What is said of an image that could not be had.
    fn not_fetched(&self, reference: &ImageReference, error: DockerError) -> Error {
        let told = match &error {
            DockerError::DockerResponseServerError { message, .. } => message.clone(),
            DockerError::DockerStreamError { error } => error.clone(),
            _ => return self.failed("fetch an image", error),
        };
        let unknown = ["not found", "manifest unknown", "does not exist", "invalid reference"];
        let locked = ["unauthorized", "denied", "authentication required", "no basic auth"];
        let says = |words: &[&str]| words.iter().any(|word| told.to_lowercase().contains(word));
        if says(&locked) {
            let message = format!("the registry does not give {reference} to you, or there is no such image");
            return Error::new(ErrorCode::ImageNotFound, message).because(error).hint("log in with `docker login`");
        }
        if says(&unknown) {
            return no_such_image(reference).because(error);
        }
        Error::new(ErrorCode::ImageUnavailable, format!("the image {reference} could not be fetched"))
            .because(error)
            .hint("see whether this machine reaches the registry; `glovebox images list --backend docker` shows what is here")
    }
}

/// Docker fetches all tags of a name without one, so there is always one.
fn full_name(reference: &ImageReference) -> String {
    match (reference.tag(), reference.digest()) {
        (None, None) => format!("{reference}:latest"),
        _ => reference.to_string(),
    }
}

/// What is said of an image that is nowhere.
fn no_such_image(reference: &ImageReference) -> Error {
    Error::new(ErrorCode::ImageNotFound, format!("there is no image {reference}"))
        .hint("`glovebox images list --backend docker` shows those that are here")
}

/// Whether the same may go well in a moment. Who was waited for in vain would only be waited for again.
fn may_pass(error: &Error) -> bool {
    let in_vain = ["nothing was heard", "Client.Timeout exceeded", "i/o timeout"];
    error.code == ErrorCode::ImageUnavailable && !in_vain.iter().any(|words| told(error).contains(words))
}

/// What an error says, and what it came from.
fn told(error: &Error) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    format!("{} {cause}", error.message)
}

/// Adds a step of a fetch to what is known of it. What was fetched is unpacked afterwards, which is counted no second time.
fn add_up(layers: &mut HashMap<String, (u64, u64)>, step: CreateImageInfo) -> Progress {
    let status = step.status.unwrap_or_default();
    let detail = step.progress_detail.and_then(|detail| Some((detail.current?, detail.total?)));
    match (step.id, detail) {
        (Some(layer), Some((current, total))) if status == "Downloading" => {
            layers.insert(layer, (current.max(0) as u64, total.max(0) as u64));
        }
        (Some(layer), _) if ["Download complete", "Extracting", "Pull complete"].contains(&status.as_str()) => {
            layers.entry(layer).and_modify(|(current, total)| *current = *total);
        }
        _ => {}
    }
    Progress {
        bytes: layers.values().map(|(current, _)| current).sum(),
        total: layers.values().map(|(_, total)| total).sum(),
        status,
    }
}

#[cfg(test)]
mod tests {
    use bollard::models::ProgressDetail;

    use super::*;

    #[test]
    fn bytes_of_layers_add_up_and_never_go_back() {
        let mut layers = HashMap::new();
        let mut step = |layer: &str, status: &str, detail: Option<(i64, i64)>| {
            let detail = detail.map(|(current, total)| ProgressDetail { current: Some(current), total: Some(total) });
            let step = CreateImageInfo {
                id: Some(layer.to_owned()),
                status: Some(status.to_owned()),
                progress_detail: detail,
                ..CreateImageInfo::default()
            };
            let progress = add_up(&mut layers, step);
            (progress.bytes, progress.total)
        };
        assert_eq!(step("a", "Pulling fs layer", None), (0, 0));
        assert_eq!(step("a", "Downloading", Some((10, 100))), (10, 100));
        assert_eq!(step("b", "Downloading", Some((5, 50))), (15, 150));
        assert_eq!(step("a", "Download complete", None), (105, 150));
        assert_eq!(step("a", "Extracting", Some((1, 100))), (105, 150));
        assert_eq!(step("b", "Pull complete", None), (150, 150));
    }
}
