//! The picture of all sandboxes: a row for each.

use std::{cmp::Reverse, collections::BTreeMap};

use jiff::Timestamp;
use ratatui::{buffer::Buffer, layout::Rect, style::Style};

use super::{
    paint::{self, Look, gauge, percent, plot, size, write, write_right},
    state::{Focus, Order, Seen, Top},
};
use crate::report;

/// The keys in the last line.
const KEYS: &str = "Enter details  p pause  x destroy  s sort  / filter  ? help  q quit";

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Name,
    State,
    Age,
    Left,
    Cpu,
    CpuPlot,
    Memory,
    MemoryBar,
    Processes,
    Disk,
    Read,
    Written,
    Runs,
}

/// How a column is set.
struct Setting {
    column: Column,
    title: &'static str,
    /// Its width at least, and at most where there is room.
    width: (u16, u16),
    /// Where there is too little room, the columns go in the order of this number; those with 0 stay.
    goes: u8,
}

/// All columns, from left to right. Without `LEFT` they fill 80 columns.
const COLUMNS: [Setting; 13] = [
    Setting { column: Column::Name, title: "SANDBOX", width: (11, 29), goes: 0 },
    Setting { column: Column::State, title: "STATE", width: (8, 10), goes: 0 },
    Setting { column: Column::Age, title: "AGE", width: (4, 4), goes: 6 },
    Setting { column: Column::Left, title: "LEFT", width: (4, 4), goes: 1 },
    Setting { column: Column::Cpu, title: "CPU%", width: (5, 5), goes: 0 },
    Setting { column: Column::CpuPlot, title: "", width: (7, 40), goes: 8 },
    Setting { column: Column::Memory, title: "MEMORY", width: (9, 9), goes: 10 },
    Setting { column: Column::MemoryBar, title: "", width: (5, 16), goes: 2 },
    Setting { column: Column::Processes, title: "PROC", width: (4, 4), goes: 9 },
    Setting { column: Column::Disk, title: "DISK", width: (4, 4), goes: 5 },
    Setting { column: Column::Read, title: "R/s", width: (4, 4), goes: 3 },
    Setting { column: Column::Written, title: "W/s", width: (4, 4), goes: 4 },
    Setting { column: Column::Runs, title: "RUNS", width: (4, 4), goes: 7 },
];

/// Draws it.
pub(crate) fn draw(buffer: &mut Buffer, top: &Top, look: &Look, now: Timestamp) {
    let area = *buffer.area();
    draw_header(buffer, top, look);
    let longest = top.rows().map(|seen| seen.name().len() as u16).max().unwrap_or(0);
    let columns = fit(area.width, longest);
    draw_heading(buffer, top, &columns, look);
    let rows = usize::from(area.height.saturating_sub(4));
    if top.rows().next().is_none() {
        let text = match (top.looked, top.filter.is_empty()) {
            (false, _) => "looking …",
            (true, true) => "there is no sandbox; glovebox create makes one",
            (true, false) => "no sandbox fits the filter",
        };
        write(buffer, (0, 3), area.width, text, Style::new());
    }
    // The selected row is always in sight.
    let skipped = (top.selected_at() + 1).saturating_sub(rows);
    for (index, (seen, line)) in top.rows().skip(skipped).zip(3..area.height - 1).enumerate() {
        let selected = index + skipped == top.selected_at();
        draw_row(buffer, seen, line, &columns, look, now);
        if selected {
            buffer.set_style(Rect::new(0, line, area.width, 1), look.selected());
        }
    }
    paint::last_line(buffer, top, KEYS, look);
    if top.focus == Focus::Help {
        paint::help(buffer, look);
    }
}

/// Two lines: which machine and how many sandboxes in which state; what all of them use together.
fn draw_header(buffer: &mut Buffer, top: &Top, look: &Look) {
    let width = buffer.area().width;
    let (host, cpus, memory) = &look.host;
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for seen in top.all() {
        *counts.entry(seen.status.state.as_str()).or_default() += 1;
    }
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    // The largest number first; of equal ones, by the word.
    counts.sort_by_key(|(_, count)| Reverse(*count));
    let counted: Vec<String> = counts.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let silent = top.all().filter(|seen| seen.silent).count();
    let mut text = format!("{host}  {}", report::counted(top.all().count(), "sandbox"));
    if !counted.is_empty() {
        text.push_str(&format!(": {}", counted.join(", ")));
    }
    if silent > 0 {
        text.push_str(&format!(" ({silent} silent)"));
    }
    write(buffer, (0, 0), width, &text, look.strong());
    let cpu: f64 = top.all().filter_map(|seen| seen.history.latest()).fold(0.0, |sum, sample| sum + sample.cpu);
    let used: u64 = top.all().filter_map(|seen| seen.history.usage()).map(|usage| usage.memory_bytes).sum();
    let text = format!(
        "CPU {}% of {}%   memory {} of {}   every {}   by {}",
        percent(cpu),
        cpus * 100,
        size(used),
        size(*memory),
        report::duration(top.interval),
        top.order.name(),
    );
    write(buffer, (0, 1), width, &text, Style::new());
}

