//! Several nodes: the one that serves a request exchanges the token that its caller has shown at another one.

use std::sync::Arc;

use serde_json::json;
use tenure::Node;
use tenure_store::memory::Memory;
use tenure_testkit::issuer::{FakeIssuer, SigningKey};
use tenure_testkit::memory_members::MemoryMembers;
use tenure_testkit::token_server::FakeTokenServer;

use super::recorder::Recorder;
use super::world::{EXCHANGE, config, echo, session, token};
use crate::auth::world::Bearing;
use crate::support::node::demo;

#[tokio::test]
async fn a_session_of_another_node_has_the_token_that_its_caller_has_shown_here() {
    let behind = demo().await;
    let recorder = Recorder::before(behind.address()).await;
    let issuer = FakeIssuer::start(SigningKey::es256("first")).await;
    let server = FakeTokenServer::start().await;
    let config = config(&issuer, &server, &recorder, "/mcp", EXCHANGE);
    let (store, members) = (Arc::new(Memory::new()), Arc::new(MemoryMembers::new()));
    let start = async || {
        let node = Node::builder(&config).with_store(Arc::clone(&store) as _);
        node.with_members(Arc::clone(&members) as _).start().await.expect("a node")
    };
    let (one, other) = (start().await, start().await);
    let first = token(&issuer, "ann", &json!({}));
    let session = session(one.address(), &first).await;
    // The node that has the session has not seen it.
    let wider = token(&issuer, "ann", &json!({ "scope": "read" }));
    let called = echo(&session, 1, "hi").bearer(&wider).send(other.address()).await.json();
    assert!(called["result"].is_object(), "{called}");
    let asked: Vec<_> = server.asked().iter().map(|ask| ask.field("subject_token").to_owned()).collect();
    assert_eq!(asked, [first, wider.clone()]);
    assert!(!format!("{:?}", recorder.seen()).contains(&wider), "only what was got in exchange goes on");
}
