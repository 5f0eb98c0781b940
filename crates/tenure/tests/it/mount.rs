//! The endpoint, or a whole node, inside the server of an embedder.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::routing::get;
use axum::{Extension, Router};
use serde_json::{Value, json};
use tempfile::TempDir;
use tenure::{MountedNode, Node};
use tenure_layers::data::{DataLayer, Policy};
use tenure_session::Limits;
use tenure_session::port::clock::SystemClock;
use tenure_session::session::{SessionParts, Sessions};
use tenure_session::state::{StateLimits, States};
use tenure_store::disk::{Disk, Sync};
use tenure_store::memory::Memory;
use tenure_store::open::{StoreOptions, open};
use tenure_transport::http::{Endpoint, Remote, Rules};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::support::client::Ask;
use crate::support::node::config;
use crate::support::session::{Session, initialize};
use crate::support::wait::{DEADLINE, within};
use crate::support::{example, modern};

#[tokio::test]
async fn the_endpoint_can_be_mounted_in_an_axum_router() {
    let store = open("memory:", StoreOptions::default()).await.unwrap().store;
    let states = States::start(Arc::clone(&store), Arc::new(SystemClock), StateLimits::default());
    let (demo, kinds) = (Arc::new(tenure::demo::backend()), vec![tenure::demo::workspace()]);
    let backend = Arc::new(DataLayer::new(demo, states, Policy::default(), kinds));
    // However slow the machine is, an answer without anything in front of it is JSON.
    let limits = Limits { json_wait: Duration::ZERO, ..Limits::default() };
    let sessions =
        Sessions::start(SessionParts { store, backend, clock: Arc::new(SystemClock), limits, roster: None });
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

#[tokio::test]
async fn a_peer_on_another_machine_does_not_pass_for_one_on_this() {
    let store = open("memory:", StoreOptions::default()).await.unwrap().store;
    let backend = Arc::new(tenure::demo::backend());
    let limits = Limits::default();
    let sessions =
        Sessions::start(SessionParts { store, backend, clock: Arc::new(SystemClock), limits, roster: None });
    let statuses = async |peer: &str| {
        let remote = Remote::new(peer.parse().unwrap(), "http");
        let endpoint = Endpoint::new(sessions.clone(), Rules::default());
        let router = Router::new().route_service("/mcp", endpoint).layer(Extension(remote));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let _serving =
            AbortOnDropHandle::new(tokio::spawn(async move { axum::serve(listener, router).await }));
        let mut statuses = Vec::new();
        for host in ["localhost", "127.0.0.1:8484", "[::1]"] {
            statuses.push(initialize("2025-11-25").header("Host", host).send(address).await.status());
        }
        statuses
    };
    assert_eq!(statuses("127.0.0.1:5000").await, [200; 3]);
    assert_eq!(statuses("192.0.2.7:5000").await, [403; 3]);
}

/// A node in an axum router, at its own paths and at another one.
async fn mounted(node: &MountedNode, stop: CancellationToken) -> (SocketAddr, AbortOnDropHandle<()>) {
    let router = Router::new()
        .route("/", get(|| async { "a page" }))
        .route_service("/agents", node.endpoint())
        .nest_service("/below", node.service())
        .fallback_service(node.service());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned());
    (address, AbortOnDropHandle::new(tokio::spawn(async move { serving.await.unwrap() })))
}

fn text(answer: &Value) -> &Value {
    &answer["result"]["content"][0]["text"]
}

/// Where the server around it listens is not known, but that other hosts are allowed says that other machines get there.
#[tokio::test]
async fn a_node_that_other_machines_can_reach_is_not_mounted_without_credentials() {
    let others = ("http.allowed_hosts", "mcp.example.com");
    let failure = Node::builder(&config(&[others])).mount().await.expect_err("callers need no credentials");
    assert!(format!("{failure:?}").contains("auth.mode"), "{failure:?}");
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys.toml").display().to_string();
    for said in [("auth.mode", "none"), ("auth.keys_file", &keys)] {
        Node::builder(&config(&[others, said])).mount().await.expect("it was said").stop().await;
    }
}

