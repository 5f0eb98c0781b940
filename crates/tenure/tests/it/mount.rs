//! The endpoint inside somebody else's server.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use serde_json::json;
use tenure_session::Limits;
use tenure_session::data::{DataLayer, Policy};
use tenure_session::port::clock::SystemClock;
use tenure_session::runtime::{Parts, Sessions};
use tenure_session::state::{StateLimits, States};
use tenure_store::open::{Options, open};
use tenure_transport::http::{Endpoint, Rules};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::support::client::Ask;
use crate::support::session::Session;

#[tokio::test]
async fn the_endpoint_can_be_mounted_in_an_axum_router() {
    let store = open("memory:", Options::default()).await.unwrap().store;
    let states = States::start(Arc::clone(&store), Arc::new(SystemClock), StateLimits::default());
    let (demo, kinds) = (Arc::new(tenure::demo::backend()), vec![tenure::demo::workspace()]);
    let backend = Arc::new(DataLayer::new(demo, states, Policy::default(), kinds));
    // However slow the machine is, an answer without anything in front of it is JSON.
    let limits = Limits { json_wait: Duration::ZERO, ..Limits::default() };
    let sessions = Sessions::start(Parts { store, backend, clock: Arc::new(SystemClock), limits });
    let endpoint = Endpoint::new(sessions.clone(), Rules::default());
    let router = Router::new().route("/", get(|| async { "a page" })).route_service("/mcp", endpoint);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let _serving = AbortOnDropHandle::new(tokio::spawn(async move { axum::serve(listener, router).await }));

    assert_eq!(Ask::new("GET", "/").send(address).await.text(), "a page");
    let session = Session::start(address).await;
    let response = session.tool(1, "public_echo", &json!({ "text": "mounted" })).await;
    assert_eq!(response.json()["result"]["content"][0]["text"], "mounted");
    let subscribe = session.request(2, "resources/subscribe", &json!({ "uri": "demo://notebook" }));
    assert_eq!(subscribe.send(address).await.status(), 200);
    let mut stream = session.listen().await;
    let note = json!({ "workspace_id": session.workspace().await, "text": "note" });
    session.tool(3, "notebook_append", &note).await;
    assert_eq!(stream.message().await.unwrap().1["method"], "notifications/resources/updated");
    let evil = session.get().header("Origin", "https://evil.example.com").send(address).await;
    assert_eq!(evil.status(), 403, "the guard comes along");
    assert_eq!(session.delete().send(address).await.status(), 204);
    assert_eq!(stream.rest().await, Vec::<String>::new());
    assert_eq!(session.get().send(address).await.fault().2, "session_deleted");
    assert_eq!(sessions.tallies().sessions, 0);
}
