//! The guest of containers, as bytes: a static program, built by this crate's build script.

/// The program.
pub static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/glovebox-guest"));

/// The SHA-256 of the program, hexadecimal.
pub const HASH: &str = env!("GLOVEBOX_GUEST_SHA256");
