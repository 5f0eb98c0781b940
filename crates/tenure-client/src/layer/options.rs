//! The options of the layer.

use std::time::Duration;

use serde_json::Value;

use crate::{dialect::Dialect, jar::Jar};

/// Which eras of the protocol may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum EraChoice {
    /// 2026-07-28 if the server answers `server/discover`; else a transport session.
    #[default]
    Either,
    /// Only revisions with a handshake and a transport session, up to 2025-11-25.
    Legacy,
    /// Only 2026-07-28, which has neither.
    Modern,
}

/// When the layer asks for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Create {
    /// After the handshake, if the server offers sessions and the jar has none. Requests that carry the cookie wait for
    /// it.
    #[default]
    WhenOffered,
    /// When the server refuses a request for lack of a session; the request is then repeated, once.
    WhenRequired,
    /// Only by [`SessionHandle::create`](super::SessionHandle::create).
    Never,
}

/// What happens when the server ends the session, or no longer knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Recreate {
    /// Nothing: the state of the session is lost, and the caller should see the error.
    #[default]
    Never,
    /// The layer asks for a new session and repeats a refused request, once.
    AfterLoss,
}

/// Which requests carry the cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Attach {
    /// `tools/call`, `resources/read` and `prompts/get`, as released clients do.
    #[default]
    Uses,
    /// All except the handshake.
    AllRequests,
}

/// The options of the layer: `SessionOptions { create: Create::Never, ..SessionOptions::new(jar) }`.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Where cookies are kept.
    pub jar: Jar,
    /// Which eras of the protocol may be used.
    pub eras: EraChoice,
    /// When the layer asks for a session.
    pub create: Create,
    /// What happens when a session is lost.
    pub recreate: Recreate,
    /// Which requests carry the cookie.
    pub attach: Attach,
    /// The dialect to use in a transport session if the server offers both. Without a transport session there is only
    /// [`Dialect::Extension`].
    ///
    /// The default is the later draft: it forbids changing ids and sends no cookie with notifications, so less can go
    /// wrong with requests in flight, and the newest released clients use it.
    pub prefer: Dialect,
    /// The dialect to assume if the server's capabilities show none, for transports that hide them.
    pub assume: Option<Dialect>,
    /// The label of sessions that the layer asks for by itself, where the dialect has labels.
    pub label: Option<String>,
    /// The data of sessions that the layer asks for by itself, where the dialect has it.
    pub data: Option<Value>,
    /// The time limit of the layer's own requests.
    pub answer_within: Duration,
}

impl SessionOptions {
    /// The defaults, with this jar.
    pub fn new(jar: Jar) -> Self {
        Self {
            jar,
            eras: EraChoice::default(),
            create: Create::default(),
            recreate: Recreate::default(),
            attach: Attach::default(),
            prefer: Dialect::Draft,
            assume: None,
            label: None,
            data: None,
            answer_within: Duration::from_secs(10),
        }
    }
}
