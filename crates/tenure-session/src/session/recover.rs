//! Requests that were open when the process ended: runs them again if that is safe, otherwise ends them with an error.
//!
//! The log has a note of every request that became a stream, until it is answered. When the session is woken, each of
//! these requests is in flight again on its own stream, so that the client can cancel it and cannot reuse its id.

use std::sync::Arc;

use bytes::Bytes;
use tenure_protocol::params::{self, Repeat};
use tenure_protocol::{
    Incoming, Message, Method, RawJson, Reason, Reply, Request, RequestId, RpcError, message,
};

use crate::backend::{Link, repeatable_tools};
use crate::call::{Collect, Granted};
use crate::figures::TimelineEvent;
use crate::id::{Position, StreamId};
use crate::port::observer::Happened;
use crate::port::store::{EntryPlace, NewEvent, ReadLimit, StoreError, Surveyed};
use crate::session::backlog::{self, NotedRequest};
use crate::session::live_session::{InFlight, Session, SessionState};

/// Limit of one read of a stream.
const STRETCH: ReadLimit = ReadLimit { events: 256, bytes: 1 << 20 };

/// Most servers that are asked for their tools, one after the other, if each is lost before it has answered.
const MAX_SERVERS: usize = 3;

/// A stream that still waits for answers.
pub(super) struct OpenStream {
    stream: StreamId,
    /// The unanswered requests; empty if the stream has no readable note.
    requests: Vec<Request>,
    /// The scopes that they were sent with.
    scopes: Granted,
    /// The requests were held by a stopping process; no server has seen them.
    is_held: bool,
    /// Questions to the client on this stream; the server that asked them is gone.
    asked: Vec<RequestId>,
    /// Highest progress value that the client has received.
    progress: Option<f64>,
}

/// A request that the last process left open; it is run, or ended with an error.
pub(super) struct OpenRequest {
    request: Request,
    number: u64,
    /// No server has seen it, so it is safe to run.
    is_held: bool,
}

impl OpenStream {
    /// Reads the open streams from the log.
    pub(super) async fn read(session: &Session, known: Vec<Surveyed>) -> Result<Vec<Self>, StoreError> {
        let mut reopened = Vec::new();
        for known in known {
            if known.ended || known.stream == StreamId::STANDALONE {
                continue;
            }
            let mut open = Self {
                stream: known.stream,
                requests: known.note.as_ref().map(noted_requests).unwrap_or_default(),
                scopes: known.note.as_ref().map(backlog::noted_scopes).unwrap_or_default(),
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
                    open.apply(&event.body);
                }
            }
            reopened.push(open);
        }
        Ok(reopened)
    }

    /// Rewrites the notes of held requests as notes of started ones. Must be done before the first one runs: if this
    /// process is killed too, the next one must not believe that no server has seen them.
    pub(super) async fn begin_held(session: &Session, reopened: &[Self]) -> Result<(), StoreError> {
        let at = session.inner.clock.now();
        let held = reopened.iter().filter(|open| open.is_held);
        let notes: Vec<NewEvent> = held
            .flat_map(|open| {
                open.requests
                    .iter()
                    .map(|request| (open.stream, NotedRequest::of(request, &open.scopes).request))
            })
            .map(|(stream, body)| NewEvent { stream, body, place: EntryPlace::Note, at })
            .collect();
        if notes.is_empty() {
            return Ok(());
        }
        let max_batch = session.inner.store.capabilities().max_batch;
        for notes in notes.chunks(max_batch) {
            session.inner.store.append(session.key, session.fence(), notes.to_vec()).await?;
        }
        Ok(())
    }

    /// Applies an event of the stream: an answer, a question, its cancellation, or progress.
    fn apply(&mut self, body: &Bytes) {
        match Message::parse(body) {
            Ok(Message::Response(response)) => self.requests.retain(|request| request.id != response.id),
            Ok(Message::Request(asked)) => self.asked.push(asked.id),
            // Already cancelled, at an earlier wake or by the server itself.
            Ok(Message::Notification(sent)) if sent.method == Method::Cancelled => {
                let id = params::cancelled_id(sent.params.as_ref());
                self.asked.retain(|asked| Some(asked) != id.as_ref());
            }
            Ok(Message::Notification(sent)) if sent.method == Method::Progress => {
                let before = self.progress.unwrap_or(f64::NEG_INFINITY);
                let value = params::progress_value(sent.params.as_ref());
                self.progress = value.map(|value| value.max(before)).or(self.progress);
            }
            _ => {}
        }
    }
}

