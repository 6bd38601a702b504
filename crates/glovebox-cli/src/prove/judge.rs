//! From what was seen to a verdict.

use glovebox_core::{Enforcement, Isolation, LimitsInForce, Outcome, RunResult, SandboxId, Warning};

use super::{Ground, canaries::Canaries};
use crate::check::{Check, Status};

/// What is to be thought of a guarantee.
pub(super) enum Verdict {
    /// It holds.
    Holds(String),
    /// It does not.
    Broken(String),
    /// It could not be tried, or is weaker here than elsewhere.
    Unknown(String),
}

impl Verdict {
    pub(super) fn holds() -> Self {
        Verdict::Holds(String::new())
    }

    /// Holds unless there is something to say against it.
    pub(super) fn unless(against: Vec<String>) -> Self {
        if against.is_empty() { Verdict::holds() } else { Verdict::Broken(against.join(", ")) }
    }

    /// Says of what is broken that it is not promised there. What holds all the same is said to.
    pub(super) fn not_promised(self, where_not: &str) -> Self {
        match self {
            Verdict::Broken(why) => Verdict::Unknown(format!("not promised {where_not}: {why}")),
            other => other,
        }
    }

    /// Says of what holds that no root inside could try it.
    pub(super) fn tried_without_root(self, without: bool) -> Self {
        match self {
            Verdict::Holds(detail) if without => {
                let gap = if detail.is_empty() { "" } else { "; " };
                Verdict::Holds(format!("{detail}{gap}for you no root can be made inside"))
            }
            other => other,
        }
    }

    pub(super) fn into_check(self, group: &'static str, name: &str) -> Check {
        let (status, detail) = match self {
            Verdict::Holds(detail) => (Status::Ok, detail),
            Verdict::Broken(detail) => (Status::Missing, detail),
            Verdict::Unknown(detail) => (Status::Degraded, detail),
        };
        Check::new(group, name, status, detail)
    }
}

/// What a run of the probe gave.
pub(super) struct Seen {
    pub(super) outcome: Outcome,
    pub(super) out: String,
    pub(super) err: String,
    pub(super) out_bytes: u64,
    pub(super) cpu_ms: f64,
    /// What was said of it beside its outcome.
    pub(super) warnings: Vec<Warning>,
    pub(super) limits: LimitsInForce,
    pub(super) isolation: Isolation,
    pub(super) sandbox: SandboxId,
    pub(super) about: About,
}

/// What the host knows of a sandbox.
#[derive(Clone)]
pub(super) struct About {
    /// What it stands on.
    pub(super) ground: Ground,
    /// Its guest, as the host knows it.
    pub(super) guest: Option<i32>,
    /// The map of ids inside to ids of the host.
    pub(super) ids: String,
    /// How much can be written in one folder beside the probe.
    pub(super) room: u64,
}

impl Seen {
    pub(super) fn new(result: RunResult, sandbox: SandboxId, about: About) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Seen {
            out: text(result.stdout.to_bytes()),
            err: text(result.stderr.to_bytes()),
            out_bytes: result.stdout.bytes,
            cpu_ms: result.usage.cpu_ms,
            warnings: result.warnings,
            outcome: result.outcome,
            limits: result.limits,
            isolation: result.isolation,
            sandbox,
            about,
        }
    }

    /// The value of a line `name value`.
    pub(super) fn fact(&self, name: &str) -> Option<&str> {
        self.out.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.fact(name)?.parse().ok()
    }

    /// All lines, each split at its last blank: what was tried, and what came of it.
    pub(super) fn answers(&self) -> Vec<(&str, &str)> {
        self.out.lines().filter_map(|line| line.rsplit_once(' ')).collect()
    }

    /// By what a limit is held.
    pub(super) fn enforcement(&self, limit: &str) -> Enforcement {
        self.limits.enforcement.get(limit).copied().unwrap_or(Enforcement::None)
    }

    /// The verdict when the probe did not come to its end.
    pub(super) fn strange(&self) -> Verdict {
        let told = self.warnings.first().map(|warning| warning.message.as_str());
        let said = told.or(self.err.lines().last()).map(|said| format!(": {said}")).unwrap_or_default();
        Verdict::Unknown(format!("the probe ended as {:?}{said}", self.outcome))
    }

    fn came_to_its_end(&self) -> bool {
        self.outcome == (Outcome::Exited { code: 0 }) && !self.out.is_empty()
    }
}

/// Each thing that was tried must have got one of these answers.
pub(super) fn only(seen: &Seen, answers: &[&str]) -> Verdict {
    if !seen.came_to_its_end() {
        return seen.strange();
    }
    let wrong = seen.answers().into_iter().filter(|(_, answer)| !answers.contains(answer));
    Verdict::unless(wrong.map(|(what, answer)| format!("{what} gave {answer}")).collect())
}

/// System calls that the filter refuses. An error about the arguments means that the kernel itself looked at the call.
pub(super) fn refused(seen: &Seen, _: &mut Canaries) -> Verdict {
    only(seen, &["EPERM", "ENOSYS"])
}

pub(super) fn sockets_refused(seen: &Seen, _: &mut Canaries) -> Verdict {
    only(seen, &["EPERM", "ENOSYS", "EACCES", "EAFNOSUPPORT"])
}

/// Nothing that was tried worked.
pub(super) fn nothing_works(seen: &Seen, _: &mut Canaries) -> Verdict {
    if !seen.came_to_its_end() {
        return seen.strange();
    }
    let worked = seen.answers().into_iter().filter(|(_, answer)| *answer == "ok");
    Verdict::unless(worked.map(|(what, _)| format!("{what} works")).collect())
}

/// Judges what the probe printed, when it came to its end.
pub(super) fn facts(seen: &Seen, judge: impl FnOnce(&Seen) -> Option<Verdict>) -> Verdict {
    if !seen.came_to_its_end() {
        return seen.strange();
    }
    judge(seen).unwrap_or_else(|| Verdict::Unknown("the probe did not say what was asked".into()))
}

/// A fact must be this.
pub(super) fn fact_is(seen: &Seen, name: &str, expected: &str) -> Verdict {
    facts(seen, |seen| {
        let found = seen.fact(name)?;
        Some(Verdict::unless((found != expected).then(|| format!("{name} is {found}")).into_iter().collect()))
    })
}
