//! Two principals on one node: whatever one of them asks about what is the other's, it gets the bytes that it gets about
//! what never was.
//!
//! Requests are generated: verbs, doors, eras, ids and headers in every combination that a seed leads to. A failure prints the
//! seed; `TENURE_TEST_SEED` runs it again.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::world::{Bearing, World};
use crate::support::client::Ask;
use crate::support::modern;
use crate::support::session::{Session, request};

const PAIRS: usize = 500;

/// xorshift: all that matters is that a seed gives the same requests again.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn new() -> Self {
        let seed = std::env::var("TENURE_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        Self(seed.unwrap_or_else(|| u64::try_from(time.as_nanos() & u128::from(u64::MAX)).unwrap()) | 1)
    }

    pub(super) fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(super) fn of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[usize::try_from(self.roll() % all.len() as u64).unwrap()]
    }

    /// An id of the same form that never was: other hexadecimal digits, or other letters behind the last underscore.
    pub(super) fn unlike(&mut self, id: &str) -> String {
        let is_hex =
            |at: usize| id.get(at..at + 32).is_some_and(|part| part.bytes().all(|b| b.is_ascii_hexdigit()));
        if let Some(at) = (0..id.len()).find(|at| is_hex(*at)) {
            let mut digits = String::new();
            while digits.len() < 32 {
                let _ = write!(digits, "{:x}", self.roll() & 15);
            }
            return format!("{}{digits}{}", &id[..at], &id[at + 32..]);
        }
        let (kind, bits) = id.split_once('_').unwrap_or(("", id));
        let letters: Vec<&str> = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
            .split("")
            .filter(|l| !l.is_empty())
            .collect();
        // The last letters stand for fewer bits than they could.
        let kept = &bits[bits.len() - 2..];
        let fresh: String = (0..bits.len() - 2).map(|_| self.of(&letters)).collect();
        if kind.is_empty() { format!("{fresh}{kept}") } else { format!("{kind}_{fresh}{kept}") }
    }
}

/// What alice has, by the ids that she alone may know.
struct Belongings {
    session: Session,
    event: String,
    handle: String,
    cookie: String,
    task: String,
    state: String,
    call: String,
    post: String,
    door: String,
}

/// A request about one of them, with this id in its place.
pub(super) type Question = Box<dyn Fn(&str) -> Ask>;

/// Params of a client that can show forms and knows tasks, with more in `_meta`.
pub(super) fn knowing(params: &Value, more: &Value) -> Value {
    let mut params = modern::with_meta(params);
    let known = params["_meta"]["io.modelcontextprotocol/clientCapabilities"].as_object_mut().unwrap();
    known.insert("elicitation".to_owned(), json!({ "form": {} }));
    known["extensions"]["io.modelcontextprotocol/tasks"] = json!({});
    for (name, value) in more.as_object().unwrap() {
        params["_meta"][name] = value.clone();
    }
    params
}

pub(super) fn modern_ask(id: u64, method: &str, params: &Value) -> Ask {
    let body = request(id, method, params).to_string();
    let ask = Ask::post(body).header("MCP-Protocol-Version", "2026-07-28").header("Mcp-Method", method);
    let ask = match params["name"].as_str().or(params["taskId"].as_str()) {
        Some(name) => ask.header("Mcp-Name", name),
        None => ask,
    };
    match params["arguments"]["workspace_id"].as_str() {
        Some(handle) => ask.header("Mcp-Param-Workspace-Id", handle),
        None => ask,
    }
}

