//! The way between the nodes of a cluster: a request for a session of another node is sent there and answered from there.
//!
//! Owns the peer port, the connections to the peer ports of others, and the form of a request between nodes. Knows nothing
//! of sessions or of what a request means: *http* decides which request goes where, and serves those that come in.
//!
//! Peers speak HTTP/2 over TLS 1.3 (ALPN `tenure/1`). Each proves the key that its node record names ([`PeerKey`], `pins`);
//! anybody else is cut off in the handshake. [`PeerPort`] accepts, [`Relay`] sends, over the connections of `links`.
//! `relayed_head` says which headers go along and who asks. `event_cutter` cuts a relayed stream into whole events. `peer_news`
//! tells all nodes what servers in this process say to all clients.
//! `questions` is what operators ask of other nodes.
//!
//! Connections of the doors `/sse` and `/ws` are served where they arrive: their sessions move to them.

mod peer_key;
mod pins;
mod relayed_head;
mod event_cutter;
mod links;
mod relay;
mod peer_news;
mod peer_port;
mod questions;

#[cfg(test)]
mod tests;

pub(crate) use event_cutter::EventCutter;
pub(crate) use links::{PeerBody, SendFailure};
pub use peer_key::{KeyPin, PeerKey, PeerKeyError};
pub use peer_news::PeerNews;
pub(crate) use peer_news::{MOST_BYTES as MOST_NEWS_BYTES, RelayedNews, WhatChanged};
pub use peer_port::{PeerPort, PeerPortError};
pub use pins::KnownNodes;
pub(crate) use questions::PATH as QUESTIONS;
pub use questions::{PeerQuestions, QuestionDesk, Unanswered};
pub use relay::Relay;
pub(crate) use relayed_head::{
    RelayedFormat, RelayedHead, RelayedWish, RequestTry, answer_headers, beginning_after, begins_after,
    is_not_here, not_here, request_headers,
};
