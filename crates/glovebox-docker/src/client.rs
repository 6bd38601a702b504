//! Speaking with Docker: where it is, and how long it is waited for.

use std::{
    collections::HashMap,
    future::Future,
    path::PathBuf,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bollard::{
    API_DEFAULT_VERSION, Docker,
    errors::Error as DockerError,
    models::{ContainerInspectResponse, ContainerSummary, Volume},
    query_parameters::{
        ListContainersOptionsBuilder, ListVolumesOptionsBuilder, RemoveContainerOptionsBuilder,
        WaitContainerOptionsBuilder,
    },
};
use futures_util::StreamExt;
use glovebox_core::{Error, ErrorCode, Result};
use tokio::time::{Instant, timeout};

use crate::{owner, podman};

/// Where Docker listens when nobody says anything else.
const USUAL_SOCKET: &str = "/var/run/docker.sock";

/// What needs no work of Docker's is answered within this.
pub(crate) const QUICK: Duration = Duration::from_secs(15);

/// What needs some, on a machine that is busy.
pub(crate) const SLOW: Duration = Duration::from_secs(120);

/// After so long without an answer, an engine is asked whether it still speaks.
const DOUBT: Duration = Duration::from_secs(5);

/// It says so within this, however much it has to do.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);

/// Both for one that gave no sign the last time: who tidies up behind a failure does not wait for it all over again.
const AGAIN: Duration = Duration::from_secs(2);

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
    /// Whether it gave no sign of life when it was asked for one last.
    is_silent: Arc<AtomicBool>,
}

