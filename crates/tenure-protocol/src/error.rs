//! Errors, and their form in JSON-RPC.
//!
//! [`Reason`] is the word in `data.reason` of every error that a client sees, in logs and in metrics; only this file
//! assigns its JSON-RPC code. [`Error`] is the error of this crate and of the crates above it. [`RpcError`] is a
//! JSON-RPC error object: our own, or one that a backend sent and that passes through unchanged.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use serde::Deserialize;

use crate::json::RawJson;

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $word:literal, $code:literal;)*) => {
        /// Why something was refused or failed: one word, the same on the wire, in logs and in metrics.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum Reason {
            $($(#[$doc])* $variant,)*
        }

        impl Reason {
            /// The word in `data.reason`.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// The JSON-RPC error code.
            pub const fn code(self) -> i32 {
                match self { $(Self::$variant => $code,)* }
            }

            /// All reasons.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
        }
    };
}

reasons! {
    /// The body is not JSON.
    ParseError = "parse_error", -32700;
    /// The body is JSON, but not a JSON-RPC message that is allowed here.
    InvalidRequest = "invalid_request", -32600;
    /// An array where the session's revision has no batches.
    BatchNotAllowed = "batch_not_allowed", -32600;
    /// A revision that this endpoint does not serve.
    UnsupportedVersion = "unsupported_version", -32600;
    /// `initialize` inside a live session.
    AlreadyInitialized = "already_initialized", -32600;
    /// A request before `notifications/initialized`.
    NotInitialized = "not_initialized", -32600;
    /// A request id that is already in flight in the session.
    DuplicateRequestId = "duplicate_request_id", -32600;
    /// Params that the method cannot take.
    InvalidParams = "invalid_params", -32602;
    /// A request without a session whose `_meta` lacks a required member, or has a member twice.
    InvalidMeta = "invalid_meta", -32602;
    /// A `requestState` that is not ours, or not for this caller, request or time.
    InvalidRequestState = "invalid_request_state", -32602;
    /// `resources/unsubscribe` for a resource to which the session is not subscribed.
    NotSubscribed = "not_subscribed", -32602;
    /// No task of that name belongs to the caller.
    TaskNotFound = "task_not_found", -32602;
    /// A header that contradicts the body.
    HeaderMismatch = "header_mismatch", -32020;
    /// The client did not declare a capability that the request needs.
    MissingCapability = "missing_client_capability", -32021;
    /// A version that is not served outside of sessions.
    VersionNotServed = "version_not_served", -32022;
    /// No `Mcp-Session-Id` where one is needed.
    SessionRequired = "session_required", -32602;
    /// No session of that name belongs to the caller.
    SessionNotFound = "session_not_found", -32001;
    /// The session ended because it was idle for too long or grew too old.
    SessionExpired = "session_expired", -32001;
    /// The session was ended by its client.
    SessionDeleted = "session_deleted", -32001;
    /// The session was ended by an operator.
    SessionRevoked = "session_revoked", -32001;
    /// The session belongs to another server than the one that now runs here.
    SessionOfOtherServer = "session_of_other_server", -32001;
    /// No data session of that name belongs to the caller of an exchange.
    StateNotFound = "data_session_not_found", -31043;
    /// The data session of an exchange ended because it was idle for too long or grew too old.
    StateExpired = "data_session_expired", -31043;
    /// The data session of an exchange was ended by its client.
    StateDeleted = "data_session_deleted", -31043;
    /// The data session of an exchange was ended by an operator.
    StateRevoked = "data_session_revoked", -31043;
    /// An exchange without the data session that it needs.
    StateRequired = "data_session_required", -31044;
    /// A `Last-Event-ID` that does not parse or is of another session.
    UnknownEventId = "unknown_event_id", -32600;
    /// A stream that ended and whose events are no longer kept.
    StreamForgotten = "stream_forgotten", -32600;
    /// The server holds as many sessions as it may.
    TooManySessions = "too_many_sessions", -31029;
    /// The caller holds as many sessions as it may.
    TooManySessionsOfPrincipal = "too_many_sessions_of_principal", -31029;
    /// The session has as many requests in flight as it may.
    TooManyRequests = "too_many_requests", -31029;
    /// The session watches as many resources as it may.
    TooManySubscriptions = "too_many_subscriptions", -31029;
    /// The session has as many streams open as it may.
    TooManyStreams = "too_many_streams", -31029;
    /// There are as many data sessions as there may be, in all or of this caller.
    TooManyStates = "too_many_data_sessions", -31029;
    /// A state would hold more than it may.
    StateTooLarge = "state_too_large", -31029;
    /// The metadata of a session would be larger than allowed.
    MetadataTooLarge = "metadata_too_large", -31029;
    /// The gateway runs as many server processes as it may.
    TooManyProcesses = "too_many_processes", -31029;
    /// There are as many tasks as there may be, in all or of this caller.
    TooManyTasks = "too_many_tasks", -31029;
    /// Another writer changed the state, or the record of the session, after it was read.
    Conflict = "conflict", -31009;
    /// The server holds as many bytes as it may, for this caller or for all callers together.
    TooMuchHeld = "too_much_held", -31029;
    /// The client does not read its messages, so the server accepts no more requests from it.
    SlowReader = "slow_reader", -31029;
    /// The caller, or all callers together, did more in a time than a limit allows.
    RateLimited = "rate_limited", -31029;
    /// The caller has used up its calls of the day, or of the month.
    QuotaExceeded = "quota_exceeded", -31029;
    /// A body larger than allowed.
    BodyTooLarge = "body_too_large", -32600;
    /// A message to the client larger than one event may be.
    EventTooLarge = "event_too_large", -32603;
    /// A body that did not arrive in time.
    BodyTimeout = "body_timeout", -32600;
    /// A method this endpoint does not have.
    MethodNotFound = "method_not_found", -32601;
    /// An HTTP method this endpoint does not have.
    MethodNotAllowed = "method_not_allowed", -32600;
    /// A request without the upgrade to a WebSocket at an endpoint that serves only WebSockets.
    UpgradeRequired = "upgrade_required", -32600;
    /// An `Accept` header that admits neither of our answers.
    NotAcceptable = "not_acceptable", -32600;
    /// A `Content-Type` that is not JSON.
    UnsupportedMediaType = "unsupported_media_type", -32600;
    /// An `Origin` that is not on the list.
    OriginNotAllowed = "origin_not_allowed", -32600;
    /// A `Host` that is not on the list.
    HostNotAllowed = "host_not_allowed", -32600;
    /// No credentials, or credentials that are not good.
    Unauthorized = "unauthorized", -31001;
    /// Credentials that cannot be read, or more than one.
    MalformedCredentials = "malformed_credentials", -31001;
    /// Credentials that cannot be checked at present.
    AuthUnavailable = "auth_unavailable", -31001;
    /// Credentials whose scopes do not allow the operation.
    Forbidden = "forbidden", -31003;
    /// The process ended, or is ending, before the answer came.
    Interrupted = "interrupted", -31010;
    /// The server behind the gateway cannot be reached, or closed the connection.
    BackendUnavailable = "backend_unavailable", -31011;
    /// The server behind the gateway does not accept the gateway's credentials, or the gateway has no credentials for this
    /// caller.
    BackendUnauthorized = "backend_unauthorized", -31011;
    /// No answer within the time allowed.
    TimedOut = "timed_out", -31012;
    /// The server is shutting down and takes nothing new.
    Draining = "draining", -31010;
    /// The caller, or an operator, withdrew the request.
    Cancelled = "cancelled", -31010;
    /// The client left for good before it answered.
    ClientGone = "client_gone", -31011;
    /// The call cannot be recorded in the audit log, and has to be.
    AuditUnavailable = "audit_unavailable", -32603;
    /// The store could not do its work.
    StoreUnavailable = "store_unavailable", -32603;
    /// A fault of ours, or a handler that panicked.
    Internal = "internal", -32603;
}

