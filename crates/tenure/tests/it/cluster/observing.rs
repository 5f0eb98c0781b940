//! A request is counted and logged once, at the node that its client has reached.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::json;
use tenure_session::cluster::{NodeInfo, Roster};
use tenure_session::id::NodeId;
use tenure_session::port::clock::SystemClock;
use tenure_session::session::{SessionParts, Sessions};
use tenure_session::{Limits, Principal, SessionId};
use tenure_store::memory::Memory;
use tenure_testkit::fake_backend::{FakeBackend, Script};
use tenure_testkit::memory_members::MemoryMembers;
use tenure_transport::cluster::{PeerKey, PeerPort, Relay};
use tenure_transport::http::{Endpoint, PeerService, Router, Rules};
use tenure_transport::observe::{Observers, Outcome, RequestEnd, RequestObserver};
use tenure_transport::serve::{Bounds, HttpServer, Stages};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::support::session::Session;
use crate::support::wait::until;

/// What an observer heard of each request.
#[derive(Default)]
struct Heard(Mutex<Vec<End>>);

struct End {
    method: String,
    status: Option<u16>,
    outcome: Outcome,
    session: Option<String>,
    bytes: (u64, u64),
    is_complete: bool,
}

impl RequestObserver for Heard {
    fn ended(&self, request: &RequestEnd<'_>) {
        self.0.lock().unwrap().push(End {
            method: request.method.map_or("", |method| method.as_str()).to_owned(),
            status: request.http.and_then(|http| http.status),
            outcome: request.outcome,
            session: request.session.map(str::to_owned),
            bytes: (request.bytes_in, request.bytes_out),
            is_complete: request.is_complete,
        });
    }
}

/// A node of which somebody hears. It ends with the test.
async fn node(
    store: &Arc<Memory>,
    members: &Arc<MemoryMembers>,
) -> (SocketAddr, Script, Arc<Heard>, Sessions) {
    let (backend, script) = FakeBackend::new();
    let key = PeerKey::draw().unwrap();
    let peers = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let info = NodeInfo {
        peer_address: peers.local_addr().unwrap().to_string(),
        key_sha256: key.pin().to_string(),
        ..NodeInfo::default()
    };
    let clock = Arc::new(SystemClock);
    let roster = Roster::start(members.clone(), clock.clone(), NodeId::random(), info);
    roster.confirmed().await.unwrap();
    let limits = Limits { json_wait: std::time::Duration::ZERO, ..Limits::default() };
    let roster_of_sessions = Some(roster.clone());
    let sessions = Sessions::start(SessionParts {
        store: store.clone(),
        backend,
        clock,
        limits,
        roster: roster_of_sessions,
    });
    let heard = Arc::new(Heard::default());
    let rules = Rules { observers: Observers::new([heard.clone() as _]), ..Rules::default() };
    let port = PeerPort::new(peers, &key, roster.clone()).unwrap();
    let relay = Relay::start(roster, key, CancellationToken::new(), &TaskTracker::new());
    let router = Router::new(Endpoint::new(sessions.clone(), rules).with_relay(relay));
    tokio::spawn(port.run(PeerService::new(router.clone()), CancellationToken::new()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = HttpServer::new(listener, router, None, Bounds::default());
    tokio::spawn(async move { server.run(Stages::default(), std::future::pending()).await });
    (address, script, heard, sessions)
}

#[tokio::test]
async fn a_relayed_request_is_heard_of_once_with_all_that_is_known_of_it() {
    let (store, members) = (Arc::new(Memory::new()), Arc::new(MemoryMembers::new()));
    let (one, mut script, at_one, sessions) = node(&store, &members).await;
    let (other, _script, at_other, _) = node(&store, &members).await;
    let session = Session::start(one).await;
    until("the handshake was heard of", || at_one.0.lock().unwrap().len() == 2).await;
    at_one.0.lock().unwrap().clear();
    let ask = session.request(1, "tools/call", &json!({ "name": "any" }));
    let (response, ()) = tokio::join!(ask.send(other), async {
        script.call().await.answer(&json!({ "content": [], "isError": true }));
    });
    let body = response.body.len() as u64;
    until("the call was heard of", || at_other.0.lock().unwrap().len() == 1).await;
    {
        let heard = at_other.0.lock().unwrap();
        let end = &heard[0];
        assert_eq!((end.method.as_str(), end.status), ("tools/call", Some(200)));
        assert_eq!((end.outcome, end.is_complete), (Outcome::ToolError, true));
        let label = SessionId::parse(session.id.as_bytes()).unwrap().key().label();
        assert_eq!(end.session.as_deref(), Some(label.as_str()));
        assert!(end.bytes.0 > 50 && end.bytes.1 == body, "{:?}", end.bytes);
    }
    // A stream, too.
    let connection = session.request(2, "tools/call", &json!({ "name": "any" })).begin(other).await;
    let call = script.call().await;
    crate::support::node::say(&call, "hello").await;
    call.answer(&json!({ "content": [] }));
    connection.events().await.rest().await;
    until("the stream was heard of", || at_other.0.lock().unwrap().len() == 2).await;
    assert_eq!(at_other.0.lock().unwrap()[1].outcome, Outcome::Result);
    assert!(at_one.0.lock().unwrap().is_empty(), "the node that served it counts no request of its own");
    let id = SessionId::parse(session.id.as_bytes()).unwrap();
    let kept = sessions.live(&id, &Principal::ANONYMOUS).expect("the session is there");
    until("the session has both", || kept.figures().tool_calls == 2).await;
    assert_eq!(kept.figures().errors, 1);
}
