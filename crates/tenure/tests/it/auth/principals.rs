//! `tenure principals`: who has what on a server, and taking all of it back.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::office::Office;
use super::strangers::{knowing, modern_ask};
use super::world::{Bearing, now};
use crate::support::client::Ask;
use crate::support::modern;
use crate::support::session::{Session, initialize, initialize_params};

fn long() -> Value {
    json!({ "name": "long_task", "arguments": { "seconds": 3600, "interval_ms": 50 }, "_meta": { "progressToken": 1 } })
}

fn listen() -> Ask {
    let params = json!({ "notifications": { "resourceSubscriptions": ["demo://visitors"] } });
    modern::ask(9, "subscriptions/listen", &params)
}

#[tokio::test]
async fn au9_a_revoked_principal_loses_all_that_runs_within_two_seconds_and_others_nothing() {
    let mut office = Office::gateway().await;
    let (alice, bob) = (office.token("alice", now().0 - 5), office.token("bob", now().0 - 5));
    let of_bob = office.session(&bob).await;
    let mut news_of_bob = office.open_stream(of_bob.get(), &bob).await;
    // Each caller has a process for requests without a session.
    let mut listen_of_bob = office.open_stream(listen(), &bob).await;
    listen_of_bob.message().await.expect("an acknowledgement");
    let before = office.gateway.children().len();

    let session = office.session(&alice).await;
    let mut streams = vec![("GET", office.open_stream(session.get(), &alice).await)];
    let mut call = office.open_stream(session.request(1, "tools/call", &long()), &alice).await;
    call.message().await.expect("progress");
    streams.push(("a call", call));
    let mut call = office.open_stream(modern::ask(2, "tools/call", &long()), &alice).await;
    call.message().await.expect("progress");
    streams.push(("a call without a session", call));
    let mut listening = office.open_stream(listen(), &alice).await;
    listening.message().await.expect("an acknowledgement");
    streams.push(("a listen", listening));
    let row = office.row("corp:alice").await.expect("alice is here");
    assert_eq!(
        (&row["sessions"], &row["awake"], &row["revoked"]),
        (&json!(1), &json!(1), &Value::Null),
        "{row}"
    );
    assert!(row["calls"].as_u64().unwrap() >= 3, "{row}");
    let shown = office.told(&["principals", "show", "corp:alice"]).await;
    assert!(shown.contains("tools/call long_task") && !shown.contains(&session.id), "{shown}");

    let began = Instant::now();
    let said = office.told(&["principals", "revoke", "corp:alice"]).await;
    assert!(said.starts_with("revoked corp:alice: ended 1 session, "), "{said}");
    for (what, stream) in &mut streams {
        let rest = tokio::time::timeout(Duration::from_secs(2), stream.rest()).await;
        rest.unwrap_or_else(|_| panic!("{what} goes on"));
    }
    assert!(began.elapsed() < Duration::from_secs(10), "the command itself takes its time on a busy machine");
    office.gateway.until_children(before).await;
    let ping = |session: &Session| session.request(7, "ping", &json!({}));
    let refused = office.send(ping(&session).bearer(&alice)).await;
    assert_eq!(refused.fault(), (401, -31001, "unauthorized".to_owned()));
    assert_eq!(office.send(initialize("2025-11-25").bearer(&alice)).await.status(), 401);
    assert_eq!(office.send(ping(&of_bob).bearer(&bob)).await.status(), 200, "bob is as before");
    for stream in [&mut news_of_bob, &mut listen_of_bob] {
        let heard = tokio::time::timeout(Duration::from_millis(100), stream.message()).await;
        assert!(!matches!(heard, Ok(None)), "bob's goes on");
    }
    let row = office.row("corp:alice").await.expect("it is known that she is revoked");
    assert_eq!((&row["sessions"], &row["calls"]), (&json!(0), &json!(0)), "{row}");
    assert!(row["revoked"].is_u64());

    // Another process knows it from its first request on.
    office.gateway.kill_and_start_again().await;
    assert_eq!(office.send(initialize("2025-11-25").bearer(&alice)).await.status(), 401);
    assert_eq!(office.send(ping(&of_bob).bearer(&bob)).await.status(), 200);
    let revoked = row["revoked"].as_u64().unwrap() / 1000;
    while now().0 < revoked + 2 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let newer = office.token("alice", revoked + 31);
    let fresh = office.session(&newer).await;
    assert_eq!(office.send(ping(&fresh).bearer(&newer)).await.status(), 200, "who logs in again is let in");
    let gone = office.send(ping(&session).bearer(&newer)).await;
    assert_eq!(gone.fault().2, "session_revoked", "what was ended stays so");

    assert_eq!(office.told(&["principals", "reinstate", "corp:alice"]).await, "reinstated corp:alice\n");
    assert_eq!(office.send(ping(&fresh).bearer(&alice)).await.status(), 200, "her old token is good again");
    assert_eq!(office.command(&["principals", "reinstate", "corp:alice"]).await.code, Some(1));
}

