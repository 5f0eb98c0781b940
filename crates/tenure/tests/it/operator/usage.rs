//! `tenure usage`: what clients make a running server hold, and which of them hold most.

use serde_json::{Value, json};

use super::place::{Place, stop};
use crate::support::modern;
use crate::support::session::Session;

#[tokio::test]
async fn what_each_address_holds_is_shown() {
    let place = Place::new();
    let server = place.serve_with(&["--set", "shutdown.grace=0s", "--set", "session.max_sessions=50"]).await;
    let _session = Session::start(server.address()).await;
    let long =
        json!({ "name": "long_task", "arguments": { "seconds": 3600 }, "_meta": { "progressToken": 1 } });
    let mut call = modern::ask(2, "tools/call", &long).open(server.address()).await;
    call.message().await.unwrap();

    let text = place.told(&["usage", "--json"]).await;
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |name: &str| rows.iter().find(|row| row["resource"] == name).unwrap();
    let local = json!([{ "peer": "127.0.0.1", "used": 1 }]);
    assert_eq!((&of("calls")["used"], &of("calls")["peers"]), (&json!(1), &local));
    assert_eq!((&of("sessions")["total"], &of("sessions")["peers"]), (&json!(50), &local));
    assert_eq!(of("listens")["peers"], json!([]));
    assert!(of("memory")["used"].as_u64().unwrap() > 100, "{text}");
    let shown = place.told(&["usage"]).await;
    assert!(shown.contains("512.0 MiB") && shown.contains("127.0.0.1 (1)"), "{shown}");
    drop(call);
    stop(server).await;
    let offline = place.run(&["usage"]).await;
    assert_eq!(
        (offline.code, offline.err.as_str()),
        (Some(0), "no server has this store open, so nothing is held\n")
    );
}
