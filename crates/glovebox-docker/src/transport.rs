//! Speaking with an engine through a network: connections that notice when the other side is gone, TLS where it is asked for, and
//! what is said when that fails.

use std::{
    error::Error as _,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bollard::{API_DEFAULT_VERSION, BollardRequest, Docker, errors::Error as DockerError};
use glovebox_core::{Error, ErrorCode, Result};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rustix::io::Errno;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use crate::client::LONGEST_SECONDS;

/// A machine that does not take the connection within this is not there.
const CONNECTING: Duration = Duration::from_secs(10);

/// After so long without a byte the other machine is asked whether it is still there, and so often again.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const KEEP_ALIVE_TIMES: u32 = 4;

/// A connection that nobody uses is kept for the next question for so long.
const IDLE: Duration = Duration::from_secs(10);

/// A client of the engine at `HOST:PORT`, without TLS.
pub(crate) fn plain(authority: &str) -> Result<Docker, DockerError> {
    let client = client().build(connector());
    let send = move |request: BollardRequest| {
        let asked = client.request(request);
        async move { Ok(asked.await?) }
    };
    Docker::connect_with_custom_transport(
        send,
        Some(format!("http://{authority}")),
        LONGEST_SECONDS,
        API_DEFAULT_VERSION,
    )
}

/// The same with TLS, by the files `ca.pem`, `cert.pem` and `key.pem` of a folder, as the program `docker` has them.
pub(crate) fn with_tls(authority: &str, folder: &Path) -> Result<Docker> {
    let mut tcp = connector();
    tcp.enforce_http(false);
    let client = client().build(HttpsConnector::from((tcp, config(folder)?)));
    let send = move |request: BollardRequest| {
        let asked = client.request(request);
        async move { Ok(asked.await?) }
    };
    let address = Some(format!("https://{authority}"));
    Docker::connect_with_custom_transport(send, address, LONGEST_SECONDS, API_DEFAULT_VERSION)
        .map_err(|error| Error::new(ErrorCode::BackendUnavailable, "Docker cannot be used over TLS").because(error))
}

fn client() -> hyper_util::client::legacy::Builder {
    let mut builder = Client::builder(TokioExecutor::new());
    builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE);
    builder
}

fn connector() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(CONNECTING));
    // What is said on the channel is short, and is waited for.
    connector.set_nodelay(true);
    connector.set_keepalive(Some(KEEP_ALIVE));
    connector.set_keepalive_interval(Some(KEEP_ALIVE));
    connector.set_keepalive_retries(Some(KEEP_ALIVE_TIMES));
    connector
}

/// Nobody but the one authority of the folder says who the engine is: an authority that the whole world trusts has no part in it.
fn config(folder: &Path) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&folder.join("ca.pem"))? {
        roots.add(certificate).map_err(|error| unusable(&folder.join("ca.pem"), error))?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::new(ErrorCode::BackendUnavailable, "TLS cannot be used here").because(error))?
        .with_root_certificates(roots);
    let (certificate, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    if !certificate.exists() && !key.exists() {
        // An engine need not ask who its callers are.
        return Ok(config.with_no_client_auth());
    }
    let chain = certificates(&certificate)?;
    let text = fs::read(&key).map_err(|error| unusable(&key, error))?;
    let secret = PrivateKeyDer::from_pem_slice(&text).map_err(|error| unusable(&key, error))?;
    config.with_client_auth_cert(chain, secret).map_err(|error| unusable(&key, error))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let text = fs::read(file).map_err(|error| unusable(file, error))?;
    let found: Vec<_> =
        CertificateDer::pem_slice_iter(&text).collect::<Result<_, _>>().map_err(|error| unusable(file, error))?;
    match found.is_empty() {
        true => Err(unusable(file, io::Error::other("there is no certificate in it"))),
        false => Ok(found),
    }
}

fn unusable(file: &Path, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    let file: PathBuf = file.to_owned();
    Error::new(ErrorCode::BackendUnavailable, format!("{} cannot be used for TLS: {error}", file.display()))
        .hint("DOCKER_CERT_PATH names the folder that holds ca.pem, cert.pem and key.pem; without it ~/.docker does")
}

