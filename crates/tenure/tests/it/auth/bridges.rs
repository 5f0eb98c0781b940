//! Two principals in front of one server behind, which takes both for one caller: whatever one of them asks about what is the
//! other's, it gets the bytes that it gets about what never was.
//!
//! A gateway in front of a server of sessions, and of one of 2026-07-28, each with clients of both eras. Requests are generated as in
//! `strangers`.

use serde_json::{Value, json};
use tenure::Node;

use super::strangers::{Dice, Question, knowing, modern_ask, words};
use super::world::{Bearing, World};
use crate::support::client::Ask;
use crate::support::events::Events;
use crate::support::modern;
use crate::support::node::demo_with;
use crate::support::session::{Session, request};

const PAIRS: usize = 200;

/// Who keeps the tasks of calls that take long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TasksAt {
    Gateway,
    Server,
}

struct Bridged {
    world: World,
    _behind: Node,
}

impl Bridged {
    async fn before(era: &str, tasks: TasksAt) -> Self {
        let (here, there) = match tasks {
            TasksAt::Gateway => ("150ms", "infinity"),
            TasksAt::Server => ("infinity", "150ms"),
        };
        let behind = demo_with(&[("data_sessions.offer", "never"), ("tasks.after", there)]).await;
        let sections = format!(
            "[tasks]\nafter = \"{here}\"\n[exchanges]\nstream_after = \"1h\"\n\
             [doors]\nsse = true\nrpc = true\npost_sse = true\nmcp_sse = true\nwebsocket = true\n\
             [upstream]\nurl = \"http://{}/mcp\"\nera = \"{era}\"\npatience = \"0s\"\n",
            behind.address()
        );
        let world = World::with_settings(&sections, &[("data_sessions.offer", "always")]).await;
        Self { world, _behind: behind }
    }
}

/// What alice has through the gateway, by the ids that she alone may know.
struct Belongings {
    session: Session,
    event: String,
    cookie: String,
    task: String,
    state: String,
    call: String,
    calling: Events,
    listening: Events,
}

fn long() -> Value {
    json!({ "name": "long_task", "arguments": { "seconds": 3600, "interval_ms": 500 } })
}

fn ask_name() -> Value {
    json!({ "name": "ask_name", "arguments": {} })
}