/// How a caller in this code base can react to an [`Error`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// It does not exist, or not for this caller.
    NotFound,
    /// It existed and has ended.
    Gone,
    /// A limit is reached; try later.
    Full,
    /// The input is wrong; trying again will not help.
    Invalid,
    /// Something we depend on failed; trying again may help.
    Unavailable,
    /// Our fault.
    Bug,
}

/// An error of the session runtime.
#[derive(Debug, thiserror::Error)]
#[error("{detail}")]
pub struct Error {
    reason: Reason,
    detail: Cow<'static, str>,
    data: Option<serde_json::Map<String, serde_json::Value>>,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error with a sentence for the client.
    pub fn new(reason: Reason, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { reason, detail: detail.into(), data: None, source: None }
    }

    /// Adds a cause, which is logged and not shown to the client.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Adds a member to `data`.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<serde_json::Value>) -> Self {
        self.data.get_or_insert_default().insert(name.to_owned(), value.into());
        self
    }

    /// A copy for another task that waited for the same result. It has no cause: the first error was logged with it.
    pub fn again(&self) -> Self {
        Self { reason: self.reason, detail: self.detail.clone(), data: self.data.clone(), source: None }
    }

    /// The reason.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// How to react to it.
    pub fn kind(&self) -> Kind {
        match self.reason {
            Reason::SessionNotFound | Reason::StateNotFound | Reason::TaskNotFound => Kind::NotFound,
            Reason::SessionExpired
            | Reason::SessionDeleted
            | Reason::SessionRevoked
            | Reason::SessionOfOtherServer
            | Reason::StateExpired
            | Reason::StateDeleted
            | Reason::StateRevoked
            | Reason::StreamForgotten
            | Reason::Cancelled
            | Reason::ClientGone => Kind::Gone,
            Reason::TooManySessions
            | Reason::TooManySessionsOfPrincipal
            | Reason::TooManyRequests
            | Reason::TooManySubscriptions
            | Reason::TooManyStreams
            | Reason::TooManyStates
            | Reason::TooManyTasks
            | Reason::TooManyProcesses
            | Reason::StateTooLarge
            | Reason::TooMuchHeld
            | Reason::MetadataTooLarge
            | Reason::RateLimited
            | Reason::QuotaExceeded
            | Reason::SlowReader => Kind::Full,
            Reason::Interrupted
            | Reason::BackendUnavailable
            | Reason::BackendUnauthorized
            | Reason::TimedOut
            | Reason::Draining
            | Reason::AuthUnavailable
            | Reason::AuditUnavailable
            | Reason::StoreUnavailable => Kind::Unavailable,
            Reason::Internal | Reason::EventTooLarge => Kind::Bug,
            _ => Kind::Invalid,
        }
    }

    /// When the caller may try again, if the error says so.
    pub fn retry_after(&self) -> Option<Duration> {
        let wait = self.data.as_ref()?.get("retryAfterMs")?;
        wait.as_u64().map(Duration::from_millis)
    }

    /// The `data` of the JSON-RPC error object: the members that were added, and `reason`.
    pub fn data(&self) -> serde_json::Map<String, serde_json::Value> {
        let mut data = self.data.clone().unwrap_or_default();
        data.insert("reason".to_owned(), self.reason.as_str().into());
        data
    }

    /// The JSON-RPC error object for the client.
    pub fn to_rpc(&self) -> RpcError {
        RpcError::with_data(self.reason.code(), &self.detail, &self.data())
    }
}

