//! A client that does no more than it has to, in either era: one POST at a time, and an answer to every question.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tenure_protocol::modern::header_params::HeaderParams;
use tenure_protocol::modern::{header_value, validate};
use tenure_protocol::revision::MODERN;
use tenure_protocol::{Method, RawJson, Revision};

use crate::scenarios::example;

/// For how long a request may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// In how many rounds a server may ask for more.
const MAX_ROUNDS: usize = 10;

/// What the client speaks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    Legacy,
    Modern,
}

/// A client of one endpoint.
pub(crate) struct Client {
    http: Http<HttpConnector, Full<Bytes>>,
    url: String,
    era: Era,
    session: Option<String>,
    next_id: AtomicU64,
    /// The tools as last listed: they say which arguments stand in headers too.
    tools: Mutex<Vec<Value>>,
}

impl Client {
    /// A client that has introduced itself.
    pub(crate) async fn open(url: &str, era: Era) -> anyhow::Result<Self> {
        let http = Http::builder(TokioExecutor::new()).build_http();
        let (url, next_id) = (url.to_owned(), AtomicU64::new(1));
        let mut client = Self { http, url, era, session: None, next_id, tools: Mutex::default() };
        if era == Era::Modern {
            client.request("server/discover", json!({})).await?;
            return Ok(client);
        }
        let params = json!({
            "protocolVersion": Revision::LATEST.as_str(),
            "capabilities": capabilities(),
            "clientInfo": { "name": "conformance", "version": "1" },
        });
        let id = client.id();
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": "initialize", "params": params });
        let response = client.post(&body, Vec::new()).await?;
        let session = response.headers().get("mcp-session-id");
        client.session = session.and_then(|id| id.to_str().ok()).map(str::to_owned);
        client.answer_in(response, id).await?;
        let body = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        client.post(&body, Vec::new()).await?;
        Ok(client)
    }

    /// The tools that are listed.
    pub(crate) async fn tools(&self) -> anyhow::Result<Vec<Value>> {
        let listed = self.request("tools/list", json!({})).await?;
        let tools = listed["tools"].as_array().context("no list of tools")?.clone();
        self.tools.lock().expect("no holder panics").clone_from(&tools);
        Ok(tools)
    }

    /// Calls a tool, and answers what it asks.
    pub(crate) async fn call(&self, tool: &str, arguments: &Value) -> anyhow::Result<Value> {
        self.request("tools/call", json!({ "name": tool, "arguments": arguments })).await
    }

    /// Makes a request, and answers what the server asks meanwhile.
    pub(crate) async fn request(&self, method: &str, mut params: Value) -> anyhow::Result<Value> {
        for _ in 0..MAX_ROUNDS {
            let id = self.id();
            let headers = self.prepare(method, &mut params);
            let body = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
            let asked = async { self.answer_in(self.post(&body, headers).await?, id).await };
            let answered = tokio::time::timeout(PATIENCE, asked).await.context("no answer in time")?;
            // A client that is told which revisions there are comes back with one of them, and there is only one.
            if answered.as_ref().is_err_and(|error| error.to_string().contains("-32022")) {
                continue;
            }
            let result = answered?;
            if result["resultType"] != "input_required" {
                return Ok(result);
            }
            let questions = result["inputRequests"].as_object().into_iter().flatten();
            let answer = |question: &Value| answer(question["method"].as_str(), &question["params"]);
            let answers: serde_json::Map<_, _> =
                questions.map(|(key, question)| (key.clone(), answer(question))).collect();
            params["inputResponses"] = answers.into();
            params["requestState"] = result["requestState"].clone();
            if result["requestState"].is_null() {
                params.as_object_mut().map(|params| params.remove("requestState"));
            }
        }
        bail!("{method} never ends")
    }

