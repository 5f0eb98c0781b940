//! Client certificates: an identity of their own, checked against the configured authorities.

use std::io;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tempfile::TempDir;
use tenure::Node;
use tokio_rustls::TlsConnector;

use crate::support::client::{Ask, Connection, Response, connect};
use crate::support::node::config;
use crate::support::session::{initialize, request};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate with this name, and its key.
fn issue(authority: &Authority, name: SanType) -> (CertificateDer<'static>, Vec<u8>) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![name];
    (params.signed_by(&key, authority).unwrap().der().clone(), key.serialize_der())
}

fn agent(name: &str) -> SanType {
    SanType::URI(format!("spiffe://corp/{name}").as_str().try_into().unwrap())
}

struct World {
    node: Node,
    servers: Authority,
    _folder: TempDir,
}

impl World {
    async fn start(clients: &Authority) -> Self {
        let (servers, folder) = (authority(), tempfile::tempdir().unwrap());
        let path = |name: &str| folder.path().join(name).display().to_string();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::DnsName("localhost".try_into().unwrap())];
        let certificate = params.signed_by(&key, &servers).unwrap();
        std::fs::write(path("cert.pem"), certificate.pem()).unwrap();
        std::fs::write(path("key.pem"), key.serialize_pem()).unwrap();
        std::fs::write(path("clients.pem"), clients.pem()).unwrap();
        let files = [path("cert.pem"), path("key.pem"), path("clients.pem")];
        let settings = [
            ("tls.cert", files[0].as_str()),
            ("tls.key", &files[1]),
            ("tls.client_ca", &files[2]),
            ("auth.certificates", "true"),
        ];
        let node = Node::start(&config(&settings)).await.unwrap();
        Self { node, servers, _folder: folder }
    }

    /// Sends a request as a client that has this certificate.
    async fn send(
        &self,
        ask: &Ask,
        own: Option<&(CertificateDer<'static>, Vec<u8>)>,
    ) -> io::Result<Response> {
        let mut roots = RootCertStore::empty();
        roots.add(self.servers.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let client = match own {
            Some((certificate, key)) => {
                let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.clone()));
                builder.with_client_auth_cert(vec![certificate.clone()], key).unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        let name = ServerName::try_from("localhost").unwrap();
        let stream = connect(self.node.address()).await;
        let mut stream = TlsConnector::from(Arc::new(client)).connect(name, stream).await?;
        // In TLS 1.3 a server refuses a certificate after the client's handshake is done.
        tokio::io::AsyncWriteExt::write_all(&mut stream, &ask.bytes()).await?;
        let mut first = [0; 1];
        tokio::io::AsyncReadExt::read_exact(&mut stream, &mut first).await?;
        let whole = tokio::io::AsyncReadExt::chain(io::Cursor::new(first), stream);
        Ok(Connection::over(tokio::io::join(whole, tokio::io::sink())).response().await)
    }
}

#[tokio::test]
async fn a_certificate_of_a_known_authority_is_an_identity() {
    let clients = authority();
    let world = World::start(&clients).await;
    let (alice, bob) = (issue(&clients, agent("alice")), issue(&clients, agent("bob")));
    let response = world.send(&initialize("2025-11-25"), Some(&alice)).await.unwrap();
    assert_eq!(response.status(), 200);
    let id = response.header("mcp-session-id").unwrap().to_owned();
    let ping = Ask::post(request(1, "ping", &json!({})).to_string()).header("Mcp-Session-Id", &id);
    assert_eq!(world.send(&ping, Some(&alice)).await.unwrap().status(), 200);
    assert_eq!(world.send(&ping, Some(&bob)).await.unwrap().status(), 404, "it is alice's");
    assert_eq!(world.send(&ping, None).await.unwrap().status(), 401);
    let health = Ask::new("GET", "/healthz");
    assert_eq!(world.send(&health, None).await.unwrap().status(), 200, "health needs no certificate");
    let strangers = issue(&authority(), agent("alice"));
    assert!(world.send(&ping, Some(&strangers)).await.is_err(), "of another authority");
}
