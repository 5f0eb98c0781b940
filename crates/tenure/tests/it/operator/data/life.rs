//! The life of a data session on a running server, as an operator steers it.

use expect_test::expect_file;
use serde_json::{Value, json};

use super::support::Client;
use crate::operator::place::{Place, stop};
use crate::support::modern;
use crate::support::session::Session;
use crate::support::wait::within;

#[tokio::test]
async fn what_clients_keep_can_be_looked_at_without_their_ids() {
    let place = Place::new();
    let server = place.serve().await;
    let none = place.run(&["sessions", "data", "list"]).await;
    assert_eq!((none.code, none.out.as_str(), none.err.as_str()), (Some(0), "", "no data sessions\n"));
    let client = Client::begin(server.address(), "my notes").await;
    client.note("hello").await;
    client.note("again").await;

    let rows = place.data_rows(&[]).await;
    let row = &rows[0];
    assert_eq!((&row["state"], &row["kind"]), (&json!("active"), &json!("workspace")));
    assert_eq!((&row["label"], &row["edition"]), (&json!("my notes"), &json!(3)));
    assert!(row["expires"].as_u64() > row["last_used"].as_u64(), "{row}");
    let name = row["name"].as_str().unwrap();
    assert!(name.starts_with("d-") && row["key"].as_str().unwrap().ends_with(&name[2..]), "{row}");
    for (filter, found) in [
        (["--kind", "workspace"], 1),
        (["--kind", "basket"], 0),
        (["--owner", "anonymous"], 1),
        (["--owner", "ann"], 0),
        (["--state", "active"], 1),
        (["--state", "ended"], 0),
    ] {
        assert_eq!(place.data_rows(&filter).await.len(), found, "{filter:?}");
    }
    let table = place.data(&["list"]).await;
    assert!(table.starts_with("NAME ") && table.contains("my notes") && !table.contains('\x1b'), "{table}");

    let text = place.data(&["show", name]).await;
    assert!(text.contains("hints         {\"title\":\"a title\"}") && !text.contains("hello"), "{text}");
    let text = place.data(&["show", name, "--data"]).await;
    assert!(text.contains("\n    \"notes\": [\n      \"hello\",\n      \"again\"\n    ],\n"), "{text}");
    let shown: Value = serde_json::from_str(&place.data(&["show", name, "--data", "--json"]).await).unwrap();
    assert_eq!(shown["data"]["notes"], json!(["hello", "again"]));
    assert_eq!(shown["idle_ttl_ms"], 30 * 60 * 1000);
    let secret = client.id.strip_prefix("sess-").unwrap();
    for said in [table, text, shown.to_string(), rows[0].to_string()] {
        assert!(!said.contains(secret), "{said}");
    }
    assert_eq!(place.data_rows(&[]).await[0]["edition"], 3, "looking changes nothing");
}

#[tokio::test]
async fn the_list_of_sessions_mentions_data_sessions() {
    let place = Place::new();
    let server = place.serve().await;
    let session = Session::start(server.address()).await;
    let said = place.run(&["sessions", "list"]).await.err;
    assert!(!said.contains("data session"), "{said}");
    session.workspace().await;
    let said = place.run(&["sessions", "list"]).await;
    assert!(said.err.ends_with("besides, 1 data session; see `tenure sessions data list`\n"), "{}", said.err);
    session.workspace().await;
    let said = place.run(&["sessions", "list", "--json"]).await;
    assert_eq!(said.err, "");
    stop(server).await;
    let said = place.run(&["sessions", "list"]).await;
    assert_eq!(said.err, "besides, 2 data sessions; see `tenure sessions data list`\n");
}

#[tokio::test]
async fn a_prepared_data_session_is_used_by_the_client_that_gets_its_id() {
    let place = Place::new();
    let server = place.serve().await;
    let data = r#"{"notes":["read me"]}"#;
    let said = place.run(&["sessions", "data", "create", "--label", "prepared", "--data", data]).await;
    let name = place.data_name().await;
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(
        said.err,
        format!(
            "made {name}, a workspace; its id is a secret that gives access to the data session; it is not shown again\n"
        )
    );
    assert!(
        said.out.starts_with("sess-") && said.out.ends_with('\n') && said.out.len() == 38,
        "{}",
        said.out
    );
    let client = Client::given(server.address(), &said.out).await;
    assert_eq!(client.notes().await, json!(["read me"]));

    // The same with a handle, from a file, and with nothing in it.
    std::fs::write(place.beside("notes.json"), "{\"notes\": [\"from a file\"]}\n").unwrap();
    let made = place.data(&["create", "--data", "@notes.json", "--json"]).await;
    let made: Value = serde_json::from_str(&made).unwrap();
    let arguments = json!({ (made["argument"].as_str().unwrap()): made["handle"] });
    let read = client.session.tool(9, "notebook_read", &arguments).await.json();
    assert_eq!(read["result"]["structuredContent"]["notes"], json!(["from a file"]));
    let empty = Client::given(server.address(), &place.data(&["create"]).await).await;
    assert_eq!(empty.notes().await, json!([]));

    let warned = place.run(&["sessions", "data", "create", "--kind", "basket"]).await;
    assert!(
        warned.err.ends_with("\nwarning: no tool of the server works on a `basket`, only on `workspace`\n"),
        "{}",
        warned.err
    );
}