impl Belongings {
    async fn of(world: &World, alice: &str) -> (Self, crate::support::events::Events) {
        let session = world.session(alice).await;
        let send = |ask: Ask| world.send(ask.bearer(alice));
        let create = json!({ "name": "create_workspace", "arguments": {} });
        let made = send(session.request(2, "tools/call", &create)).await.json();
        let handle = made["result"]["structuredContent"]["workspace_id"].as_str().unwrap().to_owned();
        let count = json!({ "name": "long_task", "arguments": { "seconds": 1, "interval_ms": 5 }, "_meta": { "progressToken": 1 } });
        let mut stream = session.request(3, "tools/call", &count).bearer(alice).open(world.address()).await;
        stream.rest().await;
        let made =
            send(modern_ask(4, "dev.tenure/session/create", &knowing(&json!({}), &json!({})))).await.json();
        let cookie = made["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
        let long = json!({ "name": "long_task", "arguments": { "seconds": 3600, "interval_ms": 500 } });
        let grown = modern_ask(5, "tools/call", &knowing(&long, &json!({})))
            .without("Accept")
            .header("Accept", "application/json");
        let grown = send(grown).await.json();
        let task = grown["result"]["taskId"].as_str().unwrap_or_else(|| panic!("{grown}")).to_owned();
        let asked = send(modern_ask(
            6,
            "tools/call",
            &knowing(&json!({ "name": "ask_name", "arguments": {} }), &json!({})),
        ))
        .await
        .json();
        let state = asked["result"]["requestState"].as_str().unwrap_or_else(|| panic!("{asked}")).to_owned();
        let listen = json!({ "notifications": { "resourceSubscriptions": ["demo://visitors"] } });
        let mut listening =
            modern::ask(7, "subscriptions/listen", &listen).bearer(alice).open(world.address()).await;
        listening.message().await.expect("an acknowledgement");
        let call = listening.last_id();
        let mut sse = Ask::new("GET", "/sse")
            .header("Accept", "text/event-stream")
            .bearer(alice)
            .open(world.address())
            .await;
        let post = sse.event().await.unwrap().data.unwrap().split_once('=').unwrap().1.to_owned();
        let door = sse.header("mcp-session-id").unwrap().to_owned();
        // Both streams stay open as long as the test runs.
        std::mem::forget(sse);
        (Self { event: stream.last_id(), session, handle, cookie, task, state, call, post, door }, listening)
    }

    /// Something that bob asks, and the id of alice's that it is about.
    fn question(&self, dice: &mut Dice, of_bob: &Session) -> (String, Question) {
        let version = dice.of(&["", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28", "1999-01-01"]);
        let number = dice.roll() % 1_000_000 + 10;
        let door = dice.of(&["/mcp", "/rpc", "/sse"]);
        let event = dice.of(&[self.event.as_str(), "1-1-00000000", "0", "not an id"]).to_owned();
        let versioned = move |ask: Ask| {
            if version.is_empty() { ask } else { ask.header("MCP-Protocol-Version", version) }
        };
        let session = self.session.clone();
        let named = move |id: &str| Session { id: id.to_owned(), ..session.clone() };
        let handle = self.handle.clone();
        let tool =
            dice.of(&["session_counter_get", "session_counter_inc", "notebook_read", "notebook_append"]);
        let message = match dice.roll() % 9 {
            0 => request(number, "ping", &json!({})),
            1 => request(number, "tools/list", &json!({})),
            2 => request(
                number,
                "tools/call",
                &json!({ "name": tool, "arguments": { "workspace_id": handle, "text": "x" } }),
            ),
            3 => request(number, "resources/subscribe", &json!({ "uri": "demo://visitors" })),
            4 => request(number, "logging/setLevel", &json!({ "level": "debug" })),
            5 => {
                json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 3 } })
            }
            6 => json!({ "jsonrpc": "2.0", "id": 1, "result": {} }),
            7 => json!([request(number, "ping", &json!({}))]),
            _ => request(number, "initialize", &crate::support::session::initialize_params("2025-11-25")),
        };
        let of_bob = of_bob.clone();
        match dice.roll() % 16 {
            0..4 => {
                (self.session.id.clone(), Box::new(move |id| versioned(named(id).post(&message)).at(door)))
            }
            4 => {
                let door = dice.of(&["/mcp", "/sse", "/mcp/sse"]);
                let resumes = dice.roll().is_multiple_of(2);
                let question = move |id: &str| {
                    let ask = versioned(named(id).get()).at(door);
                    if resumes { ask.header("Last-Event-ID", &event) } else { ask }
                };
                (self.session.id.clone(), Box::new(question))
            }
            5 => (self.session.id.clone(), Box::new(move |id| versioned(named(id).delete()))),
            6 => {
                let id = dice.of(&[self.session.id.as_str(), self.door.as_str()]).to_owned();
                let question = |id: &str| {
                    Ask::new("GET", "/ws")
                        .header("Mcp-Session-Id", id)
                        .header("Connection", "upgrade")
                        .header("Upgrade", "websocket")
                        .header("Sec-WebSocket-Version", "13")
                        .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
                };
                (id, Box::new(question))
            }
            7 => {
                let question = move |id: &str| {
                    Ask::post_to(&format!("/messages?sessionId={id}"), &message.to_string()).without("Accept")
                };
                (self.post.clone(), Box::new(question))
            }
            8 => {
                let cursor = dice.of(&["0", "1-1", "0-0_1-2"]);
                let question = move |id: &str| {
                    let ask = Ask::new("GET", "/sse").header("Accept", "text/event-stream");
                    ask.header("Last-Event-ID", &format!("{id}.{cursor}")).header("Mcp-Session-Id", id)
                };
                (self.door.clone(), Box::new(question))
            }
            9 => {
                let question = move |id: &str| {
                    let arguments = json!({ "workspace_id": id, "text": "x" });
                    of_bob.request(number, "tools/call", &json!({ "name": tool, "arguments": arguments }))
                };
                (self.handle.clone(), Box::new(question))
            }
            10 => {
                let question = move |id: &str| {
                    let params = json!({ "name": tool, "arguments": { "workspace_id": id, "text": "x" } });
                    modern_ask(number, "tools/call", &knowing(&params, &json!({})))
                };
                (self.handle.clone(), Box::new(question))
            }
            11 => {
                let question = move |id: &str| {
                    let meta = json!({ "dev.tenure/session": { "sessionId": id } });
                    let params = json!({ "name": tool, "arguments": { "text": "x" } });
                    modern_ask(number, "tools/call", &knowing(&params, &meta))
                };
                (self.cookie.clone(), Box::new(question))
            }
            12 => {
                let verb = dice.of(&["resume", "fork", "delete", "recover"]);
                let method = format!("dev.tenure/session/{verb}");
                let question = move |id: &str| {
                    modern_ask(number, &method, &knowing(&json!({ "sessionId": id }), &json!({})))
                };
                (self.cookie.clone(), Box::new(question))
            }
            13 => {
                let method = dice.of(&["tasks/get", "tasks/cancel", "tasks/update", "tasks/result"]);
                let question = move |id: &str| {
                    let params = json!({ "taskId": id, "inputResponses": {} });
                    modern_ask(number, method, &knowing(&params, &json!({})))
                };
                (self.task.clone(), Box::new(question))
            }
            14 => {
                let question = move |id: &str| {
                    let params = json!({ "name": "ask_name", "arguments": {}, "requestState": id, "inputResponses": {} });
                    modern_ask(number, "tools/call", &knowing(&params, &json!({})))
                };
                (self.state.clone(), Box::new(question))
            }
            _ => {
                let question = |id: &str| {
                    let ask = Ask::new("GET", "/mcp").header("Accept", "text/event-stream");
                    ask.header("Last-Event-ID", id).header("MCP-Protocol-Version", "2026-07-28")
                };
                (self.call.clone(), Box::new(question))
            }
        }
    }
}