impl Belongings {
    async fn of(world: &World, alice: &str) -> Self {
        let session = world.session(alice).await;
        let send = |ask: Ask| world.send(ask.bearer(alice));
        let count = json!({ "name": "long_task", "arguments": { "seconds": 1, "interval_ms": 5 }, "_meta": { "progressToken": 1 } });
        let mut stream = session.request(3, "tools/call", &count).bearer(alice).open(world.address()).await;
        stream.rest().await;
        let made = send(modern_ask(4, "dev.tenure/session/create", &knowing(&json!({}), &json!({})))).await;
        let made = made.json();
        let cookie = made["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
        let grown = modern_ask(5, "tools/call", &knowing(&long(), &json!({})))
            .without("Accept")
            .header("Accept", "application/json");
        let grown = send(grown).await.json();
        let task = grown["result"]["taskId"].as_str().unwrap_or_else(|| panic!("{grown}")).to_owned();
        let asked = send(modern_ask(6, "tools/call", &knowing(&ask_name(), &json!({})))).await.json();
        let state = asked["result"]["requestState"].as_str().unwrap_or_else(|| panic!("{asked}")).to_owned();
        let listen = json!({ "notifications": { "resourceSubscriptions": ["demo://visitors"] } });
        let mut listening =
            modern::ask(7, "subscriptions/listen", &listen).bearer(alice).open(world.address()).await;
        listening.message().await.expect("an acknowledgement");
        let noisy =
            json!({ "name": "long_task", "arguments": { "seconds": 3600 }, "_meta": { "progressToken": 2 } });
        let mut calling = modern::ask(8, "tools/call", &noisy).bearer(alice).open(world.address()).await;
        calling.message().await.expect("progress");
        let (event, call) = (stream.last_id(), calling.last_id());
        Self { event, session, cookie, task, state, call, calling, listening }
    }

    /// Something that bob asks, and the id of alice's that it is about.
    fn question(&self, dice: &mut Dice, of_bob: &Session) -> (String, Question) {
        let number = dice.roll() % 1_000_000 + 10;
        let of_bob = of_bob.clone();
        let modern = move |method: &str, params: &Value| modern_ask(number, method, params);
        match dice.roll() % 12 {
            0..3 => {
                let door = dice.of(&["/mcp", "/rpc", "/sse"]);
                let message = match dice.roll() % 4 {
                    0 => request(number, "tools/call", &ask_name()),
                    1 => request(number, "resources/subscribe", &json!({ "uri": "demo://visitors" })),
                    2 => {
                        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 3 } })
                    }
                    _ => request(number, "tools/list", &json!({})),
                };
                let session = self.session.clone();
                let named = move |id: &str| Session { id: id.to_owned(), ..session.clone() };
                (self.session.id.clone(), Box::new(move |id| named(id).post(&message).at(door)))
            }
            3 => {
                let (session, event) = (self.session.clone(), self.event.clone());
                let named = move |id: &str| Session { id: id.to_owned(), ..session.clone() };
                let question = move |id: &str| named(id).get().header("Last-Event-ID", &event);
                (self.session.id.clone(), Box::new(question))
            }
            // In a session of his own.
            4 => {
                let method =
                    dice.of(&["session/resume", "session/fork", "session/delete", "session/recover"]);
                let question =
                    move |id: &str| of_bob.request(number, method, &json!({ "sessionId": id, "id": id }));
                (self.cookie.clone(), Box::new(question))
            }
            5 => {
                let cookies: [fn(&str) -> Value; 2] = [
                    |id| json!({ "mcp/session": { "id": id } }),
                    |id| json!({ "io.modelcontextprotocol/session": { "sessionId": id } }),
                ];
                let cookie = cookies[usize::from(dice.roll().is_multiple_of(2))];
                let question = move |id: &str| {
                    let arguments = json!({ "text": "x" });
                    let params =
                        json!({ "name": "public_echo", "arguments": arguments, "_meta": cookie(id) });
                    of_bob.request(number, "tools/call", &params)
                };
                (self.cookie.clone(), Box::new(question))
            }
            6 => {
                let method = dice.of(&["tasks/get", "tasks/cancel", "tasks/result", "tasks/list"]);
                let question = move |id: &str| of_bob.request(number, method, &json!({ "taskId": id }));
                (self.task.clone(), Box::new(question))
            }
            // Without one.
            7 => {
                let verb = dice.of(&["resume", "fork", "delete", "recover"]);
                let method = format!("dev.tenure/session/{verb}");
                let question =
                    move |id: &str| modern(&method, &knowing(&json!({ "sessionId": id }), &json!({})));
                (self.cookie.clone(), Box::new(question))
            }
            8 => {
                let question = move |id: &str| {
                    let meta = json!({ "dev.tenure/session": { "sessionId": id } });
                    let params = json!({ "name": "public_echo", "arguments": { "text": "x" } });
                    modern("tools/call", &knowing(&params, &meta))
                };
                (self.cookie.clone(), Box::new(question))
            }
            9 => {
                let method = dice.of(&["tasks/get", "tasks/cancel", "tasks/update", "tasks/result"]);
                let question = move |id: &str| {
                    let params = json!({ "taskId": id, "inputResponses": {} });
                    modern(method, &knowing(&params, &json!({})))
                };
                (self.task.clone(), Box::new(question))
            }
            10 => {
                let answers = match dice.roll() % 2 {
                    0 => json!({}),
                    _ => json!({ "q1": { "action": "accept", "content": { "name": "Bob" } } }),
                };
                let question = move |id: &str| {
                    let mut params = ask_name();
                    params["requestState"] = json!(id);
                    params["inputResponses"] = answers.clone();
                    modern("tools/call", &knowing(&params, &json!({})))
                };
                (self.state.clone(), Box::new(question))
            }
            _ => {
                let id = dice.of(&[self.call.as_str(), &self.listening.last_id()]).to_owned();
                let question = |id: &str| {
                    let ask = Ask::new("GET", "/mcp").header("Accept", "text/event-stream");
                    ask.header("Last-Event-ID", id).header("MCP-Protocol-Version", "2026-07-28")
                };
                (id, Box::new(question))
            }
        }
    }

    /// Alice has all that she had.
    async fn are_whole(mut self, world: &World, alice: &str, seed: u64) {
        let send = |ask: Ask| world.send(ask.bearer(alice));
        let ping = send(self.session.request(9, "ping", &json!({}))).await;
        assert_eq!(ping.status(), 200, "seed {seed}");
        let params = knowing(&json!({ "taskId": self.task }), &json!({}));
        let task = send(modern_ask(11, "tasks/get", &params)).await.json();
        assert_eq!(task["result"]["status"], "working", "seed {seed}: {task}");
        assert_eq!(task["result"]["taskId"], self.task, "seed {seed}: {task}");
        let mut params = ask_name();
        params["requestState"] = json!(self.state);
        let again = send(modern_ask(12, "tools/call", &knowing(&params, &json!({})))).await.json();
        assert_eq!(again["result"]["resultType"], "input_required", "seed {seed}: it waits for her: {again}");
        let key = again["result"]["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
        params["requestState"] = again["result"]["requestState"].clone();
        params["inputResponses"] = json!({ key: { "action": "accept", "content": { "name": "Alice" } } });
        let done = send(modern_ask(13, "tools/call", &knowing(&params, &json!({})))).await.json();
        assert!(done["result"].to_string().contains("Alice"), "seed {seed}: {done}");
        for stream in [&mut self.calling, &mut self.listening] {
            let news = tokio::time::timeout(std::time::Duration::from_millis(50), stream.message()).await;
            assert!(!matches!(news, Ok(None)), "seed {seed}: it goes on");
        }
    }
}

