//! One session as its client holds it: its name, the events it has received, the updates it may expect.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::check::{CheckFault, CounterCheck, LinkCheck, SessionCheck, StreamCheck};
use crate::http::SessionName;
use crate::life::Moment;

/// How many complete streams are remembered, to be replayed and compared.
const MAX_FINISHED: usize = 12;

/// A session on the client's side.
#[derive(Debug)]
pub(crate) struct ClientSession {
    pub(crate) name: SessionName,
    /// The client's name for it, and its name in the server's log.
    pub(crate) label: String,
    pub(crate) opened: Instant,
    next_request: AtomicU64,
    heard: AtomicU64,
    ending: AtomicBool,
    lost: AtomicBool,
    check: Mutex<SessionCheck>,
    pub(crate) news: Mutex<News>,
    /// `None` until the workspace is made, and after it is lost.
    pub(crate) work: Mutex<Option<Workspace>>,
    pub(crate) links: Mutex<LinkCheck>,
    finished: Mutex<VecDeque<Arc<Finished>>>,
}

/// A complete stream.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) check: StreamCheck,
    pub(crate) began: Moment,
}

/// Counts the updates on the standalone stream of a session, because one update looks like another.
#[derive(Debug, Default)]
pub(crate) struct News {
    pub(crate) subscribed: bool,
    /// Notes that were sent, answered or not: the most updates that may come.
    pub(crate) sent: u64,
    /// Notes whose updates were logged before an event that the client has received: the fewest that must come.
    pub(crate) sure: u64,
    pub(crate) received: u64,
    /// Attempts to open the stream.
    pub(crate) opened: u64,
    /// Attempts without an id to resume after. With more than one of them, updates may be lost: the server may have
    /// written them to a connection that broke before the client got an id.
    pub(crate) opened_fresh: u64,
}

/// The workspace of a session: a data session on the server, as its client holds it.
#[derive(Clone, Debug)]
pub(crate) struct Workspace {
    /// The cookie that names it, for `_meta`.
    pub(crate) cookie: Value,
    pub(crate) made: Instant,
    /// How many notes were sent. Each has a text of its own: the prefix and its number.
    pub(crate) sent: u64,
    pub(crate) prefix: String,
    /// The notes that were acknowledged, and when.
    pub(crate) acknowledged: Vec<(String, Instant)>,
    pub(crate) counter: Arc<Mutex<CounterCheck>>,
}

impl ClientSession {
    pub(crate) fn new(name: SessionName, client: usize, number: u32) -> ClientSession {
        let label = format!("c{client}.{number} {}", server_label(&name.id));
        ClientSession {
            name,
            label,
            opened: Instant::now(),
            next_request: AtomicU64::new(1),
            heard: AtomicU64::new(0),
            ending: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            check: Mutex::default(),
            news: Mutex::default(),
            work: Mutex::default(),
            links: Mutex::default(),
            finished: Mutex::default(),
        }
    }

    /// An id that no request of the session had before.
    pub(crate) fn next_request(&self) -> u64 {
        self.next_request.fetch_add(1, Ordering::Relaxed)
    }

    /// The client has begun to delete it: from now on it may be gone.
    pub(crate) fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    /// The session was found to be gone: it is reported once and not used any more.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// Whether the client must expect nothing of it any more.
    pub(crate) fn is_over(&self) -> bool {
        self.is_ending() || self.lost.load(Ordering::Relaxed)
    }

    /// Counts an event, and returns the count.
    pub(crate) fn count_event(&self) -> u64 {
        self.heard.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn events(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    /// Claims the stream number of a stream for its owner: no other request may have it.
    pub(crate) fn claim(&self, stream: &StreamCheck, owner: &str) -> Result<(), CheckFault> {
        stream.place().map_or(Ok(()), |id| self.check.lock().claim(id, owner))
    }

    /// Records a question that was asked on a stream.
    pub(crate) fn asked(&self, question: &Value, stream: &StreamCheck) -> Result<(), CheckFault> {
        let stream = stream.place().map_or(0, |id| id.stream);
        self.check.lock().asked(&question.to_string(), stream)
    }

    /// Remembers a complete stream, and forgets the oldest if there are too many.
    pub(crate) fn keep(&self, check: StreamCheck, began: Moment) {
        if check.first_id().is_none() || check.ending().is_none() {
            return;
        }
        let mut finished = self.finished.lock();
        finished.push_back(Arc::new(Finished { check, began }));
        if finished.len() > MAX_FINISHED {
            finished.pop_front();
        }
    }

    pub(crate) fn finished(&self) -> Vec<Arc<Finished>> {
        self.finished.lock().iter().cloned().collect()
    }
}

/// A request to a tool.
pub(crate) fn tool(name: &str, arguments: &Value) -> Value {
    json!({ "name": name, "arguments": arguments })
}

/// The label of a session in the server's log, which never shows the id.
fn server_label(id: &str) -> String {
    let nibble = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let bytes: Option<Vec<u8>> =
        id.as_bytes().chunks(2).map(|pair| Some((nibble(pair[0])? << 4) | nibble(*pair.get(1)?)?)).collect();
    let Some(bytes) = bytes else { return "s-?".to_owned() };
    let digest = Sha256::new().chain_update(b"tenure session\0").chain_update(bytes).finalize();
    digest[..4].iter().fold("s-".to_owned(), |label, byte| format!("{label}{byte:02x}"))
}
