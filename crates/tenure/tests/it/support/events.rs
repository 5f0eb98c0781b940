//! Streams of Server-Sent Events, as the testkit reads them.

pub(crate) use tenure_testkit::sse::{SseEvent, SseItem};
pub(crate) use tenure_testkit::wire::{Events, gist};
