//! Merged servers that end and come back.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenure_layers::limited::{CallLimitSettings, CallLimits};
use tenure_layers::merge::{MergedBackend, MergedMember};
use tenure_protocol::{Method, Reason, RpcError};
use tenure_session::Limits;
use tenure_store::memory::Memory;
use tenure_testkit::fake_backend::{BackendEvent, FakeBackend, FakeCall, NewLink, Script};
use tenure_testkit::runtime;
use tokio::time::Instant;

const OPEN_TIMEOUT: Duration = Duration::from_secs(3);

/// The next request of this method. Every other request gets an empty answer, unless it goes to `silent`.
async fn asked(script: &mut Script, method: Method, mut silent: Option<&mut Vec<FakeCall>>) -> FakeCall {
    loop {
        match (script.next().await, &mut silent) {
            (BackendEvent::Call(call), _) if call.request.method == method => return call,
            (BackendEvent::Call(call), Some(silent)) => silent.push(call),
            (BackendEvent::Call(call), None) => {
                call.answer(&json!({ "resources": [], "resourceTemplates": [] }))
            }
            _ => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_back_and_silent_costs_one_timeout_however_many_resources_are_watched() {
    let (backend, mut script) = FakeBackend::new();
    backend.set_capabilities(json!({ "tools": {}, "resources": { "subscribe": true } }));
    let member = MergedMember { name: "one".to_owned(), prefix: String::new(), backend };
    let merged = Arc::new(MergedBackend::new([member], OPEN_TIMEOUT, 1 << 20));
    let sessions = runtime::start(Arc::new(Memory::new()), merged, Limits::default());
    let session = runtime::session(&sessions, "2025-11-25").await;
    let first = script.opened().await;
    for number in 0..20 {
        let params = json!({ "uri": format!("a:{number}") });
        let watching = runtime::send(&session, runtime::request(number + 1, "resources/subscribe", &params));
        asked(&mut script, Method::ResourcesSubscribe, None).await.answer(&json!({}));
        assert!(runtime::json_of(watching.await.unwrap())["result"].is_object());
    }

    first.outlet.link_lost();
    let began = Instant::now();
    let calling = runtime::send(&session, runtime::request(99, "tools/call", &json!({ "name": "t" })));
    let mut silent = Vec::new();
    asked(&mut script, Method::ToolsCall, Some(&mut silent)).await;
    assert!(began.elapsed() <= OPEN_TIMEOUT, "{:?}", began.elapsed());
    assert!(
        !silent.is_empty() && silent.iter().all(|call| call.request.method == Method::ResourcesSubscribe)
    );
    calling.abort();
}

/// The next request of this method, and the newest link that was opened meanwhile.
async fn asked_of(
    script: &mut Script,
    method: Method,
    mut link: Option<NewLink>,
) -> (FakeCall, Option<NewLink>) {
    loop {
        match script.next().await {
            BackendEvent::Opened(opened) => link = Some(opened),
            BackendEvent::Call(call) if call.request.method == method => return (call, link),
            BackendEvent::Call(call) => call.answer(&json!({})),
            _ => {}
        }
    }
}

fn lose(link: &NewLink, call: FakeCall) {
    link.outlet.link_lost();
    call.end(Err(RpcError::of(Reason::BackendUnavailable, "gone")));
}

#[tokio::test(start_paused = true)]
async fn a_safe_call_outlives_a_server_that_is_lost_while_it_is_asked_for_its_tools() {
    let (backend, mut script) = FakeBackend::new();
    backend.set_capabilities(json!({ "tools": {} }));
    let member = MergedMember { name: "one".to_owned(), prefix: String::new(), backend };
    let merged = Arc::new(MergedBackend::new([member], OPEN_TIMEOUT, 1 << 20));
    let sessions = runtime::start(Arc::new(Memory::new()), merged, Limits::default());
    let session = runtime::session(&sessions, "2025-11-25").await;
    let calling = runtime::send(&session, runtime::request(1, "tools/call", &json!({ "name": "t" })));

    let (call, link) = asked_of(&mut script, Method::ToolsCall, None).await;
    lose(&link.unwrap(), call);
    let (list, link) = asked_of(&mut script, Method::ToolsList, None).await;
    lose(&link.unwrap(), list);
    let (list, _) = asked_of(&mut script, Method::ToolsList, None).await;
    list.answer(
        &json!({ "tools": [{ "name": "t", "inputSchema": {}, "annotations": { "readOnlyHint": true } }] }),
    );
    let (call, _) = asked_of(&mut script, Method::ToolsCall, None).await;
    call.answer(&json!({ "content": [] }));
    assert!(runtime::json_of(calling.await.unwrap())["result"].is_object());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_it_is_at_a_limit_takes_only_its_own_part_of_a_list() {
    let ((busy, mut script), (idle, mut other)) = (FakeBackend::new(), FakeBackend::new());
    for backend in [&busy, &idle] {
        backend.set_capabilities(json!({ "tools": {} }));
    }
    let member = |name: &str, backend: Arc<FakeBackend>| MergedMember {
        name: name.to_owned(),
        prefix: name.to_owned(),
        backend,
    };
    let merged =
        Arc::new(MergedBackend::new([member("busy", busy), member("idle", idle)], OPEN_TIMEOUT, 1 << 20));
    let in_json = Limits { json_wait: Duration::from_secs(60), ..Limits::default() };
    let sessions = runtime::start(Arc::new(Memory::new()), merged, in_json);
    let session = runtime::session(&sessions, "2025-11-25").await;
    let listing = runtime::send(&session, runtime::request(1, "tools/list", &json!({})));
    let (list, _) = asked_of(&mut script, Method::ToolsList, None).await;
    list.end(Err(RpcError::of(Reason::RateLimited, "come back later")));
    let (list, _) = asked_of(&mut other, Method::ToolsList, None).await;
    list.answer(&json!({ "tools": [{ "name": "t", "inputSchema": {} }] }));
    let listed = runtime::json_of(listing.await.unwrap());
    assert_eq!(listed["result"]["tools"][0]["name"], "idle__t", "{listed}");
    assert_eq!(listed["result"]["_meta"]["dev.tenure/unavailable"], json!(["busy"]), "{listed}");
}

#[tokio::test(start_paused = true)]
async fn a_server_at_its_limit_is_not_left_out_of_a_list_as_if_it_were_away() {
    let limits = CallLimits::new(CallLimitSettings {
        servers_concurrent: vec![("busy".to_owned(), 1)],
        max_wait: Duration::from_secs(1),
        ..CallLimitSettings::default()
    });
    let ((busy, mut script), (idle, mut other)) = (FakeBackend::new(), FakeBackend::new());
    for backend in [&busy, &idle] {
        backend.set_capabilities(json!({ "tools": {} }));
    }
    let busy = limits.in_front_of_server(busy, Some("busy"));
    let member =
        |name: &str, backend| MergedMember { name: name.to_owned(), prefix: name.to_owned(), backend };
    let merged =
        Arc::new(MergedBackend::new([member("busy", busy), member("idle", idle)], OPEN_TIMEOUT, 1 << 20));
    let in_json = Limits { json_wait: Duration::from_secs(60), ..Limits::default() };
    let sessions = runtime::start(Arc::new(Memory::new()), merged, in_json);
    let session = runtime::session(&sessions, "2025-11-25").await;
    let calling = runtime::send(&session, runtime::request(1, "tools/call", &json!({ "name": "busy__t" })));
    let (call, _) = asked_of(&mut script, Method::ToolsCall, None).await;

    let listing = runtime::send(&session, runtime::request(2, "tools/list", &json!({})));
    let (list, _) = asked_of(&mut other, Method::ToolsList, None).await;
    list.answer(&json!({ "tools": [{ "name": "t", "inputSchema": {} }] }));
    let listed = runtime::json_of(listing.await.unwrap());
    assert_eq!(listed["error"]["data"]["reason"], "rate_limited", "{listed}");
    assert_eq!(listed["error"]["data"]["per"], "backend", "{listed}");

    // A list waits for a slot, and is whole then.
    let listing = runtime::send(&session, runtime::request(3, "tools/list", &json!({})));
    let (list, _) = asked_of(&mut other, Method::ToolsList, None).await;
    list.answer(&json!({ "tools": [{ "name": "t", "inputSchema": {} }] }));
    call.answer(&json!({ "content": [] }));
    let (list, _) = asked_of(&mut script, Method::ToolsList, None).await;
    list.answer(&json!({ "tools": [{ "name": "t", "inputSchema": {} }] }));
    let listed = runtime::json_of(listing.await.unwrap());
    let names: Vec<_> =
        listed["result"]["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["busy__t", "idle__t"]);
    assert!(runtime::json_of(calling.await.unwrap())["result"].is_object());
}