/// How our own errors about limits begin.
const LIMIT_REACHED: &[u8] = br#"{"code":-31029,"#;

/// A JSON-RPC error object, kept as the bytes that go on the wire.
#[derive(Clone, PartialEq, Eq)]
pub struct RpcError(RawJson);

#[derive(Deserialize, Default)]
struct CodeAndMessage {
    #[serde(default)]
    code: i64,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize, Default)]
struct Carrying {
    #[serde(default)]
    data: Carried,
}

/// The `data` of our own errors.
#[derive(Deserialize, Default)]
struct Carried {
    #[serde(default)]
    reason: String,
    #[serde(default)]
    refused: bool,
    #[serde(default, rename = "retryAfterMs")]
    retry_after_ms: Option<u64>,
}

impl RpcError {
    /// An error object with a code and a sentence.
    pub fn new(code: i32, message: &str) -> Self {
        Self(RawJson::of(&serde_json::json!({ "code": code, "message": message })))
    }

    /// An error object with data.
    pub fn with_data(code: i32, message: &str, data: &impl serde::Serialize) -> Self {
        Self(RawJson::of(&serde_json::json!({ "code": code, "message": message, "data": data })))
    }

    /// Our own error for a reason.
    pub fn of(reason: Reason, message: impl Into<Cow<'static, str>>) -> Self {
        Error::new(reason, message).to_rpc()
    }

