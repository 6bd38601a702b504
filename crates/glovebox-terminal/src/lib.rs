//! Between a program inside and a terminal of the caller.
//!
//! What a program prints is hostile: a terminal obeys it, and answers questions in it as if somebody had typed. [`Filter`] lets
//! through only what is known to be harmless, and knows what to put back at the end. [`Screen`] makes a picture of what a program
//! has printed, for somebody who attaches later. [`Keys`] finds the keys that detach among those that are typed.
//!
//! Nothing here does I/O, and nothing grows with what a program prints.

mod filter;
mod keys;
mod modes;
mod screen;
mod strings;

pub use filter::Filter;
pub use keys::{Keys, WrongKeys};
pub use screen::Screen;
