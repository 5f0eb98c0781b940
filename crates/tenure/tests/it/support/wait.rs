//! Waiting with a deadline; nothing here waits longer.

use std::time::Duration;

pub(crate) use tenure_testkit::wire::{DEADLINE, within};

/// Waits until a condition holds that is not announced.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let look = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    within(what, look).await;
}
