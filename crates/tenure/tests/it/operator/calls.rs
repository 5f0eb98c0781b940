//! `tenure calls`: what a running server is at work on, and what each call waits for.

use serde_json::{Value, json};

use super::place::{Place, stop};
use crate::support::modern;
use crate::support::session::Session;

/// The rows of `tenure calls`, without their times.
async fn rows(place: &Place, arguments: &[&str]) -> Vec<Value> {
    let text = place.told(&[&["calls", "--json"], arguments].concat()).await;
    let row = |line: &str| {
        let mut row: Value = serde_json::from_str(line).unwrap();
        assert!(row["started"].take().is_u64(), "{line}");
        row
    };
    text.lines().map(row).collect()
}

#[tokio::test]
async fn calls_in_sessions_and_without_are_shown_with_what_they_wait_for() {
    let place = Place::new();
    let server = place.serve_with(&["--set", "shutdown.grace=0s"]).await;
    assert_eq!(rows(&place, &[]).await, [] as [Value; 0]);
    assert_eq!(place.run(&["calls"]).await.err, "nothing is under way\n");

    let session = Session::start(server.address()).await;
    let long =
        json!({ "name": "long_task", "arguments": { "seconds": 3600 }, "_meta": { "progressToken": 1 } });
    let mut in_session = session.request(1, "tools/call", &long).open(server.address()).await;
    in_session.message().await.unwrap();
    let mut without = modern::ask(2, "tools/call", &long).open(server.address()).await;
    without.message().await.unwrap();

    let all = rows(&place, &[]).await;
    assert_eq!(all.len(), 2, "{all:?}");
    let expected = |label: &Value, in_session: bool| {
        json!({
            "label": label, "in_session": in_session, "method": "tools/call", "tool": "long_task",
            "started": null, "state": "running", "waits_for": "server",
        })
    };
    let mut first = expected(&super::place::label(&session).into(), true);
    // By these an operator finds its session, and cancels it.
    (first["id"], first["session"], first["progress"]) =
        (json!(1), all[0]["session"].clone(), all[0]["progress"].clone());
    assert!(first["session"].is_string() && first["progress"]["at"].is_u64(), "{first}");
    assert_eq!(all[0], first);
    let mut second = expected(&all[1]["label"], false);
    second["attempts"] = json!(1);
    assert_eq!(all[1], second);
    assert_eq!(rows(&place, &["--limit", "1"]).await, all[..1]);
    assert_eq!(rows(&place, &["--owner", "alice"]).await, [] as [Value; 0]);
    let shown = place.told(&["calls"]).await;
    assert!(shown.contains("tools/call long_task") && shown.contains("the server behind"), "{shown}");
    drop((in_session, without));
    stop(server).await;
    let offline = place.run(&["calls"]).await;
    assert_eq!((offline.code, offline.out.as_str()), (Some(0), ""));
    assert_eq!(offline.err, "no server has this store open, so nothing is under way\n");
}