/// What is wrong with TLS between the engine and us, and what to do, if it is TLS that failed.
pub(crate) fn trouble(error: &DockerError) -> Option<(String, &'static str)> {
    if let DockerError::DockerResponseServerError { message, .. } = error {
        let wants_tls = message.contains("HTTP request to an HTTPS server");
        return wants_tls
            .then(|| ("it wants TLS".to_owned(), "set DOCKER_TLS_VERIFY=1, and DOCKER_CERT_PATH to its certificates"));
    }
    let causes = causes(error);
    let is_refused = |cause: &&io::Error| cause.kind() == io::ErrorKind::PermissionDenied;
    if causes.iter().filter_map(|cause| cause.downcast_ref::<io::Error>()).any(|cause| is_refused(&cause)) {
        let hint = "`sudo usermod -aG docker $USER` and a new login let you; --backend native needs no Docker";
        return Some(("you may not use its socket".to_owned(), hint));
    }
    causes.iter().find_map(|cause| cause.downcast_ref::<rustls::Error>()).map(explained)
}

/// The failure of the system where there was no descriptor for a connection.
pub(crate) fn want_of_descriptors(error: &DockerError) -> Option<io::Error> {
    let numbers = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
    let causes = causes(error).into_iter().filter_map(|cause| cause.downcast_ref::<io::Error>()?.raw_os_error());
    causes.into_iter().find(|number| numbers.contains(number)).map(io::Error::from_raw_os_error)
}

/// What is at the bottom of a failure, in the words of the machine.
pub(crate) fn bottom(error: &DockerError) -> String {
    causes(error).last().map_or_else(|| error.to_string(), ToString::to_string).trim().to_owned()
}

/// All that a failure came from, the nearest first. What an error of the system holds is hidden from who asks for its source.
fn causes(error: &DockerError) -> Vec<&(dyn std::error::Error + 'static)> {
    let mut causes = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        causes.push(cause);
        let held = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match held {
            Some(held) => Some(held),
            None => cause.source(),
        };
    }
    causes
}

fn explained(error: &rustls::Error) -> (String, &'static str) {
    use CertificateError as Wrong;
    const NAMES: &str = "name the engine in DOCKER_HOST as its certificate does";
    const TIME: &str = "renew the certificate of the engine; is the clock of this machine right?";
    const AUTHORITY: &str = "ca.pem in DOCKER_CERT_PATH must be of the authority that signed the engine's certificate; \
        if it is, somebody else answers in its place";
    const OURS: &str = "cert.pem and key.pem in DOCKER_CERT_PATH must be signed by the authority that the engine trusts, and not be too old";
    const NO_TLS: &str = "is that the engine's port for TLS, usually 2376? Without TLS unset DOCKER_TLS_VERIFY, if nobody else is on that network";
    match error {
        rustls::Error::InvalidCertificate(wrong) => match wrong {
            Wrong::Expired | Wrong::ExpiredContext { .. } => ("its certificate has expired".to_owned(), TIME),
            Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => {
                ("its certificate is not valid yet".to_owned(), TIME)
            }
            Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => {
                ("its certificate is for another name".to_owned(), NAMES)
            }
            Wrong::UnknownIssuer | Wrong::BadSignature => {
                ("its certificate is not signed by the authority of ca.pem".to_owned(), AUTHORITY)
            }
            other => (format!("its certificate cannot be trusted ({other:?})"), AUTHORITY),
        },
        rustls::Error::AlertReceived(
            alert @ (AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied),
        ) => (format!("it does not take our certificate ({alert:?})"), OURS),
        rustls::Error::InvalidMessage(_) => ("it does not speak TLS".to_owned(), NO_TLS),
        other => (format!("TLS failed: {other}"), NO_TLS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_in_which_tls_fails_has_a_remedy_of_its_own() {
        let explained = |error| explained(&error);
        let wrong = |wrong| rustls::Error::InvalidCertificate(wrong);
        assert!(explained(wrong(CertificateError::Expired)).1.contains("clock"));
        assert!(explained(wrong(CertificateError::UnknownIssuer)).1.contains("ca.pem"));
        assert!(explained(wrong(CertificateError::NotValidForName)).1.contains("DOCKER_HOST"));
        assert!(explained(rustls::Error::AlertReceived(AlertDescription::UnknownCA)).1.contains("key.pem"));
        let wants = DockerError::DockerResponseServerError {
            status_code: 400,
            message: "Client sent an HTTP request to an HTTPS server.".to_owned(),
        };
        assert!(trouble(&wants).unwrap().1.contains("DOCKER_TLS_VERIFY"));
    }
}
