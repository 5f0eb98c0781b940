//! Tests of when the layer asks for a session.

use serde_json::{Value, json};
use tenure_client::{Create, Dialect, Jar, SessionOptions};

use crate::layer::support::{
    SEP, STRAWMAN, call, connect, cookie, current, in_jar, options, round, sep, settle, strawman,
};

#[tokio::test(start_paused = true)]
async fn a_strawman_session_is_made_before_the_first_call_goes_out() {
    let options =
        SessionOptions { label: Some("my-agent".to_owned()), data: Some(json!({"title": "t"})), ..options() };
    let jar = options.jar.clone();
    let (client, mut wire) = connect(strawman(), options).await;
    let (result, ()) = tokio::join!(call(&client), async {
        let request = wire.next_of("session/create").await;
        assert_eq!(request["params"], json!({"hints": {"label": "my-agent", "data": {"title": "t"}}}));
        assert!(request["id"].as_str().unwrap().starts_with("tenure-"), "rmcp's ids are numbers");
        // The call could overtake the answer.
        settle().await;
        let body = json!({"id": "sess-1", "expiry": "2099-01-01T00:00:00Z", "data": {"title": "t"},
            "_meta": {STRAWMAN: {"id": "sess-1", "expiry": "2099-01-01T00:00:00Z"}}});
        wire.result(&request, body).await;
        let request = wire.tool(Value::Null).await;
        // The cookie counts, not the body.
        assert_eq!(cookie(&request, STRAWMAN), &json!({"id": "sess-1", "expiry": "2099-01-01T00:00:00Z"}));
        assert_eq!(request["params"]["name"], "t");
    });
    result.unwrap();
    assert_eq!(current(&client).as_deref(), Some("sess-1"));
    assert_eq!(client.sessions().dialect(), Some(Dialect::Strawman));
    assert_eq!(in_jar(&jar, "sess-1").as_deref(), Some("used"));
}

#[tokio::test(start_paused = true)]
async fn a_session_of_the_later_draft_is_made_without_params() {
    let (client, mut wire) = connect(sep(), options()).await;
    let request = wire
        .create(
            json!({"sessionId": "sess-1", "expiresAt": "2099-11-15T18:21:30Z", "state": "eyJub3RlcyI6W119"}),
        )
        .await;
    assert_eq!(request["params"], json!({}), "nothing in it, above all no session");
    let request = round(&client, &mut wire, Value::Null).await;
    assert_eq!(cookie(&request, SEP), &json!({"sessionId": "sess-1", "state": "eyJub3RlcyI6W119"}));
    assert_eq!(client.sessions().dialect(), Some(Dialect::Draft));
}

#[tokio::test(start_paused = true)]
async fn of_two_dialects_the_preferred_is_spoken() {
    let both = json!({"experimental": {"session": {}}, "sessions": {}});
    let (_client, mut wire) = connect(both.clone(), options()).await;
    wire.next_of("sessions/create").await;
    let (_client, mut wire) = connect(both, SessionOptions { prefer: Dialect::Strawman, ..options() }).await;
    wire.next_of("session/create").await;
}

