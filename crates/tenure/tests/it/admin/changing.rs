//! What operators can do, each with its reason, its effect at the client, and its record (AD3).

use serde_json::{Value, json};

use super::world::{AsValue, World, refusal};
use crate::operator::place::{digits, label};
use crate::support::session::Session;

fn why(reason: &str) -> Value {
    json!({ "reason": reason })
}

#[tokio::test]
async fn ad3_a_revoked_session_is_told_at_once_and_the_log_has_who_and_why() {
    let mut world = World::new().await;
    let (session, _link) = world.steered.session().await;
    let browser = world.browser("operator").await;
    let path = format!("sessions/{}/revoke", digits(&session));
    assert_eq!(refusal(&browser.change(&path, &json!({})).await), (400, "bad_request".into()));
    assert_eq!(refusal(&browser.change(&path, &why("  ")).await), (400, "bad_request".into()));
    let answer = browser.change(&path, &why("the client is out of control")).await;
    assert_eq!(answer.value(), json!({ "ended": true }));
    let response = session.tool(9, "any", &json!({})).await;
    assert_eq!(response.fault().2, "session_revoked");
    assert_eq!(response.status(), 404);
    assert_eq!(refusal(&browser.change(&path, &why("once more")).await), (409, "conflict".into()));

    let name = label(&session);
    let records = world.recorded().await;
    let record = records.iter().find(|record| record["method"] == "sessions.revoke").unwrap();
    assert_eq!(record["name"], name.as_str());
    assert_eq!(record["reason"], "the client is out of control");
    assert_eq!((&record["principal"]["kind"], &record["outcome"]), (&json!("operator"), &json!("ok")));
    assert_eq!(record["remote"], "127.0.0.1");
}

#[tokio::test]
async fn a_viewer_changes_nothing() {
    let mut world = World::new().await;
    let (session, _link) = world.steered.session().await;
    let viewer = world.browser("viewer").await;
    let operator = world.browser("operator").await;
    let key = digits(&session);
    let document = world.read("openapi.json").await;
    let mut tried = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            if operation["x-tenure-change"] != true {
                continue;
            }
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            let mut body = json!({});
            for name in schema["required"].as_array().unwrap() {
                let member = &schema["properties"][name.as_str().unwrap()];
                body[name.as_str().unwrap()] = match member["type"].as_str() {
                    Some("integer") => json!(1),
                    Some("object") => json!({ "client": "it" }),
                    _ => json!("because"),
                };
            }
            let path = path.replace("{key}", &key).replace("{label}", "x").replace("/api/v1/", "");
            let response = viewer.order(&method.to_uppercase(), &path, &body).send(world.admin).await;
            assert_eq!(refusal(&response), (403, "forbidden".into()), "{method} {path}");
            if operation["x-tenure-role"] == "admin" {
                let response = operator.order(&method.to_uppercase(), &path, &body).send(world.admin).await;
                assert_eq!(refusal(&response), (403, "forbidden".into()), "{method} {path}");
            }
            tried += 1;
        }
    }
    assert!(tried > 10, "{tried}");
    assert_eq!(world.read(&format!("sessions/{key}")).await["state"], "awake");
}

#[tokio::test]
async fn a_request_on_a_stream_is_cancelled_for_its_client_and_its_server() {
    let mut world = World::new().await;
    let (session, _link) = world.steered.session().await;
    let (call, mut events) = world.steered.streaming_call(&session, 7).await;
    let (_, hello) = events.message().await.unwrap();
    assert_eq!(hello["params"]["data"], "hello");
    let path = format!("sessions/{}/cancel", digits(&session));
    let response = world.change(&path, &json!({ "call": 8, "reason": "it hangs" })).await;
    assert_eq!(refusal(&response), (404, "not_found".into()));
    let response = world.change(&path, &json!({ "call": { "id": 7 }, "reason": "it hangs" })).await;
    assert_eq!(refusal(&response), (400, "bad_request".into()));
    let response = world.change(&path, &json!({ "call": 7, "reason": "it hangs" })).await;
    assert_eq!(response.value(), json!({ "cancelled": true }));
    let (_, answer) = events.message().await.unwrap();
    assert_eq!((&answer["id"], &answer["error"]["data"]["reason"]), (&json!(7), &json!("cancelled")));
    assert!(events.message().await.is_none(), "the stream is complete");
    call.context.cancelled().await;
    drop(call);
    // The session goes on, and the id can be used again.
    assert_eq!(world.read(&format!("sessions/{}", digits(&session))).await["in_flight"], json!([]));
    let (again, _events) = world.steered.streaming_call(&session, 7).await;
    again.answer(&json!({ "content": [] }));
    let records = world.recorded().await;
    let record = records.iter().rfind(|record| record["method"] == "sessions.cancel").unwrap();
    assert_eq!(
        (&record["reason"], &record["name"]),
        (&json!("it hangs"), &json!(format!("{} 7", label(&session))))
    );
}

#[tokio::test]
async fn a_request_whose_answer_is_json_is_cancelled_too() {
    // Over the door for single requests no request ever becomes a stream.
    let mut world = World::with(&[("doors.rpc", "true"), ("streams.json_wait", "1h")]).await;
    let (session, _link) = world.steered.session().await;
    let waiting =
        session.request(7, "tools/call", &json!({ "name": "any" })).begin(world.steered.address()).await;
    let call = world.steered.script.call().await;
    let path = format!("sessions/{}/cancel", digits(&session));
    let response = world.change(&path, &json!({ "call": 7, "reason": "it hangs" })).await;
    assert_eq!(response.status(), 200, "{}", response.text());
    let mut waiting = waiting;
    let answer = waiting.response().await;
    assert_eq!(answer.value()["error"]["data"]["reason"], "cancelled", "{}", answer.text());
    drop(call);
}

