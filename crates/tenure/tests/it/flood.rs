//! Clients that are slow, stuck, silent or many: they harm themselves and no other client.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::net::TcpSocket;

use crate::support::client::{Ask, Connection, connect};
use crate::support::node::{Steered, announce, demo_with, say};
use crate::support::session::{Session, initialize};
use crate::support::wait::{DEADLINE, until, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_initializes_in_a_row_stay_within_the_bounds() {
    let node = demo_with(&[("session.max_sessions", "100"), ("session.max_tombstones", "100")]).await;
    let witness = Session::start(node.address()).await;
    let bytes = initialize("2025-11-25").bytes();
    let flood = async |count: usize| {
        let mut connection = Connection::open(node.address()).await;
        let mut created = 0;
        for _ in 0..count {
            connection.write(&bytes).await;
            match connection.response().await.status() {
                200 => created += 1,
                503 => {}
                other => panic!("{other}"),
            }
        }
        created
    };
    let (one, two) = tokio::join!(flood(5000), flood(5000));
    assert_eq!(one + two, 99);
    assert_eq!(node.sessions().tallies().sessions, 100);
    assert_eq!(node.sessions().list().len(), 100);
    assert_eq!(witness.tool(1, "public_echo", &json!({ "text": "here" })).await.status(), 200);
}

#[tokio::test]
async fn sessions_that_come_and_go_leave_nothing_behind() {
    let node = demo_with(&[("session.max_sessions", "2"), ("session.max_tombstones", "10")]).await;
    for _ in 0..500 {
        let session = Session::begin(node.address(), "2025-11-25").await;
        assert_eq!(session.delete().send(node.address()).await.status(), 204);
    }
    let tallies = node.sessions().tallies();
    assert_eq!((tallies.sessions, tallies.created, tallies.ended), (0, 500, 500));
}

/// Connections that never come to a whole request, one of each kind.
async fn half_open(server: SocketAddr, session: &Session) -> Vec<Connection> {
    let mut all = Vec::new();
    let whole = session.request(1, "ping", &json!({})).bytes();
    for part in [&b""[..], b"P", b"PRI * HTTP/2.0\r\n", b"GET /mcp HTTP/1.1\r\n", &whole[..60]] {
        let mut connection = Connection::open(server).await;
        connection.write(part).await;
        all.push(connection);
    }
    all
}

#[tokio::test]
async fn half_open_connections_keep_no_client_from_being_served() {
    let node = demo_with(&[]).await;
    let session = Session::start(node.address()).await;
    let mut half = Vec::new();
    for _ in 0..40 {
        half.extend(half_open(node.address(), &session).await);
    }
    assert_eq!(half.len(), 200);
    let before = Instant::now();
    for id in 0..20 {
        assert_eq!(session.request(id, "tools/list", &json!({})).send(node.address()).await.status(), 200);
    }
    assert!(before.elapsed() < DEADLINE / 2, "served in {:?}", before.elapsed());
}

#[tokio::test]
async fn half_open_connections_are_closed_when_the_time_for_headers_is_up() {
    let node = demo_with(&[("http.header_timeout", "300ms")]).await;
    let session = Session::start(node.address()).await;
    let before = Instant::now();
    let mut half = Vec::new();
    for _ in 0..40 {
        half.extend(half_open(node.address(), &session).await);
    }
    for (n, connection) in half.iter_mut().enumerate() {
        let what = format!("connection {n} is closed");
        let answer = within(&what, connection.until_closed()).await;
        assert!(
            answer.is_empty() || answer.starts_with(b"HTTP/1.1 408 "),
            "{:?}",
            String::from_utf8_lossy(&answer)
        );
    }
    assert!(before.elapsed() >= Duration::from_millis(300), "not before the time is up");
    assert_eq!(session.request(1, "ping", &json!({})).send(node.address()).await.status(), 200);
}

#[tokio::test]
async fn half_open_connections_give_their_places_back() {
    let node = demo_with(&[("http.header_timeout", "300ms"), ("http.max_connections", "5")]).await;
    let mut held = Vec::new();
    for _ in 0..5 {
        held.push(Connection::open(node.address()).await);
    }
    // Waits until a place comes free.
    Session::start(node.address()).await;
}

#[tokio::test]
async fn a_server_that_is_full_says_how_it_is_and_lets_others_wait_a_little() {
    let node = demo_with(&[("http.max_connections", "5")]).await;
    let mut held = Vec::new();
    for _ in 0..5 {
        held.push(Connection::open(node.address()).await);
    }
    for _ in 0..20 {
        for path in ["/healthz", "/readyz"] {
            let response = Ask::new("GET", path).send(node.address()).await;
            assert_eq!((response.status(), response.header("connection")), (200, Some("close")), "{path}");
        }
    }
    let refused = initialize("2025-11-25").send(node.address()).await;
    assert_eq!((refused.status(), refused.header("retry-after")), (503, Some("1")));
    assert_eq!(refused.text(), "there are as many connections as there may be; try again later\n");
    // A place that comes free goes to the next connection in the queue, for as long as that connection wants.
    let mut waiting = initialize("2025-11-25").begin(node.address()).await;
    drop(held.pop());
    let response = waiting.response().await;
    assert_eq!((response.status(), response.header("connection")), (200, None));
    let session = Session::of(node.address(), "/mcp", &response);
    waiting.write(&session.request(1, "ping", &json!({})).bytes()).await;
    assert_eq!(waiting.response().await.status(), 200);
}

#[tokio::test]
async fn connections_beyond_all_bounds_do_not_block_health_checks() {
    let node = demo_with(&[("http.max_connections", "2")]).await;
    // Many more than are kept in reserve, and all of them silent.
    let mut held = Vec::new();
    for _ in 0..300 {
        held.push(Connection::open(node.address()).await);
    }
    assert_eq!(Ask::new("GET", "/healthz").send(node.address()).await.status(), 200);
    within("the oldest of the reserve is closed", held[2].until_closed()).await;
}

#[tokio::test]
async fn a_peer_has_its_share_of_the_connections_and_others_have_theirs() {
    let settings = [("http.max_connections", "20"), ("http.max_connections_per_peer", "3")];
    let node = demo_with(&settings).await;
    let from = async |address: &str| {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(format!("{address}:0").parse().unwrap()).unwrap();
        Connection::over(socket.connect(node.address()).await.unwrap())
    };
    let mut greedy = Vec::new();
    for _ in 0..40 {
        greedy.push(from("127.0.0.1").await);
    }
    for other in ["127.0.0.2", "127.0.0.3"] {
        let mut connection = from(other).await;
        connection.write(&initialize("2025-11-25").bytes()).await;
        assert_eq!(connection.response().await.status(), 200, "{other}");
    }
    let mut connection = from("127.0.0.1").await;
    connection.write(&initialize("2025-11-25").bytes()).await;
    assert_eq!(connection.response().await.status(), 503);
    let mut connection = from("127.0.0.1").await;
    connection.write(&Ask::new("GET", "/healthz").bytes()).await;
    assert_eq!(connection.response().await.status(), 200);
    drop(greedy);
    Session::start(node.address()).await;
}

#[tokio::test]
async fn an_idle_connection_between_two_requests_is_closed_too() {
    let node = demo_with(&[("http.header_timeout", "300ms")]).await;
    let mut connection = Connection::open(node.address()).await;
    connection.write(&Ask::new("GET", "/healthz").bytes()).await;
    assert_eq!(connection.response().await.status(), 200);
    assert_eq!(within("the connection is closed", connection.until_closed()).await, b"");
}

#[tokio::test]
async fn an_open_stream_is_not_an_idle_connection() {
    let mut steered = Steered::with(&[("http.header_timeout", "50ms"), ("http.keep_alive", "50ms")]).await;
    let (session, link) = steered.session().await;
    let mut stream = session.listen().await;
    for _ in 0..6 {
        assert!(stream.next().await.is_some());
    }
    announce(&link, "still here").await;
    assert_eq!(stream.heard().await, "still here");
}

#[tokio::test]
async fn a_body_that_does_not_come_is_408() {
    let node = demo_with(&[("http.body_timeout", "100ms")]).await;
    let session = Session::start(node.address()).await;
    let bytes = session.request(1, "ping", &json!({})).bytes();
    for missing in [1, 10] {
        let mut connection = Connection::open(node.address()).await;
        connection.write(&bytes[..bytes.len() - missing]).await;
        assert_eq!(connection.response().await.fault(), (408, -32600, "body_timeout".to_owned()));
        assert_eq!(connection.until_closed().await, b"", "the rest of it is not read as a request");
    }
    assert_eq!(session.request(1, "ping", &json!({})).send(node.address()).await.status(), 200);
}

#[tokio::test]
async fn a_body_that_trickles_in_does_not_get_more_time() {
    let node = demo_with(&[("http.body_timeout", "200ms")]).await;
    let session = Session::start(node.address()).await;
    let body = session.request(1, "ping", &json!({ "x": "y".repeat(4000) })).bytes();
    let (client, server) = tokio::io::split(connect(node.address()).await);
    let trickle = tokio::spawn(async move {
        let mut server = server;
        for byte in body {
            if tokio::io::AsyncWriteExt::write_all(&mut server, &[byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        server
    });
    let mut answer = Connection::over(tokio::io::join(client, tokio::io::sink()));
    assert_eq!(answer.response().await.fault(), (408, -32600, "body_timeout".to_owned()));
    within("the client notices", trickle).await.unwrap();
}

#[tokio::test]
async fn a_hundred_garbage_event_ids_do_no_harm() {
    let mut steered = Steered::start().await;
    let (session, link) = steered.session().await;
    let (call, mut stream) = steered.streaming_call(&session, 1).await;
    let own = stream.message().await.unwrap().0;
    for n in 0..100_usize {
        let mut garbage: Vec<u8> = own.clone().into_bytes();
        match n % 4 {
            0 => garbage = vec![b'!' + u8::try_from(n % 90).unwrap(); 1 + n * 7],
            1 => garbage.truncate(n % own.len()),
            2 => garbage.extend(std::iter::repeat_n(b'0', n)),
            _ => garbage.reverse(),
        }
        let mut fresh = session.resume(&String::from_utf8(garbage).unwrap()).await;
        announce(&link, &n.to_string()).await;
        assert_eq!(fresh.heard().await, n.to_string());
    }
    say(&call, "alive").await;
    call.answer(&json!({}));
    assert_eq!(stream.rest().await, ["alive", "result 1"], "the call's own stream was never touched");
}

/// A connection with a small window, so that a client that stops reading is noticed soon.
async fn narrow(server: SocketAddr) -> Connection {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    Connection::over(within("connect", socket.connect(server)).await.unwrap())
}

#[tokio::test]
async fn a_client_that_stops_reading_is_detached_and_can_resume_everything() {
    // Longer than a busy machine keeps the one waiting who reads everything afterwards.
    let mut steered = Steered::with(&[("http.stall_timeout", "1s")]).await;
    let (session, link) = steered.session().await;
    let mut connection = narrow(session.server).await;
    connection.write(&session.get().bytes()).await;
    let mut stream = connection.events().await;
    let prime = stream.event().await.unwrap().id.unwrap();
    let readers = || steered.node.sessions().list()[0].readers;
    let large = "x".repeat(64 << 10);
    // More than all buffers between here and there hold.
    for n in 0..200 {
        announce(&link, &format!("{n} {large}")).await;
        assert!(n > 0 || readers() == 1, "not at once");
    }
    until("the server gives up on it", || readers() == 0).await;
    let mut resumed = session.resume(&prime).await;
    for n in 0..200 {
        assert_eq!(resumed.heard().await, format!("{n} {large}"));
    }
    announce(&link, "live").await;
    assert_eq!(resumed.heard().await, "live");
}

#[tokio::test]
async fn a_client_that_does_not_read_is_not_buffered_for() {
    let settings = [("streams.max_session_bytes", "1MiB"), ("http.stall_timeout", "1m")];
    let mut steered = Steered::with(&settings).await;
    let (session, link) = steered.session().await;
    let mut connection = narrow(session.server).await;
    connection.write(&session.get().bytes()).await;
    let mut stream = connection.events().await;
    stream.event().await.unwrap();
    let large = "x".repeat(64 << 10);
    for n in 0..1000 {
        announce(&link, &format!("{n} {large}")).await;
        // Give the connection every chance to take it.
        tokio::task::yield_now().await;
    }
    // 64 MiB were sent and one is kept. Had the server held the rest for this client, it would come now.
    let (mut heard, mut last) = (0, String::new());
    while last != "999" {
        last = stream.heard().await.split(' ').next().unwrap().to_owned();
        heard += 1;
    }
    assert!(stream.raw().contains(": gap"), "all {heard} events came, so they were in memory");
    assert!(heard < 500, "{heard} events came");
}
