//! Random lives of sandboxes against a model: made, used, paused, stopped, ended, by two processes, one after the other and
//! both at once, while keepers and callers are killed. After each step `show` and `list` tell what the model says, and at the end
//! nothing is left.

mod actor;
mod model;

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use glovebox_core::{Features, RunId};
use glovebox_native::NativeBackend;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::{Subject, leftovers::lock_holders};
use actor::Said;
pub(crate) use actor::{Act, Actor};
use model::{Model, State};

const NAMES: [&str; 2] = ["one", "other"];
/// Runs that go on in one sandbox; more teach nothing.
const MOST_RUNS: usize = 3;
/// How long a cancelled run may be listed, which its guest ends on its own time.
const PATIENCE: Duration = Duration::from_secs(10);

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Explored {
    /// Acts, and deaths.
    pub(crate) steps: usize,
    /// Pairs of acts at once.
    pub(crate) races: usize,
}

/// Serves as one of the two processes.
pub async fn run_actor(subject: &dyn Subject, data_dir: &Path) -> anyhow::Result<()> {
    actor::serve(subject, data_dir).await
}

/// Random numbers that a seed makes again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }
}

/// Leads sandboxes through random lives for so long. An error tells the seed and all that was done.
pub(crate) fn explore(data_dir: &Path, seed: u64, time: Duration, features: &Features) -> anyhow::Result<Explored> {
    let mut world = Explorer {
        data_dir,
        dice: Dice(seed),
        can_pause: features.pause,
        actors: [Actor::start(data_dir)?, Actor::start(data_dir)?],
        model: Model { paused_answer: features.guest_outlives_pause, ..Model::default() },
        story: Vec::new(),
        explored: Explored::default(),
    };
    let lived = world.live(time).and_then(|()| world.end());
    match lived {
        Ok(()) => Ok(world.explored),
        Err(error) => {
            let story = std::mem::take(&mut world.story).join("\n  ");
            let _ = world.end();
            // What went wrong comes first: summaries show the first lines only.
            Err(anyhow::anyhow!("{error:#}; seed {seed}, after:\n  {story}"))
        }
    }
}

struct Explorer<'a> {
    data_dir: &'a Path,
    dice: Dice,
    can_pause: bool,
    actors: [Actor; 2],
    model: Model,
    story: Vec<String>,
    explored: Explored,
}

