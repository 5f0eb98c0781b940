//! What data sessions are for, end to end: over HTTP, over stdio, from one to the other, over orderly ends and kills.
//!
//! Each case has two halves. Between them the process that served the first ends, and another one serves the second,
//! through the same door or the other one.

use serde_json::{Value, json};

use crate::cli::process::Server;
use crate::operator::place::Place;
use crate::stdio::process::Process;
use crate::support::session::Session;

#[derive(Clone, Copy, Debug)]
enum Door {
    Http,
    Stdio,
}

#[derive(Clone, Copy, Debug)]
enum Ending {
    InOrder,
    Killed,
}

/// A client that came in through a door, and the process behind it.
enum Visit {
    Http(Server, Session),
    Stdio(Process),
}

impl Visit {
    async fn begin(door: Door, place: &Place, settings: &[&str]) -> Self {
        match door {
            Door::Http => {
                let server = place.serve_with(settings).await;
                let session = Session::start(server.address()).await;
                Self::Http(server, session)
            }
            Door::Stdio => {
                let store = ["--store", &place.url()];
                Self::Stdio(Process::open(&[&store[..], settings].concat()).await)
            }
        }
    }

    async fn ask(&mut self, method: &str, params: &Value) -> Value {
        match self {
            Self::Http(_, session) => session.request(7, method, params).send(session.server).await.json(),
            Self::Stdio(process) => {
                process.request(7, method, params).await;
                process.message().await
            }
        }
    }

    /// Calls a tool, with a cookie if there is one.
    async fn call(&mut self, cookie: Option<&Value>, tool: &str, arguments: Value) -> Value {
        let mut params = json!({ "name": tool, "arguments": arguments });
        if let Some(cookie) = cookie {
            params["_meta"] = json!({ "mcp/session": cookie });
        }
        self.ask("tools/call", &params).await
    }

    /// Makes a data session and returns its cookie.
    async fn create(&mut self) -> Value {
        let made = self.ask("session/create", &json!({ "hints": { "label": "use case" } })).await;
        made["result"]["_meta"]["mcp/session"].clone()
    }

    async fn end(self, ending: Ending) {
        match (self, ending) {
            (Self::Http(server, session), Ending::InOrder) => {
                // Clients do this when they leave, and still expect their data session to live.
                assert_eq!(session.delete().send(session.server).await.status(), 204);
                server.signal("TERM").await;
                assert!(server.ended().await.0.success());
            }
            (Self::Http(server, _), Ending::Killed) => {
                server.signal("KILL").await;
                server.ended().await;
            }
            (Self::Stdio(process), Ending::InOrder) => drop(process.close().await),
            (Self::Stdio(mut process), Ending::Killed) => {
                process.signal("KILL").await;
                process.exited().await;
            }
        }
    }
}

const WAYS: [(Door, Ending, Door); 6] = [
    (Door::Http, Ending::InOrder, Door::Http),
    (Door::Http, Ending::Killed, Door::Http),
    (Door::Stdio, Ending::InOrder, Door::Stdio),
    (Door::Stdio, Ending::Killed, Door::Stdio),
    (Door::Stdio, Ending::InOrder, Door::Http),
    (Door::Http, Ending::Killed, Door::Stdio),
];

/// Does both halves of a case in every way.
async fn in_every_way<T>(
    settings: &[&str],
    first: impl AsyncFn(&mut Visit) -> T,
    second: impl AsyncFn(&mut Visit, T),
) {
    for (door, ending, next) in WAYS {
        eprintln!("{door:?}, {ending:?}, {next:?}");
        let place = Place::new();
        let mut visit = Visit::begin(door, &place, settings).await;
        let carried = first(&mut visit).await;
        visit.end(ending).await;
        let mut visit = Visit::begin(next, &place, settings).await;
        second(&mut visit, carried).await;
        visit.end(Ending::InOrder).await;
    }
}

fn told(answer: &Value) -> &Value {
    &answer["result"]["structuredContent"]
}

#[tokio::test]
async fn a_session_is_required_for_every_tool() {
    let first = async |visit: &mut Visit| {
        let refused = visit.call(None, "public_echo", json!({ "text": "x" })).await;
        assert_eq!(
            (&refused["error"]["code"], &refused["error"]["data"]["reason"]),
            (&json!(-32002), &json!("session_required"))
        );
        let cookie = visit.create().await;
        let echoed = visit.call(Some(&cookie), "public_echo", json!({ "text": "x" })).await;
        assert_eq!(echoed["result"]["content"][0]["text"], "x");
        assert_eq!(echoed["result"]["_meta"]["mcp/session"]["id"], cookie["id"]);
        cookie
    };
    let second = async |visit: &mut Visit, cookie: Value| {
        let refused = visit.call(None, "public_echo", json!({ "text": "x" })).await;
        assert_eq!(refused["error"]["data"]["reason"], "session_required");
        let echoed = visit.call(Some(&cookie), "public_echo", json!({ "text": "x" })).await;
        assert_eq!(echoed["result"]["content"][0]["text"], "x");
    };
    in_every_way(&["--set", "data_sessions.required=all"], first, second).await;
}

