//! Tests of the cookies in requests, and of their changes by results.

use rmcp::model::{GetPromptRequestParams, ReadResourceRequestParams};
use serde_json::{Value, json};
use tenure_client::{Attach, Dialect, Jar, SessionOptions};

use crate::layer::support::{
    SEP, STRAWMAN, call, connect, cookie, current, done, in_jar, options, round, sep, strawman,
};

#[tokio::test(start_paused = true)]
async fn a_strawman_answer_replaces_the_cookie_wholesale() {
    let (client, mut wire) = connect(strawman(), options()).await;
    wire.create(json!({"id": "a", "expiry": "2099-01-01T00:00:00Z", "data": {"n": 1}})).await;
    round(&client, &mut wire, json!({STRAWMAN: {"id": "a", "expiry": "2099-02-02T00:00:00Z"}})).await;
    let request = round(&client, &mut wire, Value::Null).await;
    assert_eq!(cookie(&request, STRAWMAN), &json!({"id": "a", "expiry": "2099-02-02T00:00:00Z"}));
}

#[tokio::test(start_paused = true)]
async fn a_strawman_server_may_change_the_id() {
    let jar = Jar::in_memory();
    let (client, mut wire) = connect(strawman(), SessionOptions::new(jar.clone())).await;
    wire.create(json!({"id": "a"})).await;
    round(&client, &mut wire, json!({STRAWMAN: {"id": "b"}})).await;
    let request = round(&client, &mut wire, Value::Null).await;
    assert_eq!(cookie(&request, STRAWMAN), &json!({"id": "b"}));
    assert_eq!(current(&client).as_deref(), Some("b"));
    assert_eq!(in_jar(&jar, "a").as_deref(), Some("rotated"));
    assert_eq!(in_jar(&jar, "b").as_deref(), Some("used"));
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_the_later_draft_is_merged_and_cannot_change_the_id() {
    let (client, mut wire) = connect(sep(), options()).await;
    wire.create(json!({"sessionId": "a", "expiresAt": "2099-01-01T00:00:00Z", "state": "1"})).await;
    round(&client, &mut wire, json!({SEP: {"sessionId": "a", "state": "2"}})).await;
    let session = client.sessions().current().unwrap();
    assert_eq!(session.expires_at.as_deref(), Some("2099-01-01T00:00:00Z"), "what is not said stays");
    let request = round(&client, &mut wire, json!({SEP: {"sessionId": "b", "state": "3"}})).await;
    assert_eq!(cookie(&request, SEP), &json!({"sessionId": "a", "state": "2"}));
    let request = round(&client, &mut wire, Value::Null).await;
    assert_eq!(
        cookie(&request, SEP),
        &json!({"sessionId": "a", "state": "2"}),
        "another session's is ignored"
    );
}

#[tokio::test(start_paused = true)]
async fn the_three_uses_carry_the_cookie_and_lists_do_not() {
    let (client, mut wire) = connect(sep(), options()).await;
    wire.create(json!({"sessionId": "a"})).await;
    let (result, ()) = tokio::join!(client.read_resource(ReadResourceRequestParams::new("x:y")), async {
        let request = wire.next_of("resources/read").await;
        assert_eq!(cookie(&request, SEP)["sessionId"], "a");
        let meta = json!({SEP: {"state": "from-resource"}});
        wire.result(&request, json!({"contents": [], "_meta": meta})).await;
    });
    result.unwrap();
    let (result, ()) = tokio::join!(client.get_prompt(GetPromptRequestParams::new("p")), async {
        let request = wire.next_of("prompts/get").await;
        assert_eq!(cookie(&request, SEP), &json!({"sessionId": "a", "state": "from-resource"}));
        wire.result(&request, json!({"messages": [], "_meta": {SEP: {"state": "from-prompt"}}})).await;
    });
    result.unwrap();
    let (result, ()) = tokio::join!(client.list_all_tools(), async {
        let request = wire.next_of("tools/list").await;
        assert!(cookie(&request, SEP).is_null());
        wire.result(&request, json!({"tools": []})).await;
    });
    result.unwrap();
    let request = round(&client, &mut wire, Value::Null).await;
    assert_eq!(cookie(&request, SEP)["state"], "from-prompt");
}

#[tokio::test(start_paused = true)]
async fn if_told_so_all_requests_carry_it_but_no_notification_does() {
    let (client, mut wire) =
        connect(strawman(), SessionOptions { attach: Attach::AllRequests, ..options() }).await;
    let creation = wire.create(json!({"id": "a"})).await;
    assert!(cookie(&creation, STRAWMAN).is_null());
    let (result, ()) = tokio::join!(client.list_all_tools(), async {
        let request = wire.next_of("tools/list").await;
        assert_eq!(cookie(&request, STRAWMAN), &json!({"id": "a"}));
        wire.result(&request, json!({"tools": [], "_meta": {STRAWMAN: {"id": "a", "data": 1}}})).await;
    });
    result.unwrap();
    let request = round(&client, &mut wire, Value::Null).await;
    assert_eq!(cookie(&request, STRAWMAN), &json!({"id": "a", "data": 1}));
    client.notify_roots_list_changed().await.unwrap();
    let notification = wire.next_of("notifications/roots/list_changed").await;
    assert!(cookie(&notification, STRAWMAN).is_null());
}

#[tokio::test(start_paused = true)]
async fn an_answer_counts_for_the_session_that_its_request_was_sent_with() {
    let jar = Jar::in_memory();
    let (client, mut wire) = connect(sep(), SessionOptions::new(jar.clone())).await;
    wire.create(json!({"sessionId": "a", "state": "1"})).await;
    let (result, ()) = tokio::join!(call(&client), async {
        let request = wire.next_of("tools/call").await;
        // The program changes to another session while the call is in flight.
        let (created, _) = tokio::join!(
            client.sessions().create(None, None),
            wire.create(json!({"sessionId": "b", "state": "b1"}))
        );
        created.unwrap();
        wire.result(&request, done(json!({SEP: {"sessionId": "a", "state": "2"}}))).await;
    });
    result.unwrap();
    assert_eq!(current(&client).as_deref(), Some("b"));
    let request = round(&client, &mut wire, Value::Null).await;
    assert_eq!(cookie(&request, SEP), &json!({"sessionId": "b", "state": "b1"}));
    let stored =
        jar.find(&crate::layer::support::server(), Dialect::Draft, &tenure_client::DataSessionId::new("a"));
    assert_eq!(stored.unwrap().unwrap().reveal()["state"], "2", "but it is not forgotten");
    assert_eq!(in_jar(&jar, "b").as_deref(), Some("used"));
}

#[tokio::test(start_paused = true)]
async fn a_mere_change_of_the_expiry_is_written_when_the_connection_closes() {
    let jar = Jar::in_memory();
    let (client, mut wire) = connect(strawman(), SessionOptions::new(jar.clone())).await;
    wire.create(json!({"id": "a", "expiry": "2098-01-01T00:00:00Z"})).await;
    round(&client, &mut wire, json!({STRAWMAN: {"id": "a", "expiry": "2099-01-01T00:00:00Z"}})).await;
    client.close().await.unwrap();
    let stored = jar.active(&crate::layer::support::server(), Dialect::Strawman).unwrap().unwrap();
    assert_eq!(stored.expiry(), Some("2099-01-01T00:00:00Z"));
}

#[tokio::test(start_paused = true)]
async fn a_mere_change_of_the_expiry_is_written_soon_even_so() {
    let jar = Jar::in_memory();
    let (client, mut wire) = connect(strawman(), SessionOptions::new(jar.clone())).await;
    wire.create(json!({"id": "a", "expiry": "2098-01-01T00:00:00Z"})).await;
    round(&client, &mut wire, json!({STRAWMAN: {"id": "a", "expiry": "2099-01-01T00:00:00Z"}})).await;
    tokio::time::advance(std::time::Duration::from_secs(2)).await;
    round(&client, &mut wire, Value::Null).await;
    let stored = jar.active(&crate::layer::support::server(), Dialect::Strawman).unwrap().unwrap();
    assert_eq!(stored.expiry(), Some("2099-01-01T00:00:00Z"));
}

#[tokio::test(start_paused = true)]
async fn a_strawman_server_may_give_a_cookie_unasked() {
    let options = SessionOptions { create: tenure_client::Create::Never, ..options() };
    let jar = options.jar.clone();
    let (client, mut wire) = connect(strawman(), options).await;
    round(&client, &mut wire, json!({STRAWMAN: {"id": "gift"}})).await;
    let request = round(&client, &mut wire, Value::Null).await;
    assert_eq!(cookie(&request, STRAWMAN), &json!({"id": "gift"}));
    assert_eq!(in_jar(&jar, "gift").as_deref(), Some("used"));
}

#[tokio::test(start_paused = true)]
async fn a_cookie_that_the_program_put_there_itself_stays() {
    let (client, mut wire) = connect(sep(), options()).await;
    wire.create(json!({"sessionId": "ours", "state": "1"})).await;
    let mut meta = rmcp::model::RequestMetaObject::default();
    meta.0.0.insert(SEP.to_owned(), json!({"sessionId": "its own"}));
    let mut options = rmcp::service::PeerRequestOptions::no_options();
    options.meta = Some(meta);
    let request = rmcp::model::CallToolRequest::new(rmcp::model::CallToolRequestParams::new("t"));
    let (result, ()) = tokio::join!(
        async {
            client.send_request_with_option(request.into(), options).await.unwrap().await_response().await
        },
        async {
            let request = wire.next_of("tools/call").await;
            assert_eq!(cookie(&request, SEP), &json!({"sessionId": "its own"}));
            wire.error(&request, -32043, "Session not found").await;
        }
    );
    assert!(result.is_err());
    assert_eq!(current(&client).as_deref(), Some("ours"), "what becomes of it is not our session's matter");
}
