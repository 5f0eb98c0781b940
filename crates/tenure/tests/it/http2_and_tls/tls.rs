//! TLS from PEM files.

use std::path::Path;
use std::sync::Arc;

use expect_test::expect;
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tempfile::TempDir;
use tenure::Node;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::client::{Http2, json as body_of, read_until};
use crate::support::client::{Ask, Connection, connect};
use crate::support::node::config;
use crate::support::session::{initialize, request};
use crate::support::wait::within;

/// A certificate for `localhost` and its key, as files.
struct Files {
    dir: TempDir,
}

impl Files {
    fn new() -> Self {
        let files = Self { dir: tempfile::tempdir().unwrap() };
        let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        files.write("cert.pem", &issued.cert.pem());
        files.write("key.pem", &issued.signing_key.serialize_pem());
        files
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.dir.path().join(name), text).unwrap();
    }

    async fn node(&self, cert: &str, key: &str) -> Result<Node, String> {
        let settings = [
            ("tls.cert", self.path(cert)),
            ("tls.key", self.path(key)),
            ("http.handshake_timeout", "300ms".to_owned()),
        ];
        let settings: Vec<_> = settings.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let dir = self.dir.path().display().to_string();
        Node::start(&config(&settings)).await.map_err(|failure| failure.to_string().replace(&dir, "DIR"))
    }

    /// Connects as a client that trusts the certificate and speaks these protocols.
    async fn connect(&self, node: &Node, protocols: &[&str]) -> TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        let certificate =
            rustls::pki_types::CertificateDer::from_pem_file(Path::new(&self.path("cert.pem"))).unwrap();
        roots.add(certificate).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let stream = connect(node.address()).await;
        let name = ServerName::try_from("localhost").unwrap();
        within("the handshake", TlsConnector::from(Arc::new(config)).connect(name, stream)).await.unwrap()
    }
}

#[tokio::test]
async fn http1_over_tls_works_with_and_without_alpn() {
    let files = Files::new();
    let node = files.node("cert.pem", "key.pem").await.unwrap();
    assert!(node.url().starts_with("https://127.0.0.1:"));
    for protocols in [&["http/1.1"][..], &[]] {
        let stream = files.connect(&node, protocols).await;
        assert_eq!(stream.get_ref().1.alpn_protocol(), protocols.first().map(|name| name.as_bytes()));
        let mut connection = Connection::over(stream);
        connection.write(&initialize("2025-11-25").bytes()).await;
        let response = connection.response().await;
        let id = response.header("mcp-session-id").unwrap().to_owned();
        let ping = Ask::post(request(1, "ping", &json!({})).to_string()).header("Mcp-Session-Id", &id);
        connection.write(&ping.bytes()).await;
        assert_eq!(connection.response().await.json()["result"], json!({}));
        connection.write(&Ask::get().header("Mcp-Session-Id", &id).bytes()).await;
        let mut stream = connection.events().await;
        assert!(stream.event().await.unwrap().id.is_some());
    }
}

#[tokio::test]
async fn http2_over_tls_is_chosen_by_alpn() {
    let files = Files::new();
    let node = files.node("cert.pem", "key.pem").await.unwrap();
    let stream = files.connect(&node, &["h2", "http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut client = Http2::over(stream, &format!("https://localhost:{}", node.address().port())).await;
    client.start().await;
    let response = client
        .post(&request(1, "tools/call", &json!({ "name": "public_echo", "arguments": { "text": "x" } })))
        .await;
    assert_eq!(body_of(response).await["result"]["content"][0]["text"], "x");
    let mut listening = client.get(&[]).await.into_body();
    read_until(&mut listening, "data: \n\n").await;
}

#[tokio::test]
async fn plain_http_and_silence_at_a_tls_port_are_closed() {
    let files = Files::new();
    let node = files.node("cert.pem", "key.pem").await.unwrap();
    for bytes in [&Ask::new("GET", "/healthz").bytes()[..], b""] {
        let mut connection = Connection::open(node.address()).await;
        connection.write(bytes).await;
        let answer = within("the connection is closed", connection.until_closed()).await;
        assert!(!answer.starts_with(b"HTTP"), "nothing is told in the clear");
    }
    files.connect(&node, &[]).await;
}

#[tokio::test]
async fn unusable_files_are_explained() {
    let files = Files::new();
    let other = Files::new();
    files.write("other.pem", &std::fs::read_to_string(other.path("key.pem")).unwrap());
    files.write("empty.pem", "");
    files.write("garbage.pem", "-----BEGIN CERTIFICATE-----\nnot base64\n-----END CERTIFICATE-----\n");
    let failure = async |cert: &str, key: &str| files.node(cert, key).await.expect_err("it cannot start");
    expect![[r#"
        error: cannot set up TLS
          caused by: cannot read certificates from `DIR/missing.pem`
          caused by: no such file or directory

        hint: `tls.cert` and `tls.key` name PEM files: the certificate chain and its private key
    "#]]
    .assert_eq(&failure("missing.pem", "key.pem").await);
    expect![[r#"
        error: cannot set up TLS
          caused by: cannot read a private key from `DIR/missing.pem`
          caused by: no such file or directory

        hint: `tls.cert` and `tls.key` name PEM files: the certificate chain and its private key
    "#]]
    .assert_eq(&failure("cert.pem", "missing.pem").await);
    expect![[r#"
        error: cannot set up TLS
          caused by: cannot read certificates from `DIR/empty.pem`
          caused by: no items found

        hint: `tls.cert` and `tls.key` name PEM files: the certificate chain and its private key
    "#]]
    .assert_eq(&failure("empty.pem", "key.pem").await);
    expect![[r#"
        error: cannot set up TLS
          caused by: cannot read certificates from `DIR/garbage.pem`
          caused by: base64 decode error: InvalidTrailingPadding

        hint: `tls.cert` and `tls.key` name PEM files: the certificate chain and its private key
    "#]]
    .assert_eq(&failure("garbage.pem", "key.pem").await);
    expect![[r#"
        error: cannot set up TLS
          caused by: cannot read a private key from `DIR/empty.pem`
          caused by: no items found

        hint: `tls.cert` and `tls.key` name PEM files: the certificate chain and its private key
    "#]]
    .assert_eq(&failure("cert.pem", "empty.pem").await);
    expect![[r#"
        error: cannot set up TLS
          caused by: the certificate and the key do not fit together
          caused by: keys may not be consistent: KeyMismatch

        hint: `tls.cert` and `tls.key` name PEM files: the certificate chain and its private key
    "#]]
    .assert_eq(&failure("cert.pem", "other.pem").await);
}
