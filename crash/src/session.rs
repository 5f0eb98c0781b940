//! One session as its client holds it: its name, what it has heard, what it may expect.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::actions::Workspace;
use crate::check::{Fault, SessionCheck, StreamCheck};
use crate::http::Name;
use crate::world::Moment;

/// How many complete streams are remembered, to be replayed and compared.
const MAX_FINISHED: usize = 12;

/// The client's end of a session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) name: Name,
    /// The client's name for it, and the server's in its log.
    pub(crate) label: String,
    pub(crate) opened: Instant,
    next_request: AtomicU64,
    heard: AtomicU64,
    ending: AtomicBool,
    lost: AtomicBool,
    check: Mutex<SessionCheck>,
    pub(crate) news: Mutex<News>,
    /// The workspace that it names by a cookie.
    pub(crate) work: Mutex<Option<Workspace>>,
    finished: Mutex<VecDeque<Arc<Finished>>>,
}

/// A stream that is complete.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) check: StreamCheck,
    pub(crate) began: Moment,
}

/// What the standalone stream of a session may bring, counted, since one update looks like another.
#[derive(Debug, Default)]
pub(crate) struct News {
    pub(crate) subscribed: bool,
    /// Notes that were sent, answered or not: no more updates than these.
    pub(crate) sent: u64,
    /// Notes whose updates were logged before something that the client has seen: no fewer than these.
    pub(crate) sure: u64,
    pub(crate) received: u64,
    /// Attempts to open the stream.
    pub(crate) opened: u64,
    /// Those without an id to resume after. With more than one of them, the server may have written
    /// updates to a connection that broke before the client could know.
    pub(crate) opened_fresh: u64,
}

/// A session that was deleted.
#[derive(Debug)]
pub(crate) struct Dead {
    pub(crate) name: Name,
    pub(crate) label: String,
    pub(crate) opened: Instant,
    pub(crate) deleted: Instant,
}

impl Session {
    pub(crate) fn new(name: Name, client: usize, number: u32) -> Session {
        let label = format!("c{client}.{number} {}", server_label(&name.id));
        Session {
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

    /// It was found to be gone; said once and not used any more.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// Whether nothing should be expected of it any more.
    pub(crate) fn is_over(&self) -> bool {
        self.is_ending() || self.lost.load(Ordering::Relaxed)
    }

    /// Counts an event, and says how many there were.
    pub(crate) fn count_event(&self) -> u64 {
        self.heard.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn events(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    /// A stream knows its place: nobody else may have it.
    pub(crate) fn claim(&self, stream: &StreamCheck, owner: &str) -> Result<(), Fault> {
        stream.place().map_or(Ok(()), |id| self.check.lock().claim(id, owner))
    }

    /// A question was asked on a stream.
    pub(crate) fn asked(&self, question: &Value, stream: &StreamCheck) -> Result<(), Fault> {
        let stream = stream.place().map_or(0, |id| id.stream);
        self.check.lock().asked(&question.to_string(), stream)
    }

    /// Remembers a complete stream, and forgets the oldest.
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

/// How the server names a session in its log, where the id itself never stands.
fn server_label(id: &str) -> String {
    let nibble = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let bytes: Option<Vec<u8>> =
        id.as_bytes().chunks(2).map(|pair| Some((nibble(pair[0])? << 4) | nibble(*pair.get(1)?)?)).collect();
    let Some(bytes) = bytes else { return "s-?".to_owned() };
    let digest = Sha256::new().chain_update(b"tenure session\0").chain_update(bytes).finalize();
    digest[..4].iter().fold("s-".to_owned(), |label, byte| format!("{label}{byte:02x}"))
}
