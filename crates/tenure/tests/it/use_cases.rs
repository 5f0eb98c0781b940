//! What data sessions are for, end to end: over HTTP, over stdio, from one to the other, over orderly ends and kills.
//!
//! Each case has two halves. Between them the process that served the first ends, and another one serves the second,
//! through the same door or the other one, to a client with a session or to one without.

use serde_json::{Value, json};

use crate::cli::process::Server;
use crate::operator::place::Place;
use crate::stdio::process::Process;
use crate::support::modern;
use crate::support::session::Session;

#[derive(Clone, Copy, Debug)]
enum Door {
    Http,
    Stdio,
}

/// Whether the client has a session, and so which dialect it speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Era {
    Legacy,
    Modern,
}

#[derive(Clone, Copy, Debug)]
enum Ending {
    InOrder,
    Killed,
}

/// What a client keeps of a data session.
#[derive(Clone)]
struct Cookie {
    id: String,
    expiry: String,
}

impl Era {
    /// What a client sends back.
    fn meta(self, cookie: &Cookie) -> Value {
        let Cookie { id, expiry } = cookie;
        match self {
            Self::Legacy => json!({ "mcp/session": { "id": id, "expiry": expiry } }),
            Self::Modern => json!({ "dev.tenure/session": { "sessionId": id, "expiresAt": expiry } }),
        }
    }

    /// The cookie in the `_meta` of a result; `null` if it was taken back.
    fn cookie(self, answer: &Value) -> Option<Cookie> {
        let (key, id, expiry) = match self {
            Self::Legacy => ("mcp/session", "id", "expiry"),
            Self::Modern => ("dev.tenure/session", "sessionId", "expiresAt"),
        };
        let cookie = answer["result"]["_meta"].get(key).unwrap_or_else(|| panic!("no cookie: {answer}"));
        let part = |name: &str| cookie[name].as_str().map(str::to_owned);
        Some(Cookie { id: part(id)?, expiry: part(expiry)? })
    }

    fn check_refusal(self, answer: &Value, why: &str) {
        let (code, reason) = match (self, why) {
            (Self::Legacy, _) => (-32002, format!("session_{why}")),
            (Self::Modern, "required") => (-31044, format!("data_session_{why}")),
            (Self::Modern, _) => (-31043, format!("data_session_{why}")),
        };
        let error = &answer["error"];
        assert_eq!((&error["code"], &error["data"]["reason"]), (&json!(code), &json!(reason)), "{answer}");
    }
}

/// A client that came in through a door, and the process behind it.
struct Visit {
    era: Era,
    through: Through,
}

enum Through {
    /// With a session, unless the era has none.
    Http(Server, Option<Session>),
    Stdio(Process),
}

impl Visit {
    async fn begin((era, door): Way, place: &Place, settings: &[&str]) -> Self {
        let through = match door {
            Door::Http => {
                let server = place.serve_with(settings).await;
                let session = match era {
                    Era::Legacy => Some(Session::start(server.address()).await),
                    Era::Modern => None,
                };
                Through::Http(server, session)
            }
            Door::Stdio => {
                let store = ["--store", &place.url()];
                let arguments = [&store[..], settings].concat();
                Through::Stdio(match era {
                    Era::Legacy => Process::open(&arguments).await,
                    Era::Modern => Process::start(&arguments),
                })
            }
        };
        Self { era, through }
    }

    async fn ask(&mut self, method: &str, params: &Value) -> Value {
        match (&mut self.through, self.era) {
            (Through::Http(_, Some(session)), _) => {
                session.request(7, method, params).send(session.server).await.json()
            }
            (Through::Http(server, None), _) => {
                modern::ask(7, method, params).send(server.address()).await.json()
            }
            (Through::Stdio(process), era) => {
                let params = match era {
                    Era::Legacy => params.clone(),
                    Era::Modern => modern::with_meta(params),
                };
                process.request(7, method, &params).await;
                process.message().await
            }
        }
    }

    /// Calls a tool, with a cookie if there is one.
    async fn call(&mut self, cookie: Option<&Cookie>, tool: &str, arguments: Value) -> Value {
        let mut params = json!({ "name": tool, "arguments": arguments });
        if let Some(cookie) = cookie {
            params["_meta"] = self.era.meta(cookie);
        }
        self.ask("tools/call", &params).await
    }

    /// Makes a data session and returns its cookie.
    async fn create(&mut self) -> Cookie {
        let hints = json!({ "hints": { "label": "use case" } });
        let made = match self.era {
            Era::Legacy => self.ask("session/create", &hints).await,
            Era::Modern => self.ask("dev.tenure/session/create", &hints).await,
        };
        self.era.cookie(&made).unwrap_or_else(|| panic!("no cookie: {made}"))
    }

    async fn resume(&mut self, id: &str) -> Value {
        match self.era {
            Era::Legacy => self.ask("session/resume", &json!({ "id": id })).await,
            Era::Modern => self.ask("dev.tenure/session/resume", &json!({ "sessionId": id })).await,
        }
    }

    async fn end(self, ending: Ending) {
        match (self.through, ending) {
            (Through::Http(server, session), Ending::InOrder) => {
                if let Some(session) = session {
                    // Clients do this when they leave, and still expect their data session to live.
                    assert_eq!(session.delete().send(session.server).await.status(), 204);
                }
                server.signal("TERM").await;
                assert!(server.ended().await.0.success());
            }
            (Through::Http(server, _), Ending::Killed) => {
                server.signal("KILL").await;
                server.ended().await;
            }
            (Through::Stdio(process), Ending::InOrder) => drop(process.close().await),
            (Through::Stdio(mut process), Ending::Killed) => {
                process.signal("KILL").await;
                process.exited().await;
            }
        }
    }
}

