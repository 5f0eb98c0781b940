//! One child for many sessions, for servers that keep no data for a single client.
//!
//! The first session starts it (`slot`), we do the handshake ourselves (`server`), and every session has its own link
//! (`link`). Requests have numbers of ours (`traffic`). Other messages of the server go to the sessions that they
//! concern (`members`), in order, and no session waits for another (`member`). Subscriptions and log levels are merged
//! from the wishes of all sessions (`topics`, `levels`).

mod slot;

mod server;

mod link;
mod traffic;

mod member;
mod members;

mod levels;
mod topics;

pub(super) use self::slot::{SharedChild, open};
