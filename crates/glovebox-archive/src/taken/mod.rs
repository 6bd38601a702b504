//! What folders take on a disk: what is in them, and what was deleted in them and is still open.
//!
//! Programs inside decide how deep a tree is and how wide, and move it about while it is looked at. No link is followed, and there
//! is an end to every look.

mod deleted;
mod sizes;

pub use deleted::{Place, find};
pub use sizes::{MOST_ENTRIES, Size, total};
