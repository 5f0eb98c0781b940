//! One process that answers requests of many exchanges, until there are none for a while.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_session::port::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::super::backoff::Life;
use super::super::command::ChildLimits;
use super::super::pipes::{OUT, Pipes};
use super::super::process::{Handle, Process};
use super::traffic::Traffic;

pub(super) struct Server {
    pub(super) traffic: Arc<Traffic>,
    handle: Handle,
    pipes: Pipes,
    /// It has answered a discovery in the words of the modern era.
    is_modern: AtomicBool,
    /// Ends it when nobody needs it any more.
    idler: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl Server {
    /// Speaks to a process from here on. There is no handshake: whether it answers is seen with its first request.
    pub(super) fn start(process: Process, limits: &ChildLimits, label: &str) -> (Arc<Self>, Life) {
        let began = Instant::now();
        let Process { input, output, mut handle } = process;
        handle.tail.serve(label);
        let ended = handle.ended_by_itself.take().unwrap_or_else(|| tokio::sync::oneshot::channel().1);
        let (out, lines) = mpsc::channel(OUT);
        let traffic = Traffic::new(out, label);
        let pipes = Pipes::start(input, output, lines, limits.max_line_bytes, &handle, &traffic);
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

    /// Takes no more requests; resolves when it is gone. Until then it may answer those that it has.
    pub(super) fn end(&self) -> BoxFuture<()> {
        self.traffic.close();
        self.pipes.close_input();
        Box::pin(self.handle.end())
    }
}

async fn end_when_idle(traffic: Arc<Traffic>, server: Weak<Server>, idle: Duration) {
    traffic.unused_for(idle).await;
    if let Some(server) = server.upgrade() {
        tracing::debug!(child = server.handle.id, "nobody needs the server any more");
        // It goes whether or not anybody waits for that.
        drop(server.end());
    }
}
