//! Requests that were open when the process ended: run again where that is safe, otherwise ended with an error.
//!
//! The log holds a note of every request that became a stream, until it is answered. When the session is
//! woken, each of them is in flight again, on its own stream, so that it can be cancelled and its id is taken.

use std::sync::Arc;

use bytes::Bytes;
use tenure_protocol::params::{self, Repeat};
use tenure_protocol::{Incoming, Message, Method, RawJson, Reason, Request, RequestId, RpcError, message};

use crate::call::Collect;
use crate::id::{Position, StreamId};
use crate::port::store::{NewEvent, Place, ReadLimit, StoreError, Surveyed};
use crate::session::backlog::{self, Noted};
use crate::session::session::{InFlight, Session, State};

/// How much of a stream is read at a time.
const STRETCH: ReadLimit = ReadLimit { events: 256, bytes: 1 << 20 };

/// Pages of a tools list that are looked at for a tool's hints.
const MAX_PAGES: usize = 64;

/// Servers that are asked for their tools, one after the other, should each be lost in the middle of it.
const MAX_SERVERS: usize = 3;

/// A stream that still waits for answers.
pub(super) struct Reopened {
    stream: StreamId,
    /// What is not answered yet; nothing if nobody knows what the stream is for.
    requests: Vec<Request>,
    /// It was noted while a process stopped, and no server has seen it.
    is_held: bool,
    /// Questions to the client that came on it; who asked them is gone.
    asked: Vec<RequestId>,
    /// How far the client has heard of progress.
    progress: Option<f64>,
}

/// A request that is in flight again.
pub(super) struct Resumed {
    request: Request,
    number: u64,
    /// No server has seen it, so that it is safe to run whatever it does.
    is_held: bool,
}

impl Reopened {
    /// Reads from the log what is still open.
    pub(super) async fn read(session: &Session, known: Vec<Surveyed>) -> Result<Vec<Self>, StoreError> {
        let mut reopened = Vec::new();
        for known in known {
            if known.ended || known.stream == StreamId::STANDALONE {
                continue;
            }
            let mut open = Self {
                stream: known.stream,
                requests: known.note.as_ref().map(noted_requests).unwrap_or_default(),
                is_held: known.note.as_ref().is_some_and(backlog::is_held),
                asked: Vec::new(),
                progress: None,
            };
            let mut after = Position::START;
            loop {
                let stretch = session.inner.store.read(session.key, known.stream, after, STRETCH).await?;
                let Some(last) = stretch.events.last() else { break };
                after = last.position;
                for event in &stretch.events {
                    open.hear(&event.body);
                }
            }
            reopened.push(open);
        }
        Ok(reopened)
    }

    /// Notes of requests that were held that they begin now. To be done before the first of them is run: should this
    /// process be killed too, the next one must not take them for requests that no server has seen.
    pub(super) async fn begin_held(session: &Session, reopened: &[Self]) -> Result<(), StoreError> {
        let at = session.inner.clock.now();
        let held = reopened.iter().filter(|open| open.is_held);
        let notes: Vec<NewEvent> = held
            .flat_map(|open| open.requests.iter().map(|request| (open.stream, Noted::of(request).request)))
            .map(|(stream, body)| NewEvent { stream, body, place: Place::Note, at })
            .collect();
        if notes.is_empty() {
            return Ok(());
        }
        let max_batch = session.inner.store.capabilities().max_batch;
        for notes in notes.chunks(max_batch) {
            session.inner.store.append(session.key, session.epoch, notes.to_vec()).await?;
        }
        Ok(())
    }

    /// Takes in what the client was told on the stream.
    fn hear(&mut self, body: &Bytes) {
        match Message::parse(body) {
            Ok(Message::Response(response)) => self.requests.retain(|request| request.id != response.id),
            Ok(Message::Request(asked)) => self.asked.push(asked.id),
            // Taken back already, at an earlier wake or by the server itself.
            Ok(Message::Notification(told)) if told.method == Method::Cancelled => {
                let id = params::cancelled_id(told.params.as_ref());
                self.asked.retain(|asked| Some(asked) != id.as_ref());
            }
            Ok(Message::Notification(told)) if told.method == Method::Progress => {
                let before = self.progress.unwrap_or(f64::NEG_INFINITY);
                let told = params::progress_value(told.params.as_ref());
                self.progress = told.map(|told| told.max(before)).or(self.progress);
            }
            _ => {}
        }
    }
}

/// The requests that the note beside a stream names: one, or those of a batch.
pub fn noted_requests(note: &Bytes) -> Vec<Request> {
    let messages = match Incoming::parse(note) {
        Ok(Incoming::One(message)) => vec![message],
        Ok(Incoming::Batch(elements)) => {
            elements.iter().filter_map(|element| Message::parse(element.bytes()).ok()).collect()
        }
        Err(_) => Vec::new(),
    };
    let request = |message| match message {
        Message::Request(request) => Some(request),
        Message::Notification(_) | Message::Response(_) => None,
    };
    messages.into_iter().filter_map(request).collect()
}

