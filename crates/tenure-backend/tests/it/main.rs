//! Servers behind us: in our process, as children, and elsewhere, at real pipes and sockets.

mod bridged_child;
mod child_bad_moments;
mod child_last_words;
mod child_modern;
mod child_shared;
mod contract;
mod eras;
mod raw;
mod remote_modern;
mod remote_sessions;
mod rmcp_bad_moments;
mod rmcp_eras;
mod rmcp_own_tasks;
mod rmcp_session;
mod rmcp_state;
mod rmcp_tasks;

use std::time::Duration;

/// Waits for something that takes no time on a machine that is not overloaded.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), what).await.expect("in time")
}