    fn id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// What a request of the modern era says of itself, in its params and in its headers.
    fn prepare(&self, method: &str, params: &mut Value) -> Vec<(String, String)> {
        if self.era == Era::Legacy {
            return vec![("MCP-Protocol-Version".to_owned(), Revision::LATEST.as_str().to_owned())];
        }
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": capabilities(),
            "io.modelcontextprotocol/clientInfo": { "name": "conformance", "version": "1" },
        });
        let mut headers = vec![
            ("MCP-Protocol-Version".to_owned(), MODERN.to_owned()),
            ("Mcp-Method".to_owned(), method.to_owned()),
        ];
        if let Some(name) =
            validate::named_by(&Method::new(method)).and_then(|member| params[member].as_str())
        {
            headers.push(("Mcp-Name".to_owned(), header_value::encode(name).into_owned()));
        }
        let tools = self.tools.lock().expect("no holder panics");
        let tool = tools.iter().find(|tool| method == "tools/call" && tool["name"] == params["name"]);
        let annotated =
            tool.and_then(|tool| HeaderParams::of_tool(&RawJson::of(tool)).ok()).unwrap_or_default();
        let mirrored = annotated.headers_for(Some(&RawJson::of(params)));
        headers.extend(mirrored.into_iter().map(|(name, value)| (name.to_owned(), value)));
        headers
    }

    async fn post(&self, body: &Value, headers: Vec<(String, String)>) -> anyhow::Result<Response<Incoming>> {
        let mut request = Request::post(&self.url)
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream");
        if let Some(session) = &self.session {
            request = request.header("Mcp-Session-Id", session);
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        Ok(self.http.request(request.body(Full::from(body.to_string()))?).await?)
    }

    /// Reads a response to the end of what it answers.
    async fn answer_in(&self, response: Response<Incoming>, id: u64) -> anyhow::Result<Value> {
        let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok());
        if !kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
            let body = response.into_body().collect().await?.to_bytes();
            return result_of(serde_json::from_slice(&body).context("the answer is no JSON")?);
        }
        let mut events = Events { body: response.into_body(), read: Vec::new() };
        while let Some(message) = events.next().await? {
            if message["id"] == id && message.get("method").is_none() {
                return result_of(message);
            }
            self.hear(&message).await?;
        }
        bail!("the stream ended without an answer")
    }

    /// The stream for what belongs to no request, where there is one.
    pub(crate) async fn stream(&self) -> anyhow::Result<Option<Events>> {
        let Some(session) = &self.session else { return Ok(None) };
        let request = Request::get(&self.url)
            .header("Accept", "text/event-stream")
            .header("MCP-Protocol-Version", Revision::LATEST.as_str())
            .header("Mcp-Session-Id", session);
        let response = self.http.request(request.body(Full::default())?).await?;
        Ok(Some(Events { body: response.into_body(), read: Vec::new() }))
    }

    /// Answers what comes on a stream, until it ends.
    pub(crate) async fn listen(&self, events: Option<Events>) -> anyhow::Result<()> {
        let Some(mut events) = events else { return std::future::pending().await };
        while let Some(message) = events.next().await? {
            self.hear(&message).await?;
        }
        bail!("the stream of the session ended")
    }

    /// Answers a question; anything else that comes along is only that.
    async fn hear(&self, message: &Value) -> anyhow::Result<()> {
        let (Some(id), Some(method)) = (message.get("id"), message["method"].as_str()) else { return Ok(()) };
        let body = json!({ "jsonrpc": "2.0", "id": id, "result": answer(Some(method), &message["params"]) });
        let version = ("MCP-Protocol-Version".to_owned(), Revision::LATEST.as_str().to_owned());
        self.post(&body, vec![version]).await?;
        Ok(())
    }
}

/// The messages on a stream.
pub(crate) struct Events {
    body: Incoming,
    read: Vec<u8>,
}

impl Events {
    async fn next(&mut self) -> anyhow::Result<Option<Value>> {
        loop {
            while let Some(end) = self.read.windows(2).position(|pair| pair == b"\n\n") {
                let event: Vec<u8> = self.read.drain(..end + 2).collect();
                if let Some(message) = message_in(&String::from_utf8_lossy(&event)) {
                    return Ok(Some(message));
                }
            }
            match self.body.frame().await {
                Some(frame) => self.read.extend_from_slice(&frame?.into_data().unwrap_or_default()),
                None => return Ok(None),
            }
        }
    }
}

fn capabilities() -> Value {
    json!({ "elicitation": {}, "sampling": {}, "roots": {} })
}

/// The client's answer to a question: whatever the form has for defaults, and something for the rest.
fn answer(method: Option<&str>, params: &Value) -> Value {
    match method {
        Some("elicitation/create") => {
            json!({ "action": "accept", "content": example(&params["requestedSchema"]) })
        }
        Some("sampling/createMessage") => {
            json!({ "role": "assistant", "model": "none", "content": { "type": "text", "text": "something" } })
        }
        Some("roots/list") => json!({ "roots": [] }),
        _ => json!({}),
    }
}

/// The message in an event, if it carries one.
fn message_in(event: &str) -> Option<Value> {
    let data: String =
        event.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim_start).collect();
    serde_json::from_str(&data).ok()
}

fn result_of(mut response: Value) -> anyhow::Result<Value> {
    match response.get_mut("result") {
        Some(result) => Ok(result.take()),
        None => bail!("{}", response["error"]),
    }
}