impl Client {
    /// A client of the engine at `host`, or of that which `DOCKER_HOST` names, or of the usual one. Nothing is asked yet.
    pub(crate) fn new(host: Option<&str>) -> Result<Self> {
        let place = place_of(host);
        let wrong = |error: DockerError| match &error {
            DockerError::SocketNotFoundError(_) => {
                let message = format!("there is no Docker here: {place} does not exist");
                Error::new(ErrorCode::BackendUnavailable, message).hint(
                    "install or start Docker, or say where it listens with DOCKER_HOST; `glovebox doctor` looks; --backend native needs no Docker",
                )
            }
            _ => Error::new(ErrorCode::BackendUnavailable, format!("Docker at {place} cannot be used"))
                .because(error)
                .hint("see DOCKER_HOST, DOCKER_TLS_VERIFY and DOCKER_CERT_PATH; --backend native needs no Docker"),
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
        Ok(Client { docker, place, is_local, is_silent: Arc::default() })
    }

    /// Waits for an answer, but not for ever.
    pub(crate) async fn ask<T>(
        &self,
        what: &str,
        patience: Duration,
        asked: impl Future<Output = Result<T, DockerError>>,
    ) -> Result<T> {
        self.answer(what, patience, asked).await?.map_err(|error| self.failed(what, error))
    }

    /// The same for what may be gone already, or may be about to go.
    pub(crate) async fn ask_if_there<T>(
        &self,
        what: &str,
        patience: Duration,
        asked: impl Future<Output = Result<T, DockerError>>,
    ) -> Result<Option<T>> {
        match self.answer(what, patience, asked).await? {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if matches!(status(&error), Some(404 | 409 | 304)) || podman::says_gone(&error) => Ok(None),
            Err(error) => Err(self.failed(what, error)),
        }
    }

    /// Waits for an answer for as long as the engine shows that it lives, and at most for `patience`. One that takes connections and never
    /// answers is found out long before that.
    pub(crate) async fn answer<T>(&self, what: &str, patience: Duration, asked: impl Future<Output = T>) -> Result<T> {
        let (mut asked, started) = (pin!(asked), Instant::now());
        let (doubt, sign_of_life) = match self.is_silent.load(Ordering::Relaxed) {
            true => (AGAIN, AGAIN),
            false => (DOUBT, SIGN_OF_LIFE),
        };
        loop {
            let left = patience.saturating_sub(started.elapsed());
            if let Ok(answer) = timeout(left.min(doubt), &mut asked).await {
                self.is_silent.store(false, Ordering::Relaxed);
                return Ok(answer);
            }
            if started.elapsed() >= patience {
                return Err(self.silent(what, patience));
            }
            let left = patience.saturating_sub(started.elapsed());
            tokio::select! {
                answer = &mut asked => return Ok(answer),
                sign = timeout(left.min(sign_of_life), self.docker.ping()) => {
                    self.is_silent.store(sign.is_err(), Ordering::Relaxed);
                    if sign.is_err() {
                        return Err(self.silent(what, started.elapsed()));
                    }
                }
            }
        }
    }

    /// The containers that carry our labels, and this one where it is given.
    pub(crate) async fn containers(&self, further: Option<(&str, String)>) -> Result<Vec<ContainerSummary>> {
        let mut labels = vec![format!("{}=true", owner::MANAGED)];
        labels.extend(further.map(|(name, value)| format!("{name}={value}")));
        let mut filters = HashMap::from([("label".to_owned(), labels)]);
        let what = "list the containers";
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        match self.answer(what, SLOW, self.docker.list_containers(Some(options))).await? {
            Err(error) if podman::is_between_states(&error) => {}
            listed => return listed.map_err(|error| self.failed(what, error)),
        }
        // One that is about to be in another state is none of those that can be named.
        filters.insert("status".to_owned(), podman::STATES.map(str::to_owned).to_vec());
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        self.ask(what, SLOW, self.docker.list_containers(Some(options))).await
    }

    /// What is known of a container, if it is there.
    pub(crate) async fn look_at(
        &self,
        container: &str,
        patience: Duration,
    ) -> Result<Option<ContainerInspectResponse>> {
        let what = "look at a container";
        for _ in 0..podman::MOST_LOOKS {
            match self.answer(what, patience, self.docker.inspect_container(container, None)).await? {
                Err(error) if podman::is_between_states(&error) => tokio::time::sleep(podman::BETWEEN).await,
                Err(error) if matches!(status(&error), Some(404)) || podman::says_gone(&error) => return Ok(None),
                seen => return seen.map(Some).map_err(|error| self.failed(what, error)),
            }
        }
        self.ask_if_there(what, patience, self.docker.inspect_container(container, None)).await
    }

    /// The volumes that carry our labels.
    pub(crate) async fn volumes(&self) -> Result<Vec<Volume>> {
        let filters = HashMap::from([("label".to_owned(), vec![format!("{}=true", owner::MANAGED)])]);
        let options = ListVolumesOptionsBuilder::new().filters(&filters).build();
        let found = self.ask("list the volumes", SLOW, self.docker.list_volumes(Some(options))).await?;
        Ok(found.volumes.unwrap_or_default())
    }

    /// Removes a container and waits until it is gone.
    pub(crate) async fn remove(&self, container: &str) -> Result<()> {
        let options = RemoveContainerOptionsBuilder::new().force(true).build();
        let asked = self.docker.remove_container(container, Some(options));
        self.ask_if_there("remove a container", SLOW, asked).await?;
        self.removed(container).await
    }

    /// Waits until a container is gone.
    pub(crate) async fn removed(&self, container: &str) -> Result<()> {
        let condition = WaitContainerOptionsBuilder::new().condition("removed").build();
        let mut end = pin!(self.docker.wait_container(container, Some(condition)));
        match self.answer("remove a container", SLOW, end.next()).await? {
            // Docker ended meanwhile, and the container may be there when it is back.
            Some(Err(error)) if is_of_transport(&error) => Err(self.failed("remove a container", error)),
            // Whatever else it says, that it is not there or with what it ended, it is gone then.
            _ => Ok(()),
        }
    }

    /// Whether the engine answers at all, and soon.
    pub(crate) async fn answers_within(&self, patience: Duration) -> bool {
        matches!(timeout(patience, self.docker.ping()).await, Ok(Ok(_)))
    }

    fn silent(&self, what: &str, patience: Duration) -> Error {
        let message = format!("Docker at {} did not answer within {} s: {what}", self.place, patience.as_secs());
        Error::new(ErrorCode::BackendUnavailable, message)
            .hint("does `docker info` answer? If not, restart Docker; --backend native needs no Docker")
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

/// Whether a failure is none of Docker's own answers, but that there was none.
pub(crate) fn is_of_transport(error: &DockerError) -> bool {
    !matches!(error, DockerError::DockerResponseServerError { .. } | DockerError::DockerContainerWaitError { .. })
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
