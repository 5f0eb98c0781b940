//! A client that takes all it can gets its own share, and no other client notices.
//!
//! The greedy one comes from another address of this machine.

use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tenure::Node;
use tenure_protocol::{Method, RawJson};
use tenure_session::budget::{Peer, Resource};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::http2_and_tls::client::Http2;
use crate::support::client::{Ask, Connection, connect_from};
use crate::support::modern::ask;
use crate::support::node::{Steered, demo_with};
use crate::support::session::{Session, initialize, request};
use crate::support::wait::{until, within};

const GREEDY: [u8; 4] = [127, 0, 0, 2];
const MIB: usize = 1 << 20;

/// Eight megabytes for messages, of which one client may hold four.
const SMALL: [(&str, &str); 2] = [("clients.memory", "8MiB"), ("clients.max_share", "50%")];

async fn greedy(node: &Node) -> Connection {
    Connection::over(connect_from(GREEDY, node.address(), 4096).await)
}

fn echo(session: &Session, id: u64, text: &str) -> Ask {
    session.request(id, "tools/call", &json!({ "name": "public_echo", "arguments": { "text": text } }))
}

fn used(node: &Node, resource: Resource) -> usize {
    node.budget().usage()[resource as usize].used
}

fn used_by(node: &Node, resource: Resource, from: [u8; 4]) -> usize {
    let peer = Peer::at(from.into());
    let peers = &node.budget().usage()[resource as usize].peers;
    peers.iter().find(|(one, _)| *one == peer).map_or(0, |(_, used)| *used)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_are_half_sent_fill_the_share_of_their_sender_alone() {
    let node = demo_with(&SMALL).await;
    let session = Session::start(node.address()).await;
    let large = echo(&session, 1, &"x".repeat(MIB)).bytes();
    let mut held = Vec::new();
    for number in 1..=12 {
        let mut connection = greedy(&node).await;
        connection.write(&large[..64 << 10]).await;
        held.push(connection);
        // The server reads connections in any order, and the last of them has to be one that finds no room.
        if number == 3 {
            until("as much is held as may be", || used_by(&node, Resource::Memory, GREEDY) > 3 * MIB).await;
        }
    }
    assert!(used_by(&node, Resource::Memory, GREEDY) <= 4 * MIB);
    // Another one has as much as it needs.
    let answer = session.tool(2, "public_echo", &json!({ "text": "y".repeat(MIB) })).await;
    assert_eq!(answer.status(), 200);
    // Those that found no room are told so.
    let mut refused = held.pop().unwrap();
    let told = within("a refusal", refused.response()).await;
    assert_eq!(told.fault(), (429, -31029, "too_much_held".to_owned()));
    assert_eq!(told.header("retry-after"), Some("1"));
    // A whole request of a session is answered, although nothing of it is kept: its client goes on.
    let mut whole = greedy(&node).await;
    within("it is sent", whole.write(&large)).await;
    let told = within("an answer", whole.response()).await;
    assert_eq!(told.fault(), (200, -31029, "too_much_held".to_owned()));
    assert_eq!((&told.json()["id"], told.header("retry-after")), (&json!(1), Some("1")));
    drop((held, refused, whole));
    until("all but the sessions is given back", || used(&node, Resource::Memory) < 4096).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_are_not_read_are_given_up_oldest_first() {
    const LARGE: usize = 3 * MIB;
    let mut steered = Steered::with(&[("clients.memory", "24MiB"), ("clients.max_share", "50%")]).await;
    let (session, _link) = steered.session().await;
    let mut stuck = Vec::new();
    for id in 0..8 {
        let mut stream = connect_from(GREEDY, steered.address(), 4096).await;
        within("the request is sent", stream.write_all(&echo(&session, id, "").bytes())).await.unwrap();
        let call = steered.script.call().await;
        call.answer(&json!({ "text": "x".repeat(LARGE) }));
        // Once it begins to come it is counted.
        let mut first = [0; 1];
        within("the answer begins", stream.read_exact(&mut first)).await.unwrap();
        stuck.push(stream);
    }
    let node = &steered.node;
    until("the oldest are given up", || used_by(node, Resource::Memory, GREEDY) <= 12 * MIB).await;
    let mut rest = Vec::new();
    let ended = within("its connection is closed", stuck[0].read_to_end(&mut rest)).await;
    assert!(ended.is_err() || rest.len() < LARGE, "{} bytes came", rest.len());
    let mut rest = Vec::new();
    let last = stuck.last_mut().unwrap();
    while rest.len() < LARGE {
        let mut piece = [0; 64 << 10];
        let read = within("the last one is there", last.read(&mut piece)).await.unwrap();
        assert!(read > 0, "cut off after {} bytes", rest.len());
        rest.extend_from_slice(&piece[..read]);
    }
    drop(stuck);
    until("all of it is given back", || used_by(node, Resource::Memory, GREEDY) == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_http2_too_answers_that_are_not_read_are_given_up() {
    let mut steered = Steered::with(&SMALL).await;
    let origin = format!("http://{}", steered.address());
    let io = connect_from(GREEDY, steered.address(), 4096).await;
    let mut client = Http2::with_room(io, &origin, 16 << 10).await;
    client.start().await;
    let mut responses = Vec::new();
    for id in 1..=12 {
        let call = request(id, "tools/call", &json!({ "name": "any" }));
        let answer = async { steered.script.call().await.answer(&json!({ "text": "x".repeat(MIB) })) };
        let (response, ()) = tokio::join!(client.post(&call), answer);
        responses.push(response);
    }
    let node = &steered.node;
    until("the oldest are given up", || used_by(node, Resource::Memory, GREEDY) <= 4 * MIB).await;
    let mut oldest = responses.swap_remove(0).into_body();
    let ended = loop {
        match within("the end", oldest.frame()).await {
            Some(Ok(_)) => {}
            end => break end,
        }
    };
    assert!(matches!(ended, Some(Err(_))), "cut off, and not complete");
    let last = responses.pop().unwrap();
    let body: Bytes = within("the last one", last.into_body().collect()).await.unwrap().to_bytes();
    assert!(body.len() > MIB);
    drop((client, responses));
    until("all but the session is given back", || used(node, Resource::Memory) < 4096).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listens_of_one_client_keep_no_other_from_calling_or_listening() {
    let settings =
        [("exchanges.max_running", "40"), ("exchanges.max_listens", "40"), ("clients.max_share", "50%")];
    let node = demo_with(&settings).await;
    let notifications = json!({ "notifications": { "resourceSubscriptions": ["demo://visitors"] } });
    let listen = ask(1, "subscriptions/listen", &notifications);
    let mut open = Vec::new();
    for _ in 0..20 {
        let mut connection = greedy(&node).await;
        connection.write(&listen.bytes()).await;
        let mut events = connection.events().await;
        events.message().await.unwrap();
        open.push(events);
    }
    let mut connection = greedy(&node).await;
    connection.write(&listen.bytes()).await;
    assert_eq!(connection.response().await.fault(), (200, -31029, "too_many_requests".to_owned()));
    let call = ask(2, "tools/call", &json!({ "name": "public_echo", "arguments": { "text": "a" } }));
    connection.write(&call.bytes()).await;
    assert_eq!(connection.response().await.status(), 200, "calls are counted apart");
    let mut other = listen.clone().open(node.address()).await;
    other.message().await.unwrap();
    assert_eq!(call.send(node.address()).await.status(), 200);
    drop((open, connection, other));
    until("all of it is given back", || used(&node, Resource::Listens) == 0).await;
}

#[tokio::test]
async fn sessions_of_one_client_leave_room_for_those_of_others() {
    let node = demo_with(&[("session.max_sessions", "20"), ("clients.max_share", "50%")]).await;
    let mut connection = greedy(&node).await;
    for _ in 0..10 {
        connection.write(&initialize("2025-11-25").bytes()).await;
        assert_eq!(connection.response().await.status(), 200);
    }
    connection.write(&initialize("2025-11-25").bytes()).await;
    let refused = connection.response().await;
    assert_eq!(refused.fault(), (429, -31029, "too_many_sessions_of_principal".to_owned()));
    let session = Session::start(node.address()).await;
    assert_eq!(session.tool(1, "public_echo", &json!({ "text": "here" })).await.status(), 200);
    assert_eq!(session.delete().send(node.address()).await.status(), 204);
    until("it is given back", || used(&node, Resource::Sessions) == 10).await;
}

#[tokio::test]
async fn a_client_that_forks_on_and_on_fills_its_own_share_of_the_store() {
    const NOTE: usize = 300 << 10;
    let folder = tempfile::TempDir::new().unwrap();
    let store = format!("disk:{}", folder.path().display());
    let settings = [("store", &*store), ("clients.disk", "4MiB"), ("clients.max_share", "50%")];
    let node = demo_with(&settings).await;
    let session = Session::start(node.address()).await;
    let mut connection = greedy(&node).await;
    let mut asked = async |method: &str, params: &Value| {
        connection.write(&session.request(1, method, params).bytes()).await;
        connection.response().await
    };
    let made = asked("session/create", &json!({})).await.json();
    let id = made["result"]["id"].as_str().unwrap().to_owned();
    let cookie = json!({ "mcp/session": { "id": id } });
    let note =
        json!({ "name": "notebook_append", "arguments": { "text": "x".repeat(NOTE) }, "_meta": cookie });
    assert_eq!(asked("tools/call", &note).await.json()["result"]["isError"], Value::Null);
    let mut forks = Vec::new();
    let refused = loop {
        let answer = asked("session/fork", &json!({ "id": id })).await;
        match answer.json()["result"]["id"].as_str() {
            Some(fork) => forks.push(fork.to_owned()),
            None => break answer,
        }
        assert!(forks.len() < 20, "{} MiB are forked", forks.len() * NOTE / MIB);
    };
    assert_eq!(refused.fault(), (200, -31029, "too_much_held".to_owned()));
    assert!(refused.text().contains("`clients.disk`"), "{}", refused.text());
    let held = used_by(&node, Resource::Disk, GREEDY);
    assert!((2 * MIB - 2 * NOTE..=2 * MIB).contains(&held), "{held} bytes of {} forks", forks.len());
    // None of its own can grow either.
    assert_eq!(asked("tools/call", &note).await.fault().2, "too_much_held");
    assert_eq!(used_by(&node, Resource::Disk, GREEDY), held);
    // Another one has room.
    let made = session.request(2, "session/create", &json!({})).send(node.address()).await.json();
    let own = json!({ "mcp/session": made["result"] });
    let note = json!({ "name": "notebook_append", "arguments": { "text": "y".repeat(NOTE) }, "_meta": own });
    let answer = session.request(3, "tools/call", &note).send(node.address()).await.json();
    assert!(answer["error"].is_null() && answer["result"]["isError"].is_null(), "{answer}");
    // The room of deleted ones is given back.
    assert!(asked("session/delete", &json!({ "id": forks.pop() })).await.json()["error"].is_null());
    assert!(used_by(&node, Resource::Disk, GREEDY) < held - NOTE);
    assert!(asked("session/fork", &json!({ "id": id })).await.json()["error"].is_null());

    let (held, all) = (used_by(&node, Resource::Disk, GREEDY), used(&node, Resource::Disk));
    node.stop().await;
    let node = demo_with(&settings).await;
    until("all are counted again", || used(&node, Resource::Disk) == all).await;
    assert_eq!(used_by(&node, Resource::Disk, GREEDY), held);
    let session = Session::start(node.address()).await;
    let mut connection = greedy(&node).await;
    connection.write(&session.request(1, "session/fork", &json!({ "id": id })).bytes()).await;
    assert_eq!(connection.response().await.fault().2, "too_much_held");
    node.stop().await;
}

#[tokio::test]
async fn a_session_that_is_woken_counts_for_its_waker() {
    let node = demo_with(&[("session.dormant_after", "100ms")]).await;
    let session = Session::start(node.address()).await;
    until("it sleeps", || used(&node, Resource::Sessions) == 0).await;
    assert_eq!(node.sessions().tallies().sessions, 1);
    let mut connection = greedy(&node).await;
    connection.write(&session.get().bytes()).await;
    // As long as it is listened to it stays awake.
    let events = connection.events().await;
    assert_eq!(used_by(&node, Resource::Sessions, GREEDY), 1);
    drop(events);
    until("it sleeps again", || used(&node, Resource::Sessions) == 0).await;
}

#[tokio::test]
async fn handshakes_that_are_never_finished_give_their_places_back() {
    let settings =
        [("session.max_sessions", "20"), ("clients.max_share", "50%"), ("session.handshake_ttl", "1s")];
    let node = demo_with(&settings).await;
    let mut connection = greedy(&node).await;
    let mut begin = async || {
        connection.write(&initialize("2025-11-25").bytes()).await;
        connection.response().await
    };
    let first = begin().await;
    while begin().await.status() == 200 {}
    // One that is used stays.
    let session = Session::start(node.address()).await;
    until("the others are over", || used(&node, Resource::Sessions) == 1).await;
    let late = Session::of(node.address(), "/mcp", &first).request(1, "ping", &json!({}));
    assert_eq!(late.send(node.address()).await.fault(), (404, -32001, "session_expired".to_owned()));
    assert_eq!(session.tool(1, "public_echo", &json!({ "text": "here" })).await.status(), 200);
    assert_eq!(begin().await.status(), 200);
}

#[tokio::test]
async fn ids_and_progress_tokens_have_a_length_that_can_be_repeated() {
    let node = demo_with(&[]).await;
    let session = Session::start(node.address()).await;
    let call = |id: &str, token: &str| {
        json!({
            "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": {
                "name": "public_echo", "arguments": { "text": "a" }, "_meta": { "progressToken": token },
            },
        })
    };
    let (short, long) = ("x".repeat(1022), "x".repeat(1023));
    assert_eq!(session.post(&call(&short, &short)).send(node.address()).await.status(), 200);
    let refused = session.post(&call("a", &long)).send(node.address()).await;
    assert_eq!(refused.fault(), (400, -32602, "invalid_params".to_owned()));
    let refused = session.post(&call(&long, "a")).send(node.address()).await;
    assert_eq!(refused.fault(), (400, -32600, "invalid_request".to_owned()));
    let disguised = call("b", &long).to_string().replace("progressToken", "progress\\u0054oken");
    let refused = session.post_raw(disguised).send(node.address()).await;
    assert_eq!(refused.fault(), (400, -32602, "invalid_params".to_owned()));
    let params =
        json!({ "name": "public_echo", "arguments": { "text": "a" }, "_meta": { "progressToken": long } });
    let refused = ask(1, "tools/call", &params).send(node.address()).await;
    assert_eq!(refused.fault(), (200, -32602, "invalid_params".to_owned()));
}

#[tokio::test]
async fn a_server_that_floods_a_request_is_heard_up_to_a_budget_and_answers_all_the_same() {
    let mut steered = Steered::with(&[("streams.max_call", "64KiB")]).await;
    let (session, _link) = steered.session().await;
    let (call, mut events) = steered.streaming_call(&session, 1).await;
    let params = RawJson::of(&json!({ "level": "info", "data": "x".repeat(900) }));
    let mut refused = 0;
    for _ in 0..200 {
        refused += usize::from(call.context.notify(&Method::LogMessage, Some(&params)).await.is_err());
    }
    assert!((130..140).contains(&refused), "{refused}");
    call.answer(&json!({}));
    let mut heard = 0;
    loop {
        let (_, said) = within("a message", events.message()).await.unwrap();
        if said["id"] == 1 {
            break;
        }
        heard += 1;
    }
    assert!((60..75).contains(&heard), "{heard}");
}
