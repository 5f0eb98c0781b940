//! One child for many sessions, for servers that keep nothing for a single client.
//!
//! The first session starts it (`slot`), we shake hands with it ourselves (`server`), and every session has a link of
//! its own (`link`). Requests are kept apart by numbers of ours (`traffic`); what else the server says goes
//! to whom it concerns (`members`), in order and without waiting for anybody (`member`). Subscriptions and log levels
//! are put together from what the sessions want (`topics`, `levels`).

mod levels;
mod link;
mod member;
mod members;
mod server;
mod slot;
mod topics;
mod traffic;

pub(super) use self::slot::{Slot, open};
