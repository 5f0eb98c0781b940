//! The `tenure` command.

use std::process::ExitCode;

// The system's allocator keeps most of the memory that a burst of large messages has used. jemalloc returns it within
// seconds, in its own background threads (`docs/design/0016-the-allocator.md` has the figures).
#[cfg(not(target_env = "msvc"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    tenure::cli::main()
}