#[tokio::test]
async fn what_cannot_be_made_is_explained() {
    let place = Place::new();
    let server =
        place.serve_with(&["--set", "data_sessions.max_bytes=100", "--set", "data_sessions.max=1"]).await;
    let large = format!("\"{}\"", "x".repeat(100));
    let mut all = String::new();
    for arguments in [
        &["create", "--data", "{notes:[]}"][..],
        &["create", "--data", "@missing.json"],
        &["create", "--data", &large],
        &["create", "--kind", "Basket"],
        &["create", "--copy-of", "d-00000000"],
    ] {
        let shown = arguments.join(" ").replace(&large, "LARGE");
        all.push_str(&format!("## {shown}\n{}\n", place.data_refused(arguments).await));
    }
    assert_eq!(place.data_rows(&[]).await.len(), 0);
    place.data(&["create"]).await;
    all.push_str(&format!("## one too many\n{}", place.data_refused(&["create"]).await));
    expect_file!["../snapshots/data_not_made.txt"].assert_eq(&all);
    stop(server).await;
}

#[tokio::test]
async fn a_data_session_is_cleared_under_its_client_who_goes_on() {
    let place = Place::new();
    let server = place.serve().await;
    let client = Client::begin(server.address(), "notes").await;
    client.note("hello").await;
    let name = place.data_name().await;
    assert_eq!(place.data(&["clear", &name]).await, format!("cleared {name}\n"));
    let row = &place.data_rows(&[]).await[0];
    assert_eq!((&row["bytes"], &row["edition"], &row["label"]), (&json!(0), &json!(3), &json!("notes")));
    let shown = place.data(&["show", &name, "--data"]).await;
    assert!(shown.ends_with("\ndata  none\n"), "{shown}");
    assert_eq!(client.notes().await, json!([]));
    client.note("afresh").await;
    assert_eq!(client.notes().await, json!(["afresh"]));
}