impl Session {
    /// Puts the open requests in flight again. The caller flushes.
    pub(super) fn reopen(&self, state: &mut State, reopened: Vec<Reopened>) -> Vec<Resumed> {
        let now = self.inner.clock.now();
        let mut resumed = Vec::new();
        for open in reopened {
            for id in &open.asked {
                let body = message::write_cancelled(id, "the server was restarted");
                self.push(state, open.stream, body, Place::Middle);
            }
            if open.requests.is_empty() {
                // Everything was answered, or nobody knows what was asked: the client shall not wait for more.
                self.push(state, open.stream, Bytes::new(), Place::End);
                continue;
            }
            state.open_streams += 1;
            if let Some(stream) = state.streams.get_mut(&open.stream) {
                stream.open = open.requests.len();
                if open.requests.len() > 1 {
                    stream.requests = open.requests.iter().map(Noted::of).collect();
                }
            }
            for request in open.requests {
                state.next_call += 1;
                let number = state.next_call;
                let call = InFlight {
                    number,
                    method: request.method.clone(),
                    params: request.params.clone(),
                    started: now,
                    stream: Some(open.stream),
                    waiter: None,
                    cancel: None,
                    progressed: None,
                    quiet_since: None,
                    progress_floor: open.progress,
                    // Of a request that was held the client has heard nothing.
                    is_again: !open.is_held,
                    is_late: true,
                    is_held: false,
                    collect: Collect::Resumes,
                    asking: 0,
                    said_bytes: 0,
                };
                state.calls.insert(request.id.clone(), call);
                resumed.push(Resumed { request, number, is_held: open.is_held });
            }
        }
        resumed
    }

    /// Runs the requests again that may be, and ends the others.
    pub(super) fn resume_requests(self: &Arc<Self>, resumed: Vec<Resumed>) {
        self.flush();
        if resumed.is_empty() {
            return;
        }
        let session = Arc::clone(self);
        let stop = self.inner.stop.clone();
        let resuming = async move {
            let mut tools = None;
            for resumed in resumed {
                let safe = match params::repeat(&resumed.request.method) {
                    _ if resumed.is_held => true,
                    Repeat::Never => false,
                    Repeat::Safe => true,
                    Repeat::AskTool => {
                        if tools.is_none() {
                            tools = Some(session.repeatable_tools().await);
                        }
                        let name = params::tool_name(resumed.request.params.as_ref());
                        name.is_some_and(|name| tools.as_ref().is_some_and(|tools| tools.contains(&name)))
                    }
                };
                if safe {
                    session.run_again(resumed.request, resumed.number);
                } else {
                    session.interrupt(&resumed);
                }
            }
        };
        self.inner.tasks.spawn(async move { stop.run_until_cancelled(resuming).await });
    }

    /// The tools that say of themselves that calling them twice does no harm. A server that is lost while it lists
    /// them has said nothing; the next one is asked.
    pub(super) async fn repeatable_tools(self: &Arc<Self>) -> Vec<String> {
        for _ in 0..MAX_SERVERS {
            if let Err(error) = self.relink().await {
                tracing::warn!(session = %self.label, %error, "there is no server that could list its tools");
                break;
            }
            let Some((link, number)) = self.current_link() else { continue };
            let (mut found, mut params) = (Vec::new(), RawJson::EMPTY_OBJECT);
            for _ in 0..MAX_PAGES {
                match self.inquire(&link, Method::ToolsList, &params).await {
                    Ok(result) => {
                        let (tools, next) = params::repeatable_tools(&result);
                        found.extend(tools);
                        let Some(next) = next else { return found };
                        params = RawJson::of(&serde_json::json!({ "cursor": next }));
                    }
                    Err(_) if self.has_lost(number) => break,
                    Err(error) => {
                        tracing::warn!(session = %self.label, %error, "the woken server did not list its tools");
                        return found;
                    }
                }
            }
            if !self.has_lost(number) {
                return found;
            }
        }
        Vec::new()
    }

    fn interrupt(self: &Arc<Self>, resumed: &Resumed) {
        let id = &resumed.request.id;
        let error = RpcError::of(
            Reason::Interrupted,
            "The server was restarted before the answer came; the request may or may not have been carried out",
        );
        {
            let mut state = self.state.lock();
            let Some(call) = state.calls.get(id).filter(|call| call.number == resumed.number) else { return };
            let Some(stream) = call.stream else { return };
            state.calls.remove(id);
            state.errors += 1;
            tracing::info!(session = %self.label, request = ?id, method = %resumed.request.method, "interrupted by a restart");
            self.answer_on(&mut state, stream, id, message::write_error(Some(id), &error));
        }
        self.flush();
    }
}
