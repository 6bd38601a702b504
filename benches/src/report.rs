//! The table.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::samples::Samples;

/// What a value must be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// This or less.
    AtMost(f64),
    /// This or more.
    AtLeast(f64),
}

impl Goal {
    fn reached(self, value: f64) -> bool {
        match self {
            Goal::AtMost(limit) => value <= limit,
            Goal::AtLeast(limit) => value >= limit,
        }
    }
}

/// One promise.
pub(crate) struct Line {
    /// What is measured.
    pub(crate) measure: &'static str,
    /// The goal in words.
    pub(crate) goal_text: &'static str,
    /// The goal for `value`.
    pub(crate) goal: Goal,
    /// What Glovebox reached, with its unit.
    pub(crate) measured: String,
    /// What it is compared with, with its unit; empty for a goal of its own.
    pub(crate) compared: String,
    /// The number that the goal is about: a ratio where something is compared.
    pub(crate) value: f64,
}

/// All that was measured.
pub(crate) struct Report {
    facts: Vec<(&'static str, String)>,
    lines: Vec<Line>,
    samples: Vec<(&'static str, Samples)>,
}

impl Report {
    /// Nothing measured yet.
    pub(crate) fn new(facts: Vec<(&'static str, String)>) -> Self {
        Report { facts, lines: Vec::new(), samples: Vec::new() }
    }

    /// Adds a promise.
    pub(crate) fn line(&mut self, line: Line) {
        self.lines.push(line);
    }

    /// Adds a promise about milliseconds against somebody else's: how many times theirs at most, or how many times faster at
    /// least.
    pub(crate) fn compare(
        &mut self,
        measure: &'static str,
        (goal_text, goal): (&'static str, Goal),
        ours: f64,
        (peer, theirs): (&str, f64),
    ) {
        let (measured, compared) = (format!("{ours:.2} ms"), format!("{peer} {theirs:.2} ms"));
        let value = match goal {
            Goal::AtMost(_) => ours / theirs,
            Goal::AtLeast(_) => theirs / ours,
        };
        self.line(Line { measure, goal_text, goal, measured, compared, value });
    }

    /// Adds what was measured for a row.
    pub(crate) fn samples(&mut self, row: &'static str, samples: impl IntoIterator<Item = Samples>) {
        self.samples.extend(samples.into_iter().map(|samples| (row, samples)));
    }

    /// The report for people and for SPECIFICATION.md.
    pub(crate) fn markdown(&self) -> String {
        let mut text = String::from("| measure | goal | measured | compared with | ratio | reached |\n");
        text.push_str("| --- | --- | --- | --- | --- | --- |\n");
        for Line { measure, goal_text, goal, measured, compared, value } in &self.lines {
            let ratio = if compared.is_empty() { String::new() } else { format!("{value:.2} ×") };
            let reached = if goal.reached(*value) { "yes" } else { "**no**" };
            let _ = writeln!(text, "| {measure} | {goal_text} | {measured} | {compared} | {ratio} | {reached} |");
        }
        text.push_str("\n| row | contestant | median | p10 | p90 | samples |\n| --- | --- | --- | --- | --- | --- |\n");
        for (row, samples) in &self.samples {
            let [median, p10, p90] = [0.5, 0.1, 0.9].map(|part| samples.quantile(part));
            let (name, unit, count) = (&samples.name, samples.unit, samples.values.len());
            let _ = writeln!(text, "| {row} | {name} | {median:.2} {unit} | {p10:.2} | {p90:.2} | {count} |");
        }
        text.push('\n');
        for (name, fact) in &self.facts {
            let _ = writeln!(text, "- {name}: {fact}");
        }
        text
    }

    /// The report for programs.
    pub(crate) fn json(&self) -> Value {
        let facts: serde_json::Map<String, Value> =
            self.facts.iter().map(|(name, fact)| ((*name).to_owned(), json!(fact))).collect();
        let lines: Vec<Value> = self
            .lines
            .iter()
            .map(|line| {
                json!({
                    "measure": line.measure, "goal": line.goal_text, "measured": line.measured,
                    "compared_with": line.compared, "value": line.value, "reached": line.goal.reached(line.value),
                })
            })
            .collect();
        let samples: Vec<Value> = self
            .samples
            .iter()
            .map(|(row, samples)| {
                json!({
                    "row": row, "contestant": samples.name, "unit": samples.unit, "median": samples.median(),
                    "p10": samples.quantile(0.1), "p90": samples.quantile(0.9), "samples": samples.values,
                })
            })
            .collect();
        json!({ "machine": facts, "promises": lines, "contestants": samples })
    }
}
