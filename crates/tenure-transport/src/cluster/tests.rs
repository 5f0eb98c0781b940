//! Peers over real sockets: who is served, and how connections are used.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use tenure_session::id::NodeId;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::links::{Links, SendFailure};
use super::peer_key::PeerKey;
use super::peer_port::PeerPort;
use super::pins::KnownNodes;

/// The records of nodes.
#[derive(Clone, Default)]
struct Book(Arc<Mutex<HashMap<NodeId, (String, String)>>>);

impl Book {
    fn enter(&self, node: NodeId, address: SocketAddr, key: &PeerKey) {
        self.0.lock().unwrap().insert(node, (address.to_string(), key.pin().to_string()));
    }
}

impl KnownNodes for Book {
    fn node(&self, node: NodeId) -> Option<(String, String)> {
        self.0.lock().unwrap().get(&node).cloned()
    }

    fn has_key(&self, pin: &str) -> bool {
        self.0.lock().unwrap().values().any(|(_, known)| known == pin)
    }
}

const HERE: NodeId = NodeId::from_bytes([1; 8]);
const THERE: NodeId = NodeId::from_bytes([2; 8]);

struct World {
    book: Book,
    here: PeerKey,
    there: PeerKey,
    address: SocketAddr,
    served: Arc<AtomicUsize>,
    go_on: Arc<Notify>,
    shut: CancellationToken,
    tasks: TaskTracker,
}

