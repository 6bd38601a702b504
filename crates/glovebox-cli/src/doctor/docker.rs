//! Whether `--backend docker` can be used.

use std::time::Duration;

use glovebox_core::Result;
use glovebox_docker::{Look, OLDEST_API};

use super::BACKENDS;
use crate::{
    check::{Check, Status},
    verbs::runtime,
};

/// So long it is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// The checks of a Docker engine, which nobody needs who did not ask for it, and of those of its runtimes that do not work as they are.
pub(crate) fn docker(caller: &str, needed: bool) -> Result<Vec<Check>> {
    let (place, look) = runtime()?.block_on(glovebox_docker::look(PATIENCE));
    let check = judge(&look, &place, caller, is_installed());
    let mut checks = vec![if needed { check } else { check.optional() }];
    if let Look::Answers { unfit, .. } = &look {
        checks.extend(unfit.iter().map(|(name, flags)| judge_runtime(name, flags)));
    }
    Ok(checks)
}

fn judge_runtime(name: &str, flags: &[&str]) -> Check {
    let detail = format!("--runtime {name} is gVisor without {}: no sandbox can be made in it", flags.join(" and "));
    let fix =
        format!("add {} to its runtimeArgs in the engine's configuration, and restart the engine", flags.join(" and "));
    Check::new(BACKENDS, "docker runtime", Status::Degraded, detail).fix(fix).optional()
}

fn judge(look: &Look, place: &str, caller: &str, installed: bool) -> Check {
    let (major, minor) = OLDEST_API;
    let (detail, fix) = match look {
        Look::Answers { engine, version, api, .. } => {
            return Check::new(BACKENDS, "docker", Status::Ok, format!("{engine} {version}, API {api}, at {place}"));
        }
        Look::TooOld { version, api } => (
            format!("Docker {version} at {place} has the API {api}, and {major}.{minor} is needed"),
            "install Docker 20.10 or newer".to_owned(),
        ),
        Look::NoSocket | Look::NotRunning if installed => (
            format!("Docker is installed, and nobody listens at {place}"),
            "sudo systemctl start docker; or say with DOCKER_HOST where it is".to_owned(),
        ),
        Look::NoSocket | Look::NotRunning => (
            format!("Docker is not installed, and nobody listens at {place}"),
            "install Docker (sudo apt install docker.io), or say with DOCKER_HOST where it is".to_owned(),
        ),
        Look::NotAllowed => (
            format!("{caller} may not use {place}"),
            format!("sudo usermod -aG docker {caller}, and log in again; who may use it is as good as root"),
        ),
        Look::Silent => (
            format!("Docker at {place} did not answer within {} s", PATIENCE.as_secs()),
            "sudo systemctl restart docker, if `docker info` hangs too".to_owned(),
        ),
        Look::Unusable { why, hint } => (
            format!("Docker at {place} cannot be used: {why}"),
            hint.clone().unwrap_or_else(|| "see whether `docker info` works".to_owned()),
        ),
    };
    Check::new(BACKENDS, "docker", Status::Missing, detail).fix(fix)
}

/// Whether the engine is installed: its client may be there for one on another machine.
fn is_installed() -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/bin", "/usr/sbin", "/usr/local/bin"].map(std::path::PathBuf::from);
    std::env::split_paths(&folders).chain(usual).any(|folder| folder.join("dockerd").is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_of_not_being_there_has_a_remedy_of_its_own() {
        let old = Look::TooOld { version: "19.03".into(), api: "1.40".into() };
        let looks = [
            (old, true, "1.40", "install Docker 20.10"),
            (Look::NoSocket, false, "not installed", "apt install"),
            (Look::NoSocket, true, "nobody listens", "systemctl start"),
            (Look::NotRunning, true, "nobody listens", "systemctl start"),
            (Look::NotAllowed, true, "ann may not use", "usermod -aG docker ann"),
            (Look::Silent, true, "within 2 s", "restart"),
            (Look::Unusable { why: "it broke".into(), hint: None }, true, "it broke", "docker info"),
            (Look::Unusable { why: "it broke".into(), hint: Some("mend it".into()) }, true, "it broke", "mend it"),
        ];
        for (look, installed, detail, fix) in looks {
            let check = judge(&look, "unix:///x", "ann", installed);
            assert_eq!(check.status, Status::Missing, "{look:?}");
            assert!(check.detail.contains(detail), "{}", check.detail);
            assert!(check.fix.as_deref().unwrap().contains(fix), "{:?}", check.fix);
        }
        let well =
            Look::Answers { engine: "Docker", version: "20.10.24".into(), api: "1.41".into(), unfit: Vec::new() };
        let check = judge(&well, "unix:///x", "ann", true);
        assert_eq!((check.status, check.detail.as_str()), (Status::Ok, "Docker 20.10.24, API 1.41, at unix:///x"));
    }

    #[test]
    fn a_runtime_that_lacks_a_flag_is_named_with_it() {
        let check = judge_runtime("runsc", &["--host-uds=all"]);
        assert!(!check.needed && check.detail.contains("--runtime runsc"), "{}", check.detail);
        assert!(check.fix.unwrap().starts_with("add --host-uds=all to its runtimeArgs"));
    }
}
