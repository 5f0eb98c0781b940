//! What operators type, on a running server and on a store that none has open.

mod calls;
mod control;
mod data;
mod keeping;
mod memory;
mod moving;
mod names;
mod offline;
pub(crate) mod place;
mod running;
mod limits;
mod usage;
