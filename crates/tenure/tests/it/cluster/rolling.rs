//! All nodes are replaced, one after another, while clients of every kind go on: none of them notices.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tenure_testkit::sse::{Parser, SseItem};
use tenure_testkit::wire::{Ask, HttpConnection};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::world::Shared;
use crate::support::modern;
use crate::support::session::{initialize, notification, request};
use crate::support::wait::within;

/// How long a load balancer takes to notice that a node stops.
const NOTICED: Duration = Duration::from_millis(100);

/// How long clients work before and after each node that is replaced.
const BETWEEN: Duration = Duration::from_millis(400);

/// Sends each request to another node, on a connection of its own, as a load balancer does that knows nothing of sessions.
#[derive(Default)]
struct Balancer {
    nodes: Mutex<Vec<SocketAddr>>,
    next: AtomicUsize,
    is_over: AtomicBool,
    answered: AtomicUsize,
}

/// An answer: its messages, and what its client may come back with.
#[derive(Debug, Default)]
struct Got {
    status: u16,
    session: Option<String>,
    messages: Vec<Value>,
    last_id: Option<String>,
}

impl Balancer {
    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::SeqCst)
    }

    /// Passes over nodes that refuse connections.
    async fn connect(&self) -> HttpConnection<TcpStream> {
        loop {
            let address = {
                let nodes = self.nodes.lock().unwrap();
                nodes[self.next.fetch_add(1, Ordering::SeqCst) % nodes.len()]
            };
            if let Ok(connection) = HttpConnection::open(address, 8 << 10).await {
                return connection;
            }
        }
    }

    async fn send(&self, ask: &Ask) -> Result<Got, String> {
        self.exchange(ask)
            .await
            .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&ask.bytes())))
    }

    async fn exchange(&self, ask: &Ask) -> std::io::Result<Got> {
        let mut connection = self.connect().await;
        connection.send(&ask.bytes()).await?;
        let head = connection.head().await?;
        let session = head.header("mcp-session-id").map(str::to_owned);
        let mut got = Got { status: head.status, session, ..Got::default() };
        if !head.is_event_stream() {
            let body = connection.body().await?;
            got.messages.extend(serde_json::from_slice::<Value>(body).ok());
            return Ok(got);
        }
        let mut parser = Parser::default();
        while let Some(piece) = connection.piece().await? {
            parser.feed(piece);
            for item in parser.by_ref() {
                let Ok(SseItem::Event(event)) = item else { continue };
                got.last_id = event.id.or(got.last_id);
                let data = event.data.as_deref().filter(|data| !data.is_empty());
                got.messages.extend(data.map(|data| serde_json::from_str::<Value>(data).expect("JSON")));
            }
        }
        Ok(got)
    }

    /// The answers to requests, for which their client comes back as often as it is told to.
    async fn answers(
        &self,
        ask: &Ask,
        resume: impl Fn(&str) -> Ask,
        ids: &[u64],
    ) -> Result<Vec<Value>, String> {
        let mut got = self.send(ask).await?;
        loop {
            let answer = |id: &u64| got.messages.iter().find(|message| message["id"] == *id).cloned();
            let answers: Vec<Value> = ids.iter().filter_map(answer).collect();
            let is_fault =
                |answer: &Value| answer.get("error").is_some() || answer["result"]["isError"] == true;
            if got.status != 200 || answers.iter().any(is_fault) {
                return Err(format!("{got:?}"));
            }
            if answers.len() == ids.len() {
                self.answered.fetch_add(ids.len(), Ordering::SeqCst);
                return Ok(answers);
            }
            let Some(last) = got.last_id.clone() else {
                return Err(format!("no answer, and nothing to come back with: {got:?}"));
            };
            let rest = self.send(&resume(&last)).await?;
            got.status = rest.status;
            got.messages.extend(rest.messages);
            got.last_id = rest.last_id.or(Some(last));
        }
    }

    async fn answer(&self, ask: &Ask, resume: impl Fn(&str) -> Ask, id: u64) -> Result<Value, String> {
        Ok(self.answers(ask, resume, &[id]).await?.remove(0))
    }

    /// Calls a tool in a session.
    async fn call(&self, id: &str, number: u64, tool: &str, arguments: &Value) -> Result<Value, String> {
        let call = request(number, "tools/call", &json!({ "name": tool, "arguments": arguments }));
        self.answer(&of_session(id, &call), |last| get(id, Some(last)), number).await
    }

    async fn session(&self, revision: &str) -> Result<String, String> {
        let got = self.send(&initialize(revision)).await?;
        let id = got.session.clone().ok_or_else(|| format!("no session: {got:?}"))?;
        let said = self.send(&of_session(&id, &notification("notifications/initialized"))).await?;
        match said.status {
            202 => Ok(id),
            _ => Err(format!("{said:?}")),
        }
    }
}

fn of_session(id: &str, message: &Value) -> Ask {
    Ask::post(message.to_string()).header("Mcp-Session-Id", id)
}

fn get(id: &str, after: Option<&str>) -> Ask {
    Ask::get().header("Mcp-Session-Id", id).header_if("Last-Event-ID", after)
}

