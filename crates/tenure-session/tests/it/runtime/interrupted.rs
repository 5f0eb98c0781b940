//! Requests that were open when the process ended.

use std::sync::Arc;

use serde_json::json;
use tenure_protocol::{Message, Method, Notification, RawJson, Reason, Response};
use tenure_session::Limits;
use tenure_session::call::{Caller, Granted, Scopes};
use tenure_testkit::runtime::{self, event, events, reader_of, send};

use crate::runtime::support::{World, all, next, resume, say};

#[tokio::test]
async fn a_request_that_may_have_done_something_ends_with_an_error_on_its_stream() {
    let mut world = World::new();
    let old = world.session().await;
    let (call, mut reader) = world.streaming_call(&old, 7).await;
    let (id, _) = next(&mut reader).await;
    say(&call, "more").await;
    let mut world = world.killed(Limits::default());
    let session = world.find(&old).await.unwrap();
    let mut resumed = resume(&session, &id).await.unwrap();
    // The server is asked for its tools' hints, and has none for this one.
    world.script.call().await.answer(&json!({ "tools": [] }));
    assert_eq!(all(&mut resumed).await, ["prime", "more", "error 7 interrupted"]);
    // And so it stays.
    let world = world.killed(Limits::default());
    let session = world.find(&old).await.unwrap();
    let mut again = resume(&session, &id).await.unwrap();
    assert_eq!(all(&mut again).await, ["prime", "more", "error 7 interrupted"]);
}

