//! Client certificates: an identity of their own, or what a token is bound to (RFC 8705).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};

use crate::identity::{CredentialKind, Identity, is_plain_name};
use crate::validity;

/// A certificate whose private key the client has proven to own, in a handshake that checked it against the configured
/// authorities.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    thumbprint: Box<str>,
    identity: Arc<Identity>,
}

impl ClientCertificate {
    /// A certificate in DER, as the TLS library hands it over after it was verified.
    pub fn from_der(der: &[u8]) -> Self {
        let thumbprint: Box<str> = URL_SAFE_NO_PAD.encode(digest(&SHA256, der)).into();
        let name = name(der);
        // The first URI or DNS name that it is for; without one, its thumbprint.
        let subject = name.as_deref().unwrap_or(&thumbprint);
        // Times that cannot be read count as over: a library that reads them otherwise has checked them before.
        let (issued, last) = validity::of(der).unwrap_or_default();
        // The last second belongs to it.
        let expires = last.plus(Duration::from_secs(1));
        let identity = Identity {
            issued: Some(issued),
            expires,
            ..Identity::new("cert", subject, CredentialKind::Certificate)
        };
        Self { thumbprint, identity: Arc::new(identity) }
    }

    pub(crate) fn thumbprint(&self) -> &str {
        &self.thumbprint
    }

    /// Whom it is for, from when and until when.
    pub(crate) fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.identity.principal())
    }
}

fn name(der: &[u8]) -> Option<Box<str>> {
    let der = der.into();
    let certificate = webpki::EndEntityCert::try_from(&der).ok()?;
    let uri = certificate.valid_uri_names().find(|name| is_plain_name(name));
    let name = uri.or_else(|| certificate.valid_dns_names().find(|name| is_plain_name(name)));
    name.map(Box::from)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, SanType};

    use super::*;

    fn certificate(names: &[SanType]) -> ClientCertificate {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names.to_vec();
        let key = KeyPair::generate().unwrap();
        ClientCertificate::from_der(params.self_signed(&key).unwrap().der())
    }

    #[test]
    fn a_certificate_is_named_by_its_uri_its_host_or_its_hash() {
        let uri = SanType::URI("spiffe://corp/agent".try_into().unwrap());
        let dns = SanType::DnsName("agent.corp".try_into().unwrap());
        assert_eq!(certificate(&[dns.clone(), uri]).identity().principal(), "cert:spiffe://corp/agent");
        assert_eq!(certificate(&[dns]).identity().principal(), "cert:agent.corp");
        let unnamed = certificate(&[]);
        assert_eq!(unnamed.identity().principal(), format!("cert:{}", unnamed.thumbprint()));
        assert_eq!(unnamed.thumbprint().len(), 43);
    }
}
