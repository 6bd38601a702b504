//! Strokes that all pictures are made of.

use glovebox_core::{SandboxState, printable};
use ratatui::{
    buffer::Buffer,
    layout::{Position, Rect},
    style::{Color, Modifier, Style},
    symbols::bar,
    text::Span,
    widgets::{Clear, RenderDirection, Sparkline, Widget},
};

use super::{
    keys::HELP,
    state::{Focus, Seen, Top},
};

/// Below this there is no room for a row.
const SMALLEST: (u16, u16) = (30, 6);

/// Heights for terminals that can write nothing but ASCII.
const ASCII: bar::Set<'static> = bar::Set {
    full: "#",
    seven_eighths: "#",
    three_quarters: "*",
    five_eighths: "+",
    half: "=",
    three_eighths: "-",
    one_quarter: ":",
    one_eighth: ".",
    empty: " ",
};

/// What this terminal can show and its user wants to see.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub(crate) colours: bool,
    pub(crate) blocks: bool,
    /// This machine: its name, its CPUs and its memory in bytes.
    pub(crate) host: (String, usize, u64),
}

impl Look {
    /// That of this terminal on this machine.
    pub(crate) fn of_here() -> Look {
        let set = |name: &&str| std::env::var(name).is_ok_and(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find(|name| set(name));
        let locale = locale.and_then(|name| std::env::var(name).ok()).unwrap_or_default().to_lowercase();
        let memory = rustix::system::sysinfo();
        Look {
            colours: anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never,
            blocks: locale.contains("utf-8") || locale.contains("utf8"),
            host: (
                rustix::system::uname().nodename().to_string_lossy().into_owned(),
                std::thread::available_parallelism().map_or(1, usize::from),
                (memory.totalram as u64).saturating_mul(memory.mem_unit.into()),
            ),
        }
    }

    fn colour(&self, colour: Color) -> Style {
        if self.colours { Style::new().fg(colour) } else { Style::new() }
    }

    pub(crate) fn good(&self) -> Style {
        self.colour(Color::Green)
    }

    pub(crate) fn warning(&self) -> Style {
        self.colour(Color::Yellow)
    }

    pub(crate) fn bad(&self) -> Style {
        self.colour(Color::Red).add_modifier(Modifier::BOLD)
    }

    pub(crate) fn plot(&self) -> Style {
        self.colour(Color::Cyan)
    }

    pub(crate) fn heading(&self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(crate) fn strong(&self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(crate) fn selected(&self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD)
    }

    /// How good it is to use so much of something.
    pub(crate) fn share(&self, share: f64) -> Style {
        match share {
            share if share >= 0.9 => self.bad(),
            share if share >= 0.7 => self.warning(),
            _ => self.good(),
        }
    }
}

/// Writes a text into so many columns of a line; one that is longer ends with a mark. Whatever the text is, it cannot steer the
/// terminal.
pub(crate) fn write(buffer: &mut Buffer, at: (u16, u16), width: u16, text: &str, style: Style) {
    let area = *buffer.area();
    if width == 0 || !area.contains(Position::new(at.0, at.1)) {
        return;
    }
    let width = width.min(area.right() - at.0);
    let text = printable(text).replace('\t', " ");
    if Span::raw(&text).width() <= usize::from(width) {
        buffer.set_stringn(at.0, at.1, text, width.into(), style);
        return;
    }
    let (end, _) = buffer.set_stringn(at.0, at.1, text, usize::from(width - 1), style);
    buffer.set_stringn(end, at.1, "…", 1, style);
}

/// The same, at the right end of the columns.
pub(crate) fn write_right(buffer: &mut Buffer, at: (u16, u16), width: u16, text: &str, style: Style) {
    let free = width.saturating_sub(Span::raw(text).width() as u16);
    write(buffer, (at.0 + free, at.1), width - free, text, style);
}

/// Draws samples, the newest at the right end. `most` is the height of the whole area.
pub(crate) fn plot(buffer: &mut Buffer, area: Rect, samples: Vec<Option<u64>>, most: u64, look: &Look, style: Style) {
    let set = if look.blocks { bar::NINE_LEVELS } else { ASCII };
    let shown: Vec<Option<u64>> = samples.into_iter().take(area.width.into()).collect();
    let area = area.intersection(*buffer.area());
    Sparkline::default()
        .data(shown)
        .max(most.max(1))
        .bar_set(set)
        .direction(RenderDirection::RightToLeft)
        .absent_value_symbol(if look.blocks { "·" } else { " " })
        .style(style)
        .render(area, buffer);
}

/// Draws how much of something is used, as a bar in so many columns.
pub(crate) fn gauge(buffer: &mut Buffer, at: (u16, u16), width: u16, share: f64, look: &Look) {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let parts = (share.clamp(0.0, 1.0) * f64::from(width) * 8.0).round() as usize;
    let bar: String = if look.blocks {
        let end = if parts.is_multiple_of(8) { None } else { Some(EIGHTHS[parts % 8]) };
        std::iter::repeat_n('█', parts / 8).chain(end).collect()
    } else {
        std::iter::repeat_n('|', parts.div_ceil(8)).collect()
    };
    write(buffer, at, width, &bar, look.share(share));
}

/// The word for the state of a sandbox, and how to write it.
pub(crate) fn state(seen: &Seen, look: &Look) -> (&'static str, Style) {
    match seen.status.state {
        _ if seen.silent => ("silent", look.bad()),
        _ if seen.fault.is_some() => ("fault", look.bad()),
        SandboxState::Ready => ("ready", look.good()),
        SandboxState::Paused => ("paused", look.warning()),
        SandboxState::Failed => ("failed", look.bad()),
        state => (state.as_str(), Style::new()),
    }
}

/// What the last line says: a question, the filter, news, or which keys there are.
pub(crate) fn last_line(buffer: &mut Buffer, top: &Top, keys: &str, look: &Look) {
    let area = *buffer.area();
    let at = (0, area.bottom() - 1);
    let name = |id| top.get(id).map_or_else(|| "it".to_owned(), Seen::name);
    let (text, style) = match (&top.focus, &top.message, &top.fault) {
        (Focus::Confirm(id), ..) => (format!("Destroy {} with all its files? y/n", name(*id)), look.bad()),
        (Focus::Filter, ..) => (format!("/{}_   Enter keeps it, Esc clears it", top.filter), look.strong()),
        (_, Some(message), _) => (message.clone(), look.strong()),
        (_, None, Some(fault)) => (format!("cannot list the sandboxes: {fault}"), look.bad()),
        _ if top.filter.is_empty() => (keys.to_owned(), Style::new()),
        _ => (format!("only those with \"{}\"   Esc shows all", top.filter), Style::new()),
    };
    write(buffer, at, area.width, &text, style);
}

/// The help, over everything else.
pub(crate) fn help(buffer: &mut Buffer, look: &Look) {
    let all = *buffer.area();
    let (width, height) = (all.width.min(78), all.height.min(HELP.len() as u16 + 2));
    let area = Rect::new((all.width - width) / 2, (all.height - height) / 2, width, height);
    Clear.render(area, buffer);
    write(buffer, (area.x, area.y), width, &format!("{:width$}", " Keys", width = width.into()), look.heading());
    for (row, (keys, what)) in (area.y + 1..area.bottom()).zip(HELP) {
        write(buffer, (area.x + 1, row), 14, keys, look.strong());
        write(buffer, (area.x + 16, row), width.saturating_sub(17), what, Style::new());
    }
}

/// For a terminal that can write nothing but ASCII: other characters become marks of one column each.
pub(crate) fn to_ascii(buffer: &mut Buffer) {
    for cell in buffer.content.iter_mut().filter(|cell| !cell.symbol().is_ascii()) {
        let mark = if cell.symbol() == "…" { "~" } else { "?" };
        cell.set_symbol(mark);
    }
}

pub(crate) fn is_large_enough(area: Rect) -> bool {
    area.width >= SMALLEST.0 && area.height >= SMALLEST.1
}

pub(crate) fn too_small(buffer: &mut Buffer) {
    let width = buffer.area().width;
    write(buffer, (0, 0), width, "too small", Style::new().add_modifier(Modifier::BOLD));
    write(buffer, (0, 1), width, &format!("{}x{} needed", SMALLEST.0, SMALLEST.1), Style::new());
}

/// A size in four columns: `1.5G`.
pub(crate) fn size(bytes: u64) -> String {
    let mut number = bytes as f64;
    if bytes == 0 {
        return "0".to_owned();
    }
    for unit in ["B", "K", "M", "G", "T"] {
        // The next unit begins where this one would need a fourth digit.
        if number < 999.5 || unit == "T" {
            let short = unit != "B" && number < 9.95;
            return if short { format!("{number:.1}{unit}") } else { format!("{number:.0}{unit}") };
        }
        number /= 1024.0;
    }
    unreachable!("the last unit takes all")
}

/// A share of one CPU in five columns: `12.5`, `100.0`, `1600`.
pub(crate) fn percent(percent: f64) -> String {
    if percent < 999.95 { format!("{percent:.1}") } else { format!("{percent:.0}") }
}
