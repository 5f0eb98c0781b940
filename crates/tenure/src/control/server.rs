//! The control socket: bound, guarded, served, and removed when the server stops.
//!
//! A socket at which another process listens is left to it; one that a killed process has left is replaced. A process removes
//! the file at its end only if it is still the one that it made. Other users can never open it: its permissions are set before it
//! listens.

use std::convert::Infallible;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
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
use crate::failure::Failure;
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

/// A control socket that listens, and is not served yet.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    listener: UnixListener,
    file: SocketFile,
}

/// A control socket with what answers on it.
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

/// Removes the socket's file when dropped, unless another one is there by now.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// The device and the number of the file on it.
    made: Option<(u64, u64)>,
}

impl ControlSocket {
    /// Listens at a path. If that fails, logs why; the server goes on without a socket.
    ///
    /// # Errors
    /// When another process listens there: commands would reach one of the two by chance.
    pub(crate) fn bind_at(path: PathBuf) -> Result<Option<Self>, Failure> {
        match listen(&path) {
            Ok(listener) => {
                let made = numbers(&path);
                Ok(Some(Self { listener, file: SocketFile { path, made } }))
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_listened_at(&path) => {
                Err(Failure::new(format!("cannot listen on `{}` for commands", path.display()))
                    .because("another process listens there")
                    .hint("stop the other process, or set `control.path` to another file: each process needs one of its own"))
            }
            Err(error) => {
                without_socket(&path, &error);
                Ok(None)
            }
        }
    }
}

fn without_socket(path: &Path, error: &dyn std::error::Error) {
    tracing::warn!(
        socket = %path.display(),
        %error,
        "no control socket: commands cannot reach the store while this server runs"
    );
}

impl Control {
    /// Binds the socket in a store's folder. If that fails, logs why; the server goes on without it. The process that has the store
    /// open is the only one that does this.
    pub(crate) fn bind(
        folder: &Path,
        operator: Operator,
        hand_over: Option<HandOver>,
        admin: AdminApi,
    ) -> Option<Self> {
        match ControlSocket::bind_at(path(folder)) {
            Ok(socket) => socket.map(|socket| Self::on(socket, operator, hand_over, admin)),
            Err(failure) => {
                without_socket(&path(folder), &failure);
                None
            }
        }
    }

    /// Answers on a socket.
    pub(crate) fn on(
        socket: ControlSocket,
        operator: Operator,
        hand_over: Option<HandOver>,
        admin: AdminApi,
    ) -> Self {
        let ControlSocket { listener, file } = socket;
        Self { listener, file, operator, hand_over, admin }
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
    // A file of another type is not ours and stays, and so does a socket that is in use. Then `bind` fails.
    let is_socket = path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket());
    if is_socket && !is_listened_at(path) {
        std::fs::remove_file(path)?;
    }
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    // Permissions come before `listen`: no process can connect earlier.
    let guarded = std::fs::set_permissions(path, Permissions::from_mode(0o600));
    guarded.and_then(|()| socket.listen(BACKLOG)).inspect_err(|_| drop(std::fs::remove_file(path)))
}

/// Whether a process listens at a socket: the one of a killed process refuses. A queue that is full is one of a process.
fn is_listened_at(path: &Path) -> bool {
    let connected = || -> io::Result<()> {
        let socket = rustix::net::socket_with(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            rustix::net::SocketFlags::NONBLOCK | rustix::net::SocketFlags::CLOEXEC,
            None,
        )?;
        Ok(rustix::net::connect(&socket, &rustix::net::SocketAddrUnix::new(path)?)?)
    };
    match connected() {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

/// What tells a file from another one at the same path.
fn numbers(path: &Path) -> Option<(u64, u64)> {
    path.symlink_metadata().ok().map(|found| (found.dev(), found.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.made.is_none() || numbers(&self.path) != self.made {
            tracing::debug!(socket = %self.path.display(), "the control socket is gone, or is another one by now");
        } else if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(socket = %self.path.display(), %error, "the control socket was gone already");
        }
    }
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("path", &self.file.path).finish_non_exhaustive()
    }
}
