//! Whether there is a Docker engine that can be used, and if not, why.

use std::{io, path::Path, time::Duration};

use glovebox_core::Error;
use tokio::net::UnixStream;

use crate::{
    client::Client,
    gvisor,
    place::{Place, Way},
    podman,
};

/// What was found of a Docker engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// It answers.
    Answers {
        /// What it is: `Docker`, or `Podman`.
        engine: &'static str,
        /// Its version.
        version: String,
        /// The version of its API.
        api: String,
        /// Its runtimes in which no sandbox can be made for want of flags, each with the flags that it lacks.
        unfit: Vec<(String, Vec<&'static str>)>,
    },
    /// It answers, with an API that is too old.
    TooOld {
        /// Its version.
        version: String,
        /// The version of its API.
        api: String,
    },
    /// There is no socket.
    NoSocket,
    /// There is a socket, and nobody listens.
    NotRunning,
    /// The caller may not use the socket.
    NotAllowed,
    /// It takes connections and does not answer in time.
    Silent,
    /// Anything else.
    Unusable {
        /// What keeps it from being used.
        why: String,
        /// What helps, where that is known.
        hint: Option<String>,
    },
}

/// The oldest version of the API that works.
pub const OLDEST_API: (u32, u32) = (1, 41);

/// Where the engine is that `DOCKER_HOST` or the chosen context names, if it is spoken to through a network without TLS: whoever is in
/// between reads everything, secrets among it, and can put in what they like.
pub fn without_tls() -> Option<String> {
    Place::find(None).ok().filter(Place::is_open).map(|place| place.address)
}

/// Looks for the engine that `DOCKER_HOST` names, or the usual one, for no longer than `patience`. Says where it was looked for.
pub async fn look(patience: Duration) -> (String, Look) {
    let place = match Place::find(None) {
        Ok(place) => place,
        Err(error) => return ("what the settings name".to_owned(), unusable(error)),
    };
    let found = tokio::time::timeout(patience, ask(&place)).await.unwrap_or(Look::Silent);
    (place.address, found)
}

async fn ask(place: &Place) -> Look {
    let socket = place.address.trim_start_matches("unix://");
    if place.way == Way::Socket
        && let Err(error) = UnixStream::connect(Path::new(socket)).await
    {
        return match error.kind() {
            io::ErrorKind::NotFound => Look::NoSocket,
            io::ErrorKind::ConnectionRefused => Look::NotRunning,
            io::ErrorKind::PermissionDenied => Look::NotAllowed,
            _ => Look::Unusable { why: error.to_string(), hint: None },
        };
    }
    let client = match Client::at(place.clone()) {
        Ok(client) => client,
        Err(error) => return unusable(error),
    };
    match client.docker.version().await {
        Ok(found) => {
            let text = |part: Option<String>| part.unwrap_or_else(|| "unknown".to_owned());
            let engine = if podman::is_it(&found) { "Podman" } else { "Docker" };
            // Podman lists runtimes that may not be there, and does not say with which flags it calls them.
            let info = if engine == "Docker" { client.docker.info().await.ok() } else { None };
            let unfit = info.map(|info| gvisor::unfit(&info)).unwrap_or_default();
            judge(engine, text(found.version), text(found.api_version), unfit)
        }
        Err(error) => unusable(client.failed("ask for the version", error)),
    }
}

fn unusable(error: Error) -> Look {
    Look::Unusable { why: error.message, hint: error.hint }
}

fn judge(engine: &'static str, version: String, api: String, unfit: Vec<(String, Vec<&'static str>)>) -> Look {
    let numbers = api.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    match numbers {
        Some(numbers) if numbers < OLDEST_API => Look::TooOld { version, api },
        _ => Look::Answers { engine, version, api, unfit },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        let judged = |api: &str| judge("Docker", "x".to_owned(), api.to_owned(), Vec::new());
        assert!(matches!(judged("1.41"), Look::Answers { .. }));
        assert!(matches!(judged("1.100"), Look::Answers { .. }));
        assert!(matches!(judged("2.0"), Look::Answers { .. }));
        assert!(matches!(judged("1.9"), Look::TooOld { .. }));
        assert!(matches!(judged("1.40"), Look::TooOld { .. }));
    }
}
