//! The backend that was asked for, and the images that languages have there.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use glovebox_core::{Backend, Error, ErrorCode, Image, Language, Result, SandboxSpec, Warning};
use glovebox_docker::{DockerBackend, Settings};
use glovebox_engine::{Engine, Toolchains};
use glovebox_native::NativeBackend;

use crate::{
    args::{Globals, SandboxArgs},
    fetching,
    flags::{Flags, Origin},
    verbs::{data_dir, runtime},
};

/// Backends of later versions.
const LATER: [&str; 2] = ["kubernetes", "local"];

/// The images of languages, one a line.
const CATALOG: &str = include_str!("../../../images/catalog.toml");

/// The image of what has no language of its own.
const BASE: &str = "base";

/// A backend of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// This host's own kernel.
    Native,
    /// A Docker engine.
    Docker,
}

impl Kind {
    /// Its name, as records have it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Native => "native",
            Kind::Docker => "docker",
        }
    }
}

/// Which backend was asked for.
pub(crate) fn kind(globals: &Globals, flags: &Flags) -> Result<Kind> {
    match globals.backend.as_str() {
        "native" => Ok(Kind::Native),
        "docker" => Ok(Kind::Docker),
        later if LATER.contains(&later) => {
            let message = format!("the backend {later} comes with a later version");
            Err(Error::new(ErrorCode::BackendUnavailable, message).hint("use --backend native or --backend docker"))
        }
        other => {
            let forms = format!("expected native or docker (later: {})", LATER.join(", "));
            Err(flags.wrong("backend", other, &forms))
        }
    }
}

/// Which backend makes a sandbox, and what the caller should know of that: why it is not the one that was asked for, or what is wrong
/// with it.
pub(crate) type Chosen = (Kind, Option<Warning>);

/// Which backend makes a sandbox: the one that was asked for, or where that cannot be used, one that the caller lets stand in for it.
pub(crate) fn choose(globals: &Globals, args: &SandboxArgs, flags: &Flags) -> Result<Chosen> {
    let asked = kind(globals, flags)?;
    let instead = flags.list("fallback", &args.fallback);
    if let Some(other) = instead.iter().find(|name| **name != "native") {
        return Err(flags.wrong("fallback", other, "expected native"));
    }
    let names_image = flags.check("image", &args.image, Image::parse)? != Image::Host || args.runtime.is_some();
    if asked == Kind::Native {
        return Ok((asked, None));
    }
    if instead.is_empty() {
        return Ok((asked, without_tls()));
    }
    let answer = docker(&data_dir(globals)).and_then(|docker| runtime()?.block_on(docker.probe()));
    match answer {
        Err(error) if error.code == ErrorCode::BackendUnavailable && names_image => {
            let flag = if args.runtime.is_some() { "--runtime" } else { "--image" };
            Err(error.hint(format!("native may stand in for Docker, and has no {flag}: start Docker, or leave it out")))
        }
        Err(error) if error.code == ErrorCode::BackendUnavailable => {
            Ok((Kind::Native, Some(instead_of_docker(&error))))
        }
        _ => Ok((asked, without_tls())),
    }
}

/// What is said of an engine that everybody on its network can use, and listen to.
fn without_tls() -> Option<Warning> {
    let place = glovebox_docker::without_tls()?;
    Some(Warning {
        code: ErrorCode::NoTls.as_str().into(),
        message: format!(
            "Docker at {place} is spoken to without TLS: others can read all of it, and who reaches it is root there"
        ),
        hint: Some(
            "give it a port with TLS, and set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH; or let ssh carry it".into(),
        ),
    })
}

fn instead_of_docker(error: &Error) -> Warning {
    Warning {
        code: error.code.as_str().into(),
        message: format!("the backend native was used in place of docker, as --fallback allows: {}", error.message),
        hint: error.hint.clone(),
    }
}

/// The backend for making sandboxes and removing their files.
pub(crate) fn making(globals: &Globals, kind: Kind, native: Option<Result<NativeBackend>>) -> Result<Arc<dyn Backend>> {
    match kind {
        Kind::Native => Ok(Arc::new(native.unwrap_or_else(NativeBackend::start)?)),
        Kind::Docker => Ok(Arc::new(docker(&data_dir(globals))?)),
    }
}

/// The backend that was typed, if one was. Sandboxes that are there have theirs, whatever a variable or a file says of new ones.
pub(crate) fn typed(globals: &Globals, flags: &Flags) -> Result<Option<Kind>> {
    let kind = kind(globals, flags)?;
    Ok(Some(kind).filter(|_| flags.origin("backend") == Origin::Flag))
}

