//! The probe as a program of its own, for the conformance suite.

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    ExitCode::from(glovebox_probe::run(&words))
}
