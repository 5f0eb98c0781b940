//! One child for many sessions, with a scripted server that the test tells when and what to answer.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_backend::child::{ChildBackend, ChildCommand, ChildLimits};
use tenure_protocol::{Method, Notification, RawJson};
use tenure_session::call::Caller;
use tenure_session::record::EndCause;
use tenure_session::session::{Answer, Sessions};
use tenure_session::{Limits, Principal, Session};
use tenure_store::memory::Memory;
use tenure_testkit::faulty::Faulty;
use tenure_testkit::runtime::{self, event, json_of, reader_of, send};

/// Answers every request. Before the answer, `flood` sends much progress, and `guess` sends progress with tokens that a
/// client might guess. The first subscription to a URI with "held" is answered by `release` or `spoil`. `heard` returns
/// the subscriptions so far.
const SERVER: &str = r#"
read -r initialize
echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"resources":{"subscribe":true}},"serverInfo":{"name":"sh","version":"1"}}}'
read -r initialized
while read -r call; do
    id=${call#*\"id\":}; id=${id%%,*}
    case "$call" in
    *flood*)
        token=${call#*\"progressToken\":}; token=${token%%\}*}
        i=0
        while [ $i -lt 3000 ]; do
            i=$((i+1))
            echo "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":$token,\"progress\":$i}}"
        done ;;
    *guess*)
        for token in 0 1 2 3 4 5 6 $id "\"$id\"" "\"$id-\""; do
            echo "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":$token,\"progress\":1}}"
        done ;;
    *resources/subscribe*)
        heard="$heard on"
        case "$call" in *held*) if [ -z "$held" ]; then held=$id; continue; fi; esac ;;
    *resources/unsubscribe*) heard="$heard off" ;;
    *release*) echo "{\"jsonrpc\":\"2.0\",\"id\":$held,\"result\":{}}" ;;
    *spoil*) echo "{\"jsonrpc\":\"2.0\",\"id\":$held,\"error\":{\"code\":-32000,\"message\":\"not now\"}}" ;;
    *heard*) echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"heard\":\"$heard\"}}"; continue ;;
    esac
    echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"of\":$id}}"
done
"#;

fn backend() -> Arc<ChildBackend> {
    impatient(Duration::from_secs(60))
}

/// A backend with this `start_timeout`.
fn impatient(start_timeout: Duration) -> Arc<ChildBackend> {
    let mut command = ChildCommand::new("sh", ["-c", SERVER]);
    command.is_shared = true;
    let grace = Duration::from_millis(100);
    command.limits = ChildLimits { warm: 0, grace, start_timeout, ..ChildLimits::default() };
    Arc::new(ChildBackend::new(command, None))
}

/// A runtime that answers with JSON, and not with a stream, unless a notification comes first.
fn runtime(backend: Arc<ChildBackend>) -> Sessions {
    let limits = Limits { json_wait: Duration::from_secs(20), ..Limits::default() };
    runtime::start(Arc::new(Memory::new()), backend, limits)
}

async fn ask(session: &Arc<Session>, id: u64, method: &str) -> Value {
    let request = runtime::request(id, method, &json!({}));
    let asked = session.request(request, Caller::anonymous("test"));
    json_of(tokio::time::timeout(Duration::from_secs(20), asked).await.expect("an answer").unwrap())
}

/// The server sends progress with the numbers of other sessions' requests.
#[tokio::test]
async fn the_token_of_a_request_cannot_be_guessed() {
    let sessions = runtime(backend());
    let session = runtime::session(&sessions, "2025-11-25").await;
    for id in 1..4 {
        let params = json!({ "_meta": { "progressToken": "mine" } });
        let answer = send(&session, runtime::request(id, "guess", &params)).await.unwrap();
        // If progress had come through, the answer would be a stream.
        assert_eq!(json_of(answer)["result"]["of"], id);
    }
    sessions.shut_down(Duration::ZERO).await;
}

fn subscribe(session: &Arc<Session>, id: u64, uri: &str) -> tokio::task::JoinHandle<Answer> {
    send(session, runtime::request(id, "resources/subscribe", &json!({ "uri": uri })))
}

