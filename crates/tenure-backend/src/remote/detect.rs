//! Detects which transport a server speaks: Streamable HTTP, or its predecessor HTTP+SSE.
//!
//! We POST `initialize` first. If the endpoint refuses it as if it takes no POST, we try the stream of HTTP+SSE. The
//! result is cached. We detect again when the cached transport fails, and from time to time, because a server that was
//! upgraded to the newer transport may still speak the older one.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_protocol::{Reason, RpcError};
use tenure_session::backend::{Open, Opened};
use tokio::time::Instant;

use crate::remote::credentials::OnBehalf;
use crate::remote::http_client::HttpClient;
use crate::remote::outage::Fault;
use crate::remote::{http_sse, link};

/// How long the result "speaks HTTP+SSE" is cached.
const KEPT: Duration = Duration::from_secs(600);

pub(super) struct TransportDetector {
    /// When the server was found to speak HTTP+SSE, if it does.
    older_since: Mutex<Option<Instant>>,
}

impl TransportDetector {
    pub(super) fn unknown() -> Self {
        Self { older_since: Mutex::default() }
    }

    /// Opens a session over the transport that the server speaks. Retries while the server is away: if it opens a
    /// second session because of that, no harm is done.
    pub(super) async fn open(&self, http: &Arc<HttpClient>, open: Open) -> Result<Opened, RpcError> {
        let mut waits = http.waits();
        loop {
            let away = match self.attempt(http, &open).await {
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

    async fn attempt(&self, http: &Arc<HttpClient>, open: &Open) -> Result<Opened, Fault> {
        let whom = || OnBehalf::client_of(&open.outlet);
        if self.is_older() {
            if let Some(stream) = http_sse::begin(http, whom()).await? {
                return http_sse::open(stream, open).await.map_err(Fault::Final);
            }
            *self.older_since.lock() = None;
        }
        let refused = match link::open(http, open).await {
            Ok(opened) => return Ok(opened),
            Err(refused) if !refused.takes_no_post => return Err(refused.fault),
            Err(refused) => refused.fault.into_error(),
        };
        match http_sse::begin(http, whom()).await {
            Ok(Some(stream)) => {
                tracing::info!(url = http.place(), "the server upstream speaks HTTP+SSE");
                *self.older_since.lock() = Some(Instant::now());
                http_sse::open(stream, open).await.map_err(Fault::Final)
            }
            // Prefer the server's own error over that of the fallback.
            Err(fault) if refused.is(Reason::BackendUnavailable) => Err(fault),
            Ok(None) | Err(_) => Err(Fault::Final(refused)),
        }
    }

    fn is_older(&self) -> bool {
        self.older_since.lock().is_some_and(|since| since.elapsed() < KEPT)
    }
}
