//! The full-screen view of all living sandboxes.
//!
//! Theory of operation. Three threads: the [`looker`] asks every sandbox what it uses and does what is asked for; one waits for
//! keys; this one hears both and draws. So the picture moves whatever a sandbox does, and a key is taken at once. [`state`] is
//! what is known, [`keys`] what keys do with it, [`list`] and [`details`] are pictures of it, and nothing else writes to the
//! terminal. All text goes through [`paint`], which lets nothing through that steers a terminal.

mod details;
mod history;
mod keys;
mod list;
mod looker;
mod paint;
mod screen;
mod state;
#[cfg(test)]
mod tests;

use std::{
    thread,
    time::{Duration, Instant},
};

use glovebox_core::{Error, ErrorCode, Result};
use glovebox_engine::Engine;
use glovebox_ledger::Ledger;
use jiff::Timestamp;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use tokio::sync::{mpsc, watch};

use crate::{signals::EndSignals, verbs::runtime};
use keys::Wish;
use looker::Looker;
use paint::Look;
use screen::Screen;
use state::{Page, Top};

/// Exit code of a view that a signal ended.
const INTERRUPTED: u8 = 130;

/// Shows the view until somebody has seen enough, and gives the exit code.
pub(crate) fn show(engine: Engine, ledger: Ledger, interval: Duration) -> Result<u8> {
    runtime()?.block_on(async {
        // Before the terminal is taken, so that no signal ends us without giving it back.
        let mut signals = EndSignals::listen()?;
        let (news_sender, mut news) = mpsc::channel(256);
        let (orders, orders_receiver) = mpsc::channel(16);
        let (subject, subject_receiver) = watch::channel(None);
        let mut screen = Screen::open()?;
        let mut keys = wait_for_keys()?;
        let looker =
            Looker { engine, ledger, interval, news: news_sender, orders: orders_receiver, subject: subject_receiver };
        looker.start()?;
        let (mut top, look) = (Top::new(interval), Look::of_here());
        loop {
            screen.draw(|frame| draw(frame, &top, &look))?;
            tokio::select! {
                _ = signals.next() => return Ok(INTERRUPTED),
                told = news.recv() => {
                    let mut next = Some(told.ok_or_else(ended)?);
                    while let Some(told) = next {
                        top.hear(told, Instant::now());
                        next = news.try_recv().ok();
                    }
                    top.arrange();
                }
                key = keys.recv() => match key.ok_or_else(no_keys)? {
                    Event::Key(key) if key.kind != KeyEventKind::Release => match top.press(key) {
                        Some(Wish::Quit) => return Ok(0),
                        Some(Wish::Stop) => screen.stop()?,
                        Some(Wish::Do(act, id)) => orders.send((act, id)).await.map_err(|_| ended())?,
                        None => {}
                    },
                    // A new size is looked at when the next picture is drawn.
                    _ => {}
                }
            }
            subject.send_replace(match top.page {
                Page::Details(id) => Some(id),
                Page::List => None,
            });
        }
    })
}

fn draw(frame: &mut ratatui::Frame<'_>, top: &Top, look: &Look) {
    let now = Timestamp::now();
    match top.page {
        _ if !paint::is_large_enough(frame.area()) => paint::too_small(frame.buffer_mut()),
        Page::List => list::draw(frame.buffer_mut(), top, look, now),
        Page::Details(id) => details::draw(frame.buffer_mut(), top, id, look, now),
    }
    if !look.blocks {
        paint::to_ascii(frame.buffer_mut());
    }
}

/// Waits for keys on a thread of its own, which ends with the process.
fn wait_for_keys() -> Result<mpsc::Receiver<Event>> {
    let (sender, keys) = mpsc::channel(16);
    let wait = move || {
        while let Ok(event) = event::read() {
            if sender.blocking_send(event).is_err() {
                return;
            }
        }
    };
    let cannot = |error| Error::new(ErrorCode::Internal, "cannot start a thread").because(error);
    thread::Builder::new().name("glovebox-keys".to_owned()).spawn(wait).map_err(cannot)?;
    Ok(keys)
}

fn ended() -> Error {
    Error::new(ErrorCode::Internal, "glovebox met a fault of its own; please report what is above")
}

fn no_keys() -> Error {
    Error::new(ErrorCode::HostIo, "the keys of the terminal cannot be read")
}
