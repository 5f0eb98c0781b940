//! The session runtime with a scripted backend, the memory store and a clock that can be turned.

mod asks;
mod calls;
mod expiry;
mod limits;
mod lives;
mod resume;
mod slow;
mod store_faults;
mod support;
