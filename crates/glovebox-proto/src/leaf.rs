//! What guest and keeper of a living sandbox say to each other of the groups of its runs.
//!
//! The keeper connects to a socket of the guest's and hands it leaves: messages that hold the name of a group, with the
//! descriptors by which a process enters it. The guest says which run took which leaf, and when it wants another.

use prost::Message;

/// What a guest says to its keeper.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LeafWord {
    /// The leaf that this is about; none is 0.
    #[prost(uint64, tag = "1")]
    pub leaf: u64,
    /// The run that took it; empty when no run has taken it yet.
    #[prost(string, tag = "2")]
    pub run: String,
    /// Whether the guest wants another leaf.
    #[prost(bool, tag = "3")]
    pub wants: bool,
    /// Whether nobody may fork in the leaf any more, because the run in it was ended.
    #[prost(bool, tag = "4")]
    pub shut: bool,
    /// Whether what is in the leaf only waits: the interpreter of a session without a run.
    #[prost(bool, tag = "5")]
    pub at_rest: bool,
}

impl LeafWord {
    /// No word is longer.
    pub const LONGEST: usize = 128;

    /// The word as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.encode_to_vec()
    }

    /// Reads a word.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        LeafWord::decode(bytes).ok()
    }
}
