//! The daemon as an engine of another machine: a port with TLS on loopback, and certificates that are made for it.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::daemon::Places;
use crate::{
    need::{self, Tool},
    suites::read,
};

const TOOLS: [Tool; 1] = [("openssl", "openssl")];

/// The port of a daemon, and the folder of what its clients need.
#[derive(Clone)]
pub(crate) struct Remote {
    /// `127.0.0.1:PORT`.
    pub(crate) address: String,
    /// The certificates, as `DOCKER_CERT_PATH` names them. The daemon's own lie beside them, and the authority's key.
    pub(crate) certificates: PathBuf,
}

/// What a certificate is for, and for how many days. Less than one has passed already.
pub(crate) struct Request<'a> {
    /// The beginning of its file names: `NAME.pem` and `NAME-key.pem`.
    pub(crate) name: &'a str,
    /// Whose name it is.
    pub(crate) of: &'a str,
    /// How long it is valid.
    pub(crate) days: &'a str,
}

impl Remote {
    /// A free port and new certificates for the daemon of these places.
    pub(super) fn make(places: &Places) -> Result<Remote> {
        need::tools(&TOOLS)?;
        let certificates = places.run.join("tls");
        fs::create_dir_all(&certificates)?;
        authority(&certificates)?;
        sign(&certificates, &Request { name: "server", of: "IP:127.0.0.1,DNS:localhost", days: "2" })?;
        sign(&certificates, &Request { name: "cert", of: "DNS:caller", days: "2" })?;
        fs::rename(certificates.join("cert-key.pem"), certificates.join("key.pem"))?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        fs::write(certificates.join("address"), &address)?;
        Ok(Remote { address, certificates })
    }

    /// That of a daemon that runs.
    pub(crate) fn of(places: &Places) -> Result<Remote> {
        let certificates = places.run.join("tls");
        let address =
            fs::read_to_string(certificates.join("address")).context("the daemon has no port: start it again")?;
        Ok(Remote { address, certificates })
    }

    /// The variables by which a client finds it.
    pub(crate) fn variables(&self) -> [(&'static str, String); 3] {
        [
            ("DOCKER_HOST", format!("tcp://{}", self.address)),
            ("DOCKER_TLS_VERIFY", "1".to_owned()),
            ("DOCKER_CERT_PATH", self.certificates.to_string_lossy().into_owned()),
        ]
    }
}

/// Makes an authority in a folder.
pub(crate) fn authority(folder: &Path) -> Result<()> {
    let (key, certificate) = (file(folder, "ca-key.pem"), file(folder, "ca.pem"));
    let to = ["-keyout", &key, "-out", &certificate, "-days", "2", "-subj", "/CN=glovebox tests"];
    read(&[&["openssl", "req", "-x509"], &NEW_KEY[..], &to].concat()).map(drop)
}

/// Has the authority of a folder sign a new certificate.
pub(crate) fn sign(folder: &Path, request: &Request) -> Result<()> {
    let own = |end: &str| file(folder, &format!("{}{end}", request.name));
    let (key, certificate, asked, words) = (own("-key.pem"), own(".pem"), own(".csr"), own(".ext"));
    fs::write(&words, format!("subjectAltName={}\nextendedKeyUsage=serverAuth,clientAuth\n", request.of))?;
    let to = ["-keyout", &key, "-out", &asked, "-subj", "/CN=glovebox tests"];
    read(&[&["openssl", "req"], &NEW_KEY[..], &to].concat())?;
    let (authority, its_key) = (file(folder, "ca.pem"), file(folder, "ca-key.pem"));
    let by = ["-CA", &authority, "-CAkey", &its_key, "-CAcreateserial", "-days", request.days, "-extfile", &words];
    read(&[&["openssl", "x509", "-req", "-in", &asked, "-out", &certificate], &by[..]].concat()).map(drop)
}

const NEW_KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

fn file(folder: &Path, name: &str) -> String {
    folder.join(name).to_string_lossy().into_owned()
}
