//! The picture of one sandbox: its plots, and its runs at work.

use glovebox_core::SandboxId;
use jiff::Timestamp;
use ratatui::{buffer::Buffer, layout::Rect, style::Style};

use super::{
    history::Sample,
    paint::{self, Look, percent, plot, size, write, write_right},
    state::{Focus, Seen, Top},
};
use crate::{report, table::typed};

/// The keys in the last line.
const KEYS: &str = "Esc back  p pause  x destroy  ? help  Ctrl-C quit";

/// Draws it.
pub(crate) fn draw(buffer: &mut Buffer, top: &Top, id: SandboxId, look: &Look, now: Timestamp) {
    let area = *buffer.area();
    match top.get(id) {
        Some(seen) => {
            draw_header(buffer, seen, look, now);
            // Plots take what there is, but leave room for some runs.
            let below = area.height - 3;
            let plots = below.saturating_sub(5).min(below * 3 / 5) / 3 * 3;
            draw_plots(buffer, Rect::new(0, 2, area.width, plots), seen, look);
            draw_runs(buffer, Rect::new(0, 2 + plots, area.width, below - plots), seen, look, now);
        }
        None => write(buffer, (0, 0), area.width, &format!("{id} is gone"), look.strong()),
    }
    paint::last_line(buffer, top, KEYS, look);
    if top.focus == Focus::Help {
        paint::help(buffer, look);
    }
}

/// Two lines: who it is and how it is; what else is known of it.
fn draw_header(buffer: &mut Buffer, seen: &Seen, look: &Look, now: Timestamp) {
    let (width, status) = (buffer.area().width, &seen.status);
    let (word, style) = paint::state(seen, look);
    write(buffer, (0, 0), width, word, style);
    let name = status.name.as_ref().map_or_else(String::new, |name| format!("{name}  "));
    let x = word.len() as u16 + 2;
    write(buffer, (x, 0), width.saturating_sub(x), &format!("{name}{}", status.sandbox), look.strong());
    let told = match &seen.fault {
        Some(fault) => fault.clone(),
        None if seen.silent => "it does not answer".to_owned(),
        None => {
            let coarse = |from: Timestamp, to: Timestamp| report::coarse(to.duration_since(from).unsigned_abs());
            let mut parts = vec![format!("made {} ago", coarse(status.created_at, now))];
            parts.extend(status.ends_at.map(|end| format!("ends in {}", coarse(now, end.max(now)))));
            parts.extend(status.project.as_ref().map(|project| format!("project {project}")));
            parts.extend(status.labels.iter().map(|(key, value)| format!("{key}={value}")));
            parts.join(", ")
        }
    };
    write(buffer, (0, 1), width, &told, Style::new());
}

/// CPU and memory against their limits, then what is read and written, side by side.
fn draw_plots(buffer: &mut Buffer, area: Rect, seen: &Seen, look: &Look) {
    let height = area.height / 3;
    if height < 2 {
        return;
    }
    let (usage, sample) = (seen.history.usage(), seen.history.latest());
    let limits = &seen.status.record.spec.limits;
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let part = |row: u16| Rect::new(area.x, area.y + row * height, area.width, height);
    let cpu = or_none(sample.map(|sample| format!("{}%", percent(sample.cpu))));
    let title = format!("CPU {cpu} of {:.0}%", limits.cpus * 100.0);
    let thousandths = |sample: &Sample| (sample.cpu * 10.0) as u64;
    one_plot(buffer, part(0), &title, seen, thousandths, |_| ((limits.cpus * 1000.0) as u64, None), look);
    let memory = or_none(usage.map(|usage| size(usage.memory_bytes)));
    let peak = or_none(usage.map(|usage| size(usage.memory_peak_bytes)));
    let processes = or_none(usage.map(|usage| usage.processes.to_string()));
    let title =
        format!("Memory {memory} of {}, at most {peak}; {processes} of {} processes", size(limits.memory), limits.pids);
    // Little of much would be no plot at all, so the scale is as small a part of the limit as what was used has room in.
    let scale = |highest: u64| {
        let most = std::iter::successors(Some(limits.memory), |most| Some(most / 2));
        let most = most.take_while(|most| *most > highest && *most > 0).last().unwrap_or(limits.memory);
        (most, Some(size(most)))
    };
    one_plot(buffer, part(1), &title, seen, |sample| sample.memory, scale, look);
    let (io, half) = (part(2), area.width / 2);
    let (left, right) = (Rect { width: half - 1, ..io }, Rect { x: half, width: area.width - half, ..io });
    let title = format!("Read {}/s", or_none(sample.map(|sample| size(sample.read))));
    let scale = |highest: u64| (highest, (highest > 0).then(|| format!("{}/s", size(highest))));
    one_plot(buffer, left, &title, seen, |sample| sample.read, scale, look);
    let disk = or_none(usage.and_then(|usage| usage.disk_bytes).map(size));
    let written = or_none(sample.map(|sample| size(sample.written)));
    let title = format!("Written {written}/s; disk {disk} of {}", size(limits.disk));
    one_plot(buffer, right, &title, seen, |sample| sample.written, scale, look);
}

