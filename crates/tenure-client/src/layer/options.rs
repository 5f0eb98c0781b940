//! What can be chosen about the layer.

use std::time::Duration;

use serde_json::Value;

use crate::{dialect::Dialect, jar::Jar};

/// Which eras of the protocol are spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Eras {
    /// 2026-07-28 if the server knows it, which `server/discover` shows; else a transport session.
    #[default]
    Either,
    /// Only revisions with a handshake and a transport session, up to 2025-11-25.
    Legacy,
    /// Only 2026-07-28, which has neither.
    Modern,
}

/// When a session is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Create {
    /// After the handshake, if the server offers sessions and the jar holds none. Requests that carry the
    /// cookie wait for it.
    #[default]
    WhenOffered,
    /// When the server refuses a request for want of one; the request is then repeated, once.
    WhenRequired,
    /// Only by [`Sessions::create`](super::Sessions::create).
    Never,
}

/// What happens when the server ends the session, or knows it no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Recreate {
    /// Nothing: what was kept in the session is lost, and the caller should hear of it.
    #[default]
    Never,
    /// A new one is asked for, and a request that was refused is repeated, once.
    AfterLoss,
}

/// Which requests carry the cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Attach {
    /// `tools/call`, `resources/read` and `prompts/get`, as released clients do.
    #[default]
    Uses,
    /// All but the handshake.
    AllRequests,
}

/// What can be chosen about the layer: `Options { create: Create::Never, ..Options::new(jar) }`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where cookies are kept.
    pub jar: Jar,
    /// Which eras of the protocol are spoken.
    pub eras: Eras,
    /// When a session is asked for.
    pub create: Create,
    /// What happens when a session is lost.
    pub recreate: Recreate,
    /// Which requests carry the cookie.
    pub attach: Attach,
    /// The dialect to speak in a transport session with a server that offers both. Without one there is only
    /// [`Dialect::Extension`].
    ///
    /// The later one by default: it forbids changing ids and sends nothing with notifications, so less can go
    /// wrong with requests in flight, and the clients that were released last speak it.
    pub prefer: Dialect,
    /// The dialect to assume if the server's capabilities name none, for transports that hide them.
    pub assume: Option<Dialect>,
    /// The label of sessions that the layer asks for by itself, where the dialect has labels.
    pub label: Option<String>,
    /// The data of sessions that the layer asks for by itself, where the dialect has it.
    pub data: Option<Value>,
    /// How long to wait for the answer to a request of the layer's own.
    pub answer_within: Duration,
}

impl Options {
    /// The defaults, with this jar.
    pub fn new(jar: Jar) -> Self {
        Self {
            jar,
            eras: Eras::default(),
            create: Create::default(),
            recreate: Recreate::default(),
            attach: Attach::default(),
            prefer: Dialect::Sep,
            assume: None,
            label: None,
            data: None,
            answer_within: Duration::from_secs(10),
        }
    }
}
