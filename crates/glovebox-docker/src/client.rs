//! Speaking with Docker: where it is, and how long it is waited for.

use std::{future::Future, path::PathBuf, time::Duration};

use bollard::{API_DEFAULT_VERSION, Docker, errors::Error as DockerError};
use glovebox_core::{Error, ErrorCode, Result};

/// Where Docker listens when nobody says anything else.
const USUAL_SOCKET: &str = "/var/run/docker.sock";

/// What needs no work of Docker's is answered within this.
pub(crate) const QUICK: Duration = Duration::from_secs(15);

/// What needs some, on a machine that is busy.
pub(crate) const SLOW: Duration = Duration::from_secs(120);

/// The client's own limit on a request. It is only there so that nothing waits for ever: each has one of its own.
const LONGEST_SECONDS: u64 = 3600;

/// A Docker engine, or one that speaks as Docker does.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) docker: Docker,
    /// Where it is, for people.
    pub(crate) place: String,
    /// Whether it is on this machine, so that both see the same folders.
    pub(crate) is_local: bool,
}

impl Client {
    /// A client of the engine at `host`, or of that which `DOCKER_HOST` names, or of the usual one. Nothing is asked yet.
    pub(crate) fn new(host: Option<&str>) -> Result<Self> {
        let place = place_of(host);
        let wrong = |error: DockerError| {
            Error::new(ErrorCode::BackendUnavailable, format!("Docker at {place} cannot be used"))
                .because(error)
                .hint("is Docker running there? `glovebox doctor` looks; --backend native needs no Docker")
        };
        let tls = std::env::var("DOCKER_TLS_VERIFY").is_ok_and(|value| !value.is_empty());
        let (docker, is_local) = match place.split_once("://") {
            Some(("unix", _)) => {
                (Docker::connect_with_unix(&place, LONGEST_SECONDS, API_DEFAULT_VERSION).map_err(wrong)?, true)
            }
            Some(("tcp" | "https", _)) if tls || place.starts_with("https") => {
                (with_tls(&place).map_err(wrong)?, false)
            }
            Some(("tcp" | "http", _)) => {
                (Docker::connect_with_http(&place, LONGEST_SECONDS, API_DEFAULT_VERSION).map_err(wrong)?, false)
            }
            _ => {
                let message = format!("{place:?} is no place of a Docker engine");
                return Err(Error::new(ErrorCode::InvalidValue, message)
                    .hint("the forms are unix:///path/to/docker.sock, tcp://HOST:PORT and https://HOST:PORT"));
            }
        };
        Ok(Client { docker, place, is_local })
    }

    /// Waits for an answer, but not for ever.
    pub(crate) async fn ask<T>(
        &self,
        what: &str,
        patience: Duration,
        asked: impl Future<Output = Result<T, DockerError>>,
    ) -> Result<T> {
        match tokio::time::timeout(patience, asked).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.failed(what, error)),
            Err(_) => Err(self.silent(what, patience)),
        }
    }

    /// The same for what may be gone already, or may be about to go.
    pub(crate) async fn ask_if_there<T>(
        &self,
        what: &str,
        patience: Duration,
        asked: impl Future<Output = Result<T, DockerError>>,
    ) -> Result<Option<T>> {
        match tokio::time::timeout(patience, asked).await {
            Ok(Ok(answer)) => Ok(Some(answer)),
            Ok(Err(error)) if matches!(status(&error), Some(404 | 409 | 304)) => Ok(None),
            Ok(Err(error)) => Err(self.failed(what, error)),
            Err(_) => Err(self.silent(what, patience)),
        }
    }

    fn silent(&self, what: &str, patience: Duration) -> Error {
        let message = format!("Docker at {} did not answer within {} s: {what}", self.place, patience.as_secs());
        Error::new(ErrorCode::BackendUnavailable, message)
            .hint("see whether `docker info` answers; --backend native needs no Docker")
    }

    /// What is said of an answer that is a failure.
    pub(crate) fn failed(&self, what: &str, error: DockerError) -> Error {
        if let DockerError::DockerResponseServerError { status_code, message } = &error {
            let code =
                if message.contains("No such image") { ErrorCode::ImageNotFound } else { ErrorCode::SandboxSetup };
            let told = format!("Docker could not do its part: {what}: {} ({status_code})", first_lines(message));
            let failed = Error::new(code, told);
            return match message.contains("no space left on device") {
                true => failed.hint("Docker's disk is full: docker system prune, or give it more room"),
                false => failed,
            };
        }
        let message = format!("Docker at {} cannot be reached: {what}", self.place);
        let hint = if self.is_local {
            "is Docker running, and may you use its socket? `glovebox doctor` looks; --backend native needs no Docker"
        } else {
            "see DOCKER_HOST, DOCKER_TLS_VERIFY and DOCKER_CERT_PATH; --backend native needs no Docker"
        };
        Error::new(ErrorCode::BackendUnavailable, message).because(error).hint(hint)
    }
}

/// Where an engine is: what was named, what `DOCKER_HOST` says, or the usual socket.
pub(crate) fn place_of(host: Option<&str>) -> String {
    let named = host.map(str::to_owned).or_else(|| std::env::var("DOCKER_HOST").ok());
    named.filter(|text| !text.is_empty()).unwrap_or_else(|| format!("unix://{}", usual_socket()))
}

/// The status of an answer, if it is one of Docker's.
pub(crate) fn status(error: &DockerError) -> Option<u16> {
    match error {
        DockerError::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

/// No message of Docker's is passed on in a length that nobody reads.
fn first_lines(message: &str) -> String {
    message.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).take(500).collect()
}

/// Root's socket, or that of an engine without root which serves this user.
fn usual_socket() -> String {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(|folder| PathBuf::from(folder).join("docker.sock"));
    let usual = PathBuf::from(USUAL_SOCKET);
    let chosen = if usual.exists() { usual } else { own.filter(|path| path.exists()).unwrap_or(usual) };
    chosen.to_string_lossy().into_owned()
}

/// With the keys of `DOCKER_CERT_PATH`, as the program `docker` has them.
fn with_tls(place: &str) -> Result<Docker, DockerError> {
    let named = std::env::var_os("DOCKER_CERT_PATH").map(PathBuf::from);
    let usual = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".docker"));
    let folder = named.or_else(usual).ok_or(DockerError::NoHomePathError)?;
    let file = |name: &str| folder.join(name);
    let (key, certificate, authority) = (file("key.pem"), file("cert.pem"), file("ca.pem"));
    Docker::connect_with_ssl(place, &key, &certificate, &authority, LONGEST_SECONDS, API_DEFAULT_VERSION)
}
