//! Streams: what comes on them, in which order, and that nothing is lost when a connection is.

mod asks;
mod batches;
mod calls;
mod cancelling;
mod cycles;
mod gaps;
mod listening;
mod resuming;
