//! The error of this crate: its kind, its text and its cause.
//!
//! A kind exists only if a caller reacts differently to it. Texts never contain a session id or a cookie.

use std::fmt;

use rmcp::service::ClientInitializeError;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// How a caller can react to an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientErrorKind {
    /// The server offers no sessions, or not this operation.
    Unsupported,
    /// The session is unknown, expired or revoked, or the jar does not hold it.
    NotFound,
    /// The server answered with an error.
    Refused,
    /// No answer came in time.
    TimedOut,
    /// The connection is closed, or could not be opened.
    Closed,
    /// An answer, an argument or a setting is invalid.
    Invalid,
    /// The jar could not be read or written.
    Jar,
}

/// A failed operation. The cause, if there is one, comes through `source()`.
pub struct Error {
    kind: ClientErrorKind,
    text: String,
    source: Option<Source>,
}

impl Error {
    /// How a caller can react to it.
    pub fn kind(&self) -> ClientErrorKind {
        self.kind
    }

    /// The innermost cause, such as a refused connection; the error itself if it has no cause.
    ///
    /// `source()` does not reach it, because some of rmcp's errors put their cause into their text instead.
    pub fn root(&self) -> &(dyn std::error::Error + 'static) {
        let mut cause: &(dyn std::error::Error + 'static) = self;
        while let Some(inner) = hidden_cause(cause).or_else(|| cause.source()) {
            cause = inner;
        }
        cause
    }

    pub(crate) fn new(kind: ClientErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into(), source: None }
    }

    pub(crate) fn with_source(
        kind: ClientErrorKind,
        text: impl Into<String>,
        source: impl Into<Source>,
    ) -> Self {
        Self { kind, text: text.into(), source: Some(source.into()) }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Error");
        debug.field("kind", &self.kind).field("text", &self.text);
        if let Some(source) = &self.source {
            debug.field("source", &source.to_string());
        }
        debug.finish()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// The cause of an error whose `source()` does not return it.
fn hidden_cause<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> Option<&'a (dyn std::error::Error + 'static)> {
    if let Some(ClientInitializeError::TransportError { error, .. }) = error.downcast_ref() {
        return Some(&*error.error);
    }
    #[cfg(feature = "http")]
    {
        use rmcp::transport::streamable_http_client::StreamableHttpError;
        if let Some(StreamableHttpError::<reqwest::Error>::Client(error)) = error.downcast_ref() {
            return Some(error);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::{ClientErrorKind, Error};

    #[test]
    fn the_cause_is_told_by_source_and_not_twice() {
        let error =
            Error::with_source(ClientErrorKind::Jar, "read the jar", std::io::Error::other("disk on fire"));
        assert_eq!(error.to_string(), "read the jar");
        assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("disk on fire"));
    }
}
