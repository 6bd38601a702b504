//! What `top` knows and what it shows of it. Nothing here draws, asks or waits.

use std::{
    cmp::{Ordering, Reverse},
    collections::HashMap,
    time::{Duration, Instant},
};

use glovebox_core::{Error, Result, RunId, SandboxId, SandboxState, Usage, UsageNow};
use glovebox_engine::SandboxStatus;
use glovebox_ledger::Summary;

use super::history::History;

/// What the looker tells.
#[derive(Debug)]
pub(crate) enum News {
    /// Which sandboxes there are, and the recorded runs at work, where these could be read.
    Sandboxes(Result<(Vec<SandboxStatus>, Option<Vec<Summary>>)>),
    /// What a sandbox uses.
    Usage(SandboxId, Instant, Result<UsageNow>),
    /// What runs of a sandbox have used so far.
    Runs(SandboxId, Instant, Vec<(RunId, Usage)>),
    /// What was asked for is done, or cannot be.
    Acted(Act, SandboxId, Result<()>),
}

/// What can be done with a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Pause,
    Resume,
    Destroy,
}

/// How sandboxes are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Cpu,
    Memory,
    Io,
    Name,
    Age,
}

impl Order {
    pub(crate) const ALL: [Order; 5] = [Order::Cpu, Order::Memory, Order::Io, Order::Name, Order::Age];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Order::Cpu => "CPU",
            Order::Memory => "memory",
            Order::Io => "I/O",
            Order::Name => "name",
            Order::Age => "age",
        }
    }
}

/// What fills the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    List,
    Details(SandboxId),
}

/// What the next keys mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Focus {
    /// The page.
    Page,
    /// The text of the filter.
    Filter,
    /// Whether to destroy this sandbox.
    Confirm(SandboxId),
    /// Any key closes the help.
    Help,
}

/// What is known of a sandbox.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) status: SandboxStatus,
    pub(crate) history: History,
    /// Whether it was asked and did not answer in time.
    pub(crate) silent: bool,
    /// Why it could not be asked.
    pub(crate) fault: Option<String>,
    /// Its recorded runs at work, the newest first; `None` where they cannot be read.
    pub(crate) runs: Option<Vec<Summary>>,
    /// What each of them used, where that is known.
    pub(crate) run_usage: HashMap<RunId, RunUsage>,
    /// When it was last heard, or first waited for.
    heard: Instant,
}

/// What a run used.
#[derive(Clone, Debug)]
pub(crate) struct RunUsage {
    pub(crate) usage: Usage,
    /// CPU time for each second, percent of one CPU.
    pub(crate) cpu: Option<f64>,
    at: Instant,
}

impl Seen {
    /// Its name, or its id.
    pub(crate) fn name(&self) -> String {
        name_of(&self.status)
    }

    fn cpu(&self) -> f64 {
        self.history.latest().map_or(-1.0, |sample| sample.cpu)
    }

    fn memory(&self) -> u64 {
        self.history.usage().map_or(0, |usage| usage.memory_bytes)
    }

    fn io(&self) -> u64 {
        self.history.latest().map_or(0, |sample| sample.read.saturating_add(sample.written))
    }
}

/// All of it.
#[derive(Debug)]
pub(crate) struct Top {
    pub(crate) page: Page,
    pub(crate) focus: Focus,
    pub(crate) order: Order,
    pub(crate) filter: String,
    /// The last thing to say, until the next key.
    pub(crate) message: Option<String>,
    /// Why the sandboxes cannot be listed.
    pub(crate) fault: Option<String>,
    /// Whether the sandboxes were listed once.
    pub(crate) looked: bool,
    pub(crate) interval: Duration,
    seen: HashMap<SandboxId, Seen>,
    /// Those that fit the filter, in order.
    shown: Vec<SandboxId>,
    selected: Option<SandboxId>,
    /// Whether somebody chose it: then it stays selected wherever it goes. Before, the first row is.
    chosen: bool,
    /// Where the selected one was last.
    at: usize,
}

impl Top {
    pub(crate) fn new(interval: Duration) -> Top {
        Top {
            page: Page::List,
            focus: Focus::Page,
            order: Order::Cpu,
            filter: String::new(),
            message: None,
            fault: None,
            looked: false,
            interval,
            seen: HashMap::new(),
            shown: Vec::new(),
            selected: None,
            chosen: false,
            at: 0,
        }
    }

    /// How long a sandbox may take to answer before it is called silent.
    fn patience(&self) -> Duration {
        self.interval + Duration::from_secs(2)
    }

    /// Takes news. Whoever has heard all there are calls [`Top::arrange`] then: to put all sandboxes in order for each answer
    /// of each of them would be most of the work.
    pub(crate) fn hear(&mut self, news: News, now: Instant) {
        match news {
            News::Sandboxes(Ok((all, runs))) => self.hear_list(all, runs, now),
            News::Sandboxes(Err(error)) => self.fault = Some(text_of(&error)),
            News::Usage(id, at, answer) => {
                let Some(seen) = self.seen.get_mut(&id) else { return };
                (seen.heard, seen.silent) = (at, false);
                match answer {
                    Ok(usage) => {
                        seen.fault = None;
                        seen.history.add(at, usage);
                    }
                    // It was stopped between the look at its state and this one; the next list says so.
                    Err(error) => seen.fault = Some(text_of(&error)),
                }
            }
            News::Runs(id, at, all) => {
                let Some(seen) = self.seen.get_mut(&id) else { return };
                let before = std::mem::take(&mut seen.run_usage);
                seen.run_usage =
                    all.into_iter().map(|(run, usage)| (run, since(before.get(&run), usage, at))).collect();
            }
            News::Acted(act, id, result) => self.message = Some(self.told(act, id, result)),
        }
    }

