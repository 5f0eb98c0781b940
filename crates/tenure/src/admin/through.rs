//! Asks a server behind as a client would: for its tools, and for a call that an operator tries.
//!
//! The request goes through all layers, with their limits, rules and records. It belongs to no session, and is dropped, and so
//! cancelled, if its time is up.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tenure_protocol::revision::MODERN;
use tenure_protocol::{Eras, Method, RawJson, Request, RequestId, modern};
use tenure_session::call::{Caller, Granted};
use tenure_session::exchange::ExchangeAnswer;
use tenure_session::single_flight::{Attempt, Attempting};
use tenure_session::{Principal, Route};
use tokio::time::Instant;

use super::answers::endpoint;
use super::api::AdminApi;
use super::caller::AdminCaller;
use super::error::AdminError;

/// How long a call may take that an operator tries.
const LONGEST: Duration = Duration::from_secs(60);

/// How long a list of tools may take: a page waits for it.
const LIST_TIME: Duration = Duration::from_secs(5);

/// The most pages of a list of tools.
const MOST_PAGES: usize = 20;

/// How long a list of tools stands for further looks at the same server: each list costs it up to as many calls as there are pages.
const LIST_STANDS: Duration = Duration::from_secs(5);

/// The most tools of a list.
const MOST_TOOLS: usize = 1000;

/// Tools of a server, with their schemas.
#[derive(Debug)]
pub(super) struct ToolList {
    pub(super) tools: Vec<Value>,
    /// Whether it may have more.
    pub(super) is_cut: bool,
}

type Listed = Result<Arc<ToolList>, AdminError>;

/// The lists that were asked for last, one of each server: no more looks at a server are under way than one.
#[derive(Debug, Default)]
pub(super) struct ToolLists(Mutex<HashMap<String, (Instant, Attempt<Listed>)>>);

impl ToolLists {
    /// The list that is under way or stands, or the task of making a new one.
    fn find(&self, backend: &str) -> (Attempt<Listed>, Option<Attempting<Listed>>) {
        let mut lists = self.0.lock();
        if let Some((began, attempt)) = lists.get(backend)
            && began.elapsed() < LIST_STANDS
        {
            return (attempt.clone(), None);
        }
        let (attempting, attempt) = Attempting::begin();
        lists.insert(backend.to_owned(), (Instant::now(), attempt.clone()));
        (attempt, Some(attempting))
    }
}

/// The tools of a server behind that is known. An operator sees all of them, whatever scopes they need.
pub(super) async fn tools(api: &AdminApi, backend: &str) -> Listed {
    let (attempt, attempting) = api.0.tools.find(backend);
    if let Some(attempting) = attempting {
        let (api, backend) = (api.clone(), backend.to_owned());
        api.0.tasks.clone().spawn(async move { attempting.done(list(&api, &backend).await.map(Arc::new)) });
    }
    let lost = || Err(AdminError::failed("The server failed while it listed its tools"));
    attempt.outcome().await.unwrap_or_else(lost)
}

/// Asks for the tools of a server, page by page, until there are enough or the time is up.
async fn list(api: &AdminApi, backend: &str) -> Result<ToolList, AdminError> {
    let caller = Caller { scopes: Granted::Ours, ..Caller::anonymous("admin") };
    let until = Instant::now() + LIST_TIME;
    let (mut tools, mut cursor) = (Vec::new(), None::<String>);
    for _ in 0..MOST_PAGES {
        let params = cursor.map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
        let page = ask(api, backend, &Method::ToolsList, params, caller.clone());
        let mut result = match tokio::time::timeout_at(until, page).await {
            Ok(result) => result?,
            Err(_) if tools.is_empty() => {
                return Err(AdminError::unavailable("The server did not list its tools in time"));
            }
            Err(_) => return Ok(ToolList { tools, is_cut: true }),
        };
        if let Some(Value::Array(page)) = result.get_mut("tools").map(Value::take) {
            tools.extend(page);
        }
        cursor = result["nextCursor"].as_str().map(str::to_owned);
        let has_more = cursor.is_some() || tools.len() > MOST_TOOLS;
        if !has_more || tools.len() >= MOST_TOOLS {
            tools.truncate(MOST_TOOLS);
            return Ok(ToolList { tools, is_cut: has_more });
        }
    }
    Ok(ToolList { tools, is_cut: true })
}

/// Calls a tool. The operator is the caller, without any scope: a tool that needs one is refused as it would be to a client.
pub(super) async fn call(
    api: &AdminApi,
    operator: &AdminCaller,
    backend: &str,
    (tool, arguments): (&str, &Value),
) -> Result<Value, AdminError> {
    let principal = Principal::named(&format!("operator:{}", operator.name));
    let caller = Caller { principal, remote: operator.remote, ..Caller::anonymous("admin") };
    let params = json!({ "name": tool, "arguments": arguments });
    let calling = ask(api, backend, &Method::ToolsCall, params, caller);
    let slow = |_| Err(AdminError::unavailable(format!("The tool gave no answer within {LONGEST:?}")));
    tokio::time::timeout(LONGEST, calling).await.unwrap_or_else(slow)
}

/// The result of a request.
async fn ask(
    api: &AdminApi,
    backend: &str,
    method: &Method,
    mut params: Value,
    caller: Caller,
) -> Result<Value, AdminError> {
    let route: Route = endpoint(api, backend)?;
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "tenure", "version": env!("CARGO_PKG_VERSION") },
    });
    let params = Some(RawJson::of(&params));
    let request = Request { id: RequestId::from_number(1), method: method.clone(), params };
    let checked = modern::check(request, None, Eras::Both)
        .map_err(|error| AdminError::failed(format!("The request cannot be made: {error}")))?;
    let body = match api.0.runtimes.exchanges.on(route).request(checked, caller).await {
        ExchangeAnswer::Json { body, .. } => Some(body),
        ExchangeAnswer::Refused(error) => return Err(AdminError::failed(error.to_string())),
        ExchangeAnswer::Stream(mut flow) => {
            let mut last = None;
            while let Some(message) = flow.next().await {
                last = Some(message);
            }
            last
        }
    };
    let answer: Value = body.and_then(|body| serde_json::from_slice(&body).ok()).unwrap_or_default();
    match answer {
        Value::Object(mut answer) if answer.contains_key("result") => {
            Ok(answer.remove("result").unwrap_or_default())
        }
        answer => {
            let why = answer["error"]["message"].as_str().unwrap_or("it gave no answer");
            Err(AdminError::failed(format!("The server refused: {why}")))
        }
    }
}
