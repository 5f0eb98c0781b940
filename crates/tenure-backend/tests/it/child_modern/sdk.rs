//! Tests with the server of an SDK that knows the modern era.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_backend::child::{ChildLimits, ChildResponder};
use tenure_protocol::{Method, Reason, Reply};
use tenure_session::Principal;
use tenure_session::backend::Responder;
use tenure_session::call::CallContext;
use tenure_testkit::fake_client::FakeClient;

use super::server::responder;
use super::{ask, client, gone, limits, soon, text, value};

async fn tool(responder: &ChildResponder, client: &Arc<FakeClient>, name: &str) -> Reply {
    ask(responder, client, "tools/call", json!({"name": name, "_meta": {"progressToken": "p"}})).await
}

async fn pid(responder: &ChildResponder) -> u64 {
    text(tool(responder, &client(), "pid").await).parse().unwrap()
}

/// A client's listen, and the news that it got.
fn listen(responder: &ChildResponder, client: &Arc<FakeClient>) -> tenure_session::port::BoxFuture<Reply> {
    responder.respond(client.call(
        7,
        "subscriptions/listen",
        json!({"notifications": {"toolsListChanged": true}}),
    ))
}

#[tokio::test]
async fn everything_but_id_and_token_passes_as_it_is() {
    let (responder, client) = (responder(limits()), client());
    let params = json!({"name": "arguments", "arguments": {"a": [1, "ü", null]}});
    let said = text(ask(&responder, &client, "tools/call", params).await);
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap(), json!({"a": [1, "ü", null]}));
    let token = text(tool(&responder, &client, "token").await);
    assert_ne!(token, r#""p""#, "the child knows a token of ours");
    let missing = tool(&responder, &client, "none").await.unwrap_err();
    assert_eq!((missing.code(), &*missing.message()), (-32602, "no such tool"));
    assert!(responder.keeps_request_states());
}

#[tokio::test]
async fn requests_of_many_clients_are_kept_apart_on_one_child() {
    let responder = responder(limits());
    let clients: Vec<_> = (0..20).map(|_| client()).collect();
    // All at once, with the same id and the same token.
    let calls = clients.iter().map(|client| tool(&responder, client, "progress"));
    for reply in futures_util::future::join_all(calls).await {
        reply.unwrap();
    }
    for client in clients {
        let heard: Vec<_> = client.heard().into_iter().map(|(_, params)| params).collect();
        let steps: Vec<_> = heard.iter().map(|params| params["progress"].as_f64().unwrap()).collect();
        assert_eq!(steps, [1.0, 2.0, 3.0]);
        assert!(heard.iter().all(|params| params["progressToken"] == "p"));
    }
    assert_eq!(pid(&responder).await, pid(&responder).await);
}

#[tokio::test]
async fn callers_do_not_share_a_child() {
    let responder = responder(limits());
    let mut call = client().call(7, "tools/call", json!({"name": "pid"}));
    let mut caller = call.context.caller().clone();
    caller.principal = Principal::named("somebody");
    let client = client();
    call.context = CallContext::new(client, &call.request, caller);
    let theirs = text(soon(responder.respond(call)).await);
    assert_ne!(theirs, pid(&responder).await.to_string());
}

#[tokio::test]
async fn it_hears_that_a_request_was_dropped_or_withdrawn() {
    let (responder, client) = (responder(limits()), client());
    let hang = || client.call(7, "tools/call", json!({"name": "hang", "_meta": {"progressToken": 1}}));
    let mut call = responder.respond(hang());
    tokio::select! {
        reply = &mut call => panic!("{reply:?}"),
        _ = client.hear() => {}
    }
    drop(call);
    tool(&responder, &client, "cancelled").await.unwrap();

    let mut call = responder.respond(hang());
    tokio::select! {
        reply = &mut call => panic!("{reply:?}"),
        _ = client.hear() => {}
    }
    client.cancel();
    assert!(soon(call).await.unwrap_err().is(Reason::Cancelled));
    tool(&responder, &self::client(), "cancelled").await.unwrap();
}

