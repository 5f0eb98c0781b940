//! The doorkeeper: finds the door for a path, answers requests there, and tracks the connections that carry a session.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response};
use tenure_protocol::{Error, Reason};
use tenure_session::{Principal, SessionId, SessionKey, UsableUntil};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Doors;
use super::presence::Presences;
use crate::duplex::InputMessage;
use crate::http::answer::AnswerFormat;
use crate::http::body::Body;
use crate::http::cors;
use crate::http::endpoint::{Endpoint, Remote, observed};
use crate::http::reject::reject_method;
use crate::observe::{OpenRequest, RequestNotes};
use crate::permits::ConnectionPermit;

/// A door that is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::http) enum Door {
    Sse,
    Messages,
    Rpc,
    McpSse,
    WebSocket,
}

/// The permit of a connection, shared with the WebSocket that the connection may become.
#[derive(Clone, Debug)]
pub(crate) struct SharedPermit(#[expect(dead_code, reason = "held, not read")] Arc<ConnectionPermit>);

impl SharedPermit {
    pub(crate) fn new(permit: ConnectionPermit) -> Self {
        Self(Arc::new(permit))
    }
}

/// Serves the doors. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Doorkeeper(Arc<DoorkeeperState>);

#[derive(Debug, Default)]
struct DoorkeeperState {
    doors: Doors,
    posts: Posts,
    presences: Arc<Presences>,
    tasks: TaskTracker,
    /// Asks all connections to finish.
    stop: CancellationToken,
    /// Drops all connections.
    kill: CancellationToken,
}

/// The open streams of `/sse`, by the secret name in the URL that their messages are posted to. The name reveals
/// nothing about the session, and ends with the stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Posts(Arc<Mutex<HashMap<SessionId, Post>>>);

/// Where the messages for one stream go, and who may post them.
#[derive(Clone, Debug)]
pub(super) struct Post {
    pub(super) input: mpsc::Sender<InputMessage>,
    pub(super) owner: Principal,
    /// Until when the owner's credentials are good; each message may show newer ones.
    pub(super) usable_until: Arc<UsableUntil>,
}

impl Doorkeeper {
    pub(crate) fn new(doors: Doors) -> Self {
        Self(Arc::new(DoorkeeperState { doors, ..DoorkeeperState::default() }))
    }

    /// The door that a path leads to, if it is open.
    pub(in crate::http) fn at(&self, path: &str) -> Option<Door> {
        let doors = &self.0.doors;
        let (door, open) = match path {
            "/sse" => (Door::Sse, doors.sse || doors.post_sse),
            "/messages" => (Door::Messages, doors.sse),
            "/rpc" => (Door::Rpc, doors.rpc),
            "/mcp/sse" => (Door::McpSse, doors.mcp_sse),
            "/ws" => (Door::WebSocket, doors.websocket),
            _ => return None,
        };
        open.then_some(door)
    }

    /// Whether a request for this path may upgrade its connection to a WebSocket.
    pub(crate) fn may_upgrade(&self, path: &str) -> bool {
        self.at(path) == Some(Door::WebSocket)
    }

    /// Answers one request at a door.
    ///
    /// # Cancel safety
    /// A request that was admitted goes on when this future is dropped.
    pub(in crate::http) async fn handle<B>(
        &self,
        door: Door,
        endpoint: &Endpoint,
        request: Request<B>,
        remote: Option<&Remote>,
    ) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let client = Remote::behind(remote, &parts.headers, endpoint.rules());
        let remote = client.as_ref().or(remote);
        let open = endpoint.observe(&parts, remote);
        let notes = open.as_ref().map(OpenRequest::notes);
        let response = self.answered(door, endpoint, (parts, body), remote, notes).await;
        observed(response, open)
    }

    async fn answered<B>(
        &self,
        door: Door,
        endpoint: &Endpoint,
        (parts, body): (Parts, B),
        remote: Option<&Remote>,
        notes: Option<&Arc<RequestNotes>>,
    ) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let methods = self.methods(door);
        let page = match endpoint.admit(&parts, remote, methods) {
            ControlFlow::Continue(page) => page,
            ControlFlow::Break(response) => return response,
        };
        let sender = match endpoint.identify(&parts, remote, notes).await {
            Ok(sender) => sender,
            Err(refusal) => return cors::readable(*refusal, page),
        };
        let doors = &self.0.doors;
        let response = match (door, &parts.method) {
            (_, &Method::GET) if let Err(refusal) = endpoint.check_base_scopes(&sender) => *refusal,
            (Door::Rpc, &Method::POST) => endpoint.post(&parts, body, &sender, AnswerFormat::Json).await,
            (Door::Sse, &Method::POST) if doors.post_sse => {
                endpoint.post(&parts, body, &sender, AnswerFormat::Done).await
            }
            (Door::Sse, &Method::GET) if doors.sse => self.open_stream(endpoint, &parts, &sender).await,
            (Door::Messages, &Method::POST) => self.take_message(endpoint, &parts, body, &sender).await,
            (Door::McpSse, &Method::GET) => endpoint.get_unnamed(&parts, &sender).await,
            (Door::WebSocket, &Method::GET) => self.open_socket(endpoint, parts, &sender).await,
            (Door::Rpc | Door::Messages | Door::Sse | Door::McpSse | Door::WebSocket, _) => {
                reject_method(methods)
            }
        };
        cors::readable(response, page)
    }

    /// The HTTP methods that a door allows.
    fn methods(&self, door: Door) -> &'static str {
        let doors = &self.0.doors;
        match door {
            Door::Rpc | Door::Messages => "POST",
            Door::Sse => match (doors.sse, doors.post_sse) {
                (true, true) => "GET, POST",
                (true, false) => "GET",
                (false, _) => "POST",
            },
            Door::McpSse | Door::WebSocket => "GET",
        }
    }

    pub(super) fn doors(&self) -> &Doors {
        &self.0.doors
    }

    pub(super) fn posts(&self) -> &Posts {
        &self.0.posts
    }

    pub(super) fn presences(&self) -> &Arc<Presences> {
        &self.0.presences
    }

    pub(super) fn stopping(&self) -> &CancellationToken {
        &self.0.stop
    }

    /// Ends the connection that carries a session, and forgets it: a connection at another node carries the session from now on.
    pub(in crate::http) async fn give_up(&self, key: SessionKey) {
        self.0.presences.give_up(key).await;
    }

    /// Spawns the task of a connection. Shutdown waits for it.
    pub(super) fn spawn(&self, connection: impl Future<Output = ()> + Send + 'static) {
        let kill = self.0.kill.clone();
        self.0.tasks.spawn(async move { kill.run_until_cancelled(connection).await });
    }

    /// Asks all connections to finish.
    pub(crate) fn stop(&self) {
        self.0.stop.cancel();
        self.0.tasks.close();
    }

    /// Waits until all connections have ended.
    pub(crate) async fn left(&self) {
        self.0.tasks.wait().await;
    }

    /// Drops the connections that are still open.
    pub(crate) fn kill(&self) {
        self.0.kill.cancel();
    }

    /// Checks that new connections may begin.
    pub(super) fn check_open(&self, endpoint: &Endpoint) -> Result<(), Error> {
        if self.0.stop.is_cancelled() || !endpoint.sessions().is_ready() {
            return Err(Error::new(Reason::Draining, "The server is shutting down; try again later"));
        }
        Ok(())
    }
}

impl Posts {
    /// Opens an address to post to, until the returned guard is dropped.
    pub(super) fn open(&self, post: Post) -> OpenPost {
        let name = SessionId::random();
        self.all().insert(name, post);
        OpenPost { posts: self.clone(), name }
    }

    /// The address of this name, if this caller owns it.
    pub(super) fn find(&self, name: &SessionId, caller: &Principal) -> Option<Post> {
        self.all().get(name).filter(|post| post.owner.is_same_client(caller)).cloned()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<SessionId, Post>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An address to post to, open until this is dropped.
#[derive(Debug)]
pub(super) struct OpenPost {
    posts: Posts,
    name: SessionId,
}

impl OpenPost {
    /// Its secret name.
    pub(super) fn name(&self) -> SessionId {
        self.name
    }
}

impl Drop for OpenPost {
    fn drop(&mut self) {
        self.posts.all().remove(&self.name);
    }
}
