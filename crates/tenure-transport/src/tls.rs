//! TLS from PEM files, by rustls.

use std::path::Path;
use std::sync::Arc;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The certificate file cannot be used.
    #[error("cannot read certificates from `{0}`")]
    Certificate(String, #[source] rustls_pki_types::pem::Error),
    /// The key file cannot be used.
    #[error("cannot read a private key from `{0}`")]
    Key(String, #[source] rustls_pki_types::pem::Error),
    /// The two do not fit together.
    #[error("the certificate and the key do not fit together")]
    Mismatch(#[source] rustls::Error),
}

/// Reads a certificate chain and its key.
///
/// # Errors
/// When a file is missing or not PEM, or the two do not belong together.
pub fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor, TlsError> {
    let name = |path: &Path| path.display().to_string();
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| TlsError::Certificate(name(certificate), error))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| TlsError::Key(name(key), error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(TlsError::Mismatch)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
