//! The types of every message about data sessions: for each method its request, params, result and response (A16.51).
//!
//! Three dialects have the same messages under different names: [`strawman`] and [`draft`] in a session,
//! [`extension`] in revision 2026-07-28, which has no sessions. `docs/data-sessions.md` explains the names. Where MCP
//! allows further members (in results and in the metadata of requests and results), the field `other` keeps those
//! that are not about data sessions. The doc comments of the types are also the descriptions in
//! `docs/data-sessions.schema.json`.

mod define;
mod dialect;
pub mod draft;
pub mod extension;
#[cfg(feature = "schema")]
mod schema;
pub mod strawman;

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

pub(crate) use define::{dialect, method, model};
pub use dialect::{DRAFT_NOT_FOUND, DRAFT_REQUIRED, Dialect, STRAWMAN_REFUSED, Verb};
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

    /// Hints of a client for a new session.
    #[derive(Default)]
    pub struct Hints {
        /// A name for it, for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub label: Option<String>,
        /// Data that the client gets back with the session; the server may start the session with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub data: Option<Value>,
    }

    /// Which tools need a session.
    #[derive(Copy, Eq)]
    #[serde(rename_all = "lowercase")]
    pub enum Need {
        /// None.
        None,
        /// Those that declare it; see [`ToolMeta`].
        Some,
        /// All.
        All,
    }

    /// The part of the metadata of a tool that is about sessions.
    #[derive(Eq)]
    pub struct ToolMeta {
        /// The tool cannot be called without a session.
        #[serde(rename = "sessionRequired")]
        pub session_required: bool,
    }

    /// The answer to a request that was refused.
    pub struct ErrorResponse {
        /// The version of JSON-RPC.
        pub jsonrpc: Jsonrpc,
        /// The id of the request.
        pub id: RequestId,
        /// The error.
        pub error: ErrorBody,
    }

    /// Why a request was refused.
    pub struct ErrorBody {
        /// By dialect: −32002; −32043 and −32044; −31043 and −31044. Others are those of JSON-RPC.
        pub code: i64,
        /// The text for people.
        pub message: String,
        /// The data for programs.
        pub data: Refusal,
    }

    /// Why a request was refused, for programs.
    pub struct Refusal {
        /// Such as `session_required`, `session_not_found`, `session_expired`, `session_deleted`, `session_revoked`, or
        /// the same with `data_` in front in revision 2026-07-28.
        pub reason: String,
        /// The session that the request named.
        #[serde(default, rename = "sessionId", skip_serializing_if = "Option::is_none")]
        pub session_id: Option<Secret>,
        /// Other members.
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

/// Reads a member that may be `null`, so that `null` and absence are different values.
fn or_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(from).map(Some)
}
