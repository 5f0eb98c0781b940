//! One process that answers the requests of many exchanges, and ends after some time without requests.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_session::port::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::super::command::ChildLimits;
use super::super::pipes::{OUT, Pipes};
use super::super::process::{Handle, Process};
use super::super::restarts::Life;
use super::traffic::ModernTraffic;

pub(super) struct ModernChild {
    pub(super) traffic: Arc<ModernTraffic>,
    handle: Handle,
    pipes: Pipes,
    /// The child has answered a discovery as the modern era prescribes.
    is_modern: AtomicBool,
    /// The task that ends the child when it is idle.
    idler: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl ModernChild {
    /// Takes over a process. There is no handshake: only the first request shows whether it answers.
    pub(super) fn start(process: Process, limits: &ChildLimits, label: &str) -> (Arc<Self>, Life) {
        let began = Instant::now();
        let Process { input, output, mut handle } = process;
        handle.tail.serve(label);
        let ended = handle.ended_by_itself.take().unwrap_or_else(|| tokio::sync::oneshot::channel().1);
        let (out, messages) = mpsc::channel(OUT);
        let traffic = ModernTraffic::new(out, label);
        let pipes = Pipes::start(input, output, messages, limits.max_line_bytes, &handle, &traffic);
        tracing::debug!(child = handle.id, label, "a server for requests without a session was started");
        let server = Arc::new(Self {
            traffic,
            handle,
            pipes,
            is_modern: AtomicBool::new(false),
            idler: Mutex::default(),
        });
        let idle = end_when_idle(Arc::clone(&server.traffic), Arc::downgrade(&server), limits.idle);
        #[expect(clippy::disallowed_methods, reason = "held by the server, and aborted with it")]
        let idler = tokio::spawn(idle);
        *server.idler.lock() = Some(AbortOnDropHandle::new(idler));
        (server, Life { began, ended })
    }

    pub(super) fn is_modern(&self) -> bool {
        self.is_modern.load(Ordering::Relaxed)
    }

    pub(super) fn says_it_is_modern(&self) {
        self.is_modern.store(true, Ordering::Relaxed);
    }

    /// Takes no more requests; resolves when the child has ended. Until then it may answer requests in flight.
    pub(super) fn end(&self) -> BoxFuture<()> {
        self.traffic.pending.close();
        self.pipes.close_input();
        Box::pin(self.handle.end())
    }
}

async fn end_when_idle(traffic: Arc<ModernTraffic>, server: Weak<ModernChild>, idle: Duration) {
    traffic.pending.unused_for(idle).await;
    if let Some(server) = server.upgrade() {
        tracing::debug!(child = server.handle.id, "the server had no requests for some time; ending it");
        // Dropping the future is fine: the child ends without it.
        drop(server.end());
    }
}
