//! Change sets of runs: which changes count, how they read, and how they reach a folder of the host.
//!
//! Where to read first: `selection` takes from a record what is to be shown or applied; `diff` and `renames` make it
//! readable; `apply` brings it to a folder, all or nothing, and `apply::journal` is how a folder gets whole again
//! after a crash.
//!
//! Invariant: paths and contents come from inside a sandbox. A path is only ever opened below a folder, by a call that
//! follows no link, and a text is only ever shown through [`glovebox_core::printable`].

mod apply;
mod diff;
mod folder;
mod ignored;
mod renames;
mod selection;

pub use apply::{Applied, Applies, Conflict, Ended, JOURNAL_FOLDER, Mended, Plan, Target, mend_all};
pub use diff::{Diff, DiffLine, diff};
pub use renames::{Rename, find_renames};
pub use selection::{
    ForHost, LeftOut, OutwardLinks, Selection, WORKING, Wish, for_host, narrow, reversed, select, stays_folder,
};
