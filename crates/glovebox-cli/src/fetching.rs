//! How far the fetch of an image is: a line on a terminal that is drawn again and again, elsewhere one line at its beginning.

use std::{
    io::{IsTerminal, Write, stderr},
    time::{Duration, Instant},
};

use glovebox_core::{ImageReference, printable};
use glovebox_docker::{Listener, Progress};

use crate::report;

/// The line is drawn no more often.
const BETWEEN: Duration = Duration::from_millis(100);

/// How many characters the bar has.
const BAR: usize = 20;

/// Listens to the fetch of one image.
pub(crate) fn listen(image: &ImageReference) -> Listener {
    let image = image.to_string();
    if !stderr().is_terminal() {
        report::say(&format!("fetching {image}"));
        return Box::new(|_| ());
    }
    let mut line = Line { image, drawn: None };
    line.draw(&Progress::default());
    Box::new(move |progress| line.hear(progress))
}

/// A line of a terminal. It is gone when this is dropped.
struct Line {
    image: String,
    drawn: Option<Instant>,
}

impl Line {
    fn hear(&mut self, progress: &Progress) {
        if self.drawn.is_none_or(|at| at.elapsed() >= BETWEEN) {
            self.draw(progress);
        }
    }

    fn draw(&mut self, progress: &Progress) {
        self.drawn = Some(Instant::now());
        let columns = rustix::termios::tcgetwinsize(stderr()).ok().map_or(0, |size| usize::from(size.ws_col));
        let columns = if columns == 0 { 80 } else { columns };
        // The last column stays free: a terminal may begin a new line behind it.
        let text: String = text(&self.image, progress).chars().take(columns - 1).collect();
        let _ = write!(stderr().lock(), "\r\x1b[K{text}");
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let _ = write!(stderr().lock(), "\r\x1b[K");
    }
}

/// The words of the line. The status is Docker's own.
fn text(image: &str, progress: &Progress) -> String {
    let Progress { bytes, total, status } = progress;
    if *total == 0 {
        return printable(format!("glovebox: fetching {image}  {status}").trim_end());
    }
    let full = (u128::from(*bytes) * BAR as u128 / u128::from(*total)).min(BAR as u128) as usize;
    let bar = "#".repeat(full) + &"-".repeat(BAR - full);
    let (bytes, total) = (report::size(*bytes), report::size(*total));
    // All has come, and Docker takes its time with it.
    let rest = if status == "Extracting" && bytes == total { ", unpacking" } else { "" };
    printable(&format!("glovebox: fetching {image}  [{bar}] {bytes} of {total}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_a_bar_once_the_size_is_known_and_cannot_move_the_cursor() {
        let progress = |bytes, total| Progress { bytes, total, status: "Waiting\u{1b}[2J".to_owned() };
        assert_eq!(text("a:1", &progress(0, 0)), "glovebox: fetching a:1  Waiting\\u{1b}[2J");
        let half = text("a:1", &progress(1 << 20, 2 << 20));
        assert_eq!(half, "glovebox: fetching a:1  [##########----------] 1 MiB of 2 MiB");
        assert!(text("a:1", &progress(9, 2)).contains("[####################]"));
        let unpacking = Progress { bytes: 1 << 20, total: 1 << 20, status: "Extracting".to_owned() };
        assert!(text("a:1", &unpacking).ends_with("1 MiB of 1 MiB, unpacking"));
    }
}
