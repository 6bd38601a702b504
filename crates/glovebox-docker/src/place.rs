//! Where an engine is, as the program `docker` finds it: what was named, `DOCKER_HOST`, the chosen context, the usual socket.

use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
};

use glovebox_core::{Error, ErrorCode, Result};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::credentials::config_folder;

/// Where Docker listens when nobody says anything else.
const USUAL_SOCKET: &str = "/var/run/docker.sock";

/// The context that is none.
const NO_CONTEXT: &str = "default";

/// Where an engine is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its address, for people: `unix:///path`, `tcp://HOST:PORT`.
    pub(crate) address: String,
    /// How it is spoken to.
    pub(crate) way: Way,
}

/// How an engine is spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Through a socket of this machine.
    Socket,
    /// Through a network, as it is.
    Plain(String),
    /// Through a network with TLS, by the certificates in a folder.
    Tls(String, PathBuf),
}

impl Place {
    /// The engine that was named, or that the caller's settings name.
    pub(crate) fn find(named: Option<&str>) -> Result<Self> {
        let said = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        if let Some(address) = named.map(str::to_owned).or_else(|| said("DOCKER_HOST")) {
            let folder = || said("DOCKER_CERT_PATH").map(PathBuf::from).or_else(config_folder);
            let tls = said("DOCKER_TLS_VERIFY").is_some() || address.starts_with("https://");
            return Place::at(address, tls.then(folder).flatten());
        }
        if let Some(folder) = config_folder()
            && let Some(context) = said("DOCKER_CONTEXT").or_else(|| current_context(&folder))
            && context != NO_CONTEXT
        {
            return of_context(&folder, &context);
        }
        Place::at(format!("unix://{}", usual_socket()), None)
    }