/// The subscriptions that the server got so far. Asks several times, so that earlier messages have arrived.
async fn heard(session: &Arc<Session>, id: u64) -> String {
    for again in 0..10 {
        ask(session, id + again, "heard").await;
    }
    ask(session, id + 10, "heard").await["result"]["heard"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_subscription_that_was_cancelled_does_not_undo_the_next_one() {
    let sessions = runtime(backend());
    let session = runtime::session(&sessions, "2025-11-25").await;
    let _cancelled = subscribe(&session, 1, "file:///held");
    assert_eq!(heard(&session, 100).await, " on");
    let params = Some(RawJson::of(&json!({ "requestId": 1 })));
    session.notification(Notification { method: Method::Cancelled, params }).unwrap();
    let second = subscribe(&session, 2, "file:///held");
    assert_eq!(heard(&session, 200).await, " on", "it waits for the first");
    ask(&session, 3, "release").await;
    assert_eq!(json_of(second.await.unwrap())["result"], json!({}));
    assert_eq!(heard(&session, 300).await, " on");
    sessions.shut_down(Duration::ZERO).await;
}

#[tokio::test]
async fn a_subscription_that_was_cancelled_is_taken_back() {
    let sessions = runtime(backend());
    let session = runtime::session(&sessions, "2025-11-25").await;
    let _cancelled = subscribe(&session, 1, "file:///held");
    let _next = subscribe(&session, 2, "file:///held");
    assert_eq!(heard(&session, 100).await, " on");
    for id in 1..=2 {
        let params = Some(RawJson::of(&json!({ "requestId": id })));
        session.notification(Notification { method: Method::Cancelled, params }).unwrap();
    }
    assert_eq!(heard(&session, 200).await, " on");
    ask(&session, 3, "release").await;
    assert_eq!(heard(&session, 300).await, " on off");
    sessions.shut_down(Duration::ZERO).await;
}

#[tokio::test]
async fn nothing_is_subscribed_for_a_session_that_has_left() {
    let sessions = runtime(backend());
    let (stays, leaves) =
        (runtime::session(&sessions, "2025-11-25").await, runtime::session(&sessions, "2025-11-25").await);
    let first = subscribe(&stays, 1, "file:///held");
    assert_eq!(heard(&stays, 100).await, " on");
    let _waits = subscribe(&leaves, 1, "file:///held");
    assert_eq!(heard(&leaves, 200).await, " on");
    sessions.end(&leaves, EndCause::Deleted).await.unwrap();
    ask(&stays, 2, "spoil").await;
    assert_eq!(json_of(first.await.unwrap())["error"]["message"], "not now");
    assert_eq!(heard(&stays, 300).await, " on");
    sessions.shut_down(Duration::ZERO).await;
}

/// A subscription must not wait for ever for the permit because the server never answers another session's
/// subscription.
#[tokio::test]
async fn a_subscription_that_is_never_answered_holds_up_others_only_for_a_while() {
    let patience = Duration::from_secs(10);
    let sessions = runtime(impatient(patience));
    let (one, two) =
        (runtime::session(&sessions, "2025-11-25").await, runtime::session(&sessions, "2025-11-25").await);
    let first = subscribe(&one, 1, "file:///held");
    assert_eq!(heard(&one, 100).await, " on");
    let second = subscribe(&two, 1, "file:///held");
    tokio::time::pause();
    tokio::time::advance(patience).await;
    tokio::time::resume();
    let second = tokio::time::timeout(patience, second);
    assert!(json_of(second.await.expect("its turn").unwrap())["result"]["of"].is_u64());
    assert_eq!(json_of(first.await.unwrap())["error"]["data"]["reason"], "timed_out");
    sessions.shut_down(Duration::ZERO).await;
}

/// The first server never answers and ignores SIGTERM. The second checks whether the first still runs.
const SLOW: &str = r#"
if [ ! -e first ]; then trap '' TERM; echo $$ > first; while :; do sleep 1; done; fi
read -r pid < first
if kill -0 "$pid" 2>/dev/null; then : > together; fi
"#;

#[tokio::test]
async fn a_start_that_was_given_up_is_gone_before_the_next_one() {
    let folder = std::env::temp_dir().join(format!("tenure-given-up-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut command = ChildCommand::new("sh", ["-c", &[SLOW, SERVER].concat()]);
    command.is_shared = true;
    command.folder = Some(folder.clone());
    command.limits = ChildLimits { warm: 0, grace: Duration::from_millis(300), ..ChildLimits::default() };
    let backend = Arc::new(ChildBackend::new(command, None));
    let sessions = runtime(backend);
    let first = runtime::request(0, "initialize", &runtime::initialize("2025-11-25"));
    // Give up only after the server has started.
    let is_up = async {
        while std::fs::read_to_string(folder.join("first")).map_or(true, |pid| pid.is_empty()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        created = sessions.create(first, &Principal::ANONYMOUS) => panic!("{created:?}"),
        () = is_up => {}
    }
    let session = runtime::session(&sessions, "2025-11-25").await;
    assert_eq!(ask(&session, 1, "heard").await["result"]["heard"], "");
    assert!(!folder.join("together").exists(), "one after the other");
    sessions.shut_down(Duration::ZERO).await;
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn a_session_that_is_behind_holds_up_no_other() {
    let backend = backend();
    let store = Arc::new(Faulty::new(Arc::new(Memory::new())));
    let little = Limits { max_unstored_bytes: 4 << 10, json_wait: Duration::ZERO, ..Limits::default() };
    let behind = runtime::start(Arc::clone(&store) as _, Arc::clone(&backend) as _, little);
    let others = runtime(backend);
    let (slow, quick) =
        (runtime::session(&behind, "2025-11-25").await, runtime::session(&others, "2025-11-25").await);
    store.hold_appends();
    let flood = json!({ "_meta": { "progressToken": "mine" } });
    let flooded = send(&slow, runtime::request(1, "flood", &flood));
    let after = send(&slow, runtime::request(2, "after", &json!({})));
    // The server answers in order, so these answers come after the whole flood.
    for id in 1..4 {
        assert!(ask(&quick, id, "quick").await["result"]["of"].is_u64());
    }
    store.release_appends();
    // The slow session has missed some progress, but the rest is in order, and every request is answered.
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