impl World {
    /// A node that echoes bodies once it is told to; at once if they are empty.
    async fn new() -> Self {
        let (book, here, there) = (Book::default(), PeerKey::draw().unwrap(), PeerKey::draw().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = PeerPort::for_nodes(listener, &there, Arc::new(book.clone())).unwrap();
        let address = port.local_addr().unwrap();
        let (served, go_on) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let (counts, waits) = (Arc::clone(&served), Arc::clone(&go_on));
        let service = service_fn(move |request: Request<Incoming>| {
            let (counts, waits) = (Arc::clone(&counts), Arc::clone(&waits));
            async move {
                let told = waits.notified();
                // A greeting.
                if request.method() == http::Method::HEAD {
                    return Ok::<_, Infallible>(Response::new(Full::default()));
                }
                let body = request.into_body().collect().await.unwrap().to_bytes();
                counts.fetch_add(1, Ordering::SeqCst);
                if !body.is_empty() {
                    told.await;
                }
                Ok(Response::new(Full::new(body)))
            }
        });
        let (shut, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(port.run(service, shut.clone()));
        Self { book, here, there, address, served, go_on, shut, tasks }
    }

    fn links(&self, key: &PeerKey) -> Links {
        Links::new(key.clone(), Arc::new(self.book.clone()), self.tasks.clone(), CancellationToken::new())
    }
}

fn request(body: &'static str) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(Bytes::from_static(body.as_bytes())));
    *request.uri_mut() = "https://peer.invalid/".parse().unwrap();
    request
}

fn not_sent(outcome: Result<Response<super::PeerBody>, SendFailure>) -> &'static str {
    match outcome {
        Err(SendFailure::NotSent(why)) => why,
        other => panic!("{:?}", other.map(|response| response.status())),
    }
}

#[tokio::test]
async fn a_node_serves_the_nodes_whose_keys_it_knows_and_nobody_else() {
    let world = World::new().await;
    world.book.enter(THERE, world.address, &world.there);
    let links = world.links(&world.here);
    let refused = not_sent(links.send(THERE, request("")).await);
    assert_eq!(refused, "it cut off the connection: it may not know our key yet");
    assert_eq!(world.served.load(Ordering::SeqCst), 0);
    // Its record has come.
    world.book.enter(HERE, world.address, &world.here);
    links.send(THERE, request("")).await.unwrap();
    assert_eq!(world.served.load(Ordering::SeqCst), 1);
    assert_eq!(
        not_sent(links.send(NodeId::from_bytes([3; 8]), request("")).await),
        "its record was not found"
    );
}

#[tokio::test]
async fn a_node_that_does_not_prove_the_key_of_its_record_gets_no_request() {
    let world = World::new().await;
    world.book.enter(HERE, world.address, &world.here);
    world.book.enter(THERE, world.address, &PeerKey::draw().unwrap());
    let links = world.links(&world.here);
    let refused = not_sent(links.send(THERE, request("")).await);
    assert_eq!(refused, "it does not prove its key, or does not know ours yet");
    assert_eq!(world.served.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn many_requests_share_few_connections_and_answers_are_their_own() {
    let world = World::new().await;
    world.book.enter(HERE, world.address, &world.here);
    world.book.enter(THERE, world.address, &world.there);
    let links = Arc::new(world.links(&world.here));
    let mut asked = tokio::task::JoinSet::new();
    for number in 0..600 {
        let links = Arc::clone(&links);
        asked.spawn(async move {
            let body = Bytes::from(number.to_string());
            let mut request = request("");
            *request.body_mut() = Full::new(body.clone());
            let mut answer = links.send(THERE, request).await.unwrap().into_body();
            assert_eq!(answer.data().await.unwrap().unwrap(), body);
        });
    }
    while world.served.load(Ordering::SeqCst) < 600 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let connections = links.connections(THERE);
    assert!((2..=4).contains(&connections), "{connections}");
    world.go_on.notify_waiters();
    while let Some(asked) = asked.join_next().await {
        asked.unwrap();
    }
}

#[tokio::test]
async fn streams_that_clients_listen_to_take_no_connection_of_requests() {
    let world = World::new().await;
    world.book.enter(HERE, world.address, &world.here);
    world.book.enter(THERE, world.address, &world.there);
    let links = world.links(&world.here);
    let post = || {
        let mut post = request("");
        *post.method_mut() = http::Method::POST;
        post
    };
    let _listens = links.send(THERE, request("")).await.unwrap();
    assert_eq!(links.connections(THERE), 1);
    let _posts = links.send(THERE, post()).await.unwrap();
    assert_eq!(links.connections(THERE), 2);
    let _more = (links.send(THERE, request("")).await.unwrap(), links.send(THERE, post()).await.unwrap());
    assert_eq!(links.connections(THERE), 2);
}

#[tokio::test]
async fn a_request_that_a_lost_node_had_is_broken_and_a_later_one_was_not_sent() {
    let world = World::new().await;
    world.book.enter(HERE, world.address, &world.here);
    world.book.enter(THERE, world.address, &world.there);
    let links = world.links(&world.here);
    let (broken, ()) = tokio::join!(links.send(THERE, request("slow")), async {
        while world.served.load(Ordering::SeqCst) < 1 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        // It stops, and gives up what takes longer than a moment.
        world.shut.cancel();
    });
    assert!(matches!(broken, Err(SendFailure::Broken)));
    assert_eq!(not_sent(links.send(THERE, request("")).await), "it refuses connections");
}

#[tokio::test]
async fn what_waits_for_a_node_that_is_gone_ends() {
    let world = World::new().await;
    world.book.enter(HERE, world.address, &world.here);
    world.book.enter(THERE, world.address, &world.there);
    let links = world.links(&world.here);
    let (broken, ()) = tokio::join!(links.send(THERE, request("slow")), async {
        while world.served.load(Ordering::SeqCst) < 1 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        links.close(THERE);
    });
    assert!(matches!(broken, Err(SendFailure::Broken)));
}

#[tokio::test]
async fn requests_that_wait_for_a_node_that_does_not_answer_wait_once_and_not_in_turns() {
    let world = World::new().await;
    // It accepts connections, and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    world.book.enter(HERE, world.address, &world.here);
    world.book.enter(THERE, silent.local_addr().unwrap(), &world.there);
    let links = world.links(&world.here);
    let began = tokio::time::Instant::now();
    let asked = (0..20).map(|_| links.send(THERE, request("")));
    for outcome in futures_util::future::join_all(asked).await {
        assert_eq!(not_sent(outcome), "it does not answer");
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_node_whose_record_is_gone_is_cut_off() {
    let world = World::new().await;
    world.book.enter(HERE, world.address, &world.here);
    world.book.enter(THERE, world.address, &world.there);
    let links = world.links(&world.here);
    let (broken, ()) = tokio::join!(links.send(THERE, request("slow")), async {
        while world.served.load(Ordering::SeqCst) < 1 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        world.book.0.lock().unwrap().remove(&HERE);
    });
    assert!(matches!(broken, Err(SendFailure::Broken)));
    assert_eq!(
        not_sent(links.send(THERE, request("")).await),
        "it cut off the connection: it may not know our key yet"
    );
}