impl Explorer<'_> {
    fn live(&mut self, time: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + time;
        while Instant::now() < deadline {
            let name = NAMES[self.dice.below(NAMES.len())];
            match self.dice.below(12) {
                0 => self.kill_keeper(name)?,
                1 => self.kill_actor()?,
                2..=5 => self.race(name)?,
                _ => self.step(name)?,
            }
            self.explored.steps += 1;
            self.look()?;
        }
        Ok(())
    }

    /// Any act, also one that the state does not allow.
    fn choose(&mut self, name: &str) -> Act {
        let sandbox = self.model.all.get(name);
        let runs = sandbox.map(|sandbox| sandbox.runs.clone()).unwrap_or_default();
        if sandbox.is_none() && self.dice.below(2) == 0 {
            return Act::Create;
        }
        loop {
            return match self.dice.below(13) {
                0 => Act::Create,
                1..=2 => Act::Exec,
                3 if runs.len() < MOST_RUNS => Act::Detach,
                4..=5 if !runs.is_empty() => Act::Cancel(runs[self.dice.below(runs.len())]),
                6 if self.can_pause => Act::Pause,
                7 if self.can_pause => Act::Resume,
                8 => Act::Stop,
                9..=10 => Act::Start,
                11 => Act::Reset,
                12 => Act::Destroy,
                _ => continue,
            };
        }
    }

    /// One act of one process.
    fn step(&mut self, name: &'static str) -> anyhow::Result<()> {
        let (act, who) = (self.choose(name), self.dice.below(2));
        let said = self.actors[who].act(name, &act)?;
        self.story.push(format!("{who}: {act:?} {name}: {said:?}"));
        let before = self.model.clone();
        ensure!(self.model.follow(name, &act, &said), "{act:?} in {before:?} must not say {said:?}");
        Ok(())
    }

    /// Two acts of both processes at once: what they say, and what there is afterwards, is that of one order or the other.
    fn race(&mut self, name: &'static str) -> anyhow::Result<()> {
        let acts = [self.choose(name), self.choose(name)];
        if acts.contains(&Act::Exec) && acts.contains(&Act::Pause) {
            // A run that is frozen before it ends is waited for until the sandbox goes on, rightly.
            return Ok(());
        }
        for (actor, act) in self.actors.iter_mut().zip(&acts) {
            actor.order(name, act)?;
        }
        let mut all = Vec::new();
        for (actor, act) in self.actors.iter_mut().zip(&acts) {
            all.push(actor.said().with_context(|| format!("{acts:?} at once, {act:?}"))?);
        }
        self.story.push(format!("both: {acts:?} {name}: {all:?}"));
        self.explored.races += 1;
        let said: [Said; 2] = [all[0].clone(), all[1].clone()];
        let shown = self.actors[0].act(name, &Act::Show)?;
        let runs = self.actors[0].act(name, &Act::Runs)?;
        let mut explanations = Vec::new();
        for [first, second] in [[0, 1], [1, 0]] {
            let mut model = self.model.clone();
            let fits = [first, second].map(|at| follow_in_race(&mut model, name, &acts, &said, at));
            let word = model.all.get(name).map(|sandbox| sandbox.state.word());
            let fits = fits == [true, true] && word == shown.as_deref().ok();
            if fits {
                explanations.push(model);
            }
        }
        // A run that began while the other process ended all of them is there or not; what the guest says counts.
        let known: Vec<RunId> = runs.iter().flat_map(|ids| ids.split(' ')).filter_map(|id| id.parse().ok()).collect();
        let Some(mut model) = explanations.pop() else {
            bail!("{acts:?} at once said {said:?} and led to {shown:?}, from {:?}", self.model)
        };
        // Where both orders explain it, what is different in them is not known.
        if let Some(other) = explanations.pop() {
            model.forget_difference(name, &other);
        }
        let was_cancelled = |run| acts.iter().zip(&said).any(|(act, said)| *act == Act::Cancel(run) && said.is_ok());
        if let Some(sandbox) = model.all.get_mut(name)
            && runs.is_ok()
        {
            sandbox.runs = known.into_iter().filter(|run| !was_cancelled(*run)).collect();
        }
        self.model = model;
        Ok(())
    }

    /// Both processes see what the model says.
    fn look(&mut self) -> anyhow::Result<()> {
        for who in 0..2 {
            let list = self.actors[who].act("", &Act::List)?;
            ensure!(list.as_deref() == Ok(&self.model.list()), "{who} lists {list:?} where {:?} is", self.model);
        }
        for name in NAMES {
            let who = self.dice.below(2);
            let shown = self.actors[who].act(name, &Act::Show)?;
            let Some(sandbox) = self.model.all.get(name) else {
                ensure!(matches!(&shown, Err((code, _)) if code == "sandbox_not_found"), "{who} shows {shown:?}");
                continue;
            };
            ensure!(shown.as_deref() == Ok(sandbox.state.word()), "{who} shows {shown:?} where {sandbox:?} is");
            if sandbox.state == State::Stopped || sandbox.state == State::Paused && !self.model.paused_answer {
                continue;
            }
            let mut wanted: Vec<String> = sandbox.runs.iter().map(ToString::to_string).collect();
            wanted.sort();
            let wanted = wanted.join(" ");
            let deadline = Instant::now() + PATIENCE;
            loop {
                let runs = self.actors[who].act(name, &Act::Runs)?;
                if runs.as_deref() == Ok(&wanted) {
                    break;
                }
                ensure!(Instant::now() < deadline, "{who} knows the runs {runs:?} in {name} and not {wanted:?}");
            }
        }
        Ok(())
    }

    /// Kills whoever keeps a sandbox, which is to harm nobody.
    fn kill_keeper(&mut self, name: &'static str) -> anyhow::Result<()> {
        let Some(keeper) = self.keeper(name)? else { return self.kill_actor() };
        self.story.push(format!("the keeper {keeper} of {name} is killed"));
        kill(keeper)?;
        for who in 0..2 {
            if self.actors[who].launcher == keeper {
                self.replace(who)?;
            }
        }
        Ok(())
    }

    fn kill_actor(&mut self) -> anyhow::Result<()> {
        let who = self.dice.below(2);
        self.story.push(format!("{who} is killed"));
        self.replace(who)
    }

    fn replace(&mut self, who: usize) -> anyhow::Result<()> {
        std::mem::replace(&mut self.actors[who], Actor::start(self.data_dir)?).kill();
        Ok(())
    }

    /// The process that holds the keeper's lock of a sandbox.
    fn keeper(&self, name: &str) -> anyhow::Result<Option<i32>> {
        // Only sandboxes of the native backend have one.
        let is_kept = self.model.all.get(name).is_some_and(|sandbox| sandbox.state != State::Stopped);
        if !is_kept || self.actors[0].launcher == 0 {
            return Ok(None);
        }
        let id = fs::read_to_string(self.data_dir.join("sandboxes/names").join(name))?;
        let lock = NativeBackend::runtime_folder().join("sandboxes").join(id).join("lock");
        let inode = fs::metadata(lock)?.ino();
        Ok(lock_holders().into_iter().find(|(_, held)| *held == inode).map(|(pid, _)| pid))
    }

    /// Ends all, and sees that nothing is left.
    fn end(&mut self) -> anyhow::Result<()> {
        let ids: Vec<String> = fs::read_dir(self.data_dir.join("sandboxes"))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name.starts_with("sb_"))
            .collect();
        for id in &ids {
            let said = self.actors[0].act(id, &Act::Destroy)?;
            ensure!(said.is_ok(), "{id} cannot be destroyed: {said:?}");
        }
        let left: Vec<String> = fs::read_dir(self.data_dir.join("sandboxes"))?
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name != "names")
            .collect();
        ensure!(left.is_empty(), "the data folder still has {left:?}");
        for id in ids {
            let folder = NativeBackend::runtime_folder().join("sandboxes").join(&id);
            ensure!(!folder.exists(), "{} is still there", folder.display());
        }
        Ok(())
    }
}

