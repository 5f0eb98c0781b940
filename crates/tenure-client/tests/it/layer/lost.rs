//! Tests of sessions that the server ends or no longer knows.

use serde_json::{Value, json};
use tenure_client::{Jar, Recreate, SessionOptions};

use crate::layer::support::{
    SEP, STRAWMAN, call, connect, cookie, current, done, in_jar, round, sep, strawman,
};

fn recreating(jar: &Jar) -> SessionOptions {
    SessionOptions { recreate: Recreate::AfterLoss, ..SessionOptions::new(jar.clone()) }
}

#[tokio::test(start_paused = true)]
async fn null_ends_a_session_in_either_dialect() {
    for (capabilities, key, first) in
        [(strawman(), STRAWMAN, json!({"id": "a"})), (sep(), SEP, json!({"sessionId": "a"}))]
    {
        let jar = Jar::in_memory();
        let (client, mut wire) = connect(capabilities, SessionOptions::new(jar.clone())).await;
        wire.create(first).await;
        round(&client, &mut wire, json!({ key: null })).await;
        assert_eq!(current(&client), None);
        assert_eq!(in_jar(&jar, "a").as_deref(), Some("session_revoked"));
        // No new session is created, and the old cookie is not sent.
        let request = round(&client, &mut wire, Value::Null).await;
        assert!(cookie(&request, key).is_null());
    }
}

#[tokio::test(start_paused = true)]
async fn if_told_so_a_revoked_session_is_followed_by_a_new_one() {
    let jar = Jar::in_memory();
    let (client, mut wire) = connect(strawman(), recreating(&jar)).await;
    wire.create(json!({"id": "a"})).await;
    round(&client, &mut wire, json!({STRAWMAN: null})).await;
    let (result, ()) = tokio::join!(call(&client), async {
        wire.create(json!({"id": "b"})).await;
        let request = wire.tool(Value::Null).await;
        assert_eq!(cookie(&request, STRAWMAN), &json!({"id": "b"}));
    });
    result.unwrap();
    assert_eq!(in_jar(&jar, "a").as_deref(), Some("session_revoked"));
    assert_eq!(in_jar(&jar, "b").as_deref(), Some("used"));
}

#[tokio::test(start_paused = true)]
async fn the_program_hears_that_its_session_is_gone() {
    for (code, message, reason) in [
        (-32002, "nope", "session_required"),
        (-32043, "nope", "session_not_found"),
        (-32043, "Session expired", "session_expired"),
        (-31043, "nope", "session_not_found"),
        (-32044, "nope", "session_required"),
    ] {
        let jar = Jar::in_memory();
        let (client, mut wire) = connect(sep(), SessionOptions::new(jar.clone())).await;
        wire.create(json!({"sessionId": "a"})).await;
        let (result, ()) = tokio::join!(call(&client), async {
            let request = wire.next_of("tools/call").await;
            wire.error(&request, code, message).await;
        });
        assert!(result.is_err(), "{code}");
        assert_eq!(current(&client), None);
        assert_eq!(in_jar(&jar, "a").as_deref(), Some(reason), "{code}");
        // If the server then requires a session, it gets a new one.
        let (result, ()) = tokio::join!(call(&client), async {
            let request = wire.next_of("tools/call").await;
            assert!(cookie(&request, SEP).is_null());
            wire.error(&request, -32044, "Session required").await;
            wire.create(json!({"sessionId": "b"})).await;
            let request = wire.tool(Value::Null).await;
            assert_eq!(cookie(&request, SEP)["sessionId"], "b");
        });
        result.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn if_told_so_a_call_of_a_lost_session_is_repeated_in_a_new_one_but_once() {
    let jar = Jar::in_memory();
    let (client, mut wire) = connect(sep(), recreating(&jar)).await;
    wire.create(json!({"sessionId": "a"})).await;
    let (result, ()) = tokio::join!(call(&client), async {
        let request = wire.next_of("tools/call").await;
        wire.error(&request, -32043, "Session not found").await;
        wire.create(json!({"sessionId": "b"})).await;
        let request = wire.tool(Value::Null).await;
        assert_eq!(cookie(&request, SEP)["sessionId"], "b");
    });
    result.unwrap();
    let (result, ()) = tokio::join!(call(&client), async {
        let request = wire.next_of("tools/call").await;
        wire.error(&request, -32043, "Session not found").await;
        wire.create(json!({"sessionId": "c"})).await;
        let request = wire.next_of("tools/call").await;
        wire.error(&request, -32043, "Session not found, again").await;
    });
    let error = result.unwrap_err().to_string();
    assert!(error.contains("again"), "{error}");
    assert_eq!(in_jar(&jar, "c").as_deref(), Some("session_not_found"));
    client.close().await.unwrap();
    assert_eq!(wire.rest().await, [Value::Null; 0], "not even a session for a third try");
}

#[tokio::test(start_paused = true)]
async fn null_and_a_refusal_in_one_answer_make_one_new_session() {
    let jar = Jar::in_memory();
    let (client, mut wire) = connect(strawman(), recreating(&jar)).await;
    wire.create(json!({"id": "a"})).await;
    let (result, ()) = tokio::join!(call(&client), async {
        let request = wire.next_of("tools/call").await;
        let answer = json!({"content": [{"type": "text", "text": "Session not found"}], "isError": true,
            "_meta": {STRAWMAN: null}});
        wire.result(&request, answer).await;
        wire.create(json!({"id": "b"})).await;
        let request = wire.tool(Value::Null).await;
        assert_eq!(cookie(&request, STRAWMAN), &json!({"id": "b"}));
    });
    result.unwrap();
    client.close().await.unwrap();
    assert_eq!(wire.rest().await, [Value::Null; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_does_not_bring_a_lost_session_back() {
    let jar = Jar::in_memory();
    let (client, mut wire) = connect(strawman(), SessionOptions::new(jar.clone())).await;
    wire.create(json!({"id": "a"})).await;
    let (first, second, ()) = tokio::join!(call(&client), call(&client), async {
        let one = wire.next_of("tools/call").await;
        let two = wire.next_of("tools/call").await;
        wire.result(&one, done(json!({STRAWMAN: null}))).await;
        wire.result(&two, done(json!({STRAWMAN: {"id": "a", "data": "late"}}))).await;
    });
    first.unwrap();
    second.unwrap();
    assert_eq!(current(&client), None);
    assert_eq!(in_jar(&jar, "a").as_deref(), Some("session_revoked"));
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_is_not_found_is_not_a_lost_session() {
    let jar = Jar::in_memory();
    let (client, mut wire) = connect(strawman(), recreating(&jar)).await;
    wire.create(json!({"id": "a"})).await;
    let params = rmcp::model::ReadResourceRequestParams::new("x:y");
    let (result, ()) = tokio::join!(client.read_resource(params), async {
        let request = wire.next_of("resources/read").await;
        wire.error(&request, -32002, "Resource not found").await;
    });
    assert!(result.is_err());
    assert_eq!(current(&client).as_deref(), Some("a"));
}
