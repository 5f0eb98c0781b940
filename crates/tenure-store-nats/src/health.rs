//! The state of the engine, from the connection and from the watch.
//!
//! In: events of the connection, results of probes. Out: the store's [`Trouble`], and whether operations may run at all.

use parking_lot::Mutex;
use tenure_session::port::store::{Grade, StoreError, Trouble};
use tokio::sync::watch;

/// The state that the connection, the watch and all operations share.
pub(crate) struct Health {
    connected: watch::Sender<bool>,
    trouble: Mutex<Option<Found>>,
    /// The last refusal that the engine sent apart from answers: it does not answer if a permission is missing.
    denied: Mutex<Option<String>>,
}

#[derive(Clone, PartialEq, Eq)]
enum Found {
    /// The engine does not answer; operations still try.
    Away(String),
    /// The engine has other data than this process knows; operations are refused.
    Foreign(String),
}

impl Health {
    pub(crate) fn new() -> Self {
        Self { connected: watch::Sender::new(false), trouble: Mutex::new(None), denied: Mutex::new(None) }
    }

    pub(crate) fn set_connected(&self, connected: bool) {
        self.connected.send_replace(connected);
    }

    /// Waits until there is a connection.
    pub(crate) async fn connected(&self) {
        // The sender lives in `self`, so the wait cannot fail.
        let _ = self.connected.subscribe().wait_for(|connected| *connected).await;
    }

    pub(crate) fn is_connected(&self) -> bool {
        *self.connected.borrow()
    }

    pub(crate) fn deny(&self, what: String) {
        *self.denied.lock() = Some(what);
    }

    /// The last refusal for lack of a permission.
    pub(crate) fn denied(&self) -> Option<String> {
        self.denied.lock().clone()
    }

    /// The engine answers, and has our data.
    pub(crate) fn is_well(&self) {
        if self.trouble.lock().take().is_some() {
            tracing::info!("the NATS engine works again");
        }
    }

    pub(crate) fn is_away(&self, what: String) {
        self.find(Found::Away(what));
    }

    pub(crate) fn is_foreign(&self, what: String) {
        self.find(Found::Foreign(what));
    }

    fn find(&self, found: Found) {
        let mut trouble = self.trouble.lock();
        // A process that has seen foreign data must see its own again before it works on; silence does not count.
        if matches!((&*trouble, &found), (Some(Found::Foreign(_)), Found::Away(_)))
            || *trouble == Some(found.clone())
        {
            return;
        }
        let what = found.text();
        match &found {
            Found::Away(_) => tracing::warn!(what, "the NATS engine is away; retrying"),
            Found::Foreign(_) => {
                tracing::error!(what, "the NATS engine has lost this cluster; nothing is read or written")
            }
        }
        *trouble = Some(found);
    }

    /// Whether operations may run.
    pub(crate) fn admits(&self) -> Result<(), StoreError> {
        match &*self.trouble.lock() {
            Some(Found::Foreign(what)) => Err(StoreError::Unavailable(what.clone())),
            _ => Ok(()),
        }
    }

    pub(crate) fn trouble(&self) -> Option<Trouble> {
        let found = self.trouble.lock().clone()?;
        Some(Trouble { what: found.text().to_owned(), grade: Grade::Down })
    }
}

impl Found {
    fn text(&self) -> &str {
        match self {
            Self::Away(what) | Self::Foreign(what) => what,
        }
    }
}
