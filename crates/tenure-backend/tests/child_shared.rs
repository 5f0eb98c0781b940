//! One child for the sessions of two runtimes: one whose store takes nothing just now, and one that must not notice.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_backend::child::{ChildBackend, ChildCommand, ChildLimits};
use tenure_session::runtime::Caller;
use tenure_session::{Limits, Session};
use tenure_store::memory::Memory;
use tenure_testkit::faulty::Faulty;
use tenure_testkit::runtime::{self, event, json_of, reader_of, send};

/// Answers everything; `flood` with much progress before, whose token is our id for the request.
const SERVER: &str = r#"
read -r initialize
echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"sh","version":"1"}}}'
read -r initialized
while read -r call; do
    id=${call#*\"id\":}; id=${id%%,*}
    case "$call" in *flood*)
        i=0
        while [ $i -lt 3000 ]; do
            i=$((i+1))
            echo "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":$id,\"progress\":$i}}"
        done
    esac
    echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"of\":$id}}"
done
"#;

fn backend() -> Arc<ChildBackend> {
    let mut command = ChildCommand::new("sh", ["-c", SERVER]);
    command.is_shared = true;
    command.limits = ChildLimits { warm: 0, grace: Duration::from_millis(100), ..ChildLimits::default() };
    Arc::new(ChildBackend::new(command, None))
}

async fn ask(session: &Arc<Session>, id: u64, method: &str) -> Value {
    let request = runtime::request(id, method, &json!({}));
    let asked = session.request(request, Caller::anonymous("test"));
    json_of(tokio::time::timeout(Duration::from_secs(20), asked).await.expect("an answer").unwrap())
}

#[tokio::test]
async fn a_session_that_is_behind_holds_up_no_other() {
    let backend = backend();
    let store = Arc::new(Faulty::new(Arc::new(Memory::new())));
    let little = Limits { max_unstored_bytes: 4 << 10, json_wait: Duration::ZERO, ..Limits::default() };
    let behind = runtime::start(Arc::clone(&store) as _, Arc::clone(&backend) as _, little);
    let limits = Limits { json_wait: Duration::from_secs(20), ..Limits::default() };
    let others = runtime::start(Arc::new(Memory::new()), backend, limits);
    let (slow, quick) =
        (runtime::session(&behind, "2025-11-25").await, runtime::session(&others, "2025-11-25").await);
    store.hold_appends();
    let flood = json!({ "_meta": { "progressToken": "mine" } });
    let flooded = send(&slow, runtime::request(1, "flood", &flood));
    let after = send(&slow, runtime::request(2, "after", &json!({})));
    // The server answers one after the other, so this is answered when all of the flood is said.
    for id in 1..4 {
        assert!(ask(&quick, id, "quick").await["result"]["of"].is_u64());
    }
    store.release_appends();
    // The other one has missed some of it, but none of it is out of place, and every request is answered.
    let mut reader = reader_of(flooded.await.unwrap());
    let (mut last, mut count) = (0, 0);
    loop {
        let (_, message) = event(&mut reader).await.expect("an answer at the end");
        let Some(progress) = message["params"]["progress"].as_u64() else {
            assert_eq!((&message["id"], message["result"]["of"].is_u64()), (&json!(1), true), "{message}");
            break;
        };
        assert_eq!(message["params"]["progressToken"], "mine");
        assert!(progress > last, "{progress} after {last}");
        (last, count) = (progress, count + 1);
    }
    assert!((10..3000).contains(&count), "{count}");
    drop(after.await.unwrap());
    others.shut_down(Duration::ZERO).await;
    behind.shut_down(Duration::ZERO).await;
}
