//! Waiting with a deadline; nothing here waits longer.

use std::time::Duration;

/// How long anything may take that a test waits for.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// Waits for a future.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(done) => done,
        Err(_) => panic!("{what}: nothing within {DEADLINE:?}"),
    }
}

/// Waits until something holds that nobody announces.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let look = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    within(what, look).await;
}