/// An engine for work with sandboxes that are there, with what makes native ones. Each is reached by the backend that made it; where
/// one was typed, by that one alone.
pub(crate) fn reaching(
    typed: Option<Kind>,
    data_dir: &Path,
    native: impl FnOnce() -> Result<NativeBackend>,
) -> Result<Engine> {
    Ok(match typed {
        Some(Kind::Docker) => Engine::new(Arc::new(docker(data_dir)?)).with_data_dir(data_dir),
        Some(Kind::Native) => Engine::new(Arc::new(native()?)).with_data_dir(data_dir),
        None => {
            let below = data_dir.to_owned();
            Engine::new(Arc::new(native()?)).with_data_dir(data_dir).with_others(move |name| match name {
                "docker" => Ok(Arc::new(docker(&below)?)),
                other => {
                    let message = format!("this version has no backend {other}");
                    Err(Error::new(ErrorCode::BackendUnavailable, message)
                        .hint("use the version that made the sandbox"))
                }
            })
        }
    })
}

/// The native backend without a launcher of this process.
pub(crate) fn native_without_launcher() -> NativeBackend {
    NativeBackend::without_launcher(std::env::current_exe().unwrap_or_else(|_| "glovebox".into()))
}

/// The Docker backend.
pub(crate) fn docker(data_dir: &Path) -> Result<DockerBackend> {
    docker_with_runtime(data_dir, None)
}

/// The same, and its sandboxes have this runtime unless they name another.
pub(crate) fn docker_with_runtime(data_dir: &Path, runtime: Option<String>) -> Result<DockerBackend> {
    DockerBackend::new(Settings {
        host: None,
        image: None,
        runtime,
        runtime_folder: NativeBackend::own_runtime_folder()?,
        data_folder: data_dir.to_owned(),
        progress: Some(fetching::listen),
    })
}

/// Where the programs of languages are looked for: on the host, for its own image, else nowhere, as an image has its own.
pub(crate) fn toolchains(kind: Kind, listed: Toolchains) -> Result<Toolchains> {
    match kind {
        Kind::Native => Ok(listed),
        Kind::Docker if listed.is_empty() => Ok(Toolchains::of_image()),
        Kind::Docker => {
            Err(Error::new(ErrorCode::Usage, "--toolchain is of the image `host`, which is native's alone")
                .hint("name an image that has the toolchain with --image"))
        }
    }
}

/// Gives a sandbox of an engine that has no image `host` the one of its language, unless one was named. The native backend has
/// no other.
pub(crate) fn choose_image(
    spec: &mut SandboxSpec,
    flags: &Flags,
    kind: Kind,
    language: Option<&Language>,
) -> Result<()> {
    if kind == Kind::Native && (spec.image != Image::Host || spec.runtime.is_some()) {
        let flag = if spec.image == Image::Host { "--runtime" } else { "--image" };
        return Err(Error::new(ErrorCode::NotSupported, format!("{flag} needs another backend than native"))
            .hint("add --backend docker; the native backend has the image `host` only"));
    }
    if kind == Kind::Docker && spec.image == Image::Host {
        // Who named it gets no other in its place.
        if flags.origin("image") != Origin::Default {
            return Err(glovebox_docker::host_is_native_only());
        }
        let name = language.map_or(BASE, |language| language.name);
        spec.image = of_catalog(name).or_else(|| of_catalog(BASE)).ok_or_else(|| {
            Error::new(ErrorCode::ImageNotFound, format!("there is no image for {name}")).hint("name one with --image")
        })?;
    }
    Ok(())
}

/// The images of all languages, each once.
pub(crate) fn catalog() -> impl Iterator<Item = Image> {
    let table: toml::Table = CATALOG.parse().expect("a test reads it");
    let names: BTreeSet<String> = table.into_iter().filter_map(|(_, name)| Some(name.as_str()?.to_owned())).collect();
    names.into_iter().filter_map(|name| Image::parse(&name).ok())
}

/// The image of a language.
pub(crate) fn of_catalog(name: &str) -> Option<Image> {
    let table: toml::Table = CATALOG.parse().expect("a test reads it");
    Image::parse(table.get(name)?.as_str()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_catalog_is_an_image() {
        let table: toml::Table = CATALOG.parse().unwrap();
        assert!(table.contains_key(BASE));
        for (name, value) in table {
            assert!(matches!(Image::parse(value.as_str().unwrap()), Ok(Image::Reference(_))), "{name}");
            assert!(name == BASE || Language::by_name(&name).is_some(), "{name} is a language");
        }
    }
}
