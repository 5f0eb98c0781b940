//! Tests of servers that refuse requests for lack of a session.

use std::time::Duration;

use rmcp::{ServiceError, model::CallToolRequestParams};
use serde_json::{Value, json};
use tenure_client::{CallOptions, Create, SessionOptions};

use crate::layer::support::{SEP, STRAWMAN, call, connect, cookie, current, options, round, sep, strawman};

fn when_required() -> SessionOptions {
    SessionOptions { create: Create::WhenRequired, ..options() }
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_is_repeated_in_a_new_session() {
    let refusals = [
        json!({"error": {"code": -32002, "message": "Session required. Call session/create or session/resume first."}}),
        json!({"error": {"code": -32044, "message": "nope"}}),
        json!({"error": {"code": -31044, "message": "nope"}}),
        json!({"error": {"code": -32000, "message": "nope", "data": {"reason": "session_required"}}}),
        json!({"error": {"code": -32043, "message": "Session not found"}}),
        json!({"result": {"content": [{"type": "text", "text": "please SEND SESSION/CREATE"}], "isError": true}}),
    ];
    for refusal in refusals {
        let (client, mut wire) = connect(strawman(), when_required()).await;
        let (result, ()) = tokio::join!(call(&client), async {
            let first = wire.next_of("tools/call").await;
            assert!(cookie(&first, STRAWMAN).is_null());
            let mut answer = json!({"jsonrpc": "2.0", "id": first["id"]});
            answer.as_object_mut().unwrap().extend(refusal.as_object().unwrap().clone());
            wire.write(answer).await;
            wire.create(json!({"id": "a"})).await;
            let second = wire.tool(Value::Null).await;
            assert_eq!(cookie(&second, STRAWMAN), &json!({"id": "a"}));
            assert_ne!(first["id"], second["id"], "an id is used but once");
            let mut without = second.clone();
            without["id"] = first["id"].clone();
            without["params"]["_meta"].as_object_mut().unwrap().remove(STRAWMAN);
            assert_eq!(without, first, "nothing else is changed");
        });
        assert_eq!(result.unwrap().is_error, None);
        let request = round(&client, &mut wire, Value::Null).await;
        assert_eq!(cookie(&request, STRAWMAN), &json!({"id": "a"}));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_is_repeated_but_once() {
    let (client, mut wire) = connect(sep(), when_required()).await;
    let (result, ()) = tokio::join!(call(&client), async {
        let request = wire.next_of("tools/call").await;
        wire.error(&request, -32044, "first").await;
        wire.create(json!({"sessionId": "a"})).await;
        let request = wire.next_of("tools/call").await;
        wire.error(&request, -32044, "second").await;
    });
    let error = result.unwrap_err().to_string();
    assert!(error.contains("second"), "{error}");
    client.close().await.unwrap();
    assert_eq!(wire.rest().await, [Value::Null; 0]);
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_refused_together_share_one_new_session() {
    let (client, mut wire) = connect(sep(), when_required()).await;
    let (first, second, third, ()) = tokio::join!(call(&client), call(&client), call(&client), async {
        let requests = [wire.next().await, wire.next().await, wire.next().await];
        wire.error(&requests[0], -32044, "Session required").await;
        wire.error(&requests[1], -32044, "Session required").await;
        wire.create(json!({"sessionId": "a"})).await;
        for _ in 0..2 {
            let request = wire.tool(Value::Null).await;
            assert_eq!(cookie(&request, SEP)["sessionId"], "a");
        }
        // This refusal comes late: the session is there already.
        wire.error(&requests[2], -32044, "Session required").await;
        let request = wire.tool(Value::Null).await;
        assert_eq!(cookie(&request, SEP)["sessionId"], "a");
    });
    first.unwrap();
    second.unwrap();
    third.unwrap();
}

#[tokio::test(start_paused = true)]
async fn if_no_session_can_be_made_the_program_gets_the_refusal() {
    let (client, mut wire) = connect(sep(), when_required()).await;
    let (result, ()) = tokio::join!(call(&client), async {
        let request = wire.next_of("tools/call").await;
        wire.error(&request, -32044, "the refusal").await;
        let request = wire.next_of("sessions/create").await;
        wire.error(&request, -32000, "too many sessions").await;
    });
    let error = result.unwrap_err().to_string();
    assert!(error.contains("the refusal"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_makes_no_sessions_hands_on_the_refusal() {
    let (client, mut wire) = connect(sep(), SessionOptions { create: Create::Never, ..options() }).await;
    let (result, ()) = tokio::join!(call(&client), async {
        let request = wire.next_of("tools/call").await;
        wire.error(&request, -32044, "the refusal").await;
    });
    assert!(result.is_err());
    client.close().await.unwrap();
    assert_eq!(wire.rest().await, [Value::Null; 0]);
}

#[tokio::test(start_paused = true)]
async fn other_errors_and_texts_are_handed_on() {
    let (client, mut wire) = connect(sep(), when_required()).await;
    for (code, message) in [(-32602, "session required"), (-32002, "Resource not found"), (-32603, "x")] {
        let (result, ()) = tokio::join!(call(&client), async {
            let request = wire.next_of("tools/call").await;
            wire.error(&request, code, message).await;
        });
        assert!(result.is_err());
    }
    // A text without `isError` does not count.
    let (result, ()) = tokio::join!(call(&client), async {
        let request = wire.next_of("tools/call").await;
        wire.result(&request, json!({"content": [{"type": "text", "text": "Session required"}]})).await;
    });
    result.unwrap();
    client.close().await.unwrap();
    assert_eq!(wire.rest().await, [Value::Null; 0]);
}

fn short_call(
    client: &tenure_client::ConnectedClient,
) -> impl Future<Output = Result<rmcp::model::ServerResult, ServiceError>> {
    let caller = client.caller();
    async move {
        let request = rmcp::model::CallToolRequest::new(CallToolRequestParams::new("t"));
        let options = CallOptions::default().with_timeout(Duration::from_secs(1));
        caller.request(rmcp::model::ClientRequest::CallToolRequest(request), &options).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_gave_up_while_it_waited_is_never_sent() {
    let (client, mut wire) = connect(sep(), options()).await;
    let creation = wire.next_of("sessions/create").await;
    // Creating the session takes longer than the time limit of the call.
    assert!(matches!(short_call(&client).await, Err(ServiceError::Timeout { .. })));
    wire.result(&creation, json!({"session": {"sessionId": "a"}})).await;
    let request = round(&client, &mut wire, Value::Null).await;
    assert_eq!(cookie(&request, SEP)["sessionId"], "a");
    client.close().await.unwrap();
    assert_eq!(wire.rest().await, [Value::Null; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_call_is_cancelled_under_the_id_that_the_server_knows() {
    let (client, mut wire) = connect(sep(), when_required()).await;
    let (result, ()) = tokio::join!(short_call(&client), async {
        let first = wire.next_of("tools/call").await;
        wire.error(&first, -32044, "Session required").await;
        wire.create(json!({"sessionId": "a"})).await;
        let second = wire.next_of("tools/call").await;
        let cancelled = wire.next_of("notifications/cancelled").await;
        assert_eq!(cancelled["params"]["requestId"], second["id"]);
    });
    assert!(matches!(result, Err(ServiceError::Timeout { .. })));
    assert_eq!(current(&client).as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_gave_up_before_its_repetition_is_not_repeated() {
    let (client, mut wire) = connect(sep(), when_required()).await;
    let (result, ()) = tokio::join!(short_call(&client), async {
        let first = wire.next_of("tools/call").await;
        wire.error(&first, -32044, "Session required").await;
    });
    assert!(matches!(result, Err(ServiceError::Timeout { .. })));
    wire.create(json!({"sessionId": "a"})).await;
    client.close().await.unwrap();
    assert_eq!(wire.rest().await, [Value::Null; 0]);
}
