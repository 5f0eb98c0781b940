//! Each node records what happens at it, also that a session comes to it.

use serde_json::json;

use super::world::{Lone, Shared};
use crate::audit::log::Log;
use crate::support::wait::until;

/// A node that keeps an audit log.
async fn recorded(shared: &Shared) -> (Lone, Log) {
    let log = Log::new();
    let file = log.path().display().to_string();
    (shared.with(&[("audit.file", &file)]).node().await, log)
}

#[tokio::test]
async fn a_session_that_comes_to_another_node_is_recorded_there_with_the_reason() {
    for (is_lost, outcome) in [(true, "taken_over"), (false, "given_back")] {
        let shared = Shared::new(&[]);
        let ((mut one, first), (mut other, second)) = (recorded(&shared).await, recorded(&shared).await);
        let session = one.session().await;
        let owner = shared.owner(&session).await.expect("an owner");
        // A request that is passed on moves nothing.
        assert_eq!(session.request(1, "ping", &json!({})).send(other.address).await.status(), 200);
        if is_lost {
            one.lose().await;
            shared.remove(owner).await;
        } else {
            one.stop().await.expect("no panic");
        }
        assert_eq!(session.request(2, "ping", &json!({})).send(other.address).await.status(), 200);
        until("a record", || !second.records(&["session_moved"]).is_empty()).await;
        other.stop().await.expect("no panic");
        assert_eq!(
            second.shown(&["session_created", "session_moved"], &["event", "outcome"]),
            [format!("session_moved {outcome}")]
        );
        let label = &second.records(&["session_moved"])[0]["session"];
        assert_eq!(first.records(&["session_created"])[0]["session"], *label, "by its name in logs");
        assert!(first.records(&["session_moved"]).is_empty());
    }
}
