//! Sessions in this process, with a server behind them that answers at once.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use memchr::memmem;
use serde_json::json;
use tenure_backend::native::{Handler, Introduction, Native};
use tenure_protocol::{Method, Notification, RawJson, Reason, Reply, Request, RequestId, RpcError};
use tenure_session::backend::Call;
use tenure_session::call::Caller;
use tenure_session::port::clock::SystemClock;
use tenure_session::port::store::Store;
use tenure_session::session::{Answer, Session, SessionParts, Sessions};
use tenure_session::{Limits, Principal, SessionId};

use super::material;

const ANSWER: &str = r#"{"content":[{"type":"text","text":"hello"}]}"#;

struct Echo;

impl Handler for Echo {
    fn introduction(&self) -> Introduction {
        let capabilities = json!({ "tools": {} });
        Introduction { name: "bench-echo", version: "1", capabilities, instructions: None }
    }

    async fn call(self: Arc<Self>, call: Call) -> Reply {
        match call.request.method {
            Method::ToolsCall => Ok(RawJson::trusted(ANSWER)),
            _ => Err(RpcError::of(Reason::MethodNotFound, "Method not found")),
        }
    }
}

/// Starts the runtime over a store.
pub(super) fn start(store: Arc<dyn Store>) -> Sessions {
    let backend = Arc::new(Native::new(|_| Echo));
    // Those that sleep in a large store count as well, and there are more than a server takes by default.
    let limits = Limits { max_sessions: usize::MAX, ..Limits::default() };
    Sessions::start(SessionParts { store, backend, clock: Arc::new(SystemClock), limits, roster: None })
}

/// Opens a session as a client does.
pub(super) async fn open_session(sessions: &Sessions) -> Result<Arc<Session>> {
    let params = Some(RawJson::trusted(material::INITIALIZE));
    let initialize = Request { id: RequestId::from_number(0), method: Method::Initialize, params };
    let created = sessions.create(initialize, &Principal::ANONYMOUS).await.context("open a session")?;
    let session = created.session.context("the server refused `initialize`")?;
    let initialized = Notification { method: Method::Initialized, params: None };
    session.notification(initialized).context("say `notifications/initialized`")?;
    session.saved().await;
    Ok(session)
}

/// Finds a live session and calls its tool: what a POST does once its head and body are read.
pub(super) async fn call(sessions: &Sessions, id: &SessionId, number: u64) -> Result<()> {
    let params = r#"{"name":"public_echo","arguments":{"text":"hello"}}"#;
    let request = Request {
        id: RequestId::from_number(number),
        method: Method::ToolsCall,
        params: Some(RawJson::trusted(params)),
    };
    let session = sessions.find(id, &Principal::ANONYMOUS).await.context("find a live session")?;
    let answer = session.request(request, Caller::anonymous("bench")).await.context("call a tool")?;
    let Answer::Json(body) = answer else { anyhow::bail!("the call was not answered at once: {answer:?}") };
    ensure!(memmem::find(&body, b"hello").is_some(), "the call was not answered with its echo: {body:?}");
    Ok(())
}
