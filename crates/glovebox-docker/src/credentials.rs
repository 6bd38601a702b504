//! Who the caller is to a registry, as `docker login` left it: in Docker's own configuration, or with a program that it names.
//!
//! Nothing of what is found here is ever part of a message.

use std::{
    collections::HashMap,
    fs::File,
    io::{Read, Write},
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bollard::auth::DockerCredentials;
use glovebox_core::ImageReference;
use serde::Deserialize;

/// No configuration is longer, and no answer of a program.
const LONGEST: u64 = 1 << 20;

/// So long a program may take: it may have to ask somebody for a password.
const PATIENCE: Duration = Duration::from_secs(30);

/// Who a program says that somebody is whose secret is a token.
const TOKEN: &str = "<token>";

/// What was found for a registry.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) credentials: Option<DockerCredentials>,
    /// Why there may be some that could not be had. It holds no secret.
    pub(crate) trouble: Option<String>,
}

/// Docker's configuration, as far as it is about registries.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Config {
    auths: HashMap<String, Entry>,
    creds_store: String,
    cred_helpers: HashMap<String, String>,
}

/// What the configuration itself holds of a registry.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: String,
    username: String,
    password: String,
    identitytoken: String,
    registrytoken: String,
}

/// What a program answers.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    username: String,
    secret: String,
}

/// Looks for what the caller may show to the registry of an image. `usual` is what Docker calls the registry of names without one.
pub(crate) async fn find(reference: &ImageReference, usual: &str) -> Found {
    let Some(path) = config_folder().map(|folder| folder.join("config.json")) else { return Found::default() };
    let trouble = |why: &str| Found { trouble: Some(format!("{} {why}", path.display())), ..Found::default() };
    let mut text = Vec::new();
    match File::open(&path).and_then(|file| file.take(LONGEST).read_to_end(&mut text)) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Found::default(),
        Err(_) => return trouble("cannot be read"),
    }
    let Ok(config) = serde_json::from_slice::<Config>(&text) else { return trouble("is no configuration of Docker") };
    let server = server(reference, usual);
    let Some(helper) = config.helper(&server) else {
        return Found {
            credentials: config.entry(&server).and_then(|entry| entry.credentials(&server)),
            trouble: None,
        };
    };
    match ask(helper, &server, PATIENCE).await {
        Ok(answer) => Found { credentials: answer.map(|answer| answer.credentials(&server)), trouble: None },
        Err(why) => Found { credentials: None, trouble: Some(format!("docker-credential-{helper} {why}")) },
    }
}

/// The folder of Docker's configuration.
pub(crate) fn config_folder() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    folder("DOCKER_CONFIG").or_else(|| Some(folder("HOME")?.join(".docker")))
}

/// What the configuration calls the registry of an image.
fn server(reference: &ImageReference, usual: &str) -> String {
    match reference.registry() {
        // Images call it by its domain, and the configuration by the address of a host there.
        Some(named) if named != host(usual) && !host(usual).ends_with(&format!(".{named}")) => named.to_owned(),
        _ => usual.to_owned(),
    }
}

/// The host of what the configuration calls a registry, which may be a whole address.
fn host(server: &str) -> &str {
    let rest = server.strip_prefix("https://").or_else(|| server.strip_prefix("http://")).unwrap_or(server);
    rest.split('/').next().unwrap_or_default()
}

impl Config {
    /// The program that keeps what belongs to a registry.
    fn helper(&self, server: &str) -> Option<&str> {
        let named = self.cred_helpers.get(server).or_else(|| self.cred_helpers.get(host(server)));
        Some(named.unwrap_or(&self.creds_store).as_str()).filter(|name| !name.is_empty())
    }

    fn entry(&self, server: &str) -> Option<&Entry> {
        let alike = || self.auths.iter().find(|(name, _)| host(name) == host(server)).map(|(_, entry)| entry);
        self.auths.get(server).or_else(alike)
    }
}

impl Entry {
    fn credentials(&self, server: &str) -> Option<DockerCredentials> {
        let decoded = BASE64_STANDARD.decode(&self.auth).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let pair = decoded.as_deref().and_then(|text| text.trim_end_matches('\0').split_once(':'));
        let (user, password) = pair.unwrap_or((&self.username, &self.password));
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        if [password, &self.identitytoken, &self.registrytoken].iter().all(|text| text.is_empty()) {
            return None;
        }
        Some(DockerCredentials {
            username: given(user),
            password: given(password),
            identitytoken: given(&self.identitytoken),
            registrytoken: given(&self.registrytoken),
            serveraddress: Some(server.to_owned()),
            ..DockerCredentials::default()
        })
    }
}

