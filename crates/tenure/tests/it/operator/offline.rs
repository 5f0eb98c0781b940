//! The same commands on a store whose server was killed.

use serde_json::json;

use super::place::{Place, assert_lives, assert_over, at, kill, label, long_call};
use crate::support::session::Session;

#[tokio::test]
async fn what_a_killed_server_left_can_be_looked_at() {
    let place = Place::new();
    let server = place.serve().await;
    let session = Session::start(server.address()).await;
    let mut stream = long_call(&session, 7).await;
    stream.message().await.expect("more progress");
    let ended = Session::start(server.address()).await;
    assert_eq!(ended.delete().send(server.address()).await.status(), 204);
    kill(server).await;

    let rows = place.rows(&[]).await;
    let find = |session: &Session| rows.iter().find(|row| row["label"] == label(session)).unwrap();
    let row = find(&session);
    assert_eq!((&row["state"], &row["calls"]), (&json!("dormant"), &json!(1)));
    assert!(row["events"].as_u64().unwrap() >= 2, "{row}");
    assert_eq!(row.get("readers"), None, "it is unknown without a server");
    assert_eq!((&find(&ended)["state"], &find(&ended)["end"]), (&json!("ended"), &json!("deleted")));

    let shown = place.shown(&session).await;
    let stream = &shown["streams"][0];
    assert_eq!((&stream["open"], &stream["requests"][0]["id"]), (&json!(true), &json!(7)));
    assert_eq!(stream["requests"][0]["tool"], "long_task");
    assert_eq!(
        shown["signs"],
        json!(["`tools/call long_task` (id 7) was interrupted; it is dealt with when the client comes back"])
    );
    let text = place.told(&["sessions", "show", &label(&session)]).await;
    assert!(text.contains("waits for id 7  tools/call long_task\n"), "{text}");
    // Looking has changed nothing.
    let server = place.serve().await;
    assert_lives(&at(&session, &server)).await;
}

#[tokio::test]
async fn a_session_that_is_revoked_without_a_server_is_dead_when_one_starts() {
    let place = Place::new();
    let server = place.serve().await;
    let (dead, alive) = (Session::start(server.address()).await, Session::start(server.address()).await);
    let mut stream = long_call(&dead, 1).await;
    let last = stream.last_id();
    stream.message().await.expect("more progress");
    kill(server).await;
    assert_eq!(
        place.told(&["sessions", "revoke", &label(&dead)]).await,
        format!("revoked {}\n", label(&dead))
    );
    let shown = place.shown(&dead).await;
    assert_eq!((&shown["state"], &shown["end"]), (&json!("ended"), &json!("revoked")));
    assert_eq!(shown["streams"], json!([]), "its events are gone");
    let again = place.told(&["sessions", "revoke", &label(&dead)]).await;
    assert_eq!(again, format!("{} was revoked before\n", label(&dead)));

    let server = place.serve().await;
    assert_over(&at(&dead, &server), "session_revoked").await;
    let resume = at(&dead, &server).get().header("Last-Event-ID", &last).send(server.address()).await;
    assert_eq!((resume.status(), resume.fault().2.as_str()), (404, "session_revoked"));
    assert_lives(&at(&alive, &server)).await;
}

#[tokio::test]
async fn a_session_whose_time_is_over_counts_as_ended() {
    let place = Place::new();
    let server = place.serve_with(&["--set", "session.max_lifetime=1s"]).await;
    let session = Session::start(server.address()).await;
    kill(server).await;
    let expired = async { while place.rows(&["--state", "ended"]).await.is_empty() {} };
    crate::support::wait::within("its time is over", expired).await;
    let shown = place.shown(&session).await;
    assert_eq!((&shown["end"], &shown["phase"]), (&json!("expired"), &json!("initialized")));
    assert_eq!(shown["signs"], json!(["its time is over; the next sweep of a running server removes it"]));
}
