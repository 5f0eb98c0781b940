//! TLS from PEM files, by rustls.

use std::path::Path;
use std::sync::Arc;

use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

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
    /// The two do not fit together.
    #[error("the certificate and the key do not fit together")]
    Mismatch(#[source] rustls::Error),
}

/// The operating system's error as it is, without "I/O error" in front.
fn cause(error: pem::Error) -> Box<dyn std::error::Error + Send + Sync> {
    match error {
        pem::Error::Io(error) => error.into(),
        error => error.into(),
    }
}

/// Reads a certificate chain and its key.
///
/// # Errors
/// When a file is missing or not PEM, or the two do not belong together.
pub fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor, TlsError> {
    let name = |path: &Path| path.display().to_string();
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .and_then(|chain| if chain.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(chain) })
        .map_err(|error| TlsError::Certificate(name(certificate), cause(error)))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| TlsError::Key(name(key), cause(error)))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(TlsError::Mismatch)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
