//! What Tenure and its clients say to each other beyond MCP, as types that both sides can use.
//!
//! [`data_session`] has every message about data sessions, in all dialects. Nothing here does anything: the server's side is
//! in `tenure-session`, the client's in `tenure-client`, and both read and write raw JSON where that is cheaper. Tests hold
//! what they say against these types, and these types against `docs/data-sessions.schema.json`.

pub mod data_session;
