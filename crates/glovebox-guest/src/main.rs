//! The program `glovebox-guest`: the first process of a container.

use std::process::ExitCode;

/// musl's allocator asks the kernel for nearly every page on its own.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    glovebox_guest::container::main()
}
