//! The ledger: the durable record of runs.
//!
//! Where to read first: `blobs` stores bytes by their hash.

mod blobs;
mod hash;

pub use blobs::{Blob, BlobReader, Blobs};
pub use hash::{ParseHashError, Sha256Hash};