/// The requests that the note of a stream names: one request, or those of a batch.
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
    pub(super) fn reopen(&self, state: &mut SessionState, reopened: Vec<OpenStream>) -> Vec<OpenRequest> {
        let now = self.inner.clock.now();
        let mut resumed = Vec::new();
        for open in reopened {
            for id in &open.asked {
                let body = message::write_cancelled(id, "the server was restarted");
                self.push(state, open.stream, body, EntryPlace::Middle);
            }
            if open.requests.is_empty() {
                // All requests are answered, or the note is unreadable: end the stream, so that no client waits on it.
                self.push(state, open.stream, Bytes::new(), EntryPlace::End);
                continue;
            }
            state.open_streams += 1;
            if let Some(stream) = state.streams.get_mut(&open.stream) {
                stream.open = open.requests.len();
                if open.requests.len() > 1 {
                    let noted = |request| NotedRequest::of(request, &open.scopes);
                    stream.requests = open.requests.iter().map(noted).collect();
                }
            }
            for request in open.requests {
                state.next_call += 1;
                let number = state.next_call;
                let call = InFlight {
                    number,
                    method: request.method.clone(),
                    params: request.params.clone(),
                    scopes: open.scopes.clone(),
                    started: now,
                    stream: Some(open.stream),
                    waiter: None,
                    cancel: None,
                    progressed: None,
                    quiet_since: None,
                    progress_floor: open.progress,
                    // A held request has sent nothing to the client yet.
                    is_again: !open.is_held,
                    is_late: true,
                    is_held: false,
                    collect: Collect::Resumes,
                    asking: 0,
                    said_bytes: 0,
                };
                state.calls.insert(request.id.clone(), call);
                resumed.push(OpenRequest { request, number, is_held: open.is_held });
            }
        }
        resumed
    }

    /// Runs the requests that are safe to repeat, and ends the others with an error.
    pub(super) fn resume_requests(self: &Arc<Self>, resumed: Vec<OpenRequest>) {
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

    /// The tools whose hints say that they may be called twice. If a server is lost while it lists them, its answer is
    /// ignored and the next server is asked.
    pub(super) async fn repeatable_tools(self: &Arc<Self>) -> Vec<String> {
        for _ in 0..MAX_SERVERS {
            if let Err(error) = self.relink().await {
                tracing::warn!(session = %self.label, %error, "no server available to list its tools");
                break;
            }
            let Some((link, number)) = self.current_link() else { continue };
            let (tools, error) = repeatable_tools(|cursor| self.list_tools(&link, cursor)).await;
            match error {
                Some(_) if self.has_lost(number) => continue,
                Some(error) => {
                    tracing::warn!(session = %self.label, %error, "the woken server did not list its tools");
                }
                None => {}
            }
            return tools;
        }
        Vec::new()
    }

    /// A page of the server's tools.
    async fn list_tools(self: &Arc<Self>, link: &Arc<dyn Link>, cursor: Option<String>) -> Reply {
        let params = cursor
            .map_or(RawJson::EMPTY_OBJECT, |cursor| RawJson::of(&serde_json::json!({ "cursor": cursor })));
        let (id, method) = (RequestId::from_text("tenure-wake"), Method::ToolsList);
        self.inquire(link, Request { id, method, params: Some(params) }).await
    }

    fn interrupt(self: &Arc<Self>, resumed: &OpenRequest) {
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
            tracing::info!(session = %self.label, request = ?id, method = %resumed.request.method, "a request was interrupted by a restart");
            self.answer_on(&mut state, stream, id, message::write_error(Some(id), &error));
        }
        self.flush();
        self.note(TimelineEvent::Interrupted);
        self.tell_observer(Happened::Interrupted { method: &resumed.request.method });
    }
}
