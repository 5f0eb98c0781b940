//! The `tenure` command.

use std::process::ExitCode;

// The system's allocator keeps most of the memory that a burst of large messages used once. This one gives it back
// within seconds, by threads of its own (`docs/design/0016-the-allocator.md` has the figures).
#[cfg(not(target_env = "msvc"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    tenure::cli::main()
}