    /// Whether others may listen to what is said there, and say something themselves. What a tunnel ends in on this machine is no
    /// network.
    pub(crate) fn is_open(&self) -> bool {
        let Way::Plain(authority) = &self.way else { return false };
        let host = authority.rsplit_once(':').map_or("", |(host, _)| host).trim_matches(['[', ']']);
        host != "localhost" && !host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// The engine at an address, with TLS by the certificates of a folder where there is one.
    fn at(address: String, certificates: Option<PathBuf>) -> Result<Self> {
        let wrong = |message: String, hint: &str| Err(Error::new(ErrorCode::InvalidValue, message).hint(hint));
        let way = match (address.split_once("://"), certificates) {
            (Some(("unix", _)), _) => Way::Socket,
            (Some(("tcp" | "http" | "https", rest)), certificates) => {
                let authority = rest.trim_end_matches('/').to_owned();
                if !authority
                    .rsplit_once(':')
                    .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
                {
                    return wrong(
                        format!("{address:?} names no port of a Docker engine"),
                        "write it out: tcp://HOST:2376, which is the usual port with TLS",
                    );
                }
                match certificates {
                    Some(folder) => Way::Tls(authority, folder),
                    None => Way::Plain(authority),
                }
            }
            (Some(("ssh", rest)), _) => {
                return wrong(
                    format!("{address:?}: a Docker engine is not reached over ssh"),
                    &format!(
                        "let ssh carry it: `ssh -nNT -L 2375:/var/run/docker.sock {rest}`, and DOCKER_HOST=tcp://127.0.0.1:2375; or \
                         give the engine a port with TLS: DOCKER_HOST=tcp://HOST:2376 and DOCKER_TLS_VERIFY=1"
                    ),
                );
            }
            _ => {
                return wrong(
                    format!("{address:?} is no place of a Docker engine"),
                    "the forms are unix:///path/to/docker.sock, tcp://HOST:PORT and https://HOST:PORT",
                );
            }
        };
        Ok(Place { address, way })
    }
}

/// Root's socket, or that of an engine without root which serves this user.
fn usual_socket() -> String {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(|folder| PathBuf::from(folder).join("docker.sock"));
    let usual = PathBuf::from(USUAL_SOCKET);
    let chosen = if usual.exists() { usual } else { own.filter(|path| path.exists()).unwrap_or(usual) };
    chosen.to_string_lossy().into_owned()
}

/// The context that `docker context use` chose.
fn current_context(folder: &Path) -> Option<String> {
    #[derive(Deserialize)]
    struct Chosen {
        #[serde(rename = "currentContext")]
        context: Option<String>,
    }
    let text = fs::read(folder.join("config.json")).ok()?;
    serde_json::from_slice::<Chosen>(&text).ok()?.context.filter(|name| !name.is_empty())
}

/// What a context says of its engine.
#[derive(Deserialize)]
struct Context {
    #[serde(rename = "Endpoints")]
    endpoints: Endpoints,
}

#[derive(Deserialize)]
struct Endpoints {
    docker: Endpoint,
}

#[derive(Deserialize)]
struct Endpoint {
    #[serde(rename = "Host")]
    host: String,
    #[serde(rename = "SkipTLSVerify", default)]
    skip_verify: bool,
}

fn of_context(folder: &Path, name: &str) -> Result<Place> {
    let id: String = Sha256::digest(name).iter().map(|byte| format!("{byte:02x}")).collect();
    let contexts = folder.join("contexts");
    let text = fs::read(contexts.join("meta").join(&id).join("meta.json")).map_err(|error| {
        let message = format!("there is no Docker context {name:?}");
        Error::new(ErrorCode::InvalidValue, message)
            .because(error)
            .hint("`docker context ls` lists those that are there")
    })?;
    let context: Context = serde_json::from_slice(&text).map_err(|error| {
        Error::new(ErrorCode::InvalidValue, format!("the Docker context {name:?} cannot be read")).because(error)
    })?;
    let Endpoint { host, skip_verify } = context.endpoints.docker;
    let certificates = contexts.join("tls").join(&id).join("docker");
    let tls = certificates.is_dir().then_some(certificates);
    if skip_verify && tls.is_some() {
        let message = format!("the Docker context {name:?} does not verify its engine");
        return Err(Error::new(ErrorCode::InvalidValue, message)
            .hint("make the context again without skip-tls-verify; whoever is in between could be its engine"));
    }
    Place::at(host, tls)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(address: &str, certificates: Option<&str>) -> Option<Way> {
        Place::at(address.to_owned(), certificates.map(PathBuf::from)).ok().map(|place| place.way)
    }

    #[test]
    fn an_address_says_how_its_engine_is_spoken_to() {
        assert_eq!(way("unix:///x.sock", None), Some(Way::Socket));
        assert_eq!(way("tcp://h:2375", None), Some(Way::Plain("h:2375".into())));
        assert_eq!(way("tcp://[::1]:2376/", Some("/c")), Some(Way::Tls("[::1]:2376".into(), "/c".into())));
        for wrong in ["tcp://h", "tcp://:1", "npipe:////./pipe/docker", "h:1", ""] {
            assert_eq!(way(wrong, None), None, "{wrong}");
        }
        let is_open = |address: &str| Place::at(address.to_owned(), None).unwrap().is_open();
        assert!(is_open("tcp://example.com:2375") && is_open("tcp://[2001:db8::1]:2375"));
        for closed in ["unix:///x.sock", "tcp://127.0.0.1:2375", "tcp://localhost:1", "tcp://[::1]:1"] {
            assert!(!is_open(closed), "{closed}");
        }
        let refused = Place::at("ssh://ann@host".into(), None).unwrap_err();
        assert!(refused.hint.unwrap().contains("ann@host"));
    }

    #[test]
    fn a_context_names_an_engine_and_its_certificates() {
        let folder = tempfile::tempdir().unwrap();
        let id: String = Sha256::digest("far").iter().map(|byte| format!("{byte:02x}")).collect();
        let meta = folder.path().join("contexts/meta").join(&id);
        let tls = folder.path().join("contexts/tls").join(&id).join("docker");
        fs::create_dir_all(&meta).unwrap();
        let write = |skip: bool| {
            let text =
                format!(r#"{{"Name":"far","Endpoints":{{"docker":{{"Host":"tcp://h:1","SkipTLSVerify":{skip}}}}}}}"#);
            fs::write(meta.join("meta.json"), text).unwrap();
        };
        write(false);
        let found = |name: &str| of_context(folder.path(), name).map(|place| place.way).ok();
        assert_eq!(found("far"), Some(Way::Plain("h:1".into())));
        fs::create_dir_all(&tls).unwrap();
        assert_eq!(found("far"), Some(Way::Tls("h:1".into(), tls)));
        write(true);
        assert_eq!(found("far"), None);
        assert_eq!(found("near"), None);
        fs::write(folder.path().join("config.json"), r#"{"currentContext":"far","auths":{}}"#).unwrap();
        assert_eq!(current_context(folder.path()).as_deref(), Some("far"));
    }
}