    /// The backend is gone and did not accept the request, so the request may be sent to another server.
    pub fn refused(message: &'static str) -> Self {
        Error::new(Reason::BackendUnavailable, message).with("refused", true).to_rpc()
    }

    /// The backend was lost after it had accepted the request.
    pub fn server_lost() -> Self {
        Self::of(
            Reason::Interrupted,
            "The server ended before the answer came; the request may or may not have been carried out",
        )
    }

    /// Marks a [`Reason::BackendUnavailable`] error: no server accepted the request, so it may be sent to another
    /// server.
    #[must_use]
    pub fn not_taken(self) -> Self {
        if !self.is(Reason::BackendUnavailable) || self.is_refused() {
            return self;
        }
        let mut error: serde_json::Value = self.0.read().unwrap_or_default();
        error["data"]["refused"] = true.into();
        Self(RawJson::of(&error))
    }

    /// Whether it is our own error with this reason.
    pub fn is(&self, reason: Reason) -> bool {
        self.code() == i64::from(reason.code()) && self.carried().reason == reason.as_str()
    }

    /// When the caller may try again, if this is one of our own errors that say so.
    pub fn retry_after(&self) -> Option<Duration> {
        // Most errors are not, and are not read.
        let is_limit = self.0.bytes().starts_with(LIMIT_REACHED);
        is_limit.then(|| self.carried().retry_after_ms).flatten().map(Duration::from_millis)
    }

    /// Its reason, if it is our own error.
    pub fn reason(&self) -> Option<Reason> {
        let (code, word) = (self.code(), self.carried().reason);
        Reason::ALL.iter().find(|reason| i64::from(reason.code()) == code && reason.as_str() == word).copied()
    }

    /// Whether no server accepted the request.
    pub fn is_refused(&self) -> bool {
        self.carried().refused
    }

    fn carried(&self) -> Carried {
        self.0.read::<Carrying>().unwrap_or_default().data
    }

    /// An error object that a peer wrote; it passes through unchanged.
    pub fn from_raw(raw: RawJson) -> Self {
        Self(raw)
    }

    /// The object's bytes.
    pub fn raw(&self) -> &RawJson {
        &self.0
    }

    /// Its code, or 0 if it has none.
    pub fn code(&self) -> i64 {
        self.0.read::<CodeAndMessage>().unwrap_or_default().code
    }

    /// Its sentence.
    pub fn message(&self) -> String {
        self.0.read::<CodeAndMessage>().unwrap_or_default().message
    }
}

impl fmt::Debug for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RpcError({:?})", self.0)
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (code {})", self.message(), self.code())
    }
}

impl std::error::Error for RpcError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_codes_lie_outside_the_reserved_range_or_are_in_use_by_clients() {
        for reason in Reason::ALL {
            let code = reason.code();
            let standard = matches!(code, -32700 | -32600..=-32600 | -32601 | -32602 | -32603 | -32001);
            let of_the_modern_era = matches!(code, -32022..=-32020);
            assert!(
                standard || of_the_modern_era || !(-32768..=-32000).contains(&code),
                "{reason:?}: {code}"
            );
        }
    }

    #[test]
    fn words_are_unique() {
        let words: std::collections::HashSet<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(words.len(), Reason::ALL.len());
    }

    #[test]
    fn an_error_about_a_limit_says_when_to_try_again() {
        let error = Error::new(Reason::RateLimited, "too often").with("retryAfterMs", 1500);
        let wait = Some(Duration::from_millis(1500));
        assert_eq!((error.retry_after(), error.to_rpc().retry_after()), (wait, wait));
        let other = Error::new(Reason::TooManyRequests, "too many");
        assert_eq!((other.retry_after(), other.to_rpc().retry_after()), (None, None));
        let foreign = RpcError::from_raw(RawJson::trusted(r#"{"code":1,"data":{"retryAfterMs":5}}"#));
        assert_eq!(foreign.retry_after(), None);
    }

    #[test]
    fn an_error_says_its_reason_in_data() {
        let error = Error::new(Reason::TimedOut, "no answer within 5 s").with("timeoutMs", 5000);
        expect_test::expect![[
            r#"RpcError({"code":-31012,"data":{"reason":"timed_out","timeoutMs":5000},"message":"no answer within 5 s"})"#
        ]]
        .assert_eq(&format!("{:?}", error.to_rpc()));
    }
}
