//! `search_files`: finds text in files. The files are read through the guest, so it needs no program inside.

use std::{sync::Arc, time::Duration};

use glovebox_core::{Error, ErrorCode, FilePath, Result};
use glovebox_engine::{EntryKind, Files, FollowLinks};
use regex::bytes::Regex;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::{
    task::{JoinSet, spawn_blocking},
    time::Instant,
};

use super::{
    Effect, ToolCall,
    files::{here, missing},
};
use crate::{
    answer::Answer,
    call::Call,
    conversation::{Conversation, inside, shown},
    pattern, running, text,
    walk::{Pattern, Reach, read_whole, walk},
};

/// The largest file that is searched.
const LARGEST: u64 = 4 << 20;
/// So many files and folders are looked at.
const MOST_MET: usize = 50_000;
/// So many files are read at one time.
const AT_ONCE: usize = 16;
/// So many matches there can be in an answer.
const MOST_MATCHES: usize = 1000;
/// The most lines around a match.
const MOST_CONTEXT: usize = 10;
/// So long a search lasts.
const LONGEST: Duration = Duration::from_secs(30);
/// The most characters of a line.
const WIDTH: usize = 300;

/// A search.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SearchFiles {
    /// What to look for: a regular expression, or a plain text when literal is true.
    pattern: String,
    /// The folder or file to search, absolute or relative to the working directory.
    #[serde(default = "here")]
    path: String,
    /// Only files that fit this pattern, such as *.py or src/**/*.ts.
    #[serde(default)]
    glob: Option<String>,
    /// Whether pattern is plain text.
    #[serde(default)]
    literal: bool,
    /// Whether upper and lower case are the same.
    #[serde(default)]
    ignore_case: bool,
    /// Lines to show before and behind each match.
    #[serde(default)]
    context: usize,
    /// At most so many matches.
    #[serde(default = "hundred")]
    limit: usize,
    /// Also search .git, node_modules, target and the like.
    #[serde(default)]
    all: bool,
}

fn hundred() -> usize {
    100
}

impl ToolCall for SearchFiles {
    const NAME: &'static str = "search_files";
    const TITLE: &'static str = "Search in files";
    const ABOUT: &'static str =
        "Finds text in files of the sandbox, by a regular expression or literally. Gives path:line: text.";
    const EFFECT: Effect = Effect::Reads;

    async fn call(self, talk: &Conversation, call: &Call) -> Result<Answer> {
        tokio::select! {
            found = self.search(talk) => found,
            () = call.cancelled() => Err(running::cancelled()),
        }
    }
}

impl SearchFiles {
    async fn search(&self, talk: &Conversation) -> Result<Answer> {
        let (top, files) = (inside(&self.path)?, talk.files().await?);
        let regex = Arc::new(self.regex()?);
        let pattern = self.glob.as_deref().map(Pattern::parse).transpose()?;
        let reach = Reach { depth: usize::MAX, most: MOST_MET, all: self.all };
        let (candidates, mut notes) = candidates(&files, &top, reach, pattern.as_ref()).await?;
        let (deadline, limit) = (Instant::now() + LONGEST, self.limit.clamp(1, MOST_MATCHES));
        let context = self.context.min(MOST_CONTEXT);
        let mut waiting = candidates.into_iter().enumerate();
        let mut reading = JoinSet::new();
        let mut found: Vec<(usize, Vec<Match>, FilePath)> = Vec::new();
        let mut count = 0;
        loop {
            while reading.len() < AT_ONCE && count < limit {
                let Some((at, path)) = waiting.next() else { break };
                let (files, regex) = (files.clone(), regex.clone());
                reading.spawn(async move {
                    let content = read_whole(&files, &path, LARGEST).await?;
                    // A pattern that takes long does not keep other calls waiting.
                    let matching = spawn_blocking(move || matches(&content, &regex, context, limit)).await;
                    Ok::<_, Error>((at, matching.unwrap_or_default(), path))
                });
            }
            let next = match tokio::time::timeout_at(deadline, reading.join_next()).await {
                Ok(Some(next)) => next,
                Ok(None) => break,
                Err(_) => {
                    notes.push(format!("the search was ended after {LONGEST:?}"));
                    break;
                }
            };
            match next {
                Ok(Ok((at, matches, path))) if !matches.is_empty() => {
                    count += matches.len();
                    found.push((at, matches, path));
                }
                Ok(Err(error)) if error.code == ErrorCode::SandboxLost => return Err(error),
                // A file that went meanwhile, or that the user inside may not read, has no matches.
                _ => {}
            }
        }
        if count >= limit {
            notes.push(format!("at most {limit} matches are shown; name a folder, a glob, or another limit"));
        }
        found.sort_by_key(|(at, ..)| *at);
        Ok(Answer::text(written(&found, limit, &notes)))
    }