#[tokio::test(start_paused = true)]
async fn servers_without_sessions_are_used_without() {
    for capabilities in [
        json!({}),
        json!({"experimental": {"session": {"version": 3}}}),
        json!({"experimental": {"other": {}}}),
    ] {
        let (client, mut wire) = connect(capabilities, options()).await;
        let request =
            round(&client, &mut wire, json!({STRAWMAN: {"id": "x"}, SEP: {"sessionId": "x"}})).await;
        assert!(cookie(&request, STRAWMAN).is_null() && cookie(&request, SEP).is_null());
        assert_eq!((current(&client), client.sessions().dialect()), (None, None));
        client.close().await.unwrap();
        assert_eq!(wire.rest().await, [Value::Null; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_assumed_dialect_is_for_servers_that_name_none() {
    let assume = SessionOptions { assume: Some(Dialect::Draft), ..options() };
    let (_client, mut wire) = connect(json!({}), assume).await;
    wire.next_of("sessions/create").await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_made_unasked_if_told_not_to_or_not_offered() {
    let no_create = json!({"experimental": {"session": {"features": ["resume"]}}});
    for (capabilities, create) in [
        (sep(), Create::WhenRequired),
        (sep(), Create::Never),
        (strawman(), Create::Never),
        (no_create, Create::WhenOffered),
    ] {
        let (client, mut wire) = connect(capabilities, SessionOptions { create, ..options() }).await;
        let request = round(&client, &mut wire, Value::Null).await;
        assert!(cookie(&request, STRAWMAN).is_null() && cookie(&request, SEP).is_null());
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_connection_goes_on_with_the_session_of_the_last() {
    let jar = Jar::in_memory();
    let (client, mut wire) = connect(strawman(), SessionOptions::new(jar.clone())).await;
    wire.create(json!({"id": "sess-1", "data": {"n": 1}})).await;
    round(&client, &mut wire, json!({STRAWMAN: {"id": "sess-1", "data": {"n": 2}}})).await;
    client.close().await.unwrap();

    let (client, mut wire) = connect(strawman(), SessionOptions::new(jar.clone())).await;
    assert_eq!(current(&client).as_deref(), Some("sess-1"));
    let request = round(&client, &mut wire, Value::Null).await;
    assert_eq!(cookie(&request, STRAWMAN), &json!({"id": "sess-1", "data": {"n": 2}}));

    // The same server in the other dialect does not get that cookie.
    let (client, mut wire) = connect(sep(), SessionOptions::new(jar)).await;
    wire.create(json!({"sessionId": "sess-2"})).await;
    let request = round(&client, &mut wire, Value::Null).await;
    assert_eq!(cookie(&request, SEP), &json!({"sessionId": "sess-2"}));
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_time_is_over_is_not_gone_on_with() {
    let jar = Jar::in_memory();
    let (client, mut wire) = connect(strawman(), SessionOptions::new(jar.clone())).await;
    wire.create(json!({"id": "old", "expiry": "2020-01-01T00:00:00Z"})).await;
    round(&client, &mut wire, Value::Null).await;
    client.close().await.unwrap();

    let (_client, mut wire) = connect(strawman(), SessionOptions::new(jar)).await;
    wire.next_of("session/create").await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_makes_no_session_is_used_without() {
    let (client, mut wire) = connect(sep(), options()).await;
    let (result, ()) = tokio::join!(call(&client), async {
        let request = wire.next_of("sessions/create").await;
        settle().await;
        wire.error(&request, -32601, "Method not found").await;
        let request = wire.tool(Value::Null).await;
        assert!(cookie(&request, SEP).is_null());
    });
    result.unwrap();
    assert_eq!(current(&client), None);

    let (client, mut wire) = connect(sep(), options()).await;
    let (result, ()) = tokio::join!(call(&client), async {
        let request = wire.next_of("sessions/create").await;
        wire.result(&request, json!({"nonsense": true})).await;
        wire.tool(Value::Null).await;
    });
    result.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_not_waited_for() {
    let (client, mut wire) = connect(sep(), options()).await;
    let (result, ()) = tokio::join!(call(&client), async {
        let creation = wire.next_of("sessions/create").await;
        let cancelled = wire.next_of("notifications/cancelled").await;
        assert_eq!(cancelled["params"]["requestId"], creation["id"]);
        assert!(cookie(&cancelled, SEP).is_null());
        let request = wire.next_of("tools/call").await;
        assert!(cookie(&request, SEP).is_null());
        // The late answer is ignored.
        wire.result(&creation, json!({"session": {"sessionId": "late"}})).await;
        wire.result(&request, crate::layer::support::done(Value::Null)).await;
    });
    result.unwrap();
    assert_eq!(current(&client), None);
}

#[tokio::test(start_paused = true)]
async fn other_requests_do_not_wait_for_a_session() {
    let (client, mut wire) = connect(sep(), options()).await;
    let (tools, ()) = tokio::join!(client.list_all_tools(), async {
        let creation = wire.next_of("sessions/create").await;
        let request = wire.next_of("tools/list").await;
        assert!(cookie(&request, SEP).is_null());
        wire.result(&request, json!({"tools": []})).await;
        wire.result(&creation, json!({"session": {"sessionId": "s"}})).await;
    });
    tools.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_new_session_is_in_the_jar_even_if_nothing_is_done_with_it() {
    let options = options();
    let jar = options.jar.clone();
    let (_client, mut wire) = connect(sep(), options).await;
    wire.create(json!({"sessionId": "sess-1"})).await;
    settle().await;
    assert_eq!(in_jar(&jar, "sess-1").as_deref(), Some("used"));
}

#[tokio::test]
async fn a_new_session_is_on_the_disk_before_anything_is_done_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let jar = Jar::at(folder.path().join("jar.json"));
    let (client, mut wire) = connect(sep(), SessionOptions::new(jar.clone())).await;
    let (result, ()) = tokio::join!(call(&client), async {
        wire.create(json!({"sessionId": "sess-1", "state": "1"})).await;
        let request = wire.next_of("tools/call").await;
        assert_eq!(in_jar(&jar, "sess-1").as_deref(), Some("used"));
        wire.result(
            &request,
            crate::layer::support::done(json!({SEP: {"sessionId": "sess-1", "state": "2"}})),
        )
        .await;
    });
    result.unwrap();
    // The server's state in the cookie is on the disk before the program gets the answer.
    let stored = jar.active(&crate::layer::support::server(), Dialect::Draft).unwrap().unwrap();
    assert_eq!(stored.reveal()["state"], "2");
}
