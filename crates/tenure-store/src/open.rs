//! From a store's URL to the store.

use std::sync::Arc;

use tenure_session::port::store::Store;

use crate::memory::Memory;

/// Why a store could not be opened.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// No engine has this name.
    UnknownEngine(String),
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::UnknownEngine(url) => write!(f, "no store engine is called `{url}`"),
        }
    }
}

impl std::error::Error for OpenError {}

/// Opens a store by its URL, such as `memory:`. A store in memory keeps at most `max_event_bytes` of events.
///
/// # Errors
/// When no engine has that name.
pub fn open(url: &str, max_event_bytes: usize) -> Result<Arc<dyn Store>, OpenError> {
    match url {
        "memory:" | "memory" => Ok(Arc::new(Memory::bounded(max_event_bytes))),
        other => Err(OpenError::UnknownEngine(other.to_owned())),
    }
}
