//! What must become of a living sandbox, by the contract: a few states, and what each act makes of them.

use std::collections::BTreeMap;

use glovebox_core::RunId;

use super::actor::{Act, Said};

/// The state of a sandbox that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    Paused,
    Stopped,
}

impl State {
    /// As `show` tells it.
    pub(super) fn word(self) -> &'static str {
        match self {
            State::Ready => "ready",
            State::Paused => "paused",
            State::Stopped => "stopped",
        }
    }
}

/// A sandbox that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Modelled {
    pub(super) state: State,
    /// Whether a run has left its mark in the files. Not known of one that was ended halfway.
    marked: Option<bool>,
    /// Runs under way.
    pub(super) runs: Vec<RunId>,
}

/// All sandboxes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Model {
    /// By name.
    pub(super) all: BTreeMap<&'static str, Modelled>,
    /// Whether those that are paused can be asked for their runs.
    pub(super) paused_answer: bool,
}

impl Model {
    /// What `list` tells.
    pub(super) fn list(&self) -> String {
        let words = self.all.iter().map(|(name, sandbox)| format!("{name}={}", sandbox.state.word()));
        words.collect::<Vec<_>>().join(" ")
    }

    /// Does an act. Says what an actor must say: `None` where that is something only the actor knows.
    pub(super) fn act(&mut self, name: &'static str, act: &Act) -> Result<Option<&'static str>, &'static str> {
        const DONE: Result<Option<&str>, &str> = Ok(Some("done"));
        const WRONG: Result<Option<&str>, &str> = Err("wrong_state");
        let Some(sandbox) = self.all.get_mut(name) else {
            if *act != Act::Create {
                return Err("sandbox_not_found");
            }
            self.all.insert(name, Modelled { state: State::Ready, marked: Some(false), runs: Vec::new() });
            return DONE;
        };
        match (act, sandbox.state) {
            (Act::Create, _) => return Err("name_taken"),
            (Act::Exec, State::Ready) => {
                let before = sandbox.marked.replace(true);
                return Ok(before.map(|marked| if marked { "again" } else { "first" }));
            }
            (Act::Detach, State::Ready) => return Ok(None),
            (Act::Cancel(_), State::Paused) if !self.paused_answer => return WRONG,
            (Act::Cancel(run), State::Ready | State::Paused) => match sandbox.runs.iter().position(|one| one == run) {
                Some(at) => drop(sandbox.runs.remove(at)),
                None => return Err("run_not_found"),
            },
            (Act::Exec | Act::Detach | Act::Cancel(_), _) => return WRONG,
            (Act::Pause | Act::Resume, State::Stopped) => return WRONG,
            (Act::Start, State::Paused) => return WRONG,
            (Act::Pause, _) => sandbox.state = State::Paused,
            (Act::Resume, _) => sandbox.state = State::Ready,
            (Act::Stop, _) => *sandbox = Modelled { state: State::Stopped, runs: Vec::new(), ..sandbox.clone() },
            (Act::Start, _) => sandbox.state = State::Ready,
            (Act::Reset, _) => *sandbox = Modelled { state: State::Ready, marked: Some(false), runs: Vec::new() },
            (Act::Destroy, _) => drop(self.all.remove(name)),
            (Act::Show | Act::List | Act::Runs | Act::Descriptors(_), _) => {}
        }
        DONE
    }

    /// What is after two acts at once may be this or another.
    pub(super) fn forget_difference(&mut self, name: &'static str, other: &Model) {
        if let (Some(sandbox), Some(other)) = (self.all.get_mut(name), other.all.get(name))
            && sandbox.marked != other.marked
        {
            sandbox.marked = None;
        }
    }

    /// A run was ended halfway by another act.
    pub(super) fn cut_short(&mut self, name: &'static str, act: &Act) {
        if let (Act::Exec, Some(sandbox)) = (act, self.all.get_mut(name)) {
            sandbox.marked = None;
        }
    }

    /// Does an act that an actor did, and notes what only it knew. Says whether the actor said what it must.
    pub(super) fn follow(&mut self, name: &'static str, act: &Act, said: &Said) -> bool {
        match (self.act(name, act), said) {
            (Ok(Some(must)), Ok(word)) => must == word,
            (Ok(None), Ok(word)) if *act == Act::Exec => word == "first" || word == "again",
            (Ok(None), Ok(word)) => match (word.parse(), self.all.get_mut(name)) {
                (Ok(run), Some(sandbox)) => {
                    sandbox.runs.push(run);
                    true
                }
                _ => false,
            },
            (Err(must), Err((code, _))) => must == code,
            _ => false,
        }
    }
}