#[tokio::test]
async fn some_tools_are_open_and_some_need_a_session() {
    let first = async |visit: &mut Visit| {
        let open = visit.call(None, "public_echo", json!({ "text": "open" })).await;
        assert_eq!(open["result"]["content"][0]["text"], "open");
        let cookie = visit.create().await;
        let refused = visit.call(None, "session_counter_inc", json!({})).await;
        assert_eq!(refused["error"]["code"], -32002);
        for counter in 1..=2 {
            assert_eq!(
                told(&visit.call(Some(&cookie), "session_counter_inc", json!({})).await)["counter"],
                counter
            );
        }
        cookie
    };
    let second = async |visit: &mut Visit, cookie: Value| {
        assert_eq!(told(&visit.call(Some(&cookie), "session_counter_inc", json!({})).await)["counter"], 3);
    };
    in_every_way(&[], first, second).await;
}

#[tokio::test]
async fn tools_keep_state_in_the_session() {
    let first = async |visit: &mut Visit| {
        let (cookie, other) = (visit.create().await, visit.create().await);
        for text in ["one", "two"] {
            visit.call(Some(&cookie), "notebook_append", json!({ "text": text })).await;
        }
        visit.call(Some(&other), "notebook_append", json!({ "text": "another's" })).await;
        visit.call(Some(&cookie), "hashcheck_store", json!({ "name": "n", "text": "secret" })).await;
        (cookie, other)
    };
    let second = async |visit: &mut Visit, (cookie, other): (Value, Value)| {
        let notes = visit.call(Some(&cookie), "notebook_read", json!({})).await;
        assert_eq!(told(&notes), &json!({ "notes": ["one", "two"] }));
        for (text, matches) in [("secret", true), ("guess", false)] {
            let verified =
                visit.call(Some(&cookie), "hashcheck_verify", json!({ "name": "n", "text": text })).await;
            assert_eq!(told(&verified)["matches"], matches);
        }
        assert_eq!(told(&visit.call(Some(&cookie), "notebook_clear", json!({})).await)["cleared"], 2);
        assert_eq!(
            told(&visit.call(Some(&other), "notebook_read", json!({})).await)["notes"],
            json!(["another's"])
        );
    };
    in_every_way(&[], first, second).await;
}

#[tokio::test]
async fn a_client_comes_back_and_resumes() {
    let first = async |visit: &mut Visit| {
        let cookie = visit.create().await;
        visit.call(Some(&cookie), "notebook_append", json!({ "text": "remember this" })).await;
        cookie
    };
    let second = async |visit: &mut Visit, cookie: Value| {
        let resumed = visit.ask("session/resume", &json!({ "id": cookie["id"] })).await;
        assert_eq!(resumed["result"]["id"], cookie["id"]);
        let canonical = resumed["result"]["_meta"]["mcp/session"].clone();
        assert!(canonical["expiry"].as_str() >= cookie["expiry"].as_str(), "{canonical} after {cookie}");
        let notes = visit.call(Some(&canonical), "notebook_read", json!({})).await;
        assert_eq!(told(&notes)["notes"], json!(["remember this"]));
    };
    in_every_way(&[], first, second).await;
}

#[tokio::test]
async fn a_session_is_revoked_and_another_one_begun() {
    let first = async |visit: &mut Visit| {
        let cookie = visit.create().await;
        visit.call(Some(&cookie), "session_counter_inc", json!({})).await;
        let revoked = visit.call(Some(&cookie), "session_probe", json!({ "action": "revoke" })).await;
        assert_eq!(revoked["result"]["_meta"], json!({ "mcp/session": null }));
        cookie
    };
    let second = async |visit: &mut Visit, cookie: Value| {
        let refused = visit.call(Some(&cookie), "session_counter_get", json!({})).await;
        assert_eq!(refused["error"]["data"]["reason"], "session_revoked", "{refused}");
        let again = visit.create().await;
        assert_ne!(again["id"], cookie["id"]);
        assert_eq!(told(&visit.call(Some(&again), "session_counter_inc", json!({})).await)["counter"], 1);
    };
    in_every_way(&[], first, second).await;
}

#[tokio::test]
async fn many_clients_work_on_one_state_and_nothing_is_lost() {
    const CLIENTS: u64 = 64;
    const TIMES: u64 = 5;
    let place = Place::new();
    // On a busy machine an answer may take so long that it would come as a stream.
    let server = place.serve_with(&["--set", "streams.json_wait=0s"]).await;
    let session = Session::start(server.address()).await;
    let made = session.request(1, "session/create", &json!({})).send(session.server).await.json();
    let cookie = made["result"]["_meta"].clone();
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        let (address, cookie) = (server.address(), cookie.clone());
        clients.spawn(async move {
            let session = Session::start(address).await;
            let mut heard = Vec::new();
            for n in 0..TIMES {
                let params = json!({ "name": "session_counter_inc", "_meta": cookie });
                let answer = session.request(n + 1, "tools/call", &params).send(address).await.json();
                heard.push(told(&answer)["counter"].as_u64().unwrap_or_else(|| panic!("{answer}")));
            }
            heard
        });
    }
    let mut heard: Vec<u64> = clients.join_all().await.into_iter().flatten().collect();
    heard.sort_unstable();
    assert_eq!(heard, (1..=CLIENTS * TIMES).collect::<Vec<_>>(), "every number once");
}
