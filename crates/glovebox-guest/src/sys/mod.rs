//! The one place of the guest that needs `unsafe`: starting a command as fast as the kernel allows, and system calls that no
//! crate of the field wraps.
//!
//! What is public here is for those who make guests: it changes the calling process, and asks of it to have but one thread.
#![allow(unsafe_code)]

mod memory;
mod mounts;
mod process;
mod spawn;

pub use memory::{clean_slate, set_name};
pub use mounts::{Sealed, allow_devices, seal_tree, shift_owners};
pub(crate) use process::fork;
pub use process::{
    Forked, close_all_but, drop_from_bounding_set, exit_now, fork_with, give_up_groups, install_filter,
    new_session_keyring, read_small, set_dumpable, set_file_ids, status_field,
};
pub(crate) use spawn::{
    CONTROL, Descent, Notice, Prepared, Signals, answer_notice, descent, fork_beside, kill_all_of, leave, next_notice,
    notice_waits, register, release_text, replace, spawn, stack,
};
