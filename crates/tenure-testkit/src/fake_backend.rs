//! A backend whose every answer the test gives by hand.

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
    /// Gives a link.
    #[default]
    Well,
    /// Refuses with an error.
    Refuses,
    /// Never answers.
    Hangs,
    /// Panics.
    Panics,
    /// Answers with a protocol version nobody knows.
    Nonsense,
    /// Gives a link to a newer server, which has prompts too.
    Newer,
}

/// A backend that asks the test.
pub struct FakeBackend {
    opens: Mutex<Opens>,
    /// What the server can do, if the test says so.
    capabilities: Mutex<Option<Value>>,
    /// What the server calls itself.
    name: Mutex<String>,
    /// Counts the links.
    links: AtomicU64,
    seen: mpsc::Sender<Seen>,
}

/// What the backend was asked, in order.
#[derive(Debug)]
pub enum Seen {
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
    /// For news to all sessions.
    pub fanout: Fanout,
    /// What the client said at `initialize`.
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
        // The session may have given up on the request; then nobody wants the answer.
        let _ = self.answer.send(Ok(RawJson::of(result)));
    }

    /// Answers with an error.
    pub fn fail(self, code: i32, message: &str) {
        self.end(Err(RpcError::new(code, message)));
    }

    /// Answers with this.
    pub fn end(self, reply: Reply) {
        let _ = self.answer.send(reply);
    }

    /// Resolves when nobody waits for the answer any more.
    pub async fn abandoned(&mut self) {
        self.answer.closed().await;
    }
}

/// What the test holds: it sees what the backend is asked.
#[derive(Debug)]
pub struct Script {
    seen: mpsc::Receiver<Seen>,
}

impl FakeBackend {
    /// A backend and the script that steers it.
    pub fn new() -> (Arc<Self>, Script) {
        let (sender, receiver) = mpsc::channel(1024);
        let backend = Self {
            opens: Mutex::default(),
            capabilities: Mutex::default(),
            name: Mutex::new("fake".to_owned()),
            links: AtomicU64::new(0),
            seen: sender,
        };
        (Arc::new(backend), Script { seen: receiver })
    }

    /// Sets what `open` does from now on.
    pub fn set_opens(&self, opens: Opens) {
        *self.opens.lock() = opens;
    }

    /// Sets what the servers of links call themselves that are opened from now on.
    pub fn set_name(&self, name: &str) {
        name.clone_into(&mut self.name.lock());
    }

    /// Sets what the servers of links can do that are opened from now on.
    pub fn set_capabilities(&self, capabilities: Value) {
        *self.capabilities.lock() = Some(capabilities);
    }
}

impl Script {
    /// The next thing the backend is asked.
    ///
    /// # Panics
    /// When nothing comes for ten seconds.
    pub async fn next(&mut self) -> Seen {
        let next = tokio::time::timeout(std::time::Duration::from_secs(10), self.seen.recv()).await;
        next.expect("the backend is asked something in time").expect("the backend lives")
    }

    /// The next request, passing over everything else.
    pub async fn call(&mut self) -> FakeCall {
        loop {
            if let Seen::Call(call) = self.next().await {
                return call;
            }
        }
    }

    /// The next link, passing over everything else.
    pub async fn opened(&mut self) -> NewLink {
        loop {
            if let Seen::Opened(opened) = self.next().await {
                return opened;
            }
        }
    }

    /// How many links are opened from now until nothing more is asked of the backend at the moment.
    pub fn opened_meanwhile(&mut self) -> usize {
        let seen = std::iter::from_fn(|| self.seen.try_recv().ok());
        seen.filter(|seen| matches!(seen, Seen::Opened(_))).count()
    }

    /// Waits until a link is closed.
    pub async fn closed(&mut self) {
        while !matches!(self.next().await, Seen::Closed) {}
    }
}

impl Backend for FakeBackend {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let opens = *self.opens.lock();
        let capabilities = self.capabilities.lock().clone();
        let name = self.name.lock().clone();
        let link = self.links.fetch_add(1, Ordering::Relaxed) + 1;
        let seen = self.seen.clone();
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
            // A test that opens thousands of links does not look at each.
            let _ = seen.try_send(Seen::Opened(opened));
            Ok(Opened { link: Box::new(FakeLink { link, seen }), result: RawJson::of(&result) })
        })
    }
}

struct FakeLink {
    link: u64,
    seen: mpsc::Sender<Seen>,
}

impl Link for FakeLink {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        let (link, seen) = (self.link, self.seen.clone());
        if matches!(&call.request.method, tenure_protocol::Method::Other(name) if &**name == "test/panic") {
            panic!("a panic for testing");
        }
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            let context = Arc::new(call.context);
            let call = FakeCall { link, request: call.request, context: Arc::clone(&context), answer };
            let gone = || RpcError::of(Reason::BackendUnavailable, "the fake backend hung up");
            seen.send(Seen::Call(call)).await.map_err(|_| gone())?;
            answered.await.unwrap_or_else(|_| Err(gone()))
        })
    }

    fn notify(&self, notification: Notification) {
        let _ = self.seen.try_send(Seen::Heard(notification));
    }

    fn close(&self) -> BoxFuture<()> {
        let _ = self.seen.try_send(Seen::Closed);
        Box::pin(std::future::ready(()))
    }
}

impl std::fmt::Debug for FakeBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FakeBackend")
    }
}