/// What a listen for this task is told first.
async fn acknowledged(world: &World, token: &str, task: &str) -> String {
    let params = knowing(&json!({ "notifications": { "taskIds": [task] } }), &json!({}));
    let mut stream =
        modern_ask(14, "subscriptions/listen", &params).bearer(token).open(world.address()).await;
    let (_, said) = stream.message().await.expect("an acknowledgement");
    said.to_string().replace(task, "ID")
}

async fn hold(era: &str, tasks: TasksAt) {
    let Bridged { world, _behind } = Bridged::before(era, tasks).await;
    let (alice, bob) = (world.token("alice"), world.token("bob"));
    let hers = Belongings::of(&world, &alice).await;
    let of_bob = world.session(&bob).await;
    let mut dice = Dice::new();
    let seed = dice.0;
    for pair in 0..PAIRS {
        let (id, question) = hers.question(&mut dice, &of_bob);
        let never = dice.unlike(&id);
        let what = String::from_utf8_lossy(&question(&id).bytes()).into_owned();
        let foreign = words(&world.send(question(&id).bearer(&bob)).await, &id);
        let unknown = words(&world.send(question(&never).bearer(&bob)).await, &never);
        assert_eq!(foreign, unknown, "{era}, {tasks:?}, seed {seed}, pair {pair}: {what}");
    }
    let never = dice.unlike(&hers.task);
    let (foreign, unknown) =
        (acknowledged(&world, &bob, &hers.task).await, acknowledged(&world, &bob, &never).await);
    assert_eq!(foreign, unknown, "{era}, {tasks:?}");
    assert!(!foreign.contains("ID"), "{foreign}");
    let own = acknowledged(&world, &alice, &hers.task).await;
    assert!(own.contains("ID"), "{own}");
    hers.are_whole(&world, &alice, seed).await;
}

#[tokio::test]
async fn two_principals_in_front_of_a_server_of_sessions_have_nothing_of_each_other() {
    hold("legacy", TasksAt::Gateway).await;
}

#[tokio::test]
async fn two_principals_in_front_of_a_modern_server_have_nothing_of_each_other() {
    hold("modern", TasksAt::Gateway).await;
}

#[tokio::test]
async fn nor_of_the_tasks_that_a_modern_server_keeps() {
    hold("modern", TasksAt::Server).await;
}
