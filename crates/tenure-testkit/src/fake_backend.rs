//! A backend whose answers the test gives by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tenure_protocol::{Notification, RawJson, Reason, Reply, Request, RpcError};
use tenure_session::backend::{Backend, Call, Link, Open, Opened, Opening};
use tenure_session::call::{CallContext, Fanout, Outlet};
use tenure_session::port::BoxFuture;
use tokio::sync::{mpsc, oneshot};

/// What the next `open` does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Opens {
    /// Opens a link.
    #[default]
    Well,
    /// Refuses with an error.
    Refuses,
    /// Never answers.
    Hangs,
    /// Panics.
    Panics,
    /// Answers with an unknown protocol version.
    Nonsense,
    /// Opens a link to a newer server, which has prompts too.
    Newer,
}

/// A backend that passes every call to the test.
pub struct FakeBackend {
    opens: Mutex<Opens>,
    /// The server's capabilities, if the test sets them.
    capabilities: Mutex<Option<Value>>,
    /// The server's name in `serverInfo`.
    name: Mutex<String>,
    /// Counts the links.
    links: AtomicU64,
    events: mpsc::Sender<BackendEvent>,
}

/// One call that the backend received.
#[derive(Debug)]
pub enum BackendEvent {
    /// A link was opened.
    Opened(NewLink),
    /// A request came.
    Call(FakeCall),
    /// A notification came.
    Heard(Notification),
    /// The link was closed.
    Closed,
}

/// A new link, from the backend's side.
#[derive(Debug)]
pub struct NewLink {
    /// Its number.
    pub link: u64,
    /// For messages that belong to no request.
    pub outlet: Outlet,
    /// For notifications to all sessions.
    pub fanout: Fanout,
    /// The client's params of `initialize`.
    pub params: RawJson,
    /// Why the link was opened.
    pub opening: Opening,
}

/// A request that waits for the test's answer.
#[derive(Debug)]
pub struct FakeCall {
    /// The number of the link that it came on.
    pub link: u64,
    /// The request.
    pub request: Request,
    /// Its context, shared with the waiting call.
    pub context: Arc<CallContext>,
    answer: oneshot::Sender<Reply>,
}

impl FakeCall {
    /// Answers with a result.
    pub fn answer(self, result: &Value) {
        // Fails if the session has given up the request; then the answer is not needed.
        let _ = self.answer.send(Ok(RawJson::of(result)));
    }

    /// Answers with an error.
    pub fn fail(self, code: i32, message: &str) {
        self.end(Err(RpcError::new(code, message)));
    }

    /// Answers with this reply.
    pub fn end(self, reply: Reply) {
        let _ = self.answer.send(reply);
    }

    /// Resolves when the session does not wait for the answer any more.
    pub async fn abandoned(&mut self) {
        self.answer.closed().await;
    }
}

/// The test's side: receives the calls of the backend, in order.
#[derive(Debug)]
pub struct Script {
    events: mpsc::Receiver<BackendEvent>,
}

impl FakeBackend {
    /// A backend, and the script that receives its calls.
    pub fn new() -> (Arc<Self>, Script) {
        let (sender, receiver) = mpsc::channel(1024);
        let backend = Self {
            opens: Mutex::default(),
            capabilities: Mutex::default(),
            name: Mutex::new("fake".to_owned()),
            links: AtomicU64::new(0),
            events: sender,
        };
        (Arc::new(backend), Script { events: receiver })
    }

    /// Sets what `open` does from now on.
    pub fn set_opens(&self, opens: Opens) {
        *self.opens.lock() = opens;
    }

    /// Sets the server name of links that are opened from now on.
    pub fn set_name(&self, name: &str) {
        name.clone_into(&mut self.name.lock());
    }

    /// Sets the server capabilities of links that are opened from now on.
    pub fn set_capabilities(&self, capabilities: Value) {
        *self.capabilities.lock() = Some(capabilities);
    }
}

impl Script {
    /// The next call of the backend.
    ///
    /// # Panics
    /// When nothing comes for ten seconds.
    pub async fn next(&mut self) -> BackendEvent {
        let next = tokio::time::timeout(std::time::Duration::from_secs(10), self.events.recv()).await;
        next.expect("the backend is asked something in time").expect("the backend lives")
    }

    /// The next request. Skips other calls.
    pub async fn call(&mut self) -> FakeCall {
        loop {
            if let BackendEvent::Call(call) = self.next().await {
                return call;
            }
        }
    }

    /// The next link that is opened. Skips other calls.
    pub async fn opened(&mut self) -> NewLink {
        loop {
            if let BackendEvent::Opened(opened) = self.next().await {
                return opened;
            }
        }
    }

    /// How many links were opened, among the calls that are in the queue now. Empties the queue.
    pub fn opened_meanwhile(&mut self) -> usize {
        let events = std::iter::from_fn(|| self.events.try_recv().ok());
        events.filter(|event| matches!(event, BackendEvent::Opened(_))).count()
    }

    /// Waits until a link is closed.
    pub async fn closed(&mut self) {
        while !matches!(self.next().await, BackendEvent::Closed) {}
    }
}

impl Backend for FakeBackend {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let opens = *self.opens.lock();
        let capabilities = self.capabilities.lock().clone();
        let name = self.name.lock().clone();
        let link = self.links.fetch_add(1, Ordering::Relaxed) + 1;
        let events = self.events.clone();
        Box::pin(async move {
            let version = match opens {
                Opens::Well | Opens::Newer => open.revision.as_str(),
                Opens::Nonsense => "1999-12-31",
                Opens::Refuses => return Err(RpcError::of(Reason::BackendUnavailable, "not today")),
                Opens::Hangs => std::future::pending().await,
                Opens::Panics => panic!("a panic for testing"),
            };
            let mut result = json!({
                "protocolVersion": version,
                "capabilities": { "tools": {}, "resources": { "subscribe": true }, "logging": {} },
                "serverInfo": { "name": name, "version": "1" },
            });
            if opens == Opens::Newer {
                result["capabilities"]["prompts"] = json!({});
            }
            if let Some(capabilities) = capabilities {
                result["capabilities"] = capabilities;
            }
            let (outlet, fanout, params) = (open.outlet, open.fanout, open.params);
            let opened = NewLink { link, outlet, fanout, params, opening: open.opening };
            // Ignored if the queue is full: a test that opens thousands of links does not receive each one.
            let _ = events.try_send(BackendEvent::Opened(opened));
            Ok(Opened { link: Box::new(FakeLink { link, events }), result: RawJson::of(&result) })
        })
    }
}

struct FakeLink {
    link: u64,
    events: mpsc::Sender<BackendEvent>,
}

impl Link for FakeLink {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        let (link, events) = (self.link, self.events.clone());
        if matches!(&call.request.method, tenure_protocol::Method::Other(name) if &**name == "test/panic") {
            panic!("a panic for testing");
        }
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            let context = Arc::new(call.context);
            let call = FakeCall { link, request: call.request, context: Arc::clone(&context), answer };
            let gone = || RpcError::of(Reason::BackendUnavailable, "the fake backend hung up");
            events.send(BackendEvent::Call(call)).await.map_err(|_| gone())?;
            answered.await.unwrap_or_else(|_| Err(gone()))
        })
    }

    fn notify(&self, notification: Notification) {
        let _ = self.events.try_send(BackendEvent::Heard(notification));
    }

    fn close(&self) -> BoxFuture<()> {
        let _ = self.events.try_send(BackendEvent::Closed);
        Box::pin(std::future::ready(()))
    }
}

impl std::fmt::Debug for FakeBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FakeBackend")
    }
}
