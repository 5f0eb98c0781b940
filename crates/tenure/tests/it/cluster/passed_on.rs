//! Requests without a session that a node passes on because it stops, to a node that is lost.

use std::convert::Infallible;
use std::sync::Arc;

use futures_util::stream;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use serde_json::{Value, json};
use tenure_session::cluster::{NodeInfo, Roster};
use tenure_session::id::NodeId;
use tenure_session::port::clock::SystemClock;
use tenure_session::port::members::Members;
use tenure_testkit::fake_responder::{Exchanged, FakeRequest};
use tenure_transport::cluster::{PeerKey, PeerPort};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::world::{Lone, Shared};
use crate::modern::support::{call, message, post};
use crate::support::client::Connection;
use crate::support::wait::within;

/// The tool `t`, and `u`, which must not be called twice.
fn tools(t_is_safe: bool) -> Value {
    let tool = |name: &str, is_safe: bool| {
        let annotations = json!({ "readOnlyHint": is_safe });
        json!({ "name": name, "inputSchema": { "type": "object" }, "annotations": annotations })
    };
    json!({ "tools": [tool("t", t_is_safe), tool("u", false)] })
}

fn cluster() -> Shared {
    Shared::new(&[("shutdown.grace", "20s")])
}

/// A node that stops as soon as it has answered the call that it has. It knows that the nodes take requests that are there.
async fn stopping(shared: &Shared) -> (Lone<Exchanged>, FakeRequest) {
    // The first record of a node is from before it has looked at the others.
    let serve = async {
        loop {
            let members = shared.members.members().await.expect("memory");
            let mut infos = members.iter().filter_map(|member| NodeInfo::decode(&member.info));
            if infos.all(|info| info.unfit.is_none()) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    within("the others serve", serve).await;
    let mut one = shared.modern().await;
    let unsafe_call = message("tools/call", json!({ "name": "u", "arguments": {} }));
    let mut running = post(&unsafe_call).begin(one.address).await;
    let asked = one.script.expect("tools/call").await;
    drop(one.stop());
    // Its client waits all the time.
    tokio::spawn(async move { running.response().await });
    // The stop asks which calls it has to wait for.
    one.script.expect("tools/list").await.answer(&tools(true));
    (one, asked)
}

/// Answers a call that was not passed on: the others list the nodes once a second, and do not know this one yet.
async fn keeps(mut connection: Connection, kept: FakeRequest) {
    kept.answer(&json!({ "content": [] }));
    connection.response().await;
}

// B22
#[tokio::test]
async fn a_call_that_was_given_to_a_node_that_is_lost_runs_again_if_that_is_safe() {
    for is_safe in [true, false] {
        let shared = cluster();
        let (mut a, mut b) = (shared.modern().await, shared.modern().await);
        let (mut one, running) = stopping(&shared).await;
        let (mut passed_on, begun, is_a) = loop {
            let connection = post(&call()).begin(one.address).await;
            tokio::select! {
                begun = a.script.next() => break (connection, begun, true),
                begun = b.script.next() => break (connection, begun, false),
                kept = one.script.next() => keeps(connection, kept).await,
            }
        };
        let (mut lost, mut left) = if is_a { (a, b) } else { (b, a) };
        let name = lost.name();
        lost.lose().await;
        drop(begun);
        shared.remove(name).await;
        one.script.expect("tools/list").await.answer(&tools(is_safe));
        if is_safe {
            // The other node may not know the one that stops.
            let again = tokio::select! {
                again = left.script.next() => again,
                again = one.script.next() => again,
            };
            again.answer(&json!({ "content": [], "anew": true }));
        }
        let answer = passed_on.response().await.json();
        match is_safe {
            true => assert_eq!(answer["result"]["anew"], true, "{answer}"),
            false => assert_eq!(answer["error"]["data"]["reason"], "interrupted", "{answer}"),
        }
        running.answer(&json!({ "content": [] }));
    }
}

/// A node that the test plays. It tells when it gets a first request; the stream that answers that breaks when it is told to, with
/// no event on it. The next request is answered.
async fn breaking(shared: &Shared) -> (Roster, Arc<Notify>, Arc<Notify>) {
    let mut model = shared.modern().await;
    let members = shared.members.members().await.expect("memory");
    let info = NodeInfo::decode(&members[0].info).expect("its record");
    let name = model.name();
    model.lose().await;
    shared.remove(name).await;

    let (key, listener) = (PeerKey::draw().unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let (peer_address, key_sha256) = (listener.local_addr().unwrap().to_string(), key.pin().to_string());
    let info = NodeInfo { peer_address, key_sha256, ..info };
    let roster = Roster::start(shared.members.clone(), Arc::new(SystemClock), NodeId::random(), info);
    let port = PeerPort::new(listener, &key, roster.clone()).unwrap();
    roster.confirmed().await.expect("it fits");
    let (begun, breaks) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let first = Arc::new(std::sync::Mutex::new(Some((Arc::clone(&begun), Arc::clone(&breaks)))));
    let service = service_fn(move |request: Request<Incoming>| {
        let first = Arc::clone(&first);
        async move {
            if request.method() == Method::HEAD {
                return Ok::<_, Infallible>(Response::new(
                    Full::default().map_err(|_| lost()).boxed_unsync(),
                ));
            }
            let told = first.lock().unwrap().take();
            let (media, body) = match told {
                Some((begun, breaks)) => {
                    begun.notify_one();
                    let broken = stream::once(async move {
                        breaks.notified().await;
                        Err::<Frame<Bytes>, _>(lost())
                    });
                    ("text/event-stream", StreamBody::new(broken).boxed_unsync())
                }
                None => {
                    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{"content":[],"anew":true}}"#;
                    ("application/json", Full::from(answer).map_err(|_| lost()).boxed_unsync())
                }
            };
            Ok(Response::builder().header("content-type", media).body(body).unwrap())
        }
    });
    tokio::spawn(port.run(service, CancellationToken::new()));
    (roster, begun, breaks)
}

fn lost() -> std::io::Error {
    std::io::Error::other("the node was lost")
}

// B7
#[tokio::test]
async fn a_call_whose_stream_breaks_before_its_client_has_an_id_runs_again_if_that_is_safe() {
    for is_safe in [true, false] {
        let shared = cluster();
        let (_peer, begun, breaks) = breaking(&shared).await;
        let (mut one, running) = stopping(&shared).await;
        let connection = loop {
            let connection = post(&call()).begin(one.address).await;
            tokio::select! {
                () = begun.notified() => break connection,
                kept = one.script.next() => keeps(connection, kept).await,
            }
        };
        let mut events = connection.events().await;
        breaks.notify_one();
        one.script.expect("tools/list").await.answer(&tools(is_safe));
        let (_, answer) = events.message().await.expect("an answer");
        match is_safe {
            true => assert_eq!(answer["result"]["anew"], true, "{answer}"),
            false => assert_eq!(answer["error"]["data"]["reason"], "interrupted", "{answer}"),
        }
        assert!(events.message().await.is_none() && events.is_complete());
        running.answer(&json!({ "content": [] }));
    }
}
