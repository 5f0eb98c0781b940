//! What operators do with data sessions, on a running server and on a store that none has open.

mod life;
mod names;
mod offline;
mod owners;
mod stores;
mod support;
