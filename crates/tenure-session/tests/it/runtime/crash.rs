//! A process that dies in the middle of every write there is, both ways, and what its client sees.
//!
//! The client does one thing after the other: it starts a session, subscribes, calls a tool that streams, calls one
//! that is asked to be read-only, withdraws a request, ends the session. In each round the process dies in a later
//! write, with that write done or not done; the next process goes on from what the engine has.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tenure_protocol::{Error, Method, Notification, RawJson, Reason, Reply, RpcError};
use tenure_session::backend::{Backend, Call, Link, Open, Opened};
use tenure_session::call::Caller;
use tenure_session::port::BoxFuture;
use tenure_session::port::store::Store;
use tenure_session::session::{Answer, Item, Reader};
use tenure_session::{Limits, Principal, Session, SessionId, Sessions};
use tenure_store::disk::{Disk, Sync};
use tenure_store::memory::Memory;
use tenure_testkit::clock::TurnableClock;
use tenure_testkit::crash::{Crashing, Last};
use tenure_testkit::runtime::{self, parse};

/// A server with two tools that count to three: one that may be repeated, and one that may not.
struct Counting;
struct CountingLink;

impl Backend for Counting {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let result = RawJson::of(&json!({ "protocolVersion": open.revision.as_str(), "capabilities": {} }));
        Box::pin(std::future::ready(Ok(Opened { link: Box::new(CountingLink), result })))
    }
}

impl Link for CountingLink {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        Box::pin(async move {
            match call.request.method {
                Method::ToolsList => Ok(RawJson::of(&json!({ "tools": [
                    { "name": "safe", "annotations": { "readOnlyHint": true } },
                    { "name": "unsafe" },
                ] }))),
                Method::ToolsCall => {
                    for n in 1..=3 {
                        // A request that is over needs no more numbers.
                        drop(call.context.progress(f64::from(n), None, None).await);
                        tokio::task::yield_now().await;
                    }
                    Ok(RawJson::EMPTY_OBJECT)
                }
                _ => Ok(RawJson::EMPTY_OBJECT),
            }
        })
    }

    fn notify(&self, _: Notification) {}

    fn close(&self) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }
}

/// What the client knows, because it was told.
#[derive(Default, Debug)]
struct Told {
    session: Option<SessionId>,
    initialized: bool,
    subscribed: bool,
    streams: Vec<Stream>,
    /// The end was asked for, and perhaps confirmed.
    ending: bool,
    ended: bool,
}

#[derive(Debug)]
struct Stream {
    tool: &'static str,
    last: Option<String>,
    progress: Vec<f64>,
    answers: Vec<Value>,
}

impl Stream {
    /// Takes what a reader gives until its end; true if the answer has come.
    async fn follow(&mut self, reader: &mut Reader) -> bool {
        while let Some(item) = reader.next().await {
            match item {
                Item::Prime(id) => self.last = Some(id.to_string()),
                Item::Event { id, body } => {
                    self.last = Some(id.expect("the log works, so every event has an id").to_string());
                    let message = parse(&body);
                    match message["params"]["progress"].as_f64() {
                        Some(progress) => self.progress.push(progress),
                        None => self.answers.push(message),
                    }
                }
                Item::Gap => panic!("nothing was trimmed"),
                Item::Close(_) => {}
            }
        }
        !self.answers.is_empty()
    }
}

async fn live(sessions: &Sessions, told: &mut Told) {
    let initialize = runtime::request(0, "initialize", &runtime::initialize("2025-11-25"));
    let created = sessions.create(initialize, &Principal::ANONYMOUS).await.unwrap();
    let session = created.session.unwrap();
    told.session = Some(*session.id());
    session.notification(Notification { method: Method::Initialized, params: None }).unwrap();
    session.saved().await;
    told.initialized = true;
    let subscribe = runtime::request(1, "resources/subscribe", &json!({ "uri": "test://a" }));
    session.request(subscribe, Caller::anonymous("test")).await.unwrap();
    told.subscribed = true;
    for (id, tool) in [(2, "unsafe"), (3, "safe")] {
        let params = json!({ "name": tool, "_meta": { "progressToken": id } });
        let call = runtime::request(id, "tools/call", &params);
        let answer = session.request(call, Caller::anonymous("test")).await.unwrap();
        let Answer::Stream(mut reader) = answer else { panic!("a stream, not {answer:?}") };
        told.streams.push(Stream { tool, last: None, progress: Vec::new(), answers: Vec::new() });
        let stream = told.streams.last_mut().unwrap();
        assert!(stream.follow(&mut reader).await);
    }
    told.ending = true;
    sessions.delete(session.id(), &Principal::ANONYMOUS).await.unwrap();
    told.ended = true;
}

