//! Why a request was not let in, and the answer that says so.
//!
//! The client learns the words of RFC 6750 and no more. [`AuthRefusal::reason`] is for logs and metrics.

use std::fmt::Write as _;
use std::time::Duration;

use http::{HeaderValue, StatusCode};

use crate::resource::ProtectedResource;
use crate::scope::ScopeSet;

/// Why a request was not let in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AuthRefusal {
    /// It has no credentials.
    Missing,
    /// Its credentials cannot be read.
    Malformed(&'static str),
    /// Its credentials were read and are not good.
    Invalid(TokenFault),
    /// Its credentials are good, and grant too little.
    InsufficientScope {
        /// All that the operation needs.
        needed: ScopeSet,
        /// What the client has and should ask for again. Clients of the revisions with sessions ask for what a challenge
        /// names, and for nothing else, and would lose it.
        kept: ScopeSet,
        /// The operation, for the client's log.
        operation: Box<str>,
    },
    /// Its credentials cannot be checked at present.
    Unavailable {
        /// When to try again.
        retry_after: Duration,
    },
}

/// Why credentials are not good.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TokenFault {
    /// It is neither a token nor a key that we know.
    Unknown,
    /// Its header or its claims cannot be read.
    Unreadable,
    /// Its algorithm is not allowed.
    Algorithm,
    /// It has critical extensions, or is of a type that is no access token.
    Type,
    /// Its issuer is not configured.
    Issuer,
    /// The issuer has no such key.
    Key,
    /// Its signature is wrong.
    Signature,
    /// It has expired.
    Expired,
    /// It is not valid yet.
    NotYet,
    /// It was issued for another resource.
    Audience,
    /// It names no subject, or one that is not acceptable.
    Subject,
    /// It is bound to a key or certificate, and the request does not prove that the client has it.
    Proof,
    /// The proof was used before.
    Replayed,
    /// The principal's credentials were revoked.
    Revoked,
    /// The issuer says that it is not active.
    Inactive,
}

impl TokenFault {
    /// One word for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Unreadable => "unreadable",
            Self::Algorithm => "algorithm",
            Self::Type => "type",
            Self::Issuer => "issuer",
            Self::Key => "key",
            Self::Signature => "signature",
            Self::Expired => "expired",
            Self::NotYet => "not_yet",
            Self::Audience => "audience",
            Self::Subject => "subject",
            Self::Proof => "proof",
            Self::Replayed => "replayed",
            Self::Revoked => "revoked",
            Self::Inactive => "inactive",
        }
    }

    /// What the client is told.
    fn description(self) -> &'static str {
        match self {
            Self::Expired => "The access token expired",
            Self::Proof | Self::Replayed => "The proof of possession is missing or not valid",
            _ => "The access token is not valid for this server",
        }
    }
}

impl AuthRefusal {
    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Missing | Self::Invalid(_) => StatusCode::UNAUTHORIZED,
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::InsufficientScope { .. } => StatusCode::FORBIDDEN,
            Self::Unavailable { .. } => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// One word for logs and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Malformed(_) => "malformed",
            Self::Invalid(fault) => fault.as_str(),
            Self::InsufficientScope { .. } => "scope",
            Self::Unavailable { .. } => "unavailable",
        }
    }

    /// A sentence for the client.
    pub fn message(&self) -> String {
        match self {
            Self::Missing => "This server needs credentials".to_owned(),
            Self::Malformed(why) => format!("The credentials cannot be read: {why}"),
            Self::Invalid(fault) => fault.description().to_owned(),
            Self::InsufficientScope { needed, operation, .. } => {
                format!("{operation} needs the scope {needed}")
            }
            Self::Unavailable { .. } => "The credentials cannot be checked at present; try again".to_owned(),
        }
    }

    /// The value of `WWW-Authenticate`, if the status has one: one line, always the same text for the same refusal.
    /// A client of the TypeScript SDK compares two challenges to see that a second login changed nothing.
    pub fn challenge(&self, resource: &ProtectedResource) -> Option<HeaderValue> {
        let initial = || resource.initial_scope().cloned();
        let (error, description, scope) = match self {
            Self::Missing => (None, None, initial()),
            Self::Malformed(why) => (Some("invalid_request"), Some((*why).to_owned()), None),
            Self::Invalid(fault) => (Some("invalid_token"), Some(fault.description().to_owned()), initial()),
            Self::InsufficientScope { needed, kept, .. } => {
                (Some("insufficient_scope"), Some(self.message()), Some(needed.and(kept)))
            }
            Self::Unavailable { .. } => return None,
        };
        let mut parts: Vec<String> = Vec::new();
        let mut add = |name: &str, value: &str| parts.push(format!("{name}=\"{}\"", quoted(value)));
        if let Some(error) = error {
            add("error", error);
        }
        if let Some(scope) = scope.filter(|scope| !scope.is_empty()) {
            add("scope", &scope.to_string());
        }
        match resource.metadata_url() {
            Some(url) => add("resource_metadata", url),
            None => add("realm", "tenure"),
        }
        if let Some(description) = &description {
            add("error_description", description);
        }
        let mut challenge = String::from("Bearer ");
        let _ = write!(challenge, "{}", parts.join(", "));
        HeaderValue::from_str(&challenge).ok()
    }
}

/// Longer texts are cut: proxies refuse long headers.
const MAX_QUOTED: usize = 1024;

/// The inside of a quoted string. Descriptions name tools, whose names come from servers.
fn quoted(text: &str) -> String {
    text.chars()
        .take(MAX_QUOTED)
        .map(|c| if c.is_ascii_graphic() && c != '"' && c != '\\' || c == ' ' { c } else { '?' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(refusal: &AuthRefusal, resource: &ProtectedResource) -> String {
        let challenge = refusal.challenge(resource);
        challenge.map_or_else(String::new, |value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn challenges_are_exact() {
        let read = ScopeSet::parse("files:read").unwrap();
        let resource =
            ProtectedResource::new("https://h", "/mcp/files").unwrap().with_scopes(read.clone(), read);
        let metadata = r#"resource_metadata="https://h/.well-known/oauth-protected-resource/mcp/files""#;
        let scope = AuthRefusal::InsufficientScope {
            needed: ScopeSet::parse("files:write files:read").unwrap(),
            kept: ScopeSet::parse("mcp:use files:read").unwrap(),
            operation: "tools/call wri\"te".into(),
        };
        let rows = [
            (AuthRefusal::Missing, 401, format!(r#"Bearer scope="files:read", {metadata}"#)),
            (
                AuthRefusal::Invalid(TokenFault::Expired),
                401,
                format!(
                    r#"Bearer error="invalid_token", scope="files:read", {metadata}, error_description="The access token expired""#
                ),
            ),
            (
                scope,
                403,
                format!(
                    r#"Bearer error="insufficient_scope", scope="files:read files:write mcp:use", {metadata}, error_description="tools/call wri?te needs the scope files:read files:write""#
                ),
            ),
            (
                AuthRefusal::Malformed("two credentials"),
                400,
                format!(r#"Bearer error="invalid_request", {metadata}, error_description="two credentials""#),
            ),
            (AuthRefusal::Unavailable { retry_after: Duration::from_secs(5) }, 503, String::new()),
        ];
        for (refusal, status, challenge) in rows {
            assert_eq!(refusal.status(), status);
            assert_eq!(said(&refusal, &resource), challenge);
        }
        assert_eq!(
            said(&AuthRefusal::Missing, &ProtectedResource::keys_only("/mcp")),
            r#"Bearer realm="tenure""#
        );
    }
}
