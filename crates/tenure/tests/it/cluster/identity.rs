//! Who asks goes along with a request to the node that has its session.

use std::time::Duration;

use serde_json::json;
use tenure_session::call::Granted;

use super::world::Shared;
use crate::support::client::Ask;
use crate::support::session::{Session, initialize, notification};

/// A file with a key for each of these names.
fn keys(names: &[(&str, &[&str])]) -> (tempfile::TempDir, String, Vec<String>) {
    use tenure_auth::keys::{ApiKeyFile, NewKey};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.toml");
    let file = ApiKeyFile::at(&path);
    let secrets = names.iter().map(|(name, scopes)| {
        let scopes = tenure_auth::scope::ScopeSet::of(scopes.iter().copied()).unwrap();
        let key = NewKey { name: (*name).into(), scopes, ..NewKey::default() };
        file.add(key, tenure_auth::UnixSeconds(1_800_000_000)).unwrap().expose().to_owned()
    });
    let secrets = secrets.collect();
    (folder, path.to_str().unwrap().to_owned(), secrets)
}

fn with(ask: Ask, key: &str) -> Ask {
    ask.header("Authorization", &format!("Bearer {key}"))
}

async fn start(node: std::net::SocketAddr, key: &str) -> Session {
    let session = Session::of(node, "/mcp", &with(initialize("2025-11-25"), key).send(node).await);
    let ready = with(session.post(&notification("notifications/initialized")), key).send(node).await;
    assert_eq!(ready.status(), 202);
    session
}

#[tokio::test]
async fn a_session_answers_to_its_owner_alone_at_every_node() {
    let (_folder, file, keys) = keys(&[("alice", &["notes", "more"]), ("bob", &[])]);
    let (mut one, other) = Shared::new(&[("auth.keys_file", &file)]).pair().await;
    let session = start(one.address, &keys[0]).await;
    for node in [one.address, other.address] {
        let call = || session.request(1, "tools/call", &json!({ "name": "any" }));
        let (response, caller) = tokio::join!(with(call(), &keys[0]).send(node), async {
            let call = one.script.call().await;
            let caller = call.context.caller().clone();
            call.answer(&json!({}));
            caller
        });
        assert_eq!(response.status(), 200, "{response:?}");
        assert_eq!(caller.principal.name(), Some("key:alice"));
        let Granted::Scopes(scopes) = &caller.scopes else { panic!("{caller:?}") };
        assert_eq!(scopes.iter().map(|scope| &**scope).collect::<Vec<_>>(), ["more", "notes"]);
        let unknown = Session { id: "f".repeat(32), ..session.clone() };
        let refused = with(call(), &keys[1]).send(node).await;
        let never =
            with(unknown.request(1, "tools/call", &json!({ "name": "any" })), &keys[1]).send(node).await;
        assert_eq!((refused.status(), refused.text()), (404, never.text()));
        assert_eq!(call().send(node).await.status(), 401);
        assert_eq!(with(session.get(), &keys[1]).send(node).await.status(), 404);
        assert_eq!(with(session.delete(), &keys[1]).send(node).await.status(), 404);
    }
}

#[tokio::test]
async fn a_session_of_somebody_else_looks_unknown_also_while_its_node_is_not_reached() {
    let (_folder, file, keys) = keys(&[("alice", &[]), ("bob", &[])]);
    let (mut one, other) = Shared::new(&[("auth.keys_file", &file)]).pair().await;
    let session = start(one.address, &keys[0]).await;
    let at_other = with(session.request(1, "ping", &json!({})), &keys[0]).send(other.address).await;
    assert_eq!(at_other.status(), 200, "now its place is remembered");
    one.lose().await;
    let unknown = Session { id: "f".repeat(32), ..session.clone() };
    let lost = tokio::time::Instant::now();
    let asks = |session: &Session| {
        [session.request(2, "ping", &json!({})), session.get(), session.delete()]
            .map(|ask| with(ask, &keys[1]))
    };
    for (hers, never) in asks(&session).into_iter().zip(asks(&unknown)) {
        let (hers, never) = (hers.send(other.address).await, never.send(other.address).await);
        assert_eq!((hers.status(), hers.text()), (404, never.text()));
    }
    // The others would wait at least that long for a node that is not reached.
    assert!(lost.elapsed() < Duration::from_secs(3), "{:?}", lost.elapsed());
}

#[tokio::test]
async fn the_caller_is_the_client_and_not_the_node_in_between() {
    let (mut one, other) = Shared::new(&[("http.trusted_proxies", "127.0.0.1")]).pair().await;
    let session = one.session().await;
    let ask = session
        .request(1, "tools/call", &json!({ "name": "any" }))
        .header("X-Forwarded-For", "203.0.113.9")
        .header("X-Request-Id", "one-id-for-all")
        .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    let (response, caller) = tokio::join!(ask.send(other.address), async {
        let call = one.script.call().await;
        let caller = call.context.caller().clone();
        call.answer(&json!({}));
        caller
    });
    assert_eq!(response.status(), 200);
    assert_eq!(caller.remote.unwrap().ip().to_string(), "203.0.113.9");
    assert_eq!((caller.transport, caller.correlation.as_deref()), ("http", Some("one-id-for-all")));
    assert!(caller.traceparent.unwrap().starts_with("00-0af7"));
}
