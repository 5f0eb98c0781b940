//! Which transport a server speaks: Streamable HTTP, or the HTTP+SSE that came before it.
//!
//! Only the server can say. `initialize` is posted first; where that is refused in the way of a place that takes no
//! POST, the stream of HTTP+SSE is tried. What was found is kept and looked at again when it does not fit any more, and
//! from time to time, because a server that has learned the newer transport may still speak the older one.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_protocol::{Reason, RpcError};
use tenure_session::backend::{Open, Opened};
use tokio::time::Instant;

use crate::remote::http_client::Door;
use crate::remote::outage::Fault;
use crate::remote::{http_sse, link};

/// How long a server is taken to speak the older transport only.
const KEPT: Duration = Duration::from_secs(600);

pub(super) struct Manner {
    /// Since when it is known to speak HTTP+SSE.
    older_since: Mutex<Option<Instant>>,
}

impl Manner {
    pub(super) fn unknown() -> Self {
        Self { older_since: Mutex::default() }
    }

    /// Opens a session there, in whichever way the server speaks. A server that is away is waited for: a session that
    /// it may have begun twice does no harm.
    pub(super) async fn open(&self, door: &Arc<Door>, open: Open) -> Result<Opened, RpcError> {
        let mut waits = door.waits();
        loop {
            let away = match self.attempt(door, &open).await {
                Ok(opened) => return Ok(opened),
                Err(Fault::Final(error)) => return Err(error),
                Err(Fault::Away(away)) => away,
            };
            match waits.pause(&away) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(away.error),
            }
        }
    }

    async fn attempt(&self, door: &Arc<Door>, open: &Open) -> Result<Opened, Fault> {
        if self.is_older() {
            if let Some(stream) = http_sse::begin(door).await? {
                return http_sse::open(stream, open).await.map_err(Fault::Final);
            }
            *self.older_since.lock() = None;
        }
        let refused = match link::open(door, open).await {
            Ok(opened) => return Ok(opened),
            Err(refused) if !refused.takes_no_post => return Err(refused.fault),
            Err(refused) => refused.fault.into_error(),
        };
        match http_sse::begin(door).await {
            Ok(Some(stream)) => {
                tracing::info!(url = door.place(), "the server upstream speaks HTTP+SSE");
                *self.older_since.lock() = Some(Instant::now());
                http_sse::open(stream, open).await.map_err(Fault::Final)
            }
            // What the server itself wrote says more than that this was in vain too.
            Err(fault) if refused.is(Reason::BackendUnavailable) => Err(fault),
            Ok(None) | Err(_) => Err(Fault::Final(refused)),
        }
    }

    fn is_older(&self) -> bool {
        self.older_since.lock().is_some_and(|since| since.elapsed() < KEPT)
    }
}
