//! The doorkeeper: which door a path leads to, and who is inside.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{Method, Request, Response};
use tenure_protocol::{Error, Reason};
use tenure_session::{Principal, SessionId};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Doors;
use super::presence::Presences;
use crate::duplex::Line;
use crate::http::answer::Manner;
use crate::http::body::Body;
use crate::http::cors;
use crate::http::endpoint::{Endpoint, Remote};
use crate::http::reject::reject_method;
use crate::permits::Place;

/// A door that is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::http) enum Door {
    Sse,
    Messages,
    Rpc,
    McpSse,
    WebSocket,
}

/// What a connection holds of the server's bound on connections; a socket takes it along.
#[derive(Clone, Debug)]
pub(crate) struct Seat(#[expect(dead_code, reason = "held, not read")] Arc<Place>);

impl Seat {
    pub(crate) fn new(place: Place) -> Self {
        Self(Arc::new(place))
    }
}

/// Keeps the doors. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Doorkeeper(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    doors: Doors,
    posts: Posts,
    presences: Arc<Presences>,
    tasks: TaskTracker,
    /// The server is told to stop.
    stop: CancellationToken,
    /// All talks are dropped.
    kill: CancellationToken,
}

/// Where the messages go that are posted for a stream of `/sse`, by the secret name in the URL. The name says nothing
/// of the session and dies with the stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Posts(Arc<Mutex<HashMap<SessionId, Post>>>);

#[derive(Clone, Debug)]
pub(super) struct Post {
    pub(super) input: mpsc::Sender<Line>,
    pub(super) owner: Principal,
}

impl Doorkeeper {
    pub(crate) fn new(doors: Doors) -> Self {
        Self(Arc::new(Inner { doors, ..Inner::default() }))
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

    /// Whether a request may take its connection along.
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
        let methods = self.methods(door);
        let page = match endpoint.admit(&parts, remote, methods) {
            ControlFlow::Continue(page) => page,
            ControlFlow::Break(response) => return response,
        };
        let doors = &self.0.doors;
        let response = match (door, &parts.method) {
            (Door::Rpc, &Method::POST) => endpoint.post(&parts, body, remote, Manner::Json).await,
            (Door::Sse, &Method::POST) if doors.post_sse => {
                endpoint.post(&parts, body, remote, Manner::Done).await
            }
            (Door::Sse, &Method::GET) if doors.sse => self.open_stream(endpoint, &parts, remote).await,
            (Door::Messages, &Method::POST) => self.take_message(endpoint, &parts, body, remote).await,
            (Door::McpSse, &Method::GET) => endpoint.get_unnamed(&parts, remote).await,
            (Door::WebSocket, &Method::GET) => self.open_socket(endpoint, parts, remote).await,
            (Door::Rpc | Door::Messages | Door::Sse | Door::McpSse | Door::WebSocket, _) => {
                reject_method(methods)
            }
        };
        cors::readable(response, page)
    }

    /// The methods that there are at a door.
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

    /// Starts a talk. Shutdown waits for it.
    pub(super) fn spawn(&self, talk: impl Future<Output = ()> + Send + 'static) {
        let kill = self.0.kill.clone();
        self.0.tasks.spawn(async move { kill.run_until_cancelled(talk).await });
    }

    /// Asks all who talk to finish.
    pub(crate) fn stop(&self) {
        self.0.stop.cancel();
        self.0.tasks.close();
    }

    /// Waits until nobody is inside.
    pub(crate) async fn left(&self) {
        self.0.tasks.wait().await;
    }

    /// Drops those who are still inside.
    pub(crate) fn kill(&self) {
        self.0.kill.cancel();
    }

    /// Whether new talks may begin.
    pub(super) fn check_open(&self, endpoint: &Endpoint) -> Result<(), Error> {
        if self.0.stop.is_cancelled() || !endpoint.sessions().is_ready() {
            return Err(Error::new(Reason::Draining, "The server is shutting down; try again later"));
        }
        Ok(())
    }
}

impl Posts {
    /// Makes a place to post to, until the returned guard is dropped.
    pub(super) fn open(&self, post: Post) -> OpenPost {
        let name = SessionId::random();
        self.all().insert(name, post);
        OpenPost { posts: self.clone(), name }
    }

    /// The place of this name, if it is this caller's.
    pub(super) fn find(&self, name: &SessionId, caller: &Principal) -> Option<Post> {
        self.all().get(name).filter(|post| post.owner == *caller).cloned()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<SessionId, Post>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place to post to.
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
