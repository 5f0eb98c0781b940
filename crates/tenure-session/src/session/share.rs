//! What a session in memory takes from the share of the client that began or woke it: its place, the params of `initialize`,
//! and the events that wait in memory, for the store or for a reader.
//!
//! Of events only whole blocks are counted, for the outbox and for each reader: the few that wait as a rule cost no
//! look at the account. They are counted whether or not they fit. If the client then holds more than it may, no more than a
//! block waits for the store, and what a reader has not read is left to the log.

use tenure_protocol::{Error, Reason};

use crate::budget::{Full, Resource, Share, Taken};
use crate::session::session::State;

/// How many bytes of events wait uncounted, in the outbox and for each reader, and by how many they are counted.
const BLOCK: usize = 64 << 10;

/// What a session takes while it is in memory.
pub(super) struct Held {
    _session: Taken,
    params: Taken,
}

impl Held {
    /// # Errors
    /// When the client holds as much as it may.
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

/// The memory of events that wait; nothing if nobody's share is counted.
#[derive(Default)]
pub(super) struct Waiting(Option<Taken>);

impl Waiting {
    /// So many bytes wait now.
    pub(super) fn count(&mut self, bytes: usize) {
        let counted = bytes - bytes % BLOCK;
        if let Some(taken) = &mut self.0
            && taken.amount() != counted
        {
            taken.resize_anyway(counted);
        }
    }

    /// Whether any of it is counted.
    pub(super) fn is_counted(&self) -> bool {
        self.0.as_ref().is_some_and(|taken| taken.amount() > 0)
    }

    /// Whether it is counted, and the client holds more than it may.
    pub(super) fn is_too_much(&self) -> bool {
        let taken = self.0.as_ref().filter(|taken| taken.amount() > 0);
        taken.is_some_and(|taken| taken.share().is_over(Resource::Memory))
    }
}

impl State {
    /// Everything that it holds comes from this share.
    pub(super) fn is_held_by(&mut self, held: Option<Box<Held>>) {
        self.held = held;
        self.outbox.waiting = self.nothing_waits();
    }

    /// The memory of events that are still to come.
    pub(super) fn nothing_waits(&self) -> Waiting {
        let taken = self.held.as_ref().map(|held| held.params.share().take_anyway(Resource::Memory, 0));
        Waiting(taken)
    }
}