/// Counts in its session, in streams and without. A call that ran twice or not at all is seen in the count.
async fn counts(balancer: Arc<Balancer>) -> Result<(), String> {
    let id = balancer.session("2025-11-25").await?;
    let made = balancer.call(&id, 1, "create_workspace", &json!({})).await?;
    let workspace = &made["result"]["structuredContent"]["workspace_id"];
    for count in 1.. {
        if !balancer.goes_on() {
            break;
        }
        let counter = json!({ "workspace_id": workspace });
        let counted = balancer.call(&id, count * 2, "session_counter_inc", &counter).await?;
        if counted["result"]["structuredContent"]["counter"] != count {
            return Err(format!("{count}: {counted}"));
        }
        let slowly = json!({ "to": 3, "interval_ms": 30, "tag": "t" });
        balancer.call(&id, count * 2 + 1, "count_slowly", &slowly).await?;
    }
    Ok(())
}

/// Sends batches, in which one request is not safe to repeat.
async fn sends_batches(balancer: Arc<Balancer>) -> Result<(), String> {
    let id = balancer.session("2025-03-26").await?;
    let count = json!({ "name": "count_slowly", "arguments": { "to": 2, "interval_ms": 40, "tag": "b" } });
    while balancer.goes_on() {
        let batch = json!([request(1, "ping", &json!({})), request(2, "tools/call", &count)]);
        balancer.answers(&of_session(&id, &batch), |last| get(&id, Some(last)), &[1, 2]).await?;
    }
    Ok(())
}

/// Listens, comes back whenever it is told to, and begins and ends sessions meanwhile.
async fn listens(balancer: Arc<Balancer>) -> Result<(), String> {
    let mut after = None;
    let id = balancer.session("2025-11-25").await?;
    while balancer.goes_on() {
        let ask = get(&id, after.as_deref());
        let stream = balancer.send(&ask);
        // Nothing is said here: the stream ends with its node, or with the test.
        let Ok(got) = tokio::time::timeout(BETWEEN, stream).await else { continue };
        let got = got?;
        if got.status != 200 {
            return Err(format!("{got:?}"));
        }
        after = got.last_id.or(after);
        let other = balancer.session("2025-06-18").await?;
        let ended = balancer.send(&Ask::new("DELETE", "/mcp").header("Mcp-Session-Id", &other)).await?;
        if ended.status != 204 {
            return Err(format!("{ended:?}"));
        }
    }
    Ok(())
}

/// Calls of the modern era, safe to repeat and not.
async fn calls_without_session(balancer: Arc<Balancer>) -> Result<(), String> {
    let resume = |last: &str| Ask::get().header("Last-Event-ID", last);
    while balancer.goes_on() {
        for (tool, arguments) in [
            ("public_echo", json!({ "text": "hello" })),
            ("count_slowly", json!({ "to": 3, "interval_ms": 40, "tag": "m" })),
            ("long_task", json!({ "seconds": 3, "interval_ms": 40 })),
        ] {
            let params = json!({
                "name": tool, "arguments": arguments,
                "_meta": { "progressToken": 1, "io.modelcontextprotocol/logLevel": "info" },
            });
            let mut answer = balancer.answer(&modern::ask(1, "tools/call", &params), resume, 1).await?;
            // A node that stops sends its client to another one, with the same request.
            while answer["result"]["resultType"] == "input_required" {
                let mut again = params.clone();
                again["requestState"] = answer["result"]["requestState"].clone();
                answer = balancer.answer(&modern::ask(1, "tools/call", &again), resume, 1).await?;
            }
            if !answer["result"]["content"].is_array() {
                return Err(format!("{answer}"));
            }
        }
    }
    Ok(())
}

// B20, B21, B22, B32
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_client_notices_that_all_nodes_are_replaced() {
    let shared = Shared::new(&[("shutdown.grace", "5s"), ("exchanges.stream_after", "10ms")]);
    let mut running = Vec::new();
    for _ in 0..3 {
        running.push(shared.demo().await);
    }
    let balancer = Arc::new(Balancer::default());
    let nodes = running.iter().map(tenure::Node::address).collect();
    *balancer.nodes.lock().unwrap() = nodes;
    let mut clients = JoinSet::new();
    for _ in 0..2 {
        clients.spawn(counts(Arc::clone(&balancer)));
        clients.spawn(sends_batches(Arc::clone(&balancer)));
        clients.spawn(listens(Arc::clone(&balancer)));
        clients.spawn(calls_without_session(Arc::clone(&balancer)));
    }
    tokio::time::sleep(BETWEEN).await;
    for _ in 0..3 {
        let leaving = running.remove(0);
        let address = leaving.address();
        let stopping = tokio::spawn(leaving.stop());
        // Until it is noticed, requests still come to the node.
        tokio::time::sleep(NOTICED).await;
        balancer.nodes.lock().unwrap().retain(|node| *node != address);
        within("the stop", stopping).await.unwrap();
        let next = shared.demo().await;
        balancer.nodes.lock().unwrap().push(next.address());
        running.push(next);
        tokio::time::sleep(BETWEEN).await;
    }
    balancer.is_over.store(true, Ordering::SeqCst);
    while let Some(client) = within("the clients", clients.join_next()).await {
        client.unwrap().unwrap();
    }
    let answered = balancer.answered.load(Ordering::SeqCst);
    assert!(answered > 50, "{answered}");
}
