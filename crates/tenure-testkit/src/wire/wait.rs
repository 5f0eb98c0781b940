//! Waits with a deadline.

use std::time::Duration;

/// How long anything may take that a test waits for.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// Waits for a future.
///
/// # Panics
/// When it takes longer than [`DEADLINE`].
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(done) => done,
        Err(_) => panic!("{what}: nothing within {DEADLINE:?}"),
    }
}