#[tokio::test]
async fn a_request_that_only_reads_is_run_again_and_finishes_on_its_stream() {
    let mut world = World::new();
    let old = world.session().await;
    let waiting = send(&old, runtime::request(1, "resources/read", &json!({ "uri": "test://a" })));
    let call = world.script.call().await;
    say(&call, "first try").await;
    let mut reader = reader_of(waiting.await.unwrap());
    let (id, _) = next(&mut reader).await;
    let mut world = world.killed(Limits::default());
    let session = world.find(&old).await.unwrap();
    let call = world.script.call().await;
    assert_eq!(call.request.method, Method::ResourcesRead);
    assert_eq!(call.request.params.as_ref().unwrap().bytes(), &r#"{"uri":"test://a"}"#, "byte for byte");
    assert_eq!(session.info().calls.len(), 1);
    let taken =
        session.request(runtime::request(1, "tools/list", &json!({})), Caller::anonymous("test")).await;
    assert_eq!(taken.unwrap_err().reason(), Reason::DuplicateRequestId);
    let mut resumed = resume(&session, &id).await.unwrap();
    say(&call, "second try").await;
    call.answer(&json!({}));
    assert_eq!(all(&mut resumed).await, ["prime", "second try", "result 1"]);
}

/// A list that is asked for again would otherwise show what its caller may not see.
#[tokio::test]
async fn a_request_that_runs_again_has_the_scopes_of_its_caller_and_no_more() {
    let scopes = |names: &[&str]| Granted::Scopes(names.iter().map(|&name| name.into()).collect::<Scopes>());
    for scopes in [Granted::Unasked, scopes(&[]), scopes(&["a:read", "b \" c"])] {
        let mut world = World::new();
        let old = world.session().await;
        let request = runtime::request(1, "resources/read", &json!({ "uri": "test://a" }));
        let caller = Caller { scopes: scopes.clone(), ..Caller::anonymous("test") };
        let waiting = tokio::spawn({
            let old = Arc::clone(&old);
            async move { old.request(request, caller).await.expect("admitted") }
        });
        let call = world.script.call().await;
        assert_eq!(call.context.caller().scopes, scopes);
        say(&call, "first try").await;
        let mut reader = reader_of(waiting.await.unwrap());
        next(&mut reader).await;
        for _ in 0..2 {
            world = world.killed(Limits::default());
            world.find(&old).await.unwrap();
            assert_eq!(world.script.call().await.context.caller().scopes, scopes);
        }
    }
}

#[tokio::test]
async fn a_tool_that_says_it_may_be_repeated_is_and_progress_is_not() {
    for hint in ["readOnlyHint", "idempotentHint"] {
        let mut world = World::new();
        let old = world.session().await;
        let params = json!({ "name": "look", "_meta": { "progressToken": "t" } });
        let waiting = send(&old, runtime::request(1, "tools/call", &params));
        let call = world.script.call().await;
        for step in 1..=3 {
            call.context.progress(f64::from(step), None, None).await.unwrap();
        }
        let mut reader = reader_of(waiting.await.unwrap());
        let (id, _) = next(&mut reader).await;
        let mut world = world.killed(Limits::default());
        let session = world.find(&old).await.unwrap();
        let tools = world.script.call().await;
        assert_eq!(tools.request.method, Method::ToolsList);
        tools.answer(&json!({ "tools": [{ "name": "other" }], "nextCursor": "more" }));
        let tools = world.script.call().await;
        assert_eq!(tools.request.params.as_ref().unwrap().bytes(), &r#"{"cursor":"more"}"#);
        tools.answer(&json!({ "tools": [{ "name": "look", "annotations": { hint: true } }] }));
        let call = world.script.call().await;
        assert_eq!(call.request.method, Method::ToolsCall);
        for step in 1..=5 {
            call.context.progress(f64::from(step), None, None).await.unwrap();
        }
        call.answer(&json!({}));
        let mut resumed = resume(&session, &id).await.unwrap();
        let seen = events(&mut resumed).await;
        let steps: Vec<_> =
            seen.iter().filter_map(|message| message["params"]["progress"].as_f64()).collect();
        assert_eq!(steps, [2.0, 3.0, 4.0, 5.0], "{hint}: what was told before is not told again");
        assert_eq!(seen.last().unwrap()["result"], json!({}));
    }
}

#[tokio::test]
async fn a_request_that_was_withdrawn_is_not_answered_after_a_restart() {
    let mut world = World::new();
    let old = world.session().await;
    let (_call, mut reader) = world.streaming_call(&old, 1).await;
    let (id, _) = next(&mut reader).await;
    let params = RawJson::of(&json!({ "requestId": 1 }));
    old.notification(Notification { method: Method::Cancelled, params: Some(params) }).unwrap();
    assert!(reader.next().await.is_none());
    let world = world.killed(Limits::default());
    let session = world.find(&old).await.unwrap();
    assert!(session.info().calls.is_empty());
    let mut resumed = resume(&session, &id).await.unwrap();
    assert_eq!(all(&mut resumed).await, ["prime"], "it is complete, and nothing more comes");
}

#[tokio::test]
async fn a_request_can_be_withdrawn_while_its_session_is_woken() {
    let mut world = World::new();
    let old = world.session().await;
    let (_call, mut reader) = world.streaming_call(&old, 1).await;
    let (id, _) = next(&mut reader).await;
    let mut world = world.killed(Limits::default());
    let session = world.find(&old).await.unwrap();
    let tools = world.script.call().await;
    let params = RawJson::of(&json!({ "requestId": 1 }));
    session.notification(Notification { method: Method::Cancelled, params: Some(params) }).unwrap();
    tools.answer(&json!({ "tools": [] }));
    let mut resumed = resume(&session, &id).await.unwrap();
    assert_eq!(all(&mut resumed).await, ["prime"]);
}

#[tokio::test]
async fn what_is_left_of_a_batch_is_answered() {
    let mut world = World::new();
    let old = runtime::session(&world.sessions, "2025-03-26").await;
    let batch = vec![
        Message::Request(runtime::request(1, "tools/call", &json!({ "name": "a" }))),
        Message::Request(runtime::request(2, "resources/list", &json!({}))),
        Message::Request(runtime::request(3, "tools/call", &json!({ "name": "b" }))),
    ];
    let answer = old.batch(batch, &Caller::anonymous("test")).unwrap().unwrap();
    let mut reader = reader_of(answer);
    for _ in 0..3 {
        let call = world.script.call().await;
        if call.request.params.as_ref().unwrap().bytes() == r#"{"name":"a"}"# {
            call.answer(&json!({}));
        } else {
            std::mem::forget(call);
        }
    }
    let (id, first) = next(&mut reader).await;
    assert_eq!(first, "result 1");
    let mut world = world.killed(Limits::default());
    let session = world.find(&old).await.unwrap();
    let mut resumed = resume(&session, &id).await.unwrap();
    for _ in 0..2 {
        let call = world.script.call().await;
        match call.request.method {
            Method::ToolsList => call.answer(&json!({ "tools": [] })),
            _ => call.answer(&json!({ "resources": [] })),
        }
    }
    let mut rest = all(&mut resumed).await;
    rest.sort();
    assert_eq!(rest, ["error 3 interrupted", "result 2"]);
}

#[tokio::test]
async fn a_question_of_the_old_process_is_withdrawn_and_its_answer_is_not_taken_for_another() {
    let mut world = World::new();
    let old = world.session().await;
    let waiting = send(&old, runtime::request(1, "prompts/get", &json!({ "name": "p" })));
    let call = world.script.call().await;
    let context = call.context.clone();
    let asking = tokio::spawn(async move { context.ask(&Method::ElicitationCreate, None).await });
    let mut reader = reader_of(waiting.await.unwrap());
    let (id, question) = event(&mut reader).await.unwrap();
    let (id, old_id) = (id.unwrap(), question["id"].clone());
    asking.abort();
    std::mem::forget(call);
    let mut world = world.killed(Limits::default());
    let session = world.find(&old).await.unwrap();
    let mut resumed = resume(&session, &id).await.unwrap();
    let call = world.script.call().await;
    let context = call.context.clone();
    let asking = tokio::spawn(async move { context.ask(&Method::ElicitationCreate, None).await });
    let mut asked = None;
    let mut withdrawn = Vec::new();
    while asked.is_none() {
        let (_, message) = event(&mut resumed).await.unwrap();
        match message["method"].as_str() {
            Some("notifications/cancelled") => withdrawn.push(message["params"]["requestId"].clone()),
            Some("elicitation/create") => asked = Some(message["id"].clone()),
            other => panic!("{other:?}"),
        }
    }
    assert!(withdrawn.contains(&old_id), "{withdrawn:?}");
    let new_id = asked.unwrap();
    assert_ne!(new_id, old_id);
    let answer = |id: &serde_json::Value, text: &str| Response {
        id: tenure_protocol::RequestId::from_raw(id.to_string().into()).unwrap(),
        outcome: Ok(RawJson::of(&json!({ "text": text }))),
    };
    session.response(answer(&old_id, "stale")).unwrap();
    session.response(answer(&new_id, "fresh")).unwrap();
    let heard: serde_json::Value = asking.await.unwrap().unwrap().read().unwrap();
    assert_eq!(heard["text"], "fresh");
    call.answer(&json!({}));
    assert_eq!(all(&mut resumed).await, ["result 1"]);
}

#[tokio::test]
async fn a_question_is_withdrawn_once_however_often_its_session_is_woken() {
    let mut world = World::new();
    let old = world.session().await;
    let waiting = send(&old, runtime::request(1, "prompts/get", &json!({ "name": "p" })));
    let call = world.script.call().await;
    let context = call.context.clone();
    let asking = tokio::spawn(async move { context.ask(&Method::ElicitationCreate, None).await });
    let mut reader = reader_of(waiting.await.unwrap());
    let (id, _) = event(&mut reader).await.unwrap();
    asking.abort();
    std::mem::forget(call);
    for _ in 0..3 {
        world = world.killed(Limits::default());
        world.find(&old).await.unwrap();
        std::mem::forget(world.script.call().await);
    }
    let mut world = world.killed(Limits::default());
    let session = world.find(&old).await.unwrap();
    world.script.call().await.answer(&json!({}));
    let mut resumed = resume(&session, &id.unwrap()).await.unwrap();
    let seen = events(&mut resumed).await;
    let withdrawn = seen.iter().filter(|message| message["method"] == "notifications/cancelled").count();
    assert_eq!(withdrawn, 1, "{seen:?}");
}

#[tokio::test]
async fn a_note_that_could_not_be_written_goes_with_the_next_event() {
    let mut world = World::new();
    let old = world.session().await;
    world.store.set_broken(true);
    let waiting = send(&old, runtime::request(1, "tools/call", &json!({})));
    let call = world.script.call().await;
    say(&call, "unlogged").await;
    let mut reader = reader_of(waiting.await.unwrap());
    assert_eq!(event(&mut reader).await.unwrap().0, None);
    world.store.set_broken(false);
    say(&call, "logged").await;
    let (id, _) = next(&mut reader).await;
    let mut world = world.killed(Limits::default());
    let session = world.find(&old).await.unwrap();
    world.script.call().await.answer(&json!({ "tools": [] }));
    let mut resumed = resume(&session, &id).await.unwrap();
    assert_eq!(all(&mut resumed).await, ["prime", "error 1 interrupted"]);
}