/// An answer without the id that it repeats, the time to wait that is spread by that id, and the second in which it was given.
pub(super) fn words(answer: &crate::support::client::Response, id: &str) -> String {
    let head = format!("{answer:?}");
    let head = head.split("body: [").next().unwrap_or_default();
    let head = match head.split_once("date: ") {
        Some((before, after)) => {
            format!("{before}{}", after.split_once(" GMT").map_or(after, |(_, rest)| rest))
        }
        None => head.to_owned(),
    };
    let text = format!("{head}\n{}", String::from_utf8_lossy(&answer.body)).replace(id, "ID");
    text.lines().filter(|line| !line.starts_with("retry:")).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn whatever_bob_asks_about_alices_things_is_answered_as_if_they_never_were() {
    let sections = "[tasks]\nafter = \"150ms\"\n[doors]\nsse = true\nrpc = true\npost_sse = true\nmcp_sse = true\nwebsocket = true\n";
    let world = World::with_settings(sections, &[("data_sessions.offer", "always")]).await;
    let (alice, bob) = (world.token("alice"), world.token("bob"));
    let (hers, mut listening) = Belongings::of(&world, &alice).await;
    let of_bob = world.session(&bob).await;
    let list = |token: &str| {
        let ask = modern_ask(1, "dev.tenure/session/list", &knowing(&json!({}), &json!({}))).bearer(token);
        world.send(ask)
    };
    let (her_list, his_list) = (list(&alice).await.text(), list(&bob).await.text());
    assert!(her_list.contains(&hers.cookie) && !his_list.contains("sess-"), "{her_list} {his_list}");
    let mut dice = Dice::new();
    let seed = dice.0;
    for pair in 0..PAIRS {
        let (id, question) = hers.question(&mut dice, &of_bob);
        let never = dice.unlike(&id);
        let what = String::from_utf8_lossy(&question(&id).bytes()).into_owned();
        let foreign = words(&world.send(question(&id).bearer(&bob)).await, &id);
        let unknown = words(&world.send(question(&never).bearer(&bob)).await, &never);
        assert_eq!(foreign, unknown, "seed {seed}, pair {pair}: {what}");
    }
    // Bob has got nothing, and alice has all that she had.
    assert_eq!(list(&bob).await.text(), his_list, "seed {seed}");
    assert_eq!(list(&alice).await.text(), her_list, "seed {seed}");
    let ping = hers.session.request(9, "ping", &json!({}));
    assert_eq!(world.send(ping.bearer(&alice)).await.status(), 200, "seed {seed}");
    let count = json!({ "name": "session_counter_get", "arguments": { "workspace_id": hers.handle } });
    let count = world.send(hers.session.request(10, "tools/call", &count).bearer(&alice)).await.json();
    assert_eq!(count["result"]["structuredContent"]["counter"], 0, "seed {seed}: {count}");
    let params = knowing(&json!({ "taskId": hers.task }), &json!({}));
    let task = world.send(modern_ask(11, "tasks/get", &params).bearer(&alice)).await.json();
    assert_eq!(task["result"]["status"], "working", "seed {seed}: {task}");
    let answers = json!({ "name": "ask_name", "arguments": {}, "requestState": hers.state });
    let again =
        world.send(modern_ask(12, "tools/call", &knowing(&answers, &json!({}))).bearer(&alice)).await.json();
    assert_eq!(again["result"]["resultType"], "input_required", "seed {seed}: it waits for her: {again}");
    // Others visit the demo too, and her listen tells her so.
    while let Ok(news) = tokio::time::timeout(std::time::Duration::from_millis(50), listening.message()).await
    {
        assert!(news.is_some(), "seed {seed}: her listen goes on");
    }
}
