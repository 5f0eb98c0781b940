//! Translates messages from one era to the other: pure functions on raw JSON.
//!
//! Bytes that a rule does not name pass unchanged. Most rules come in pairs: `to_modern` for messages to a modern peer,
//! `to_legacy` for messages to a peer in a session. Which rule is used for what:
//!
//! | a session's client, a modern server | rule |
//! |---|---|
//! | `initialize` | [`handshake::initialize_result`] out of `server/discover`, [`handshake::introduced`] |
//! | the capabilities of the client | [`capabilities::Relayed::of_session`] |
//! | every request, its token | [`request::to_modern`] |
//! | `logging/setLevel` | [`request::level`], repeated in every later request |
//! | results, tool lists, unknown content | [`result::kind`], [`result::to_legacy`], [`downgrade`] |
//! | `input_required` | [`questions::wanted`], [`elicitation::params_for`], [`questions::retry`] |
//! | a client that cannot be asked, or fails | [`questions::abandoned`] |
//! | progress | [`progress::Series`] |
//! | subscriptions, changes of lists | [`notifications::Filter`], [`notifications::to_legacy`] |
//! | errors | [`codes::to_legacy`] |
//! | whether there are tasks | [`tasks::advertised`], [`tasks::declared`] |
//! | tasks | [`tasks::seen`], [`tasks::asked`], [`tasks::update`], [`tasks::outcome`] |
//!
//! | a modern client, a session's server | rule |
//! |---|---|
//! | `server/discover` | [`handshake::discover_result`] out of `initialize` |
//! | which session serves a request | [`capabilities::Relayed::of_exchange`], [`handshake::initialize_params`] |
//! | every request, its level, its token, the answers and state of a retry | [`request::to_legacy`] |
//! | requests of the server | [`questions::of_server`], [`questions::input_required`], [`questions::answer`] |
//! | those without a client to ask, or without an answer in time | [`questions::refusal`], [`questions::expiry`] |
//! | -32042 | [`questions::url_elicitations`] |
//! | a capability that is missing | [`capabilities::Relayed::needed_by`], [`codes::missing_capability`] |
//! | progress | [`progress::Series`] |
//! | listens | [`notifications::Filter`], [`notifications::to_modern`], [`notifications::end`] |
//! | results | [`result::to_modern`] |
//! | errors | [`codes::to_modern`] |
//! | tasks | [`tasks::served`], [`tasks::listed`], [`tasks::augmented`]; [`tasks::created`], [`tasks::related`] |
//!
//! [`evidence`] tells from a server's answers which eras it serves. Between two sessions of different revisions only
//! [`downgrade::result_for`] is needed.

pub mod handshake;
pub mod capabilities;
pub mod request;
pub mod result;
pub mod downgrade;
pub mod questions;
pub mod elicitation;
pub mod notifications;
pub mod progress;
pub mod tasks;
pub mod codes;
pub mod evidence;
mod features;

#[cfg(test)]
mod tests;
