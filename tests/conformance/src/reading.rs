//! Reading the output of a run while it goes on.

use std::time::Duration;

use glovebox_engine::{Event, Run};

/// No program of a case is silent for so long.
const LONGEST_SILENCE: Duration = Duration::from_secs(10);

/// Reads events until standard output has a text, and returns all that came.
pub(crate) async fn read_until(run: &mut Run, text: &str) -> String {
    let mut seen = String::new();
    while !seen.contains(text) {
        match tokio::time::timeout(LONGEST_SILENCE, run.next_event()).await {
            Ok(Some(Event::Stdout(bytes))) => seen.push_str(&String::from_utf8_lossy(&bytes)),
            Ok(Some(_)) => {}
            Ok(None) => panic!("the output ended after {seen:?}, without {text:?}"),
            Err(_) => panic!("nothing more came after {seen:?}, without {text:?}"),
        }
    }
    seen
}
