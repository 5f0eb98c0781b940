//! Every message about data sessions: for each method its request, the params, the result, and the response (A16.51).
//!
//! Three dialects say the same with other names: [`strawman`] and [`draft`] in a session, [`extension`] in revision
//! 2026-07-28, which has no sessions. Which words mean what is told in `docs/data-sessions.md`. What MCP leaves open (the
//! metadata of requests and results, and results themselves) has a member `other`, which keeps what is not about data
//! sessions.

mod define;
pub mod draft;
pub mod extension;
#[cfg(feature = "schema")]
mod schema;
pub mod strawman;

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

pub(crate) use define::{dialect, method, model};
#[cfg(feature = "schema")]
pub use schema::schema;

/// Members that are not about data sessions.
pub type Other = Map<String, Value>;

model! {
    /// The version of JSON-RPC.
    #[derive(Copy, Eq)]
    pub enum Jsonrpc {
        /// The only one.
        #[serde(rename = "2.0")]
        V2,
    }

    /// The id of a request.
    #[derive(Eq)]
    #[serde(untagged)]
    pub enum RequestId {
        /// A number.
        Number(i64),
        /// A text.
        Text(String),
    }

    /// What a client says of a session that it makes.
    #[derive(Default)]
    pub struct Hints {
        /// A name for it, for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub label: Option<String>,
        /// Whatever the client wants to have back with it; the server may begin the session with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub data: Option<Value>,
    }

    /// Which tools need a session.
    #[derive(Copy, Eq)]
    #[serde(rename_all = "lowercase")]
    pub enum Need {
        /// None.
        None,
        /// Those that say so; see [`ToolMeta`].
        Some,
        /// All.
        All,
    }

    /// What the metadata of a tool says of sessions.
    #[derive(Eq)]
    pub struct ToolMeta {
        /// It cannot be called without one.
        #[serde(rename = "sessionRequired")]
        pub session_required: bool,
    }

    /// The answer to a request that was refused.
    pub struct ErrorResponse {
        /// The version of JSON-RPC.
        pub jsonrpc: Jsonrpc,
        /// The request's.
        pub id: RequestId,
        /// Why.
        pub error: ErrorBody,
    }

    /// Why a request was refused.
    pub struct ErrorBody {
        /// By dialect: −32002; −32043 and −32044; −31043 and −31044. Others are those of JSON-RPC.
        pub code: i64,
        /// For people.
        pub message: String,
        /// For programs.
        pub data: Refusal,
    }

    /// Why a request was refused, in words for programs.
    pub struct Refusal {
        /// Such as `session_required`, `session_not_found`, `session_expired`, `session_deleted`, `session_revoked`, or
        /// the same with `data_` in front in revision 2026-07-28.
        pub reason: String,
        /// The session that was named.
        #[serde(default, rename = "sessionId", skip_serializing_if = "Option::is_none")]
        pub session_id: Option<Secret>,
        /// What else there is to say.
        #[serde(flatten)]
        pub other: Other,
    }
}

/// The id of a session, or the sealed state that a client carries for the server. A caller that has it may use the
/// session, so `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Reads a member that may be `null`, which is something else than not to be there.
fn or_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(from).map(Some)
}
