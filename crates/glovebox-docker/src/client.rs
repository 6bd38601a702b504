//! Speaking with Docker: where it is, and how long it is waited for.

use std::{
    collections::HashMap,
    future::Future,
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
        RemoveVolumeOptionsBuilder, WaitContainerOptionsBuilder,
    },
};
use futures_util::StreamExt;
use glovebox_core::{Error, ErrorCode, Result};
use tokio::time::{Instant, timeout};

use crate::{
    owner,
    place::{Place, Way},
    podman, transport,
};

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
pub(crate) const LONGEST_SECONDS: u64 = 3600;

/// A Docker engine, or one that speaks as Docker does.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) docker: Docker,
    /// Where it is, for people.
    pub(crate) place: String,
    /// How it is spoken to.
    pub(crate) way: Way,
    /// Whether it gave no sign of life when it was asked for one last.
    is_silent: Arc<AtomicBool>,
}

impl Client {
    /// A client of the engine at `host`, or of that which the caller's settings name. Nothing is asked yet.
    pub(crate) fn new(host: Option<&str>) -> Result<Self> {
        Client::at(Place::find(host)?)
    }

    /// A client of the engine at a place.
    pub(crate) fn at(Place { address: place, way }: Place) -> Result<Self> {
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
        let docker = match &way {
            Way::Socket => Docker::connect_with_unix(&place, LONGEST_SECONDS, API_DEFAULT_VERSION).map_err(wrong)?,
            Way::Plain(authority) => transport::plain(authority).map_err(wrong)?,
            Way::Tls(authority, certificates) => transport::with_tls(authority, certificates)?,
        };
        Ok(Client { docker, place, way, is_silent: Arc::default() })
    }

    /// Whether it is on this machine, so that both see the same folders. One at the other end of a network is never taken for
    /// that, whatever its address.
    pub(crate) fn is_local(&self) -> bool {
        self.way == Way::Socket
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
        let filters = HashMap::from([("label".to_owned(), labels)]);
        let what = "list the containers";
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        for _ in 0..podman::MOST_LOOKS {
            match self.answer(what, SLOW, self.docker.list_containers(Some(options.clone()))).await? {
                Err(error) if podman::is_between_states(&error) => tokio::time::sleep(podman::BETWEEN).await,
                listed => return listed.map_err(|error| self.failed(what, error)),
            }
        }
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

    /// The volumes that carry a label of ours.
    pub(crate) async fn volumes(&self, label: &str) -> Result<Vec<Volume>> {
        let filters = HashMap::from([("label".to_owned(), vec![label.to_owned()])]);
        let options = ListVolumesOptionsBuilder::new().filters(&filters).build();
        let found = self.ask("list the volumes", SLOW, self.docker.list_volumes(Some(options))).await?;
        Ok(found.volumes.unwrap_or_default())
    }

    /// Removes a container, with the volumes that its engine made of itself and that have no name, and waits until it is gone.
    pub(crate) async fn remove(&self, container: &str) -> Result<()> {
        let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
        let asked = self.docker.remove_container(container, Some(options));
        self.ask_if_there("remove a container", SLOW, asked).await?;
        self.removed(container).await
    }

    /// Removes a volume, unless it is not there or a container has it.
    pub(crate) async fn remove_volume(&self, name: &str) -> Result<bool> {
        let options = RemoveVolumeOptionsBuilder::new().force(true).build();
        let asked = self.docker.remove_volume(name, Some(options));
        Ok(self.ask_if_there("remove a volume", SLOW, asked).await?.is_some())
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

    /// Waits until the engine knows that a container does not run any more, or is out of patience. Says the code that it ended with.
    pub(crate) async fn ended_within(&self, container: &str, patience: Duration) -> Option<i64> {
        let condition = WaitContainerOptionsBuilder::new().condition("not-running").build();
        let mut end = pin!(self.docker.wait_container(container, Some(condition)));
        match timeout(patience, end.next()).await {
            Ok(Some(Ok(ended))) => Some(ended.status_code),
            Ok(Some(Err(DockerError::DockerContainerWaitError { code, .. }))) => Some(code),
            _ => None,
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
        if let Some(cause) = transport::want_of_descriptors(&error) {
            return Error::new(ErrorCode::BackendUnavailable, "Docker cannot be asked").or_too_many(cause);
        }
        if let Some((trouble, hint)) = transport::trouble(&error) {
            let message = format!("Docker at {} cannot be reached: {trouble}", self.place);
            let cause = std::io::Error::other(transport::bottom(&error));
            return Error::new(ErrorCode::BackendUnavailable, message).because(cause).hint(hint);
        }
        if let DockerError::DockerResponseServerError { status_code, message } = &error {
            let code =
                if message.contains("No such image") { ErrorCode::ImageNotFound } else { ErrorCode::SandboxSetup };
            let told = format!("Docker could not do its part: {what}: {} ({status_code})", first_lines(message));
            if message.contains("did not receive an exit event") {
                return Error::new(ErrorCode::StillEnding, told)
                    .hint("a process inside waits in the kernel, for a mount that does not answer perhaps: end what it waits for, and try again");
            }
            if message.contains("unable to freeze") {
                return Error::new(ErrorCode::WrongState, told)
                    .hint("a process inside waits in the kernel and cannot be frozen; the sandbox goes on");
            }
            let failed = Error::new(code, told);
            return match message.contains("no space left on device") {
                true => failed.hint("Docker's disk is full: docker system prune, or give it more room"),
                false => failed,
            };
        }
        let message = format!("Docker at {} cannot be reached: {what}", self.place);
        if !self.is_local() {
            return Error::new(ErrorCode::BackendUnavailable, message)
                .because(std::io::Error::other(transport::bottom(&error)))
                .hint("see DOCKER_HOST, DOCKER_TLS_VERIFY and DOCKER_CERT_PATH; --backend native needs no Docker");
        }
        Error::new(ErrorCode::BackendUnavailable, message).because(error).hint(
            "is Docker running, and may you use its socket? `glovebox doctor` looks; --backend native needs no Docker",
        )
    }
}

/// Whether Docker did not answer, or could not even be asked for want of a descriptor: nobody knows then what it did.
pub(crate) fn is_unanswered(error: &Error) -> bool {
    [ErrorCode::BackendUnavailable, ErrorCode::TooMany].contains(&error.code)
}

/// Whether a failure is none of Docker's own answers, but that there was none.
pub(crate) fn is_of_transport(error: &DockerError) -> bool {
    !matches!(error, DockerError::DockerResponseServerError { .. } | DockerError::DockerContainerWaitError { .. })
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
