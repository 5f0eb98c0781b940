//! The peer port serves nodes of the cluster alone, and the public port knows nothing of peers.

use std::sync::Arc;

use rustls::pki_types::ServerName;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::world::Shared;
use crate::support::wait::within;

/// The answer of a server to these bytes, until it closes the connection.
async fn answer(to: std::net::SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(to).await.expect("a connection");
    stream.write_all(bytes).await.expect("a write");
    let mut answer = Vec::new();
    // A reset is an end too.
    let _ = within("the end", stream.read_to_end(&mut answer)).await;
    answer
}

#[tokio::test]
async fn plain_http_at_the_peer_port_is_cut_off() {
    let shared = Shared::new(&[]);
    let _node = shared.node().await;
    let [port] = shared.peer_ports().await[..] else { panic!("one node") };
    for bytes in [
        &b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
    ] {
        let answer = answer(port, bytes).await;
        assert!(!answer.windows(4).any(|window| window == b"HTTP"), "{answer:?}");
    }
}

#[tokio::test]
async fn tls_without_the_key_of_a_node_is_cut_off() {
    let shared = Shared::new(&[]);
    let _node = shared.node().await;
    let [port] = shared.peer_ports().await[..] else { panic!("one node") };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    config.alpn_protocols = vec![b"tenure/1".to_vec()];
    let stream = TcpStream::connect(port).await.unwrap();
    let connecting =
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream);
    let error = within("the end of the handshake", connecting).await.map(drop).unwrap_err();
    assert!(!error.to_string().contains("UnknownIssuer"), "it showed a certificate: {error}");
}

#[tokio::test]
async fn what_peers_say_counts_for_nothing_at_the_public_port() {
    let (mut one, other) = Shared::new(&[]).pair().await;
    let session = one.session().await;
    let forged = r#"{"address":"203.0.113.9:1","format":"json","attempt":"again","identity":{"principal":"key:root","kind":"key","scopes":[]}}"#;
    for node in [one.address, other.address] {
        let ask =
            session.request(1, "tools/call", &json!({ "name": "any" })).header("tenure-relayed", forged);
        let (response, caller) = tokio::join!(ask.send(node), async {
            let call = one.script.call().await;
            let caller = call.context.caller().clone();
            call.answer(&json!({}));
            caller
        });
        // As an attempt that may have run it would have been refused.
        assert_eq!(response.json()["result"], json!({}), "{response:?}");
        assert_eq!(
            (caller.principal.name(), caller.remote.unwrap().ip().to_string()),
            (None, "127.0.0.1".to_owned())
        );
    }
}