/// A title, and a plot below it. The scale, as far up as the plot reaches, comes from the highest sample; in words it stands at
/// the end of the title.
fn one_plot(
    buffer: &mut Buffer,
    area: Rect,
    title: &str,
    seen: &Seen,
    number: impl Fn(&Sample) -> u64,
    scale: impl Fn(u64) -> (u64, Option<String>),
    look: &Look,
) {
    let samples = seen.history.newest_first(number);
    let (most, told) = scale(samples.iter().take(area.width.into()).flatten().copied().max().unwrap_or(0));
    let told = told.map_or_else(String::new, |told| format!(" (plot to {told})"));
    write(buffer, (area.x, area.y), area.width, title, look.strong());
    let x = area.x + title.len() as u16;
    write(buffer, (x, area.y), area.right().saturating_sub(x), &told, Style::new());
    let below = Rect { y: area.y + 1, height: area.height - 1, ..area };
    plot(buffer, below, samples, most, look, look.plot());
}

/// The runs at work, with what each used.
fn draw_runs(buffer: &mut Buffer, area: Rect, seen: &Seen, look: &Look, now: Timestamp) {
    if area.height == 0 {
        return;
    }
    buffer.set_style(Rect { height: 1, ..area }, look.heading());
    // The whole id only where the command still has room.
    let id_width = if area.width >= 110 { 30 } else { 14 };
    let columns =
        [("RUN", id_width), ("FOR", 4), ("CPU%", 5), ("CPU s", 7), ("PEAK", 4), ("PROC", 4), ("READ", 4), ("WRIT", 4)];
    let mut line = |y: u16, cells: [&str; 8], last: &str, style: Style| {
        let mut x = area.x;
        for ((_, width), cell) in columns.iter().zip(cells) {
            match x {
                0 => write(buffer, (x, y), *width, cell, style),
                x => write_right(buffer, (x, y), *width, cell, style),
            }
            x += width + 1;
        }
        write(buffer, (x, y), area.right().saturating_sub(x), last, style);
    };
    line(area.y, columns.map(|(title, _)| title), "COMMAND", look.heading());
    for (run, y) in seen.runs.iter().flatten().zip(area.y + 1..area.bottom()) {
        let id = run.run.to_string();
        let since = report::coarse(now.duration_since(run.started_at).unsigned_abs());
        let known = seen.run_usage.get(&run.run);
        let cell = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let of_usage = |text: fn(&glovebox_core::Usage) -> String| cell(known.map(|known| text(&known.usage)));
        let cpu = cell(known.and_then(|known| known.cpu).map(percent));
        let cells = [
            id.as_str(),
            &since,
            &cpu,
            &of_usage(|usage| format!("{:.1}", usage.cpu_ms / 1000.0)),
            &of_usage(|usage| size(usage.memory_peak_bytes)),
            &of_usage(|usage| usage.processes_peak.to_string()),
            &of_usage(|usage| size(usage.read_bytes)),
            &of_usage(|usage| size(usage.written_bytes)),
        ];
        line(y, cells, &typed(&run.command.argv), Style::new());
    }
    let told = match &seen.runs {
        None => "its runs cannot be read; glovebox runs list says why",
        Some(runs) if runs.is_empty() => "no recorded run is at work",
        Some(_) => return,
    };
    write(buffer, (area.x, area.y + 1), area.width, told, Style::new());
}
