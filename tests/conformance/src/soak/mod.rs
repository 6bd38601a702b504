//! Long tests: many runs, many at a time, and sudden deaths. Each prints a one-line JSON summary.

mod folder;
mod kill;
mod record;
mod runs;
mod sample;
mod states;

pub use folder::folder;
pub(crate) use folder::list_many;
pub use kill::kill;
pub(crate) use kill::random_below;
pub use record::record;
pub use runs::{concurrent, living, runs};
pub use states::states;