impl Answer {
    fn credentials(self, server: &str) -> DockerCredentials {
        let serveraddress = Some(server.to_owned());
        match self.username == TOKEN {
            true => DockerCredentials { identitytoken: Some(self.secret), serveraddress, ..Default::default() },
            false => DockerCredentials {
                username: Some(self.username),
                password: Some(self.secret),
                serveraddress,
                ..Default::default()
            },
        }
    }
}

/// Asks a program for what belongs to a registry. It has none when it says so.
async fn ask(helper: &str, server: &str, patience: Duration) -> Result<Option<Answer>, String> {
    if !helper.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')) {
        return Err("is no name of a program".to_owned());
    }
    let mut child = Command::new(format!("docker-credential-{helper}"))
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot be started: {}", error.kind()))?;
    let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("has no pipes".to_owned());
    };
    let (send, answer) = tokio::sync::oneshot::channel();
    let question = format!("{server}\n");
    // A thread that nobody waits for: whoever inherited the pipe may keep it open for ever.
    std::thread::spawn(move || {
        let mut said = Vec::new();
        let asked = stdin.write_all(question.as_bytes());
        drop(stdin);
        let read = asked.and_then(|()| stdout.take(LONGEST).read_to_end(&mut said));
        let _ = send.send(read.map(|_| said));
    });
    let heard = tokio::time::timeout(patience, answer).await;
    // It has said what it had to say, or said nothing for too long.
    let _ = child.kill();
    let _ = child.wait();
    let said = match heard {
        Ok(Ok(Ok(said))) => said,
        Ok(_) => return Err("could not be asked".to_owned()),
        Err(_) => return Err(format!("did not answer within {} s", patience.as_secs())),
    };
    match serde_json::from_slice::<Answer>(&said) {
        Ok(answer) => Ok(Some(answer)),
        Err(_) if said.starts_with(b"credentials not found") => Ok(None),
        Err(_) => Err("failed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: &str = "https://index.example.org/v1/";

    fn config(text: &str) -> Config {
        serde_json::from_str(text).unwrap()
    }

    fn reference(text: &str) -> ImageReference {
        ImageReference::parse(text).unwrap()
    }

    #[test]
    fn an_image_is_of_the_registry_that_it_names_and_else_of_the_usual_one() {
        for name in ["python:3.12", "example.org/library/python", "index.example.org/library/python"] {
            assert_eq!(server(&reference(name), USUAL), USUAL, "{name}");
        }
        assert_eq!(server(&reference("localhost:5000/a/b:1"), USUAL), "localhost:5000");
    }

    #[test]
    fn what_the_configuration_holds_is_found_by_host_and_by_address() {
        // "ann:open:sesame", whose password has a colon.
        let config = config(
            r#"{"auths": {"https://example.com/v2/": {"auth": "YW5uOm9wZW46c2VzYW1l"}, "t.example": {"identitytoken": "t"},
                "empty.example": {}}, "HttpHeaders": {"a": "b"}}"#,
        );
        let found = config.entry("example.com").unwrap().credentials("example.com").unwrap();
        assert_eq!((found.username.as_deref(), found.password.as_deref()), (Some("ann"), Some("open:sesame")));
        assert_eq!(found.serveraddress.as_deref(), Some("example.com"));
        let found = config.entry("t.example").unwrap().credentials("t.example").unwrap();
        assert_eq!((found.identitytoken.as_deref(), found.password), (Some("t"), None));
        assert!(config.entry("empty.example").unwrap().credentials("empty.example").is_none());
        assert!(config.entry("example").is_none());
        assert!(config.helper("example.com").is_none());
    }

    #[test]
    fn a_program_of_one_registry_comes_before_that_of_all() {
        let config = config(r#"{"credsStore": "all", "credHelpers": {"example.com": "one"}}"#);
        assert_eq!((config.helper("example.com"), config.helper(USUAL)), (Some("one"), Some("all")));
    }

    #[test]
    fn a_secret_for_the_name_token_is_a_token() {
        let answer: Answer =
            serde_json::from_str(r#"{"ServerURL": "x", "Username": "<token>", "Secret": "s"}"#).unwrap();
        let found = answer.credentials("x");
        assert_eq!((found.identitytoken.as_deref(), found.username, found.password), (Some("s"), None, None));
    }

    #[tokio::test]
    async fn a_program_that_is_none_is_not_started() {
        let why = ask("../evil", "x", PATIENCE).await.err().unwrap();
        assert_eq!(why, "is no name of a program");
        let why = ask("there-is-none-of-this-name", "x", PATIENCE).await.err().unwrap();
        assert!(why.starts_with("cannot be started"), "{why}");
    }
}