#[tokio::test]
async fn a_reader_that_is_detached_comes_back_for_the_rest() {
    let mut world = World::new().await;
    let (session, _link) = world.steered.session().await;
    let (call, mut events) = world.steered.streaming_call(&session, 7).await;
    events.message().await.unwrap();
    let last = events.last_id();
    let path = format!("sessions/{}/detach", digits(&session));
    let response = world.change(&path, &json!({ "stream": 5, "reason": "stuck behind a proxy" })).await;
    assert_eq!(refusal(&response), (404, "not_found".into()));
    let response = world.change(&path, &json!({ "stream": 1, "reason": "stuck behind a proxy" })).await;
    assert_eq!(response.status(), 200, "{}", response.text());
    while events.next().await.is_some() {}
    let mut back = session.resume(&last).await;
    call.answer(&json!({ "content": [] }));
    let (_, answer) = back.message().await.unwrap();
    assert_eq!(answer["id"], 7);
}

#[tokio::test]
async fn a_quiet_session_is_made_dormant_and_a_busy_one_is_not() {
    let mut world = World::new().await;
    let (session, _link) = world.steered.session().await;
    let (call, mut events) = world.steered.streaming_call(&session, 7).await;
    let path = format!("sessions/{}/sleep", digits(&session));
    assert_eq!(refusal(&world.change(&path, &why("frees memory")).await), (409, "conflict".into()));
    call.answer(&json!({ "content": [] }));
    while events.next().await.is_some() {}
    let response = loop {
        // The last reader is let go of a moment after its response has ended.
        let response = world.change(&path, &why("frees memory")).await;
        if response.status() != 409 {
            break response;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(response.value(), json!({ "dormant": true }));
    assert_eq!(world.read(&format!("sessions/{}", digits(&session))).await["state"], "dormant");
    assert_eq!(refusal(&world.change(&path, &why("frees memory")).await), (404, "not_found".into()));
}

#[tokio::test]
async fn sessions_are_revoked_by_a_filter_unless_there_are_more_than_expected() {
    let world = World::new().await;
    let mut sessions = Vec::new();
    for _ in 0..3 {
        sessions.push(Session::start(world.steered.address()).await);
    }
    let order =
        |filter: Value, expect: u64| json!({ "filter": filter, "expect": expect, "reason": "a bad release" });
    for (body, expected) in [
        (order(json!({}), 3), (400, "bad_request")),
        (order(json!({ "clint": "it" }), 3), (400, "bad_request")),
        (order(json!({ "client": "it" }), 2), (409, "conflict")),
        (json!({ "filter": { "client": "it" }, "reason": "a bad release" }), (400, "bad_request")),
    ] {
        let (status, reason) = refusal(&world.change("sessions/revoke", &body).await);
        assert_eq!((status, reason.as_str()), expected, "{body}");
    }
    assert_eq!(
        world.read("sessions?state=awake").await["rows"].as_array().unwrap().len(),
        3,
        "none was ended"
    );
    let body = order(json!({ "client": "it", "state": "awake" }), 3);
    let response = world.change("sessions/revoke", &body).await;
    assert_eq!(response.value(), json!({ "ended": 3, "gone": 0 }));
    for session in sessions {
        assert_eq!(session.tool(9, "any", &json!({})).await.fault().2, "session_revoked");
    }
    let records = world.recorded().await;
    let record = records.iter().rfind(|record| record["method"] == "sessions.revoke").unwrap();
    assert_eq!(record["name"], "3 sessions");
    assert_eq!(record["change"], r#"{"ended":3,"filter":{"client":"it","state":"awake"}}"#);
}

#[tokio::test]
async fn metadata_and_lifetime_are_changed_with_what_they_were_in_the_log() {
    let mut world = World::new().await;
    let (session, _link) = world.steered.session().await;
    let browser = world.browser("operator").await;
    let path = format!("sessions/{}/settings", digits(&session));
    let body = json!({ "metadata": { "ticket": "T-7" }, "ttl_ms": 60000, "reason": "kept for the vendor" });
    let response = browser.order("PATCH", &path, &body).send(world.admin).await;
    assert_eq!(response.status(), 200, "{}", response.text());
    let detail = world.read(&format!("sessions/{}", digits(&session))).await;
    assert_eq!((&detail["metadata"]["ticket"], &detail["ttl_ms"]), (&json!("T-7"), &json!(60000)));
    let body = json!({ "ttl_ms": "soon", "reason": "kept for the vendor" });
    let response = browser.order("PATCH", &path, &body).send(world.admin).await;
    assert_eq!(refusal(&response), (400, "bad_request".into()));
    let records = world.recorded().await;
    let record = records.iter().find(|record| record["method"] == "sessions.settings").unwrap();
    let change: Value = serde_json::from_str(record["change"].as_str().unwrap()).unwrap();
    assert_eq!(change["metadata.ticket"], json!([null, "T-7"]));
}

#[tokio::test]
async fn a_change_is_finished_and_recorded_though_the_browser_goes_away() {
    let mut world = World::new().await;
    let (session, _link) = world.steered.session().await;
    let browser = world.browser("operator").await;
    let path = format!("sessions/{}/revoke", digits(&session));
    // The request is sent whole, and its connection closed before any answer.
    let connection = browser.order("POST", &path, &why("closing the lid")).begin(world.admin).await;
    drop(connection);
    // Either the request was read, then it is done; or the server never saw it. It is never half done.
    let state = world.read(&format!("sessions/{}", digits(&session))).await["state"].clone();
    let records = world.recorded().await;
    let is_recorded = records.iter().any(|record| record["method"] == "sessions.revoke");
    assert!(state != "ended" || is_recorded, "{state}");
}
