//! Tests of time limits, correlation and batches.

use std::time::Duration;

use rmcp::{
    ServiceError,
    model::{CallToolRequest, CallToolRequestParams, ClientRequest, ServerResult},
};
use serde_json::{Value, json};
use tenure_client::{Batch, CORRELATION_KEY, CallOptions, Correlation};

use crate::layer::support::{connect, done, options};

fn tool(name: &str) -> ClientRequest {
    ClientRequest::CallToolRequest(CallToolRequest::new(CallToolRequestParams::new(name.to_owned())))
}

fn said(answer: &Result<ServerResult, ServiceError>) -> String {
    match answer {
        Ok(ServerResult::CallToolResult(result)) => {
            result.structured_content.clone().unwrap_or_default().to_string()
        }
        Ok(_) => "another result".to_owned(),
        Err(ServiceError::Timeout { .. }) => "timeout".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_has_the_callers_time_limit_or_its_own() {
    let (client, mut wire) = connect(json!({}), options()).await;
    let caller = client.caller().with_timeout(Duration::from_secs(7));
    for (options, limit) in
        [(CallOptions::default(), 7), (CallOptions::default().with_timeout(Duration::from_secs(90)), 90)]
    {
        let started = tokio::time::Instant::now();
        let (answer, request) = tokio::join!(caller.request(tool("slow"), &options), async {
            let request = wire.next_of("tools/call").await;
            let cancelled = wire.next_of("notifications/cancelled").await;
            assert_eq!(cancelled["params"]["requestId"], request["id"]);
            request
        });
        assert!(matches!(answer, Err(ServiceError::Timeout { .. })));
        assert_eq!(started.elapsed().as_secs(), limit);
        // A late answer is ignored.
        wire.result(&request, done(Value::Null)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_correlation_id_goes_along_only_if_asked_for() {
    let (client, mut wire) = connect(json!({}), options()).await;
    let caller = client.caller();
    let with = CallOptions::default().with_correlation(Correlation::new("trace-1"));
    for (options, expected) in [(CallOptions::default(), Value::Null), (with, json!("trace-1"))] {
        let (answer, request) = tokio::join!(caller.request(tool("t"), &options), wire.tool(Value::Null));
        answer.unwrap();
        assert_eq!(request["params"]["_meta"][CORRELATION_KEY], expected);
    }
    assert_ne!(Correlation::random(), Correlation::random());
    assert_eq!(Correlation::random().as_str().len(), 32);
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_single_requests_whose_answers_keep_their_order() {
    let (client, mut wire) = connect(json!({}), options()).await;
    let mut batch = Batch::new(["a", "b", "c", "d"].map(tool));
    batch.concurrency = 2;
    batch.timeout = Some(Duration::from_secs(1));
    let correlation = batch.correlation.clone();
    let caller = client.caller();
    let (answers, ()) = tokio::join!(caller.batch(batch), async {
        let first = [wire.next_of("tools/call").await, wire.next_of("tools/call").await];
        assert!(first.iter().all(|request| request.is_object()));
        // The second is answered first, and one fails.
        wire.result(&first[1], json!({"content": [], "structuredContent": "b"})).await;
        wire.result(&first[0], json!({"content": [], "structuredContent": "a"})).await;
        let second = [wire.next_of("tools/call").await, wire.next_of("tools/call").await];
        wire.error(&second[0], -32000, "failed").await;
        for request in first.iter().chain(&second) {
            assert_eq!(request["params"]["_meta"][CORRELATION_KEY], correlation.as_str());
        }
        wire.next_of("notifications/cancelled").await;
    });
    let said: Vec<_> = answers.iter().map(said).collect();
    assert_eq!(said, ["\"a\"", "\"b\"", "Mcp error: -32000: failed", "timeout"]);
}

#[tokio::test(start_paused = true)]
async fn no_more_of_a_batch_is_in_flight_than_was_said() {
    let (client, mut wire) = connect(json!({}), options()).await;
    let mut batch = Batch::new(["a", "b", "c"].map(tool));
    batch.concurrency = 1;
    let caller = client.caller();
    let (answers, ()) = tokio::join!(caller.batch(batch), async {
        for name in ["a", "b", "c"] {
            let request = wire.next_of("tools/call").await;
            assert_eq!(request["params"]["name"], name);
            // A list request of the program during the batch overtakes the rest of the batch.
            let (listed, ()) = tokio::join!(client.list_all_tools(), async {
                let list = wire.next_of("tools/list").await;
                wire.result(&list, json!({"tools": []})).await;
            });
            listed.unwrap();
            wire.result(&request, done(Value::Null)).await;
        }
    });
    assert_eq!(answers.len(), 3);
}