/// What must hold in the next process, given what the client was told.
async fn check(sessions: &Sessions, mut told: Told) {
    let Some(id) = told.session else { return };
    let found: Result<Arc<Session>, Error> = sessions.find(&id, &Principal::ANONYMOUS).await;
    let session = match found {
        Ok(session) => {
            assert!(!told.ended, "resurrected");
            session
        }
        Err(error) => {
            assert!(told.ending, "lost: {error}");
            assert_eq!(error.reason(), Reason::SessionDeleted);
            return;
        }
    };
    if told.initialized {
        let list = runtime::request(9, "tools/list", &json!({}));
        session.request(list, Caller::anonymous("test")).await.expect("requests flow");
    }
    if told.subscribed {
        assert_eq!(session.info().subscriptions, ["test://a"]);
    }
    for stream in &mut told.streams {
        let Some(last) = stream.last.clone() else { continue };
        let whole = stream.answers.len();
        let mut reader = session.listen(Some(last.as_bytes())).await.expect("the stream is known");
        assert!(stream.follow(&mut reader).await, "no answer: {stream:?}");
        assert!(whole == 0 || stream.answers.len() == whole, "answered twice: {stream:?}");
        assert_eq!(stream.answers.len(), 1, "{stream:?}");
        let answer = &stream.answers[0];
        let steps = stream.progress.as_slice();
        assert!([1.0, 2.0, 3.0].starts_with(steps), "lost, repeated or out of order: {stream:?}");
        if answer["error"].is_null() {
            assert_eq!(steps, [1.0, 2.0, 3.0], "{stream:?}");
        } else {
            assert_eq!(stream.tool, "unsafe", "{stream:?}");
            assert_eq!(answer["error"]["data"]["reason"], "interrupted");
        }
    }
}

async fn every_crash(open: impl Fn() -> Arc<dyn Store>) -> u64 {
    let limits = Limits { json_wait: Duration::from_secs(60), ..Limits::default() };
    for writes in 0.. {
        let mut survived = true;
        for last in [Last::Undone, Last::Done] {
            let (engine, clock) = (open(), Arc::new(TurnableClock::start()));
            let store = Arc::new(Crashing::after(Arc::clone(&engine), writes, last));
            let backend: Arc<dyn Backend> = Arc::new(Counting);
            let sessions =
                runtime::start_at(store.clone(), Arc::clone(&backend), Arc::clone(&clock), limits.clone());
            let mut told = Told::default();
            tokio::select! {
                () = live(&sessions, &mut told) => {}
                () = store.died() => {}
            }
            survived &= !store.is_dead();
            let sessions = runtime::start_at(engine, backend, clock, limits.clone());
            let context = format!("dead in write {writes}, which was {last:?}; told {told:?}");
            let checked = tokio::time::timeout(Duration::from_secs(20), check(&sessions, told)).await;
            assert!(checked.is_ok(), "hangs: {context}");
        }
        if survived {
            return writes;
        }
    }
    unreachable!("a life has an end")
}

#[tokio::test]
async fn a_client_is_never_lied_to_whenever_the_process_dies_in_memory() {
    let writes = every_crash(|| Arc::new(Memory::new())).await;
    assert!(writes >= 12, "claims, records, notes, events, the end: {writes}");
}

#[tokio::test]
async fn a_client_is_never_lied_to_whenever_the_process_dies_on_disk() {
    let folder = TempDir::new().unwrap();
    let count = std::sync::atomic::AtomicUsize::new(0);
    let writes = every_crash(|| {
        let number = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Arc::new(Disk::open(&folder.path().join(number.to_string()), Sync::Os).unwrap())
    });
    let writes = writes.await;
    assert!(writes >= 10, "claims, records, notes, events, the end: {writes}");
}
