//! Long tests: many runs, many at a time, and sudden deaths. Each prints a one-line JSON summary.

mod kill;
mod record;
mod runs;
mod sample;

pub use kill::kill;
pub use record::record;
pub use runs::{concurrent, living, runs};