#[tokio::test]
async fn data_sessions_stay_unless_they_shall_end_and_a_static_key_needs_a_new_one() {
    let mut office = Office::with("", "[tasks]\nafter = \"300ms\"\n").await;
    let key = office.key("ci").await;
    let session = office.session(&key).await;
    let create = json!({ "_meta": {} });
    let made = office.send(modern::ask(3, "dev.tenure/session/create", &create).bearer(&key)).await;
    assert_eq!(made.status(), 200, "{made:?}");
    let long = json!({ "name": "long_task", "arguments": { "seconds": 3600, "interval_ms": 500 } });
    let grown = modern_ask(4, "tools/call", &knowing(&long, &json!({})));
    let grown = grown.without("Accept").header("Accept", "application/json").bearer(&key);
    let grown = office.send(grown).await.json();
    let task = grown["result"]["taskId"].as_str().unwrap_or_else(|| panic!("{grown}")).to_owned();
    let asks = knowing(&json!({ "name": "ask_name", "arguments": {} }), &json!({}));
    let asked = office.send(modern_ask(5, "tools/call", &asks).bearer(&key)).await;
    assert!(asked.text().contains("input_required"), "{asked:?}");
    let row = office.row("key:ci").await.expect("it is here");
    assert_eq!((&row["sessions"], &row["data_sessions"]), (&json!(1), &json!(1)), "{row} {made:?}");
    assert_eq!((&row["tasks"], &row["calls"]), (&json!(1), &json!(2)), "one of them is parked: {row}");

    office.told(&["principals", "revoke", "key:ci"]).await;
    let row = office.row("key:ci").await.unwrap();
    assert_eq!(
        (&row["sessions"], &row["data_sessions"]),
        (&json!(0), &json!(1)),
        "what it kept is there: {row}"
    );
    assert_eq!((&row["tasks"], &row["calls"]), (&json!(0), &json!(0)), "{row}");
    let refused = office.send(session.request(1, "ping", &json!({})).bearer(&key)).await;
    assert_eq!(refused.status(), 401);
    while now().0 * 1000 <= row["revoked"].as_u64().unwrap() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let next = office.key("ci").await;
    assert_eq!(
        office.send(initialize("2025-11-25").bearer(&key)).await.status(),
        401,
        "the old key stays refused"
    );
    let of_next = office.session(&next).await;
    let get = modern_ask(6, "tasks/get", &knowing(&json!({ "taskId": task }), &json!({})));
    let seen = office.send(get.bearer(&next)).await.json();
    assert_eq!(seen["result"]["status"], "cancelled", "{seen}");

    // The same on a store that no server has open.
    assert_eq!(office.gateway.stop().await.code(), Some(0));
    let row = office.row("key:ci").await.unwrap();
    assert_eq!((&row["sessions"], &row["awake"]), (&json!(1), &json!(0)), "{row}");
    let said = office.command(&["principals", "revoke", "key:ci", "--data"]).await;
    assert_eq!(
        (said.code, said.out.as_str()),
        (Some(0), "revoked key:ci: ended 1 session, 1 data session\n"),
        "{}",
        said.err
    );
    assert!(said.err.contains("no server has this store open"), "{}", said.err);
    office.gateway.start_again().await;
    let refused = office.send(of_next.request(1, "ping", &json!({})).bearer(&next)).await;
    assert_eq!(refused.status(), 401, "the next server refuses what was issued before");
    for (arguments, hint) in [
        (&["principals", "revoke", "anonymous"][..], "no credentials that could be refused"),
        (&["principals", "show", "alice"], "is not the name of a principal"),
        (&["principals", "show", "corp:nobody"], "has nothing here"),
    ] {
        let said = office.command(arguments).await;
        assert!(said.code == Some(1) && said.err.contains(hint), "{arguments:?}: {}", said.err);
    }
}

#[tokio::test]
async fn a_request_whose_body_arrives_after_the_revocation_is_refused() {
    let office = Office::with("", "").await;
    let alice = office.token("alice", now().0 - 5);
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize_params("2025-11-25") }).to_string();
    let mut connection = TcpStream::connect(office.gateway.address).await.unwrap();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {alice}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
        office.gateway.address,
        body.len()
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 25];
    connection.read_exact(&mut answer).await.unwrap();
    assert_eq!(
        &answer[..],
        b"HTTP/1.1 100 Continue\r\n\r\n",
        "the credentials were good, and the body is waited for"
    );
    office.told(&["principals", "revoke", "corp:alice"]).await;
    connection.write_all(body.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    connection.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer[..], b"HTTP/1.1 401");
    assert!(
        office.row("corp:alice").await.is_none_or(|row| row["sessions"] == 0),
        "and no session was begun"
    );
}
