//! The control socket: bound, guarded, served, and removed when the server stops.
//!
//! The process that has the store open owns the folder, so an existing socket was left by a killed process and is
//! replaced. Other users can never open it: its permissions are set before it listens.

use std::convert::Infallible;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{UnixListener, UnixSocket, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{HandOver, path, routes};
use crate::admin::{self, AdminApi, AdminCaller};
use crate::operator::Operator;

/// Connections at once; more wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 16;

/// Connections that wait in the kernel's queue.
const BACKLOG: u32 = 16;

/// How long the head of a request may take, and how long a connection may be idle between two requests.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// The time that running requests have to finish when the server stops.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Any error of a body.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A control socket that is bound.
pub(crate) struct Control {
    listener: UnixListener,
    // Dropped before the operator, which holds the store: the file has to be removed while the folder is still ours.
    file: SocketFile,
    operator: Operator,
    /// Lets the next process take over; `None` for a process with a single client.
    hand_over: Option<HandOver>,
    /// Answers what is below its base.
    admin: AdminApi,
}

/// Removes the socket's file when dropped.
struct SocketFile(PathBuf);

impl Control {
    /// Binds the socket in a store's folder. If that fails, logs why; the server goes on without it.
    pub(crate) fn bind(
        folder: &Path,
        operator: Operator,
        hand_over: Option<HandOver>,
        admin: AdminApi,
    ) -> Option<Self> {
        Self::bind_at(path(folder), operator, hand_over, admin)
    }

    /// Binds the socket at a path. If that fails, logs why; the server goes on without it.
    pub(crate) fn bind_at(
        path: PathBuf,
        operator: Operator,
        hand_over: Option<HandOver>,
        admin: AdminApi,
    ) -> Option<Self> {
        match listen(&path) {
            Ok(listener) => Some(Self { listener, file: SocketFile(path), operator, hand_over, admin }),
            Err(error) => {
                tracing::warn!(
                    socket = %path.display(),
                    %error,
                    "no control socket: commands cannot reach the store while this server runs"
                );
                None
            }
        }
    }

    /// Serves until `stop` is cancelled. Running requests then have a moment to finish; the rest is dropped.
    ///
    /// # Cancel safety
    /// Dropping it drops every connection.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let Self { listener, file, operator, hand_over, admin } = self;
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let ending = CancellationToken::new();
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = accept(&listener, &permits) => accepted,
                () = stop.cancelled() => break,
            };
            let (stream, permit) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "could not accept a control connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let parts = (operator.clone(), hand_over.clone(), admin.clone());
            let uid = stream.peer_cred().ok().map(|peer| peer.uid());
            let service = service_fn(move |request| answer(parts.clone(), uid, request));
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIME)
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades();
            let ending = ending.clone();
            connections.spawn(async move {
                let mut connection = std::pin::pin!(connection);
                let ended = tokio::select! {
                    ended = connection.as_mut() => ended,
                    () = ending.cancelled() => {
                        connection.as_mut().graceful_shutdown();
                        connection.await
                    }
                };
                if let Err(error) = ended {
                    tracing::debug!(%error, "control connection ended");
                }
                drop(permit);
            });
            // Forget the connections that have ended.
            while connections.try_join_next().is_some() {}
        }
        drop(listener);
        drop(file);
        ending.cancel();
        let ended = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(LAST_WORDS, ended).await.is_err() {
            tracing::info!("closing control connections that are still open");
        }
        connections.shutdown().await;
    }
}

/// Answers a request of a command, or one to the API.
async fn answer(
    (operator, hand_over, admin): (Operator, Option<HandOver>, AdminApi),
    uid: Option<u32>,
    request: Request<Incoming>,
) -> Result<Response<UnsyncBoxBody<Bytes, BoxError>>, Infallible> {
    if request.uri().path().starts_with(admin::BASE) {
        let answer = admin.answer(&AdminCaller::at_socket(uid), request).await;
        return Ok(answer.map(|body| body.map_err(|never| match never {}).boxed_unsync()));
    }
    let answer = routes::answer(operator, hand_over, uid, request).await;
    answer.map(|answer| answer.map(BodyExt::boxed_unsync))
}

async fn accept(
    listener: &UnixListener,
    permits: &Arc<Semaphore>,
) -> io::Result<(UnixStream, OwnedSemaphorePermit)> {
    let permit = Arc::clone(permits).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, permit))
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    // A file of another type is not ours and stays. Then `bind` fails.
    if path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket()) {
        std::fs::remove_file(path)?;
    }
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    // Permissions come before `listen`: no process can connect earlier.
    let guarded = std::fs::set_permissions(path, Permissions::from_mode(0o600));
    guarded.and_then(|()| socket.listen(BACKLOG)).inspect_err(|_| drop(std::fs::remove_file(path)))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::debug!(socket = %self.0.display(), %error, "the control socket was gone already");
        }
    }
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("path", &self.file.0).finish_non_exhaustive()
    }
}