#[tokio::test]
async fn listens_are_kept_apart_and_end_each_in_its_way() {
    const NAMES: &str = "io.modelcontextprotocol/subscriptionId";
    let responder = responder(limits());
    let (one, other, asks) = (client(), client(), client());
    let (mut first, mut second) = (listen(&responder, &one), listen(&responder, &other));
    let hear = async |client: &Arc<FakeClient>, expected: Method| {
        let (method, params) = client.hear().await;
        assert_eq!((method, &params["_meta"][NAMES]), (expected, &json!(7)), "the client's own id");
    };
    tokio::select! {
        reply = &mut first => panic!("{reply:?}"),
        reply = &mut second => panic!("{reply:?}"),
        _ = async { tokio::join!(hear(&one, Method::Acknowledged), hear(&other, Method::Acknowledged)) } => {}
    }
    let change = async || drop(tool(&responder, &asks, "change").await.unwrap());
    tokio::select! {
        reply = &mut first => panic!("{reply:?}"),
        reply = &mut second => panic!("{reply:?}"),
        _ = async { tokio::join!(change(), hear(&one, Method::ToolsListChanged), hear(&other, Method::ToolsListChanged)) } => {}
    }
    // One is dropped, and the server gets a cancellation; the other goes on.
    drop(first);
    tool(&responder, &asks, "cancelled").await.unwrap();
    tokio::select! {
        reply = &mut second => panic!("{reply:?}"),
        _ = async { tokio::join!(change(), hear(&other, Method::ToolsListChanged)) } => {}
    }
    assert!(one.heard().is_empty());
    tool(&responder, &asks, "close").await.unwrap();
    assert_eq!(value(soon(second).await)["_meta"][NAMES], 7);
}

#[tokio::test]
async fn a_log_message_is_the_only_ones_that_wants_it() {
    let responder = responder(limits());
    let level = json!({"io.modelcontextprotocol/logLevel": "debug", "progressToken": 1});
    let log = json!({"name": "log", "_meta": level});
    let (one, other) = (client(), client());
    // A second request that wants no log messages does not matter.
    let mut hang = responder.respond(other.call(
        7,
        "tools/call",
        json!({"name": "hang", "_meta": {"progressToken": 1}}),
    ));
    tokio::select! {
        reply = &mut hang => panic!("{reply:?}"),
        reply = ask(&responder, &one, "tools/call", log.clone()) => drop(reply.unwrap()),
    }
    let heard = one.heard();
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert_eq!((&heard[0].0, &heard[0].1["data"]), (&Method::LogMessage, &json!("said")));
    drop(hang);
    other.heard();

    let mut hang = responder.respond(other.call(7, "tools/call", json!({"name": "hang", "_meta": level})));
    tokio::select! {
        reply = &mut hang => panic!("{reply:?}"),
        _ = other.hear() => {}
    }
    other.heard();
    tokio::select! {
        reply = &mut hang => panic!("{reply:?}"),
        reply = ask(&responder, &one, "tools/call", log) => drop(reply.unwrap()),
    }
    assert!(one.heard().is_empty() && other.heard().is_empty(), "it could belong to either");
}

#[tokio::test]
async fn when_the_child_dies_all_that_it_had_fails_and_the_next_request_starts_another() {
    let responder = responder(limits());
    let (listens, hangs) = (client(), client());
    let first = pid(&responder).await;
    let mut listen = listen(&responder, &listens);
    let mut hang = responder.respond(hangs.call(
        7,
        "tools/call",
        json!({"name": "hang", "_meta": {"progressToken": 1}}),
    ));
    tokio::select! {
        reply = &mut listen => panic!("{reply:?}"),
        reply = &mut hang => panic!("{reply:?}"),
        _ = async { tokio::join!(listens.hear(), hangs.hear()) } => {}
    }
    let client = client();
    let died = tokio::join!(soon(listen), soon(hang), tool(&responder, &client, "die"));
    // Calls may have been carried out; a listen has no effects.
    for (reply, reason) in
        [(died.0, Reason::BackendUnavailable), (died.1, Reason::Interrupted), (died.2, Reason::Interrupted)]
    {
        let error = reply.unwrap_err();
        assert!(error.is(reason), "{error:?}");
    }
    assert_ne!(pid(&responder).await, first);
}

#[tokio::test]
async fn an_unused_child_ends_and_is_started_again() {
    let responder = responder(ChildLimits { idle: Duration::from_millis(100), ..limits() });
    let first = pid(&responder).await;
    gone(first).await;
    // A listen keeps the child alive.
    let client = client();
    let mut listen = listen(&responder, &client);
    tokio::select! {
        reply = &mut listen => panic!("{reply:?}"),
        _ = client.hear() => {}
    }
    let second = pid(&responder).await;
    assert_ne!(second, first);
    assert!(tokio::time::timeout(Duration::from_millis(400), &mut listen).await.is_err(), "it goes on");
    assert_eq!(pid(&responder).await, second);
    drop(listen);
    gone(second).await;
}

#[tokio::test]
async fn children_go_with_their_responder() {
    let responder = responder(limits());
    let id = pid(&responder).await;
    soon(responder.close()).await;
    assert!(!std::path::Path::new(&format!("/proc/{id}")).exists(), "it was waited for");
    let id = pid(&responder).await;
    drop(responder);
    gone(id).await;
}
