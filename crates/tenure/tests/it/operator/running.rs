//! Commands on a running server.

use serde_json::{Value, json};

use super::place::{Place, assert_lives, assert_over, at, digits, label, long_call, stop};
use crate::support::events::gist;
use crate::support::session::Session;
use crate::support::wait::within;

#[tokio::test]
async fn a_list_tells_who_is_there_and_what_they_wait_for() {
    let place = Place::new();
    let server = place.serve().await;
    let busy = Session::start(server.address()).await;
    let _stream = long_call(&busy, 1).await;
    let fresh = Session::begin(server.address(), "2025-06-18").await;
    let rows = place.rows(&[]).await;
    assert_eq!(rows.len(), 2);
    let find = |session: &Session| rows.iter().find(|row| row["label"] == label(session)).unwrap();
    let row = find(&busy);
    assert_eq!(row["key"], digits(&busy));
    assert_eq!((&row["state"], &row["phase"]), (&json!("awake"), &json!("initialized")));
    assert_eq!(
        (&row["revision"], &row["calls"], &row["readers"]),
        (&json!("2025-11-25"), &json!(1), &json!(1))
    );
    // Events that were read are in the log.
    assert!(row["events"].as_u64().unwrap() >= 1, "{row}");
    assert!(row["oldest_call"].as_u64() >= row["created"].as_u64(), "{row}");
    let row = find(&fresh);
    assert_eq!(
        (&row["phase"], &row["calls"], &row["events"]),
        (&json!("initializing"), &json!(0), &json!(0))
    );
    let table = place.told(&["sessions", "list"]).await;
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines.len(), 3, "{table}");
    assert!(lines[0].starts_with("SESSION"), "{table}");
    assert!(!table.contains('\x1b'), "no colours without a terminal");
    assert!(!table.contains(&busy.id) && !table.contains(&fresh.id), "the ids stay secret");
}

#[tokio::test]
async fn a_list_is_narrowed_down_by_state_owner_and_number() {
    let place = Place::new();
    let server = place.serve().await;
    let mut sessions = Vec::new();
    for _ in 0..3 {
        sessions.push(Session::start(server.address()).await);
    }
    assert_eq!(sessions[0].delete().send(server.address()).await.status(), 204);
    assert_eq!(place.rows(&["--state", "awake"]).await.len(), 2);
    assert_eq!(place.rows(&["--state", "dormant"]).await.len(), 0);
    let ended = place.rows(&["--state", "ended"]).await;
    assert_eq!((&ended[0]["label"], &ended[0]["end"]), (&json!(label(&sessions[0])), &json!("deleted")));
    assert_eq!(place.rows(&["--owner", "anonymous"]).await.len(), 3);
    assert_eq!(place.rows(&["--owner", "alice"]).await.len(), 0);
    // The one that was used last comes first.
    assert_lives(&sessions[1]).await;
    let said = place.run(&["sessions", "list", "--limit", "1", "--state", "awake"]).await;
    assert!(said.out.lines().nth(1).unwrap().starts_with(&label(&sessions[1])), "{}", said.out);
    assert!(said.err.starts_with("1 of 2 sessions; `--limit 2` shows all\n"), "{}", said.err);
    assert!(said.err.contains("of the server that runs as process "), "{}", said.err);
    let said = place.run(&["sessions", "list", "--owner", "alice"]).await;
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (Some(0), "", "no sessions\n"));
}

#[tokio::test]
async fn a_list_walks_through_all_pages() {
    const MANY: usize = 1100;
    let place = Place::new();
    let server = place.serve().await;
    for _ in 0..MANY / 10 {
        let begin = || Session::begin(server.address(), "2025-11-25");
        tokio::join!(
            begin(),
            begin(),
            begin(),
            begin(),
            begin(),
            begin(),
            begin(),
            begin(),
            begin(),
            begin()
        );
    }
    let rows = place.rows(&["--limit", "5000"]).await;
    let mut keys: Vec<_> = rows.iter().map(|row| row["key"].as_str().unwrap()).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!((rows.len(), keys.len()), (MANY, MANY));
}

