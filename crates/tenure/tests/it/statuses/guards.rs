//! Host and Origin, each by itself: a page of another site must not reach a server on this machine.

use serde_json::json;

use crate::support::client::{Ask, Connection};
use crate::support::node::{demo, demo_with};
use crate::support::session::{Session, initialize};

#[tokio::test]
async fn a_foreign_origin_alone_is_403() {
    let node = demo().await;
    for origin in [
        "https://evil.example.com",
        "http://evil.example.com:8484",
        "null",
        "",
        "http://localhost.evil.example.com",
        "http://127.0.0.1.evil.example.com",
        "http://evil.example.com#localhost",
        "http://localhost@evil.example.com",
        "file://localhost",
        "localhost",
    ] {
        let response = initialize("2025-11-25").header("Origin", origin).send(node.address()).await;
        assert_eq!(response.fault(), (403, -32600, "origin_not_allowed".to_owned()), "{origin}");
    }
    let two = initialize("2025-11-25")
        .header("Origin", "http://localhost")
        .another("Origin", "https://evil.example.com");
    assert_eq!(two.send(node.address()).await.status(), 403);
    assert_eq!(node.sessions().tallies().created, 0);
}

#[tokio::test]
async fn a_foreign_host_alone_is_403() {
    let node = demo().await;
    for host in [
        "evil.example.com",
        "evil.example.com:80",
        "localhost.evil.example.com",
        "10.0.0.1",
        "",
        "127.0.0.1@evil.example.com",
    ] {
        let response = initialize("2025-11-25").header("Host", host).send(node.address()).await;
        assert_eq!(response.fault(), (403, -32600, "host_not_allowed".to_owned()), "{host}");
    }
    assert_eq!(node.sessions().tallies().created, 0);
}

#[tokio::test]
async fn a_port_that_is_no_number_does_not_make_a_name_ours() {
    let node = demo().await;
    for name in ["localhost:evil.example.com", "127.0.0.1:80.evil.example.com", "[::1]:x"] {
        let host = initialize("2025-11-25").header("Host", name).send(node.address()).await;
        let origin =
            initialize("2025-11-25").header("Origin", &format!("http://{name}")).send(node.address()).await;
        assert_eq!((host.status(), origin.status()), (403, 403), "{name}");
    }
}

#[tokio::test]
async fn every_method_is_guarded() {
    let node = demo().await;
    let session = Session::start(node.address()).await;
    let asks = [
        session.request(1, "ping", &json!({})),
        session.get(),
        session.delete(),
        Ask::new("OPTIONS", "/mcp"),
    ];
    for ask in asks {
        let origin = ask.clone().header("Origin", "https://evil.example.com").send(node.address()).await;
        let host = ask.header("Host", "evil.example.com").send(node.address()).await;
        assert_eq!((origin.status(), host.status()), (403, 403));
    }
    assert_eq!(session.request(1, "ping", &json!({})).send(node.address()).await.status(), 200);
}

#[tokio::test]
async fn our_own_host_and_origin_pass() {
    let node = demo().await;
    let port = node.address().port();
    for host in ["localhost", "127.0.0.1", "[::1]", "LOCALHOST"] {
        for host in [host.to_owned(), format!("{host}:{port}"), format!("{host}:1")] {
            let ask = initialize("2025-11-25").header("Host", &host);
            assert_eq!(ask.clone().send(node.address()).await.status(), 200, "{host}");
            for scheme in ["http", "https"] {
                let ask = ask.clone().header("Origin", &format!("{scheme}://{host}"));
                assert_eq!(ask.send(node.address()).await.status(), 200, "{scheme}://{host}");
            }
        }
    }
}

#[tokio::test]
async fn hosts_and_origins_can_be_added() {
    let settings =
        [("http.allowed_hosts", "mcp.example.com"), ("http.allowed_origins", "https://app.example.com")];
    let node = demo_with(&settings).await;
    let status = async |host: &str, origin: &str| {
        let ask = initialize("2025-11-25").header("Host", host).header("Origin", origin);
        ask.send(node.address()).await.status()
    };
    assert_eq!(status("mcp.example.com", "https://app.example.com").await, 200);
    assert_eq!(status("mcp.example.com:443", "http://localhost:3000").await, 200);
    assert_eq!(status("localhost", "https://app.example.com").await, 200);
    assert_eq!(status("app.example.com", "https://app.example.com").await, 403);
    assert_eq!(status("mcp.example.com", "https://mcp.example.com").await, 403);
    assert_eq!(status("mcp.example.com", "http://app.example.com").await, 403);
}

#[tokio::test]
async fn any_host_and_origin_pass_where_a_proxy_checks() {
    let node = demo_with(&[("http.allowed_hosts", "*"), ("http.allowed_origins", "*")]).await;
    let ask = initialize("2025-11-25").header("Host", "anything.example").header("Origin", "null");
    assert_eq!(ask.send(node.address()).await.status(), 200);
}

#[tokio::test]
async fn the_host_of_an_absolute_target_is_the_one_that_counts() {
    let node = demo().await;
    let status = async |target: &str, host: &str| {
        let text = String::from_utf8(initialize("2025-11-25").header("Host", host).bytes()).unwrap();
        let mut connection = Connection::open(node.address()).await;
        connection.write(text.replace(" /mcp ", &format!(" {target} ")).as_bytes()).await;
        connection.response().await.status()
    };
    assert_eq!(status("http://evil.example.com/mcp", "localhost").await, 403);
    assert_eq!(status("http://localhost/mcp", "localhost").await, 200);
}

#[tokio::test]
async fn a_request_without_a_host_or_with_two_is_400() {
    let node = demo().await;
    let asks = [initialize("2025-11-25"), Ask::new("GET", "/healthz"), Ask::new("GET", "/nowhere")];
    for ask in asks {
        for bad in [ask.clone().without("Host"), ask.clone().another("Host", "localhost")] {
            let fault = bad.clone().send(node.address()).await.fault();
            assert_eq!(fault, (400, -32600, "invalid_request".to_owned()), "{bad:?}");
        }
        // Before HTTP/1.1 there was no such header.
        let text = String::from_utf8(ask.without("Host").bytes()).unwrap();
        let mut connection = Connection::open(node.address()).await;
        connection.write(text.replacen("HTTP/1.1", "HTTP/1.0", 1).as_bytes()).await;
        assert_ne!(connection.response().await.status(), 400, "{text}");
    }
    assert_eq!(node.sessions().tallies().created, 1, "the one of HTTP/1.0");
}