#[tokio::test]
async fn a_client_without_a_session_is_told_at_once_of_what_was_revoked() {
    let place = Place::new();
    let server = place.serve().await;
    let send = async |id: u64, method: &str, params: Value| {
        modern::ask(id, method, &params).send(server.address()).await.json()
    };
    let made = send(1, "dev.tenure/session/create", json!({ "hints": { "label": "modern" } })).await;
    let cookie = &made["result"]["_meta"]["dev.tenure/session"];
    let call = json!({ "name": "session_counter_inc", "_meta": { "dev.tenure/session": cookie } });
    assert_eq!(send(2, "tools/call", call.clone()).await["result"]["structuredContent"]["counter"], 1);
    let rows = place.data_rows(&[]).await;
    assert_eq!((rows.len(), &rows[0]["label"]), (1, &json!("modern")));
    let name = rows[0]["name"].as_str().unwrap();
    place.data(&["revoke", name]).await;
    let refused = send(3, "tools/call", call).await;
    assert_eq!(refused["error"]["code"], -31043, "{refused}");
    assert_eq!(refused["error"]["data"]["reason"], "data_session_revoked");
    // One that an operator prepares can be used without a session as well.
    let id = place.data(&["create", "--data", r#"{"counter":41}"#]).await;
    let cookie = json!({ "dev.tenure/session": { "sessionId": id.trim() } });
    let used = send(4, "tools/call", json!({ "name": "session_counter_inc", "_meta": cookie })).await;
    assert_eq!(used["result"]["structuredContent"]["counter"], 42, "{used}");
}

#[tokio::test]
async fn a_revoked_data_session_is_dead_under_all_its_names() {
    let place = Place::new();
    let server = place.serve().await;
    let client = Client::begin(server.address(), "notes").await;
    client.note("hello").await;
    let name = place.data_name().await;
    let other = Client::begin(server.address(), "other").await;
    assert_eq!(place.data(&["revoke", &name]).await, format!("revoked {name}\n"));
    assert_eq!(client.refusal().await, "session_revoked");
    let resume = client.session.request(5, "session/resume", &json!({ "id": client.id }));
    let resumed = resume.send(server.address()).await.json();
    assert_eq!(resumed["error"]["data"]["reason"], "session_revoked");
    assert_eq!(other.notes().await, json!([]), "the other is alive");

    assert_eq!(place.data(&["revoke", &name]).await, format!("{name} was revoked before\n"));
    let rows = place.data_rows(&["--state", "ended"]).await;
    assert_eq!((rows.len(), &rows[0]["end"]), (1, &json!("revoked")));
    assert_eq!((rows[0].get("label"), rows[0].get("bytes")), (None, None), "nothing is left of it");
    let shown = place.data(&["show", &name, "--data"]).await;
    assert!(shown.contains("ended (revoked)") && shown.contains("forgotten     in "), "{shown}");
    let mut all = String::new();
    for verb in ["resume", "clear", "select"] {
        all.push_str(&format!("## {verb}\n{}\n", place.data_refused(&[verb, &name]).await));
    }
    all.push_str(&format!("## copy\n{}", place.data_refused(&["create", "--copy-of", &name]).await));
    expect_file!["../snapshots/data_revoked.txt"].assert_eq(&all);
    stop(server).await;
    let server = place.serve().await;
    let again = Client::given(server.address(), &client.id).await;
    assert_eq!(again.refusal().await, "session_revoked");
}

#[tokio::test]
async fn one_that_has_expired_is_resumed_and_its_client_goes_on() {
    let place = Place::new();
    let server = place.serve_with(&["--set", "data_sessions.idle_ttl=5s"]).await;
    let client = Client::begin(server.address(), "notes").await;
    client.note("hello").await;
    let name = place.data_name().await;
    let said = place.data(&["resume", &name]).await;
    assert!(said.starts_with(&format!("resumed {name}; it expires in ")), "{said}");
    assert!(said.ends_with(" UTC) if it is not used\n"), "{said}");
    let expired = async { while place.data_rows(&["--state", "expired"]).await.is_empty() {} };
    within("it expires", expired).await;
    assert_eq!(client.refusal().await, "session_expired");
    let mut all = String::new();
    for verb in ["clear", "select"] {
        all.push_str(&format!("## {verb}\n{}\n", place.data_refused(&[verb, &name]).await));
    }
    all.push_str(&format!("## copy\n{}", place.data_refused(&["create", "--copy-of", &name]).await));
    expect_file!["../snapshots/data_expired.txt"].assert_eq(&all);
    let shown = place.data(&["show", &name]).await;
    assert!(shown.contains("  kept          until "), "{shown}");

    let said = place.data(&["resume", &name]).await;
    assert!(said.starts_with(&format!("recovered {name}; it expires in ")), "{said}");
    assert_eq!(client.notes().await, json!(["hello"]));
}

#[tokio::test]
async fn a_copy_holds_the_same_and_goes_its_own_way() {
    let place = Place::new();
    let server = place.serve().await;
    let client = Client::begin(server.address(), "notes").await;
    client.note("hello").await;
    let name = place.data_name().await;
    expect_file!["../snapshots/data_select_anonymous.txt"]
        .assert_eq(&place.data_refused(&["select", &name]).await);
    let copy = place.data(&["create", "--copy-of", &name, "--label", "a copy"]).await;
    let other = Client::given(server.address(), &copy).await;
    other.note("more").await;
    assert_eq!(other.notes().await, json!(["hello", "more"]));
    assert_eq!(client.notes().await, json!(["hello"]));
    let labels: Vec<_> = place.data_rows(&[]).await.iter().map(|row| row["label"].clone()).collect();
    assert!(labels.contains(&json!("notes")) && labels.contains(&json!("a copy")), "{labels:?}");
}

#[tokio::test]
async fn a_list_walks_through_all_pages() {
    const MANY: usize = 1100;
    let place = Place::new();
    let server = place.serve().await;
    let session = Session::start(server.address()).await;
    for _ in 0..MANY {
        session.workspace().await;
    }
    let rows = place.data_rows(&["--limit", "5000"]).await;
    let mut keys: Vec<_> = rows.iter().map(|row| row["key"].as_str().unwrap()).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!((rows.len(), keys.len()), (MANY, MANY));
    let some = place.run(&["sessions", "data", "list", "--limit", "3"]).await;
    assert_eq!(some.out.lines().count(), 4);
    assert_eq!(some.err, "3 of 1100 data sessions; `--limit 1100` shows all\n");
}