#[tokio::test]
async fn show_tells_what_a_session_waits_for() {
    let place = Place::new();
    let server = place.serve().await;
    let session = Session::start(server.address()).await;
    let subscribe = session.request(1, "resources/subscribe", &json!({ "uri": "demo://notebook" }));
    assert_eq!(subscribe.send(server.address()).await.status(), 200);
    let level = session.request(2, "logging/setLevel", &json!({ "level": "error" }));
    assert_eq!(level.send(server.address()).await.status(), 200);
    assert_eq!(session.request(3, "no/such", &json!({})).send(server.address()).await.status(), 200);
    let stream = long_call(&session, 4).await;
    let ask = json!({ "name": "ask_name", "arguments": {} });
    let mut asking = session.request(5, "tools/call", &ask).open(server.address()).await;
    asking.message().await.expect("a question");

    let shown = place.shown(&session).await;
    assert_eq!((&shown["state"], &shown["client"]["name"]), (&json!("awake"), &json!("it")));
    assert_eq!(shown["server"]["name"], "tenure-demo");
    assert_eq!(
        (&shown["log_level"], &shown["subscriptions"]),
        (&json!("error"), &json!(["demo://notebook"]))
    );
    assert_eq!((&shown["requests"], &shown["errors"]), (&json!(5), &json!(1)));
    assert_eq!(shown["record"]["session"]["phase"], "initialized");
    let calls = shown["in_flight"].as_array().unwrap();
    let find = |id: u64| calls.iter().find(|call| call["id"] == id).unwrap();
    assert_eq!((&find(4)["method"], &find(4)["tool"]), (&json!("tools/call"), &json!("long_task")));
    assert_eq!((&find(4)["is_read"], &find(4)["asking"]), (&json!(true), &json!(0)));
    assert_eq!((&find(5)["tool"], &find(5)["asking"]), (&json!("ask_name"), &json!(1)));
    assert_eq!(shown["signs"], json!([]), "nothing has stood still for long");
    assert_eq!(shown["streams"].as_array().unwrap().len(), 2);

    let text = place.told(&["sessions", "show", &label(&session)]).await;
    assert!(text.starts_with(&format!("{}  {}\n", label(&session), digits(&session))), "{text}");
    for part in
        ["id 4  tools/call long_task  for ", ", which is read\n", "  waits for the client  on stream "]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains(&session.id));

    drop(stream);
    let left = async {
        loop {
            let shown = place.shown(&session).await;
            let calls = shown["in_flight"].as_array().unwrap();
            if calls.iter().any(|call| call["id"] == 4 && call["is_read"] == false) {
                break;
            }
        }
    };
    within("the server notices that the stream has no reader", left).await;
}

#[tokio::test]
async fn a_revoked_session_is_over_at_once_and_stays_so() {
    let place = Place::new();
    let server = place.serve().await;
    let (one, two) = (Session::start(server.address()).await, Session::start(server.address()).await);
    let other = Session::start(server.address()).await;
    let mut stream = long_call(&one, 1).await;
    let said = place.told(&["sessions", "revoke", &label(&one), &digits(&two)[..12]]).await;
    assert_eq!(said, format!("revoked {}\nrevoked {}\n", label(&one), label(&two)));
    let mut last = Value::Null;
    while let Some((_, message)) = stream.message().await {
        last = message;
    }
    assert_eq!(gist(&last), "error 1 session_revoked");
    assert_over(&one, "session_revoked").await;
    assert_over(&two, "session_revoked").await;
    assert_lives(&other).await;
    let again = place.told(&["sessions", "revoke", &label(&one)]).await;
    assert_eq!(again, format!("{} was revoked before\n", label(&one)));
    let shown = place.shown(&one).await;
    assert_eq!((&shown["state"], &shown["end"]), (&json!("ended"), &json!("revoked")));
    stop(server).await;
    let server = place.serve().await;
    assert_over(&super::place::at(&one, &server), "session_revoked").await;
}

#[tokio::test]
async fn one_wrong_name_among_several_revokes_nothing() {
    let place = Place::new();
    let server = place.serve().await;
    let session = Session::start(server.address()).await;
    let said = place.refused(&["sessions", "revoke", &label(&session), "xyz"]).await;
    assert!(said.contains("`xyz` is not the name of a session"), "{said}");
    assert_lives(&session).await;
}

