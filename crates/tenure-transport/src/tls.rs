//! TLS from PEM files, by rustls.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tenure_auth::ClientCertificate;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::Accept;
use tokio_rustls::server::TlsStream;

use crate::stall::Stall;

pub use tokio_rustls::TlsAcceptor;

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The certificate file cannot be used.
    #[error("cannot read certificates from `{0}`")]
    Certificate(String, #[source] Box<dyn std::error::Error + Send + Sync>),
    /// The key file cannot be used.
    #[error("cannot read a private key from `{0}`")]
    Key(String, #[source] Box<dyn std::error::Error + Send + Sync>),
    /// The file with the authorities of client certificates cannot be used.
    #[error("cannot read authorities of client certificates from `{0}`")]
    Authorities(String, #[source] Box<dyn std::error::Error + Send + Sync>),
    /// The two do not fit together.
    #[error("the certificate and the key do not fit together")]
    Mismatch(#[source] rustls::Error),
}

/// The operating system's error itself, without "I/O error" in front.
fn cause(error: pem::Error) -> Box<dyn std::error::Error + Send + Sync> {
    match error {
        pem::Error::Io(error) => error.into(),
        error => error.into(),
    }
}

/// Reads a certificate chain and its key, and the authorities that may issue certificates of clients. With authorities, a
/// client may present a certificate, and one of another authority ends the handshake.
///
/// # Errors
/// When a file is missing or not PEM, or certificate and key do not belong together.
pub fn acceptor(certificate: &Path, key: &Path, authorities: Option<&Path>) -> Result<TlsAcceptor, TlsError> {
    let name = |path: &Path| path.display().to_string();
    let chain =
        certificates(certificate).map_err(|error| TlsError::Certificate(name(certificate), cause(error)))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| TlsError::Key(name(key), cause(error)))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = match authorities {
        None => WebPkiClientVerifier::no_client_auth(),
        Some(path) => {
            client_verifier(path, &provider).map_err(|error| TlsError::Authorities(name(path), error))?
        }
    };
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_client_cert_verifier(verifier).with_single_cert(chain, key))
        .map_err(TlsError::Mismatch)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// All certificates of a PEM file.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, pem::Error> {
    let chain = CertificateDer::pem_file_iter(file)?.collect::<Result<Vec<_>, _>>()?;
    if chain.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(chain) }
}

/// Checks the certificate of a client that has one. Whether a client needs one is decided by its credentials, since health
/// checks and clients with tokens have none.
fn client_verifier(
    file: &Path,
    provider: &Arc<rustls::crypto::CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, Box<dyn std::error::Error + Send + Sync>> {
    let mut roots = rustls::RootCertStore::empty();
    for authority in certificates(file).map_err(cause)? {
        roots.add(authority)?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    Ok(builder.allow_unauthenticated().build()?)
}

/// The certificate that the client of a connection has proven to own.
pub(crate) fn client_certificate<S>(stream: &TlsStream<S>) -> Option<Arc<ClientCertificate>> {
    let chain = stream.get_ref().1.peer_certificates()?;
    chain.first().map(|certificate| Arc::new(ClientCertificate::from_der(certificate)))
}

/// Does the TLS handshake on a connection whose client may read nothing for `stall`.
///
/// The limit works below TLS, because TLS buffers up to 64 KiB of unread bytes: on a quiet stream these are hours of
/// keep-alives.
pub fn accept<S>(acceptor: &TlsAcceptor, stream: S, stall: Duration) -> Accept<Stall<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    acceptor.accept(Stall::new(stream, stall))
}

#[cfg(test)]
mod tests {
    use std::io;

    use rustls::pki_types::{PrivatePkcs8KeyDer, ServerName};
    use rustls::{ClientConfig, RootCertStore, ServerConfig};
    use tokio::io::AsyncWriteExt;
    use tokio::time::{Instant, timeout};
    use tokio_rustls::TlsConnector;

    use super::*;

    const STALL: Duration = Duration::from_secs(60);

    /// Both sides of TLS, with a certificate that only they trust.
    fn sides() -> (TlsAcceptor, TlsConnector) {
        let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivatePkcs8KeyDer::from(issued.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![issued.cert.der().clone()], key.into())
            .unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(issued.cert.der().clone()).unwrap();
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        (TlsAcceptor::from(Arc::new(server)), TlsConnector::from(Arc::new(client)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_stops_reading_a_quiet_stream_is_given_up_on_over_tls() {
        let (acceptor, connector) = sides();
        let (ours, theirs) = tokio::io::duplex(1 << 10);
        let name = ServerName::try_from("localhost").unwrap();
        let (server, client) = tokio::join!(accept(&acceptor, ours, STALL), connector.connect(name, theirs));
        let (mut server, _client_that_does_not_read) = (server.unwrap(), client.unwrap());
        let pause = Duration::from_secs(15);
        let mut stuck_since = None;
        let error = loop {
            // TLS accepts the write, whether or not anything goes out.
            if let Err(error) = server.write_all(b": keep-alive\n\n").await {
                break error;
            }
            // As hyper does: it flushes until there is something else to write.
            match timeout(pause, server.flush()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => break error,
                Err(_) => drop(stuck_since.get_or_insert_with(|| Instant::now() - pause)),
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let stuck_for = stuck_since.expect("it was stuck").elapsed();
        assert!(stuck_for <= STALL + pause, "{stuck_for:?}");
    }
}
