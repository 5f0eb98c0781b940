//! Client certificates: an identity of their own, checked against the configured authorities.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tempfile::TempDir;
use tenure::Node;
use tokio_rustls::TlsConnector;

use super::world::now;
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
    issue_until(authority, name, Duration::from_secs(now().0 + 3600))
}

/// The same for a certificate that expires so long after the beginning of 1970.
fn issue_until(authority: &Authority, name: SanType, end: Duration) -> (CertificateDer<'static>, Vec<u8>) {
    let key = KeyPair::generate().unwrap();
    let not_after = date_time_ymd(1970, 1, 1) + end;
    let mut params = CertificateParams::default();
    params.not_after = not_after;
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
        Ok(self.send_as(ask, &self.client(own)).await?.0)
    }

    /// A client with this certificate. Its connections resume those before, if the server lets them.
    fn client(&self, own: Option<&(CertificateDer<'static>, Vec<u8>)>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.servers.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        Arc::new(match own {
            Some((certificate, key)) => {
                let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.clone()));
                builder.with_client_auth_cert(vec![certificate.clone()], key).unwrap()
            }
            None => builder.with_no_client_auth(),
        })
    }

    /// Sends a request on a new connection, and tells whether that resumed another one.
    async fn send_as(&self, ask: &Ask, client: &Arc<ClientConfig>) -> io::Result<(Response, bool)> {
        let name = ServerName::try_from("localhost").unwrap();
        let stream = connect(self.node.address()).await;
        let mut stream = TlsConnector::from(Arc::clone(client)).connect(name, stream).await?;
        // In TLS 1.3 a server refuses a certificate after the client's handshake is done.
        tokio::io::AsyncWriteExt::write_all(&mut stream, &ask.bytes()).await?;
        let mut first = [0; 1];
        tokio::io::AsyncReadExt::read_exact(&mut stream, &mut first).await?;
        let is_resumed = stream.get_ref().1.handshake_kind() == Some(rustls::HandshakeKind::Resumed);
        let whole = tokio::io::AsyncReadExt::chain(io::Cursor::new(first), stream);
        Ok((Connection::over(tokio::io::join(whole, tokio::io::sink())).response().await, is_resumed))
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

/// TLS checks a certificate in a full handshake alone: a resumed connection keeps the certificate of the first one, and a
/// connection can stay open for longer than the certificate is good.
#[tokio::test]
async fn a_certificate_that_has_expired_is_refused_on_connections_that_resume_too() {
    let clients = authority();
    let world = World::start(&clients).await;
    let end = now().0 + 3;
    let alice = issue_until(&clients, agent("alice"), Duration::from_secs(end));
    let client = world.client(Some(&alice));
    let (first, is_resumed) = world.send_as(&initialize("2025-11-25"), &client).await.unwrap();
    assert_eq!((first.status(), is_resumed), (200, false));
    let id = first.header("mcp-session-id").unwrap().to_owned();
    let ping = Ask::post(request(1, "ping", &json!({})).to_string()).header("Mcp-Session-Id", &id);
    let (again, is_resumed) = world.send_as(&ping, &client).await.unwrap();
    assert_eq!((again.status(), is_resumed), (200, true), "this server resumes connections");
    while now().0 <= end {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (late, is_resumed) = world.send_as(&ping, &client).await.unwrap();
    assert_eq!((late.status(), is_resumed), (401, true), "though TLS did not look again");
    assert!(late.header("www-authenticate").is_some());
    assert!(world.send(&ping, Some(&alice)).await.is_err(), "a new handshake fails by itself");
}