#[tokio::test]
async fn a_node_is_a_service_in_an_axum_router_and_ends_before_it() {
    let node = Node::builder(&config(&[("doors.rpc", "true")])).mount().await.unwrap();
    let stop = CancellationToken::new();
    let (address, serving) = mounted(&node, stop.clone()).await;
    assert_eq!(Ask::new("GET", "/").send(address).await.text(), "a page");
    assert_eq!(Ask::new("GET", "/readyz").send(address).await.text(), "ready\n");
    assert_eq!(Ask::new("GET", "/below/healthz").send(address).await.text(), "ok\n");
    assert_eq!(Ask::new("GET", "/nothing").send(address).await.status(), 404);
    let evil = initialize("2025-11-25").header("Origin", "https://evil.example.com").send(address).await;
    assert_eq!(evil.status(), 403, "the guard comes along");

    // One session, whichever path it is reached by, and requests without one.
    let session = Session::start(address).await;
    for path in ["/mcp", "/agents", "/below/mcp", "/rpc"] {
        let here = Session { path: path.to_owned(), ..session.clone() };
        let answer = here.tool(1, "public_echo", &json!({ "text": path })).await;
        assert_eq!(*text(&answer.json()), json!(path));
    }
    let alone = modern::ask(2, "tools/call", &json!({ "name": "public_echo", "arguments": { "text": "x" } }));
    assert_eq!(*text(&alone.send(address).await.json()), json!("x"));
    assert_eq!(node.sessions().tallies().sessions, 1);

    // The node first: its streams end, and new clients are refused. Then the server around it has nothing to wait for.
    let mut stream = session.listen().await;
    within("the node stops", node.stop()).await;
    assert_eq!(stream.rest().await, Vec::<String>::new());
    assert!(stream.is_complete());
    assert_eq!(initialize("2025-11-25").send(address).await.fault(), (503, -31010, "draining".to_owned()));
    assert_eq!(Ask::new("GET", "/readyz").send(address).await.status(), 503);
    assert_eq!(Ask::new("GET", "/").send(address).await.text(), "a page", "the rest of the server goes on");
    stop.cancel();
    within("the server around it stops", serving).await.unwrap();
}

#[tokio::test]
async fn a_node_keeps_its_sessions_in_a_store_that_it_was_given() {
    let folder = TempDir::new().unwrap();
    // Held on to for the whole test, as an embedder may.
    let store = Arc::new(Disk::open(folder.path(), Sync::Os).unwrap());
    let backend = || Arc::new(tenure::demo::backend());
    let config = config(&[("store", "disk:/nowhere/at/all")]);
    let node =
        Node::builder(&config).with_backend(backend()).with_store(store.clone()).start().await.unwrap();
    let session = Session::start(node.address()).await;
    let began = Instant::now();
    within("the node stops", node.stop()).await;
    assert!(began.elapsed() < DEADLINE / 2, "it does not wait for other holders of the store");

    let node = Node::builder(&config).with_backend(backend()).with_store(store).start().await.unwrap();
    let session = session.moved_to(node.address());
    let answer = session.tool(1, "public_echo", &json!({ "text": "still there" })).await;
    assert_eq!(*text(&answer.json()), json!("still there"));
    node.stop().await;
    assert!(!Path::new("/nowhere").exists());
}

#[tokio::test]
async fn the_kinds_and_the_store_of_an_embedder_go_together() {
    let node = Node::builder(&config(&[]))
        .with_backend(Arc::new(tenure::demo::backend()))
        .with_kinds(vec![tenure::demo::workspace()])
        .with_store(Arc::new(Memory::new()))
        .start()
        .await
        .unwrap();
    let session = Session::start(node.address()).await;
    let counted =
        session.tool(1, "session_counter_inc", &json!({ "workspace_id": session.workspace().await })).await;
    assert_eq!(counted.json()["result"]["structuredContent"]["counter"], 1);
    assert_eq!(node.states().count(), 1);
    node.stop().await;
}

#[tokio::test]
async fn the_example_goes_on_with_its_sessions_after_a_stop_and_after_a_kill() {
    let folder = TempDir::new().unwrap();
    let (mut child, address) = example::run("mounted", "127.0.0.1:0", folder.path()).await;
    let session = Session::start(address).await;
    let greet = async |id: u64| {
        let answer = session.tool(id, "greet", &json!({ "name": "Ann" })).await;
        assert_eq!(*text(&answer.json()), json!("Hello, Ann!"));
    };
    greet(1).await;
    assert_eq!(Ask::new("GET", "/").send(address).await.text(), "a page");
    let mut stream = session.listen().await;
    let pid = child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
    assert_eq!(stream.rest().await, Vec::<String>::new(), "an open stream holds nothing up");
    assert!(within("it stops", child.wait()).await.unwrap().success());

    let again = async || example::run("mounted", &address.to_string(), folder.path()).await;
    let (mut child, _) = again().await;
    greet(2).await;
    within("it dies", child.kill()).await.unwrap();
    let (_child, _) = again().await;
    greet(3).await;
}

/// Started once more, the program of an embedder would do whatever it does.
#[tokio::test]
async fn no_warden_is_started_from_the_program_of_an_embedder() {
    const MARK: &str = "TENURE_TEST_MARK";
    let Some(mark) = std::env::var_os(MARK) else {
        // The embedder is this program in a process of its own, with this test alone.
        let folder = TempDir::new().unwrap();
        let mark = folder.path().join("mark");
        let mut embedder = Command::new(std::env::current_exe().unwrap());
        embedder.args(["--exact", "mount::no_warden_is_started_from_the_program_of_an_embedder"]);
        embedder.env(MARK, &mark).stdout(std::process::Stdio::null());
        assert!(within("the embedder ends", embedder.status()).await.unwrap().success());
        return assert!(!mark.exists(), "it was started again");
    };
    if std::env::args().any(|argument| argument == "warden") {
        return std::fs::write(mark, "").unwrap();
    }
    let mut config = config(&[]);
    config.child.command = vec!["cat".to_owned()];
    Node::builder(&config).mount().await.unwrap().stop().await;
}
