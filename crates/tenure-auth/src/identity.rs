//! The identity of a caller whose credentials were verified.

use std::fmt;
use std::sync::Arc;

use crate::scope::ScopeSet;
use crate::time::{LEEWAY, UnixSeconds};

/// The longest subject, issuer name or client id that is accepted.
pub(crate) const MAX_NAME_BYTES: usize = 255;

/// What kind of credentials proved an identity.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CredentialKind {
    /// An access token of an issuer.
    Token,
    /// A static key.
    Key,
    /// A client certificate.
    Certificate,
}

impl CredentialKind {
    /// One word for logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Key => "key",
            Self::Certificate => "certificate",
        }
    }
}

/// A verified caller: who it is, through which client it calls, and what it may do until when.
///
/// It holds no part of the credentials themselves, and of a static key only the hash.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    pub(crate) principal: Arc<str>,
    pub(crate) kind: CredentialKind,
    pub(crate) client: Option<Arc<str>>,
    pub(crate) scopes: ScopeSet,
    pub(crate) expires: UnixSeconds,
    pub(crate) issued: Option<UnixSeconds>,
    pub(crate) key: Option<[u8; 32]>,
}

impl Identity {
    /// The identity of this subject of an issuer. The issuer's name has no colon, so two issuers never name the same principal.
    pub(crate) fn new(issuer: &str, subject: &str, kind: CredentialKind) -> Self {
        Self {
            principal: format!("{issuer}:{subject}").into(),
            kind,
            client: None,
            scopes: ScopeSet::default(),
            expires: UnixSeconds::NEVER,
            issued: None,
            key: None,
        }
    }

    /// The issuer's name and the subject, such as `corp:alice` or `key:ci`. Data, tasks and quotas belong to it.
    pub fn principal(&self) -> &str {
        &self.principal
    }

    /// The same, shared.
    pub fn principal_shared(&self) -> Arc<str> {
        Arc::clone(&self.principal)
    }

    /// What kind of credentials the caller has.
    pub fn kind(&self) -> CredentialKind {
        self.kind
    }

    /// The OAuth client through which the principal calls, if the token names it. Transport sessions belong to principal
    /// and client.
    pub fn client(&self) -> Option<&str> {
        self.client.as_deref()
    }

    /// The same, shared.
    pub fn client_shared(&self) -> Option<Arc<str>> {
        self.client.clone()
    }

    /// What the credentials grant.
    pub fn scopes(&self) -> &ScopeSet {
        &self.scopes
    }

    /// When the credentials expire; [`UnixSeconds::NEVER`] if they do not.
    pub fn expires(&self) -> UnixSeconds {
        self.expires
    }

    /// Until when the credentials are accepted: tokens a little longer than they say, since clocks differ.
    pub fn accepted_until(&self) -> UnixSeconds {
        match self.kind {
            CredentialKind::Token => self.expires.plus(LEEWAY),
            CredentialKind::Key | CredentialKind::Certificate => self.expires,
        }
    }

    /// The hash of the static key that proved it.
    pub(crate) fn key(&self) -> Option<&[u8; 32]> {
        self.key.as_ref()
    }

    /// When the credentials were issued, if they say so.
    pub fn issued(&self) -> Option<UnixSeconds> {
        self.issued
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.principal, self.kind.as_str())
    }
}

/// Whether a name from a token can be part of a principal: short, and without characters that could deceive a reader of logs.
pub(crate) fn is_plain_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && !name.chars().any(|c| c.is_control() || is_invisible(c))
}

/// Characters that change how the text around them is shown.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_deceive_a_reader_are_not_plain() {
        for name in ["alice", "Zoë", "a b", "urn:x:1", &"x".repeat(255)] {
            assert!(is_plain_name(name), "{name:?}");
        }
        for name in ["", "a\nb", "a\u{7f}", "ali\u{202e}ce", "a\u{200b}", &"x".repeat(256)] {
            assert!(!is_plain_name(name), "{name:?}");
        }
    }
}
