//! After a restart no token of a caller is there, until the caller comes with one.

use serde_json::json;
use tenure::Node;
use tenure_testkit::issuer::{FakeIssuer, SigningKey};
use tenure_testkit::token_server::FakeTokenServer;

use super::recorder::Recorder;
use super::world::{EXCHANGE, config_at, echo, session, token};
use crate::auth::world::Bearing;
use crate::support::node::demo;

#[tokio::test]
async fn a_session_wakes_after_a_restart_with_the_token_of_the_request_that_wakes_it() {
    let behind = demo().await;
    let recorder = Recorder::before(behind.address()).await;
    let (issuer, server) =
        (FakeIssuer::start(SigningKey::es256("first")).await, FakeTokenServer::start().await);
    let folder = tempfile::tempdir().unwrap();
    let store = format!("disk:{}", folder.path().join("store").display());
    let config = config_at(&store, &issuer, &server, &recorder, "/mcp", EXCHANGE);

    let first = Node::start(&config).await.expect("a node");
    let old = token(&issuer, "ann", &json!({}));
    let owned = session(first.address(), &old).await;
    first.stop().await;

    let second = Node::start(&config).await.expect("the next node");
    assert_eq!(server.asked().len(), 1, "nothing is asked for before a caller comes");
    let new = token(&issuer, "ann", &json!({"jti": "new"}));
    let owned = owned.moved_to(second.address());
    let called = echo(&owned, 1, "hi").bearer(&new).send(second.address()).await.json();
    assert!(called["result"].is_object(), "{called}");
    let asked = server.asked();
    assert_eq!((asked.len(), asked[1].field("subject_token")), (2, new.as_str()));

    // Nothing of it is in the store.
    second.stop().await;
    let mut files = vec![folder.path().to_owned()];
    let mut bytes = 0;
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if let Ok(content) = std::fs::read(&path) {
            bytes += content.len();
            for secret in [old.as_str(), new.as_str(), "upstream-token", "gateway-s3cret"] {
                assert!(memchr_in(&content, secret.as_bytes()).is_none(), "{}", path.display());
            }
        }
    }
    assert!(bytes > 0, "there is a store");
}

fn memchr_in(content: &[u8], wanted: &[u8]) -> Option<usize> {
    content.windows(wanted.len()).position(|window| window == wanted)
}
