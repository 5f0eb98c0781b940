//! The errors of operations on states.

use tenure_protocol::{Error, Reason};

use super::record::Edition;
use crate::budget;
use crate::port::store::StoreError;

/// Why there is no state under a name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Lost {
    /// It never existed, belongs to another owner, or its tombstone has expired.
    NotFound,
    /// It was not used for too long, or became too old.
    Expired,
    /// Its owner deleted it.
    Deleted,
    /// An operator ended it.
    Revoked,
}

impl Lost {
    /// The word for it in errors.
    pub fn reason(self) -> Reason {
        match self {
            Self::NotFound => Reason::SessionNotFound,
            Self::Expired => Reason::SessionExpired,
            Self::Deleted => Reason::SessionDeleted,
            Self::Revoked => Reason::SessionRevoked,
        }
    }
}

/// Why an operation on a state failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// There is no such state.
    #[error("the state is not there: {}", .0.reason().as_str())]
    Lost(Lost),
    /// Another caller changed it first.
    #[error("the state was changed by another: it is at edition {}", .0.0)]
    Conflict(Edition),
    /// It would become larger than allowed.
    #[error("a state may have {limit} bytes, this one would have {bytes}")]
    TooLarge {
        /// Its new size.
        bytes: usize,
        /// The largest size allowed.
        limit: usize,
    },
    /// Its data do not fit the type that they are read into.
    #[error("the state does not hold what is asked of it")]
    Shape(#[source] serde_json::Error),
    /// A limit on states or their bytes is reached.
    #[error(transparent)]
    Full(Error),
    /// The store failed.
    #[error("the store failed")]
    Store(#[source] StoreError),
}

impl Fault {
    /// The error for a limit on bytes that is reached.
    pub(super) fn no_room(full: budget::Full) -> Self {
        let text = match full {
            budget::Full::OfPeer => {
                "The server keeps as many bytes of data sessions for your address as it may (`clients.disk`, \
                 `clients.max_share`); delete some"
            }
            budget::Full::InAll => {
                "The server keeps as many bytes of data sessions as it may (`clients.disk`); delete some"
            }
        };
        Self::Full(Error::new(Reason::TooMuchHeld, text))
    }

    /// The error for the client, independent of the dialect.
    pub fn to_error(self) -> Error {
        match self {
            Self::Lost(lost) => Error::new(lost.reason(), "The state is gone"),
            Self::Conflict(at) => {
                Error::new(Reason::Conflict, "The state was changed by another; read it again and repeat")
                    .with("edition", at.0)
            }
            Self::TooLarge { bytes, limit } => {
                Error::new(Reason::StateTooLarge, format!("The state would have {bytes} bytes"))
                    .with("limit", limit)
            }
            Self::Shape(error) => {
                Error::new(Reason::Internal, "The state does not hold what was expected").caused_by(error)
            }
            Self::Full(error) => error,
            Self::Store(error) => {
                Error::new(Reason::StoreUnavailable, "The session store is not available").caused_by(error)
            }
        }
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
