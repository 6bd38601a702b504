//! The ledger: the durable record of runs.
//!
//! ```no_run
//! # async fn example(if_lost: glovebox_core::RunResult, mut result: glovebox_core::RunResult) -> glovebox_core::Result<()> {
//! use glovebox_ledger::{Filter, Ledger};
//! let ledger = Ledger::below("/var/lib/glovebox");
//! let recording = ledger.begin(if_lost);
//! // The command runs.
//! recording.finish(&mut result, Vec::new()).await?;
//! let newest = ledger.list(&Filter::default()).await?;
//! # Ok(()) }
//! ```
//!
//! On disk, below the data folder: `ledger.db` with a row for each run, `finished/` with those that are on their way into it,
//! `blobs/` with what is large, and `running/` with a
//! locked file for each run under way. Where to read first: `ledger` writes runs, `inbox` spares short processes the database,
//! `read` finds runs again, `blobs` stores
//! bytes by their hash, `under_way` tells the living from the lost, `unfollowed` finds those that live on without a process.

mod blobs;
mod document;
mod hash;
mod inbox;
mod ledger;
mod lock_file;
mod read;
mod store;
mod under_way;
mod unfollowed;

pub use blobs::{Blob, BlobReader, Blobs};
pub use hash::{ParseHashError, Sha256Hash};
pub use ledger::{KeptContent, KeptFile, Ledger, Recording};
pub use read::{Filter, Listed, ListedCommand, Stream, Summary};
pub use unfollowed::{UnderWay, Unfollowed};