#[tokio::test]
async fn notes_are_attached_to_sessions_that_live() {
    let place = Place::new();
    let server = place.serve().await;
    let session = Session::start(server.address()).await;
    let set = ["sessions", "set", &label(&session), "ticket=4711", "priority:=2"];
    assert_eq!(place.told(&set).await, "{\n  \"priority\": 2,\n  \"ticket\": \"4711\"\n}\n");
    stop(server).await;
    // Also while no server runs.
    place.told(&["sessions", "set", &label(&session), "priority:=null", "by:=[\"ada\"]"]).await;
    let server = place.serve().await;
    let woken = at(&session, &server);
    woken.request(1, "ping", &json!({})).send(server.address()).await;
    assert_eq!(place.shown(&session).await["metadata"], json!({ "by": ["ada"], "ticket": "4711" }));
    assert_eq!(woken.delete().send(server.address()).await.status(), 204);
    let refused = place.refused(&["sessions", "set", &label(&session), "a=b"]).await;
    assert_eq!(refused, format!("error: {} is over, so nothing can be attached to it\n", label(&session)));
}

// A3.04, A9.01: an operator chooses the time of one session.
#[tokio::test]
async fn a9_01_a_session_gets_a_time_of_its_own_from_an_operator_and_keeps_it() {
    let place = Place::new();
    let server = place.serve().await;
    let (session, doomed) = (Session::start(server.address()).await, Session::start(server.address()).await);
    assert_eq!(place.shown(&session).await["ttl_ms"], "default");
    let said = place.run(&["sessions", "set", &label(&session), "--ttl", "2h"]).await;
    assert_eq!((said.code, said.out.as_str()), (Some(0), ""));
    assert!(said.err.contains("expires when it is not used for 2h"), "{}", said.err);
    assert_eq!(place.shown(&session).await["ttl_ms"], 7_200_000);
    let text = place.told(&["sessions", "show", &label(&session)]).await;
    assert!(text.contains("own ttl       2h without use"), "{text}");
    // One that ends it soon, with a note beside it.
    place.told(&["sessions", "set", &label(&doomed), "--ttl", "1s", "why=test"]).await;
    within("it expires", async { while place.shown(&doomed).await["end"] != "expired" {} }).await;
    assert_over(&doomed, "session_expired").await;
    stop(server).await;
    // Also while no server runs, and kept over a restart whatever the default is.
    assert_eq!(place.shown(&session).await["ttl_ms"], 7_200_000);
    place.told(&["sessions", "set", &label(&session), "--ttl", "never"]).await;
    let server = place.serve_with(&["--set", "session.idle_ttl=1s"]).await;
    let woken = at(&session, &server);
    woken.request(1, "ping", &json!({})).send(server.address()).await;
    assert_eq!(place.shown(&session).await["ttl_ms"], "never");
    let back = place.run(&["sessions", "set", &label(&session), "--ttl", "default"]).await;
    assert!(back.err.contains("expires after `session.idle_ttl` without use"), "{}", back.err);
    within("it follows the default again", async {
        while place.shown(&session).await["end"] != "expired" {}
    })
    .await;
    for wrong in [&["--ttl", "0s"][..], &["--ttl", "soon"], &[]] {
        let said = place.run(&[&["sessions", "set", &label(&session)], wrong].concat()).await;
        assert_eq!(said.code, Some(2), "{wrong:?}: {}", said.err);
    }
}

#[tokio::test]
async fn more_metadata_than_may_be_are_refused_wherever_the_session_is() {
    let place = Place::new();
    let server = place.serve_with(&["--set", "session.max_metadata=64"]).await;
    let session = Session::start(server.address()).await;
    place.told(&["sessions", "set", &label(&session), "a=b"]).await;
    let much = format!("much={}", "x".repeat(20_000));
    let awake = place.refused(&["sessions", "set", &label(&session), &much]).await;
    stop(server).await;
    let stored = place.refused(&["sessions", "set", &label(&session), &much]).await;
    assert_eq!(awake, stored);
    assert_eq!(
        awake.replace(&label(&session), "s-4f3a9c01"),
        "error: cannot change s-4f3a9c01\n  caused by: the session's metadata would be too large\n\n\
         hint: remove something with `key:=null`, or let `session.max_metadata` allow for more\n"
    );
    assert_eq!(place.shown(&session).await["metadata"], json!({ "a": "b" }));
}