/// Does one of two acts that were done at once. Those that take no lock may meet the other act halfway.
fn follow_in_race(model: &mut Model, name: &'static str, acts: &[Act; 2], said: &[Said; 2], at: usize) -> bool {
    let (act, said, other) = (&acts[at], &said[at], &acts[1 - at]);
    let halfway = match said {
        Ok(word) => word == "Lost",
        Err((code, _)) => {
            ["sandbox_lost", "run_not_found", "wrong_state", "sandbox_not_found"].contains(&code.as_str())
        }
    };
    let takes_no_lock = matches!(act, Act::Exec | Act::Detach | Act::Cancel(_));
    let meets = matches!(other, Act::Stop | Act::Start | Act::Reset | Act::Destroy | Act::Pause | Act::Cancel(_));
    if act == other && matches!(act, Act::Cancel(_)) && said.is_ok() {
        // Both ended it.
        model.act(name, act).ok();
        return true;
    }
    if takes_no_lock && meets && halfway {
        model.cut_short(name, act);
        return true;
    }
    model.follow(name, act, said)
}

/// Kills a process, and waits until it is dead.
pub(crate) fn kill(pid: i32) -> anyhow::Result<()> {
    let process = Pid::from_raw(pid).context("a process id")?;
    // It may have just ended by itself.
    let Ok(handle) = pidfd_open(process, PidfdFlags::empty()) else { return Ok(()) };
    let _ = pidfd_send_signal(&handle, Signal::KILL);
    rustix::event::poll(&mut [rustix::event::PollFd::new(&handle, rustix::event::PollFlags::IN)], None)?;
    Ok(())
}