fn draw_heading(buffer: &mut Buffer, top: &Top, columns: &[(usize, Rect)], look: &Look) {
    let line = Rect::new(0, 2, buffer.area().width, 1);
    buffer.set_style(line, look.heading());
    let sorted = match top.order {
        Order::Cpu => Column::Cpu,
        Order::Memory => Column::Memory,
        Order::Io => Column::Written,
        Order::Name => Column::Name,
        Order::Age => Column::Age,
    };
    for (setting, place) in columns.iter().map(|(index, place)| (&COLUMNS[*index], place)) {
        let style = if setting.column == sorted { look.selected() } else { look.heading() };
        match setting.column {
            Column::Name | Column::State => write(buffer, (place.x, 2), place.width, setting.title, style),
            _ => write_right(buffer, (place.x, 2), place.width, setting.title, style),
        }
    }
}

fn draw_row(buffer: &mut Buffer, seen: &Seen, line: u16, columns: &[(usize, Rect)], look: &Look, now: Timestamp) {
    let (status, usage, sample) = (&seen.status, seen.history.usage(), seen.history.latest());
    let limits = &status.record.spec.limits;
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let age = |from: Timestamp, to: Timestamp| report::coarse(to.duration_since(from).unsigned_abs());
    let memory_share = usage.map(|usage| usage.memory_bytes as f64 / limits.memory.max(1) as f64);
    for (setting, place) in columns.iter().map(|(index, place)| (&COLUMNS[*index], place)) {
        let at = (place.x, line);
        let text = match setting.column {
            Column::Name => {
                write(buffer, at, place.width, &seen.name(), Style::new());
                continue;
            }
            Column::State => {
                let (word, style) = paint::state(seen, look);
                write(buffer, at, place.width, word, style);
                continue;
            }
            Column::CpuPlot => {
                let samples = seen.history.newest_first(|sample| (sample.cpu * 10.0) as u64);
                let most = (limits.cpus * 1000.0) as u64;
                plot(buffer, Rect::new(place.x, line, place.width, 1), samples, most, look, look.plot());
                continue;
            }
            Column::MemoryBar => {
                if let Some(share) = memory_share {
                    gauge(buffer, at, place.width, share, look);
                }
                continue;
            }
            Column::Age => age(status.created_at, now),
            Column::Left => or_none(status.ends_at.map(|end| age(now, end.max(now)))),
            Column::Cpu => or_none(sample.map(|sample| percent(sample.cpu))),
            Column::Memory => {
                or_none(usage.map(|usage| format!("{}/{}", size(usage.memory_bytes), size(limits.memory))))
            }
            Column::Processes => or_none(usage.map(|usage| usage.processes.to_string())),
            Column::Disk => or_none(usage.and_then(|usage| usage.disk_bytes).map(size)),
            Column::Read => or_none(sample.map(|sample| size(sample.read))),
            Column::Written => or_none(sample.map(|sample| size(sample.written))),
            Column::Runs => or_none(seen.runs.as_ref().map(|runs| runs.len().to_string())),
        };
        write_right(buffer, at, place.width, &text, Style::new());
    }
}

/// The columns that have room, and where. What is left is given to those that can use it.
fn fit(width: u16, longest_name: u16) -> Vec<(usize, Rect)> {
    let mut kept: Vec<usize> = (0..COLUMNS.len()).collect();
    let taken = |kept: &[usize]| kept.iter().map(|index| COLUMNS[*index].width.0 + 1).sum::<u16>() - 1;
    while taken(&kept) > width {
        let next =
            kept.iter().copied().filter(|index| COLUMNS[*index].goes > 0).min_by_key(|index| COLUMNS[*index].goes);
        let Some(next) = next else { break };
        kept.retain(|index| *index != next);
    }
    let mut free = width.saturating_sub(taken(&kept));
    let mut x = 0;
    let mut places = Vec::new();
    for index in kept {
        let Setting { column, width: (least, most), .. } = COLUMNS[index];
        let most = if column == Column::Name { most.min(longest_name.max(least)) } else { most };
        let more = free.min(most - least);
        free -= more;
        places.push((index, Rect::new(x, 0, least + more, 1)));
        x += least + more + 1;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(width: u16) -> Vec<Column> {
        fit(width, 5).into_iter().map(|(index, _)| COLUMNS[index].column).collect()
    }

    #[test]
    fn eighty_columns_hold_all_but_the_time_that_is_left() {
        let columns = kept(80);
        assert_eq!(columns.len(), COLUMNS.len() - 1);
        assert!(!columns.contains(&Column::Left));
        assert_eq!(kept(85).len(), COLUMNS.len());
    }

    #[test]
    fn columns_never_reach_over_the_edge_and_the_name_the_state_and_the_cpu_stay() {
        for width in 30..400 {
            let last = fit(width, 29).pop().unwrap().1;
            assert!(last.right() <= width, "{width}");
            let columns = kept(width);
            assert!(
                [Column::Name, Column::State, Column::Cpu].iter().all(|column| columns.contains(column)),
                "{width}"
            );
        }
    }

    #[test]
    fn a_wide_terminal_shows_whole_ids() {
        let name = fit(120, 29)[0].1;
        assert_eq!(name.width, 29);
    }
}
