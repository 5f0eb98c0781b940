//! What is said in one era, in the words of the other; pure functions on raw JSON.
//!
//! Everything that a rule does not name passes as the bytes it was. Most rules come in pairs: `to_modern` for what
//! goes to a modern peer, `to_legacy` for what goes to one in a session. Which rule serves what:
//!
//! | a session's client, a modern server | rule |
//! |---|---|
//! | `initialize` | [`handshake::initialize_result`] out of `server/discover`, [`handshake::introduced`] |
//! | what the client can do | [`capabilities::Relayed::of_session`] |
//! | every request, its token | [`request::to_modern`] |
//! | `logging/setLevel` | [`request::level`], said by every request after it |
//! | results, lists of tools, content of a revision | [`result::kind`], [`result::to_legacy`], [`downgrade`] |
//! | a wish for input | [`questions::wanted`], [`elicitation::params_for`], [`questions::retry`] |
//! | a client that cannot be asked, or fails | [`questions::abandoned`] |
//! | progress | [`progress::Series`] |
//! | subscriptions, changes of lists | [`notifications::Filter`], [`notifications::to_legacy`] |
//! | errors | [`codes::to_legacy`] |
//! | tasks | [`tasks::advertised`], [`tasks::declared`]; [`tasks::seen`], [`tasks::asked`], [`tasks::update`], [`tasks::outcome`] |
//!
//! | a modern client, a session's server | rule |
//! |---|---|
//! | `server/discover` | [`handshake::discover_result`] out of `initialize` |
//! | which session serves a request | [`capabilities::Relayed::of_exchange`], [`handshake::initialize_params`] |
//! | every request, its level, its token, what a retry brings | [`request::to_legacy`] |
//! | requests of the server | [`questions::of_server`], [`questions::input_required`], [`questions::answer`] |
//! | those that nobody can be asked, or nobody answers | [`questions::refusal`], [`questions::expiry`] |
//! | -32042 | [`questions::url_elicitations`] |
//! | a capability that is missing | [`capabilities::Relayed::needed_by`], [`codes::missing_capability`] |
//! | progress | [`progress::Series`] |
//! | listens | [`notifications::Filter`], [`notifications::to_modern`], [`notifications::end`] |
//! | results | [`result::to_modern`] |
//! | errors | [`codes::to_modern`] |
//! | tasks | [`tasks::served`], [`tasks::listed`], [`tasks::augmented`]; [`tasks::created`], [`tasks::related`] |
//!
//! Which era a server is of is read from its answers in [`evidence`]. Sessions of different revisions on both sides
//! need [`downgrade::result_for`] alone.

pub mod capabilities;
pub mod codes;
pub mod downgrade;
pub mod elicitation;
pub mod evidence;
mod features;
pub mod handshake;
pub mod notifications;
pub mod progress;
pub mod questions;
pub mod request;
pub mod result;
pub mod tasks;

#[cfg(test)]
mod tests;