    fn hear_list(&mut self, all: Vec<SandboxStatus>, mut runs: Option<Vec<Summary>>, now: Instant) {
        (self.fault, self.looked) = (None, true);
        let patience = self.patience();
        let mut before = std::mem::take(&mut self.seen);
        for status in all.into_iter().filter(|status| status.state != SandboxState::Gone) {
            let id = status.sandbox;
            let mut seen = before.remove(&id).unwrap_or_else(|| Seen {
                status: status.clone(),
                history: History::default(),
                silent: false,
                fault: None,
                runs: None,
                run_usage: HashMap::new(),
                heard: now,
            });
            seen.status = status;
            seen.runs = runs.as_mut().map(|runs| runs.extract_if(.., |run| run.sandbox == id).collect());
            if !seen.status.state.has_processes() {
                (seen.heard, seen.silent, seen.fault) = (now, false, None);
                seen.history.skip();
            } else if now.saturating_duration_since(seen.heard) > patience {
                seen.silent = true;
                seen.history.skip();
            } else if seen.fault.is_some() {
                seen.history.skip();
            }
            self.seen.insert(id, seen);
        }
    }

    fn told(&self, act: Act, id: SandboxId, result: Result<()>) -> String {
        let name = self.seen.get(&id).map_or_else(|| id.to_string(), Seen::name);
        let (done, to_do) = match act {
            Act::Pause => ("paused", "pause"),
            Act::Resume => ("resumed", "resume"),
            Act::Destroy => ("destroyed", "destroy"),
        };
        match result {
            Ok(()) => format!("{name} is {done}"),
            Err(error) => format!("cannot {to_do} {name}: {}", text_of(&error)),
        }
    }

    /// Puts those that fit the filter in order.
    pub(crate) fn arrange(&mut self) {
        let mut shown: Vec<&Seen> = self.seen.values().filter(|seen| fits(seen, &self.filter)).collect();
        shown.sort_by(|a, b| in_order(self.order, a, b).then(a.status.sandbox.cmp(&b.status.sandbox)));
        self.shown = shown.into_iter().map(|seen| seen.status.sandbox).collect();
        let chosen = self.selected.filter(|_| self.chosen);
        match chosen.and_then(|id| self.shown.iter().position(|shown| *shown == id)) {
            Some(at) => self.at = at,
            None if self.chosen => self.put_at(self.at),
            None => self.put_at(0),
        }
    }

    /// Selects by place, as near as there is one.
    pub(crate) fn select(&mut self, at: usize) {
        self.chosen = true;
        self.put_at(at);
    }

    /// Selects the first row, whoever is there.
    pub(crate) fn select_first(&mut self) {
        self.chosen = false;
        self.put_at(0);
    }

    fn put_at(&mut self, at: usize) {
        self.at = at.min(self.shown.len().saturating_sub(1));
        self.selected = self.shown.get(self.at).copied();
    }

    pub(crate) fn sort_by(&mut self, order: Order) {
        self.order = order;
        self.message = Some(format!("sorted by {}", order.name()));
        self.arrange();
    }

    /// Those that are shown, in order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Seen> {
        self.shown.iter().filter_map(|id| self.seen.get(id))
    }

    /// Where the selected one is among those that are shown.
    pub(crate) fn selected_at(&self) -> usize {
        self.at
    }

    /// The sandbox that keys are about.
    pub(crate) fn subject(&self) -> Option<&Seen> {
        match self.page {
            Page::Details(id) => self.seen.get(&id),
            Page::List => self.seen.get(&self.selected?),
        }
    }

    pub(crate) fn get(&self, id: SandboxId) -> Option<&Seen> {
        self.seen.get(&id)
    }

    /// All sandboxes, whatever the filter.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Seen> {
        self.seen.values()
    }
}

/// The name of a sandbox, or its id.
pub(crate) fn name_of(status: &SandboxStatus) -> String {
    status.name.as_ref().map_or_else(|| status.sandbox.to_string(), ToString::to_string)
}

fn text_of(error: &Error) -> String {
    error.message.clone()
}

fn since(before: Option<&RunUsage>, usage: Usage, at: Instant) -> RunUsage {
    let cpu = before.and_then(|before| {
        let seconds = at.saturating_duration_since(before.at).as_secs_f64();
        (seconds > 0.0).then(|| (usage.cpu_ms - before.usage.cpu_ms).max(0.0) / seconds / 10.0)
    });
    RunUsage { usage, cpu, at }
}

fn in_order(order: Order, a: &Seen, b: &Seen) -> Ordering {
    match order {
        Order::Cpu => b.cpu().total_cmp(&a.cpu()),
        Order::Memory => Reverse(a.memory()).cmp(&Reverse(b.memory())),
        Order::Io => Reverse(a.io()).cmp(&Reverse(b.io())),
        Order::Name => a.name().cmp(&b.name()),
        Order::Age => a.status.created_at.cmp(&b.status.created_at),
    }
}

/// Whether a sandbox has a text in its name, id, state, project or labels.
fn fits(seen: &Seen, text: &str) -> bool {
    if text.is_empty() {
        return true;
    }
    let text = text.to_lowercase();
    let has = |part: &str| part.to_lowercase().contains(&text);
    let status = &seen.status;
    has(&status.sandbox.to_string())
        || status.name.as_ref().is_some_and(|name| has(name.as_str()))
        || has(status.state.as_str())
        || status.project.as_deref().is_some_and(has)
        || status.labels.iter().any(|(key, value)| has(&format!("{key}={value}")))
}