/// How a client comes.
type Way = (Era, Door);

const LEGACY_HTTP: Way = (Era::Legacy, Door::Http);
const LEGACY_STDIO: Way = (Era::Legacy, Door::Stdio);
const MODERN_HTTP: Way = (Era::Modern, Door::Http);
const MODERN_STDIO: Way = (Era::Modern, Door::Stdio);

const WAYS: [(Way, Ending, Way); 10] = [
    (LEGACY_HTTP, Ending::InOrder, LEGACY_HTTP),
    (LEGACY_HTTP, Ending::Killed, LEGACY_HTTP),
    (LEGACY_STDIO, Ending::InOrder, LEGACY_STDIO),
    (LEGACY_STDIO, Ending::Killed, LEGACY_STDIO),
    (LEGACY_STDIO, Ending::InOrder, LEGACY_HTTP),
    (LEGACY_HTTP, Ending::Killed, LEGACY_STDIO),
    (MODERN_HTTP, Ending::InOrder, MODERN_HTTP),
    (MODERN_HTTP, Ending::Killed, MODERN_STDIO),
    (LEGACY_HTTP, Ending::Killed, MODERN_HTTP),
    (MODERN_STDIO, Ending::InOrder, LEGACY_HTTP),
];

/// Does both halves of a case in every way.
async fn in_every_way<T>(
    settings: &[&str],
    first: impl AsyncFn(&mut Visit) -> T,
    second: impl AsyncFn(&mut Visit, T),
) {
    for (way, ending, next) in WAYS {
        eprintln!("{way:?}, {ending:?}, {next:?}");
        let place = Place::new();
        let mut visit = Visit::begin(way, &place, settings).await;
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
        visit.era.check_refusal(&refused, "required");
        let cookie = visit.create().await;
        let echoed = visit.call(Some(&cookie), "public_echo", json!({ "text": "x" })).await;
        assert_eq!(echoed["result"]["content"][0]["text"], "x");
        assert_eq!(visit.era.cookie(&echoed).map(|echoed| echoed.id).as_ref(), Some(&cookie.id));
        cookie
    };
    let second = async |visit: &mut Visit, cookie: Cookie| {
        let refused = visit.call(None, "public_echo", json!({ "text": "x" })).await;
        visit.era.check_refusal(&refused, "required");
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
        visit.era.check_refusal(&refused, "required");
        for counter in 1..=2 {
            assert_eq!(
                told(&visit.call(Some(&cookie), "session_counter_inc", json!({})).await)["counter"],
                counter
            );
        }
        cookie
    };
    let second = async |visit: &mut Visit, cookie: Cookie| {
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
    let second = async |visit: &mut Visit, (cookie, other): (Cookie, Cookie)| {
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
    let second = async |visit: &mut Visit, cookie: Cookie| {
        let resumed = visit.resume(&cookie.id).await;
        let canonical = visit.era.cookie(&resumed).unwrap_or_else(|| panic!("no cookie: {resumed}"));
        assert_eq!(canonical.id, cookie.id);
        assert!(canonical.expiry >= cookie.expiry, "{} after {}", canonical.expiry, cookie.expiry);
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
        assert!(visit.era.cookie(&revoked).is_none(), "{revoked}");
        cookie
    };
    let second = async |visit: &mut Visit, cookie: Cookie| {
        let refused = visit.call(Some(&cookie), "session_counter_get", json!({})).await;
        visit.era.check_refusal(&refused, "revoked");
        let again = visit.create().await;
        assert_ne!(again.id, cookie.id);
        assert_eq!(told(&visit.call(Some(&again), "session_counter_inc", json!({})).await)["counter"], 1);
    };
    in_every_way(&[], first, second).await;
}

#[tokio::test]
async fn many_clients_work_on_one_state_and_nothing_is_lost() {
    const CLIENTS: u64 = 64;
    const TIMES: u64 = 5;
    let place = Place::new();
    let server = place.serve_with(&[]).await;
    let session = Session::start(server.address()).await;
    let made = session.request(1, "session/create", &json!({})).send(session.server).await.json();
    let cookie = Era::Legacy.cookie(&made).expect("a cookie");
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..CLIENTS {
        let (address, cookie) = (server.address(), cookie.clone());
        // Every other one has no session.
        let era = if number % 2 == 0 { Era::Legacy } else { Era::Modern };
        clients.spawn(async move {
            let session = match era {
                Era::Legacy => Some(Session::start(address).await),
                Era::Modern => None,
            };
            let mut heard = Vec::new();
            for n in 1..=TIMES {
                let params = json!({ "name": "session_counter_inc", "_meta": era.meta(&cookie) });
                let ask = match &session {
                    Some(session) => session.request(n, "tools/call", &params),
                    None => modern::ask(n, "tools/call", &params),
                };
                let answer = ask.send(address).await.json();
                heard.push(told(&answer)["counter"].as_u64().unwrap_or_else(|| panic!("{answer}")));
            }
            heard
        });
    }
    let mut heard: Vec<u64> = clients.join_all().await.into_iter().flatten().collect();
    heard.sort_unstable();
    assert_eq!(heard, (1..=CLIENTS * TIMES).collect::<Vec<_>>(), "every number once");
}
