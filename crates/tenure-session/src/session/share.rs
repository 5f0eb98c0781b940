//! Charges a session in memory to the share of the client that created or woke it: one session, the params of
//! `initialize`, and the events that wait in memory for the store or for a reader.
//!
//! Events are counted in whole blocks, for the outbox and for each reader, so that the usual few events do not touch
//! the account. They are counted even if the share is full. If the client is then over its share, at most one block
//! waits for the store, and unread events are left to the log.

use tenure_protocol::{Error, Reason};

use crate::budget::{Full, Resource, Share, Taken};
use crate::session::live_session::SessionState;

/// Events are counted in blocks of this many bytes; a smaller amount is not counted.
const BLOCK: usize = 64 << 10;

/// The charge for a session in memory; given back when dropped.
pub(super) struct SessionCharge {
    _session: Taken,
    params: Taken,
}

impl SessionCharge {
    /// Charges the client's share.
    ///
    /// # Errors
    /// When the share is used up.
    pub(super) fn take(share: &Share, params_bytes: usize) -> Result<Box<Self>, Error> {
        let session = share.take(Resource::Sessions, 1).map_err(|full| match full {
            Full::InAll => Error::new(Reason::TooManySessions, "The server holds as many sessions as it may"),
            Full::OfPeer => Error::new(
                Reason::TooManySessionsOfPrincipal,
                "You hold as many sessions as you may; end one with DELETE",
            ),
        })?;
        let params = share.take(Resource::Memory, params_bytes).map_err(|_| {
            Error::new(Reason::TooMuchHeld, "The server holds as much for you as it may; try again later")
        })?;
        Ok(Box::new(Self { _session: session, params }))
    }
}

/// The charge for waiting events; `None` if the session has no share.
#[derive(Default)]
pub(super) struct WaitingBytes(Option<Taken>);

impl WaitingBytes {
    /// Sets the number of waiting bytes.
    pub(super) fn count(&mut self, bytes: usize) {
        let counted = bytes - bytes % BLOCK;
        if let Some(taken) = &mut self.0
            && taken.amount() != counted
        {
            taken.resize_anyway(counted);
        }
    }

    /// Whether any bytes are charged.
    pub(super) fn is_counted(&self) -> bool {
        self.0.as_ref().is_some_and(|taken| taken.amount() > 0)
    }

    /// Whether bytes are charged and the client is over its share.
    pub(super) fn is_too_much(&self) -> bool {
        let taken = self.0.as_ref().filter(|taken| taken.amount() > 0);
        taken.is_some_and(|taken| taken.share().is_over(Resource::Memory))
    }
}

impl SessionState {
    /// Charges the session and its outbox to the share of `charge`.
    pub(super) fn charge_to(&mut self, charge: Option<Box<SessionCharge>>) {
        self.charge = charge;
        self.outbox.waiting = self.waiting_bytes();
    }

    /// A new, empty charge for waiting events.
    pub(super) fn waiting_bytes(&self) -> WaitingBytes {
        let taken = self.charge.as_ref().map(|charge| charge.params.share().take_anyway(Resource::Memory, 0));
        WaitingBytes(taken)
    }
}