    fn regex(&self) -> Result<Regex> {
        let pattern = if self.literal { regex::escape(&self.pattern) } else { self.pattern.clone() };
        let regex = pattern::parse("pattern", &pattern, self.ignore_case);
        regex.map_err(|mut error| match error.hint.take_if(|_| !self.literal) {
            Some(hint) => error.hint(format!("{hint}; literal: true looks for the text as it is")),
            None => error,
        })
    }
}

/// The files to search, in the order of their paths, and what is to be said about those that are not.
async fn candidates(
    files: &Files,
    top: &FilePath,
    reach: Reach,
    pattern: Option<&Pattern>,
) -> Result<(Vec<FilePath>, Vec<String>)> {
    if files.stat(top, FollowLinks::Yes).await.map_err(missing)?.kind == EntryKind::File {
        return Ok((vec![top.clone()], Vec::new()));
    }
    let walked = walk(files, top, reach).await?;
    let mut notes = Vec::new();
    if walked.cut {
        notes.push("there are more files than were looked at; name a folder".to_owned());
    }
    let fits = |path: &FilePath| pattern.is_none_or(|pattern| pattern.fits(top, path));
    let wanted = walked.entries.into_iter().filter(|met| met.entry.kind == EntryKind::File && fits(&met.entry.path));
    let (small, large): (Vec<_>, Vec<_>) = wanted.partition(|met| met.entry.bytes <= LARGEST);
    if !large.is_empty() {
        notes.push(format!("{} files larger than {} were not searched", large.len(), text::size(LARGEST)));
    }
    Ok((small.into_iter().map(|met| met.entry.path).collect(), notes))
}

/// A line that matches, with its neighbours.
struct Match {
    number: usize,
    before: Vec<String>,
    line: String,
    behind: Vec<String>,
}

fn matches(content: &[u8], regex: &Regex, context: usize, most: usize) -> Vec<Match> {
    if content[..content.len().min(8192)].contains(&0) || !regex.is_match(content) {
        return Vec::new();
    }
    let lines: Vec<&[u8]> = content.split(|byte| *byte == b'\n').collect();
    let shown = |lines: &[&[u8]]| lines.iter().map(|line| text::cut(&text::readable(line), WIDTH)).collect();
    let hits = lines.iter().enumerate().filter(|(_, line)| regex.is_match(line)).take(most);
    hits.map(|(at, line)| Match {
        number: at + 1,
        before: shown(&lines[at.saturating_sub(context)..at]),
        line: text::cut(&text::readable(line), WIDTH),
        behind: shown(&lines[at + 1..(at + 1 + context).min(lines.len())]),
    })
    .collect()
}

fn written(found: &[(usize, Vec<Match>, FilePath)], limit: usize, notes: &[String]) -> String {
    let mut lines = Vec::new();
    let all = found.iter().flat_map(|(_, matches, path)| matches.iter().map(move |one| (path, one)));
    for (path, one) in all.take(limit) {
        let name = shown(path);
        let first = one.number - one.before.len();
        lines.extend(one.before.iter().enumerate().map(|(at, line)| format!("{name}-{}- {line}", first + at)));
        lines.push(format!("{name}:{}: {}", one.number, one.line));
        lines.extend(one.behind.iter().enumerate().map(|(at, line)| format!("{name}-{}- {line}", one.number + 1 + at)));
        if !one.before.is_empty() || !one.behind.is_empty() {
            lines.push("--".to_owned());
        }
    }
    if lines.is_empty() {
        lines.push("[no match]".to_owned());
    }
    lines.extend(notes.iter().map(|note| format!("[{note}]")));
    lines.join("\n")
}
