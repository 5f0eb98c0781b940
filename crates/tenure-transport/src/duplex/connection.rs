//! Dispatches the messages of one client: opens its session, then passes requests, notifications and responses to it.
//!
//! In: messages. Out: tasks that carry answers to the output. The reader waits only for the answer to `initialize`,
//! because no other message makes sense before it.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use tenure_protocol::message::{self, Malformed};
use tenure_protocol::{
    Eras, Error, Incoming, Kind, Message, Method, Notification, RawJson, Reason, Request, RequestId,
    Response, RpcError,
};
use tenure_session::call::Caller;
use tenure_session::exchange::Exchanges;
use tenure_session::session::UseGuard;
use tenure_session::{Answer, EventId, Reader, Session, SessionId, Sessions};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::cursor::Cursor;
use super::exchange::Exchanging;
use super::input::{Input, InputMessage};
use super::outgoing::Outgoing;
use super::pump::{Ended, Outlet};
use super::questions::Questions;
use crate::duplex::oversize_id::OversizeMessage;
use crate::era_choice::{self, Batch, BatchFault, EraChoice, modern_batch, no_batch};
use crate::observe::OpenCalls;

/// The connection of one client.
pub(crate) struct DuplexConnection {
    sessions: Sessions,
    output: mpsc::Sender<Outgoing>,
    questions: Arc<Questions>,
    /// Requests without a session, where they are served.
    exchanging: Option<Exchanging>,
    session: Option<Arc<Session>>,
    /// The session does not expire as long as its connection is open.
    in_use: Option<UseGuard>,
    /// A message that came while the session was being opened, to be taken when the session is open.
    held: Option<InputMessage>,
    settings: DuplexSettings,
    /// Cancelled when the process is told to stop.
    stop: CancellationToken,
    pub(crate) tasks: Tasks,
}

/// The differences between transports.
#[derive(Clone, Debug)]
pub(crate) struct DuplexSettings {
    /// The client and its transport.
    pub(crate) caller: Caller,
    /// The longest message that is accepted.
    pub(crate) max_bytes: usize,
    /// The id of the session, if its client may come back to it. Then every answer goes through the log, because the
    /// server does not know which messages reached a client whose connection broke.
    pub(crate) returns: Option<SessionId>,
    /// The requests that are observed.
    pub(crate) calls: OpenCalls,
}

/// The tasks of a connection, and the signals between them.
#[derive(Clone, Default)]
pub(crate) struct Tasks {
    pub(crate) running: TaskTracker,
    /// Drops all tasks.
    pub(crate) kill: CancellationToken,
    /// Cancelled when the session is open.
    pub(crate) opened: CancellationToken,
    /// Cancelled when something other than this connection ended the session.
    pub(crate) over: CancellationToken,
    /// Cancelled when no more messages will come; those in the queues are still written.
    pub(crate) leaving: CancellationToken,
}

impl Tasks {
    /// Spawns the writer task, which cancels `unread` when writing fails. Not tracked in `running`, because those tasks
    /// may wait for the writer.
    pub(crate) fn writer(
        &self,
        writing: impl Future<Output = io::Result<()>> + Send + 'static,
        unread: CancellationToken,
    ) -> impl Future<Output = ()> {
        let kill = self.kill.clone();
        let writer = TaskTracker::new();
        writer.spawn(async move {
            if let Some(Err(error)) = kill.run_until_cancelled(writing).await {
                // Clients go away all the time, so this is not worth a warning.
                tracing::debug!(%error, "the output cannot be written");
                unread.cancel();
            }
        });
        writer.close();
        async move { writer.wait().await }
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let kill = self.kill.clone();
        self.running.spawn(async move { kill.run_until_cancelled(task).await });
    }
}

impl DuplexConnection {
    pub(crate) fn new(
        sessions: Sessions,
        output: mpsc::Sender<Outgoing>,
        settings: DuplexSettings,
        stop: CancellationToken,
    ) -> Self {
        Self {
            sessions,
            output,
            questions: Arc::default(),
            exchanging: None,
            session: None,
            in_use: None,
            held: None,
            settings,
            stop,
            tasks: Tasks::default(),
        }
    }

    /// Serves requests without a session too.
    pub(crate) fn with_exchanges(self, exchanges: Exchanges) -> Self {
        Self { exchanging: Some(Exchanging::new(exchanges)), ..self }
    }

    /// The session, if there is one.
    pub(crate) fn session(&self) -> Option<&Arc<Session>> {
        self.session.as_ref()
    }

    /// Resumes a session whose client has come back: after the cursor, or after the last event that was read.
    pub(crate) async fn resume(&mut self, session: Arc<Session>, cursor: Option<&Cursor>) {
        // Set first, because the caller may drop this future at any await.
        self.in_use = Some(session.in_use());
        self.session = Some(Arc::clone(&session));
        let names = session.event_names();
        let mut unread = session.unread_streams(cursor.map(Cursor::highest));
        unread.extend(cursor.iter().flat_map(|cursor| cursor.unfinished(names)));
        unread.sort_by_key(|event| event.stream);
        for event in unread {
            match session.listen(Some(event.to_string().as_bytes())).await {
                // The ids of its requests are not known any more, so no answer can be reported as lost.
                Ok(reader) => self.carry(&session, reader, Vec::new()).await,
                Err(error) => {
                    tracing::warn!(session = session.label(), %error, "a stream cannot be resumed")
                }
            }
        }
        self.listen(&session, cursor.and_then(|cursor| cursor.news(names))).await;
    }

    /// Takes messages until there are no more, or the client stops reading the answers.
    ///
    /// # Cancel safety
    /// A message that was taken may be lost, and a session that is being opened is not opened.
    pub(crate) async fn read(&mut self, lines: &mut impl Input) {
        loop {
            // Wait for room in the output queue first. Room is given out in order, so tasks that already have an answer
            // come before the next message, and a client that does not read cannot start more requests.
            match self.output.reserve().await {
                Ok(room) => drop(room),
                Err(_) => break,
            }
            let line = match self.held.take() {
                Some(line) => Ok(Some(line)),
                None => lines.next().await,
            };
            match line {
                Ok(Some(line)) => self.take(line, lines).await,
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(%error, "the input cannot be read; treated as its end");
                    break;
                }
            }
        }
        self.gone();
    }

    /// The client sends nothing more, so the server's questions are answered with an error. Not if the client may come
    /// back: then it can still answer them.
    pub(crate) fn gone(&self) {
        if self.settings.returns.is_none() {
            self.questions.close(self.session.as_ref());
        }
    }

    async fn take(&mut self, line: InputMessage, lines: &mut impl Input) {
        let (incoming, bytes) = match line {
            InputMessage::Whole(body) => (Incoming::parse(&body), body.len()),
            // Its POST was counted.
            InputMessage::Read(incoming, scopes) => {
                self.settings.caller.scopes = scopes;
                (Ok(incoming), 0)
            }
            InputMessage::TooLong(message) => return self.too_long(message).await,
        };
        match incoming {
            Ok(Incoming::One(message)) => self.message(message, bytes, lines).await,
            Ok(Incoming::Batch(elements)) => {
                if let Err(error) = self.batch(&elements, bytes).await {
                    self.refuse(&error, None).await;
                }
            }
            Err(Malformed::Syntax(detail)) => {
                let error =
                    Error::new(Reason::ParseError, format!("The message is not valid JSON: {detail}"));
                self.refuse(&error, None).await;
            }
            Err(Malformed::Envelope(detail, id)) => self.refuse(&no_message(detail), id.as_ref()).await,
        }
    }

    async fn message(&mut self, message: Message, bytes: usize, lines: &mut impl Input) {
        let eras = self.exchanging.as_ref().map_or(Eras::Legacy, Exchanging::eras);
        let choice = era_choice::choose(eras, &message, None);
        let mut caller = self.settings.caller.clone();
        if let Message::Request(request) = &message {
            let session = self.session.as_ref().filter(|_| !matches!(choice, EraChoice::Exchange));
            if let Some(correlation) = self.settings.calls.begin(request, bytes, session) {
                caller.correlation = Some(correlation);
            }
        }
        match (choice, message, &self.exchanging) {
            (EraChoice::Exchange, Message::Request(request), Some(exchanging)) => {
                let calls = &self.settings.calls;
                exchanging.request(request, caller, (&self.output, calls), &self.tasks).await;
            }
            (EraChoice::NotServed(error), Message::Request(request), _) => {
                self.refuse(&error, Some(&request.id)).await;
            }
            (_, Message::Request(request), _) => self.request(request, caller, lines).await,
            (_, Message::Notification(notification), _) => self.notification(notification).await,
            (_, Message::Response(response), _) => self.response(response),
        }
    }

    async fn request(&mut self, request: Request, caller: Caller, lines: &mut impl Input) {
        let id = request.id.clone();
        match (&self.session, &request.method) {
            (Some(session), _) => self.call(Arc::clone(session), request, caller).await,
            (None, Method::Initialize) => self.open(request, lines).await,
            (None, Method::Ping) => self.answer(&id, pong(&id)).await,
            (None, _) => {
                let text = "There is no session yet: send initialize first";
                self.refuse(&Error::new(Reason::NotInitialized, text), Some(&id)).await;
            }
        }
    }

    /// Opens the session. Meanwhile pings are answered; any other message waits, and the messages after it are not
    /// read.
    async fn open(&mut self, request: Request, lines: &mut impl Input) {
        let id = request.id.clone();
        let sessions = self.sessions.clone();
        let named = self.settings.returns.unwrap_or_else(SessionId::random);
        let (principal, share) = (self.settings.caller.principal.clone(), self.settings.caller.share());
        let mut opening = pin!(sessions.create_as(named, request, &principal, share));
        let mut reading = true;
        let created = loop {
            let line = tokio::select! {
                created = &mut opening => break created,
                line = lines.next(), if reading => line,
                () = self.stop.cancelled() => {
                    break Err(Error::new(Reason::Draining, "The server is shutting down; try again later"));
                }
            };
            match line {
                Ok(Some(line)) => match pinged(&line) {
                    Some(id) => self.say(pong(&id)).await,
                    None => {
                        self.held = Some(line);
                        reading = false;
                    }
                },
                // The main loop finds the end again when the session is open.
                Ok(None) | Err(_) => reading = false,
            }
        };
        let created = match created {
            Ok(created) => created,
            Err(error) => return self.refuse(&error, Some(&id)).await,
        };
        if created.session.is_some() {
            self.tasks.opened.cancel();
        }
        self.in_use = created.in_use;
        if let Some(session) = &created.session {
            self.settings.calls.opened(&id, session);
        }
        // The answer to `initialize` comes before any other message of the session.
        self.answer(&id, created.answer).await;
        if let Some(session) = created.session {
            self.listen(&session, None).await;
            self.session = Some(session);
        }
    }

    /// Starts to carry the standalone stream, after this event or after the last one that was read.
    async fn listen(&self, session: &Arc<Session>, after: Option<EventId>) {
        let after = after.map(|event| event.to_string());
        match session.listen(after.as_ref().map(String::as_bytes)).await {
            Ok(reader) => {
                self.begin(reader.after()).await;
                let news = self.outlet(session).news(reader, self.tasks.leaving.clone());
                let (over, session) = (self.tasks.over.clone(), Arc::clone(session));
                self.tasks.spawn(async move {
                    // The stream completes when its session is over, or when another reader takes it over.
                    if news.await == Ended::Complete && session.is_over() {
                        over.cancel();
                    }
                });
            }
            Err(error) => {
                tracing::warn!(session = session.label(), %error, "the standalone stream is not passed on");
            }
        }
    }

    /// Gives a request to the session, and spawns a task if its answer does not come at once.
    async fn call(&self, session: Arc<Session>, request: Request, caller: Caller) {
        if self.settings.returns.is_some() && request.method != Method::Ping {
            return self.call_logged(&session, request, &caller).await;
        }
        let outlet = self.outlet(&session);
        let id = request.id.clone();
        let mut call = Box::pin(async move {
            let outcome = session.request(request, caller).await;
            let body = match outcome {
                Ok(Answer::Json(body) | Answer::TryLater { body, .. }) => body,
                Ok(Answer::Stream(reader)) => return outlet.answers(reader, vec![id]).await,
                Ok(Answer::Withdrawn) => return outlet.calls.withdrawn(&id),
                Err(error) => refusal(&error, Some(&id)),
            };
            outlet.calls.end(&id, &body);
            // Fails only when the writer is gone; then the client does not wait for an answer.
            drop(outlet.output.send(Outgoing::plain(body)).await);
        });
        // Polled here until it has to wait, so that the request is in flight before the next message, which may
        // cancel it.
        let done = std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_ready())).await;
        if !done {
            self.tasks.spawn(call);
        }
    }

    /// Gives a request to the session so that its answer always comes on a stream.
    async fn call_logged(&self, session: &Arc<Session>, request: Request, caller: &Caller) {
        let id = request.id.clone();
        match session.batch(vec![Message::Request(request)], caller) {
            Ok(Some(Answer::Stream(reader))) => self.carry(session, reader, vec![id]).await,
            Ok(_) => {}
            Err(error) => self.refuse(&error, Some(&id)).await,
        }
    }

    /// Carries the stream of these requests.
    async fn carry(&self, session: &Arc<Session>, reader: Reader, waiting: Vec<RequestId>) {
        self.begin(reader.after()).await;
        self.tasks.spawn(self.outlet(session).answers(reader, waiting));
    }

    /// Queued before another stream can begin, so that streams begin in the queue in the order of their numbers.
    async fn begin(&self, after: EventId) {
        drop(self.output.send(Outgoing::Begun(after)).await);
    }

    async fn notification(&self, notification: Notification) {
        if self.exchanging.as_ref().is_some_and(|exchanging| exchanging.cancels(&notification)) {
            return;
        }
        let Some(session) = &self.session else {
            tracing::debug!(method = %notification.method, "ignored a notification before initialize");
            return;
        };
        session.touch();
        let initialized = notification.method == Method::Initialized;
        // Fails when the session is over: then the connection ends too, and the client finds out.
        if let Err(error) = session.notification(notification) {
            tracing::debug!(session = session.label(), %error, "dropped a notification");
        } else if initialized && self.settings.returns.is_some() {
            // The client sends it only once, so it has to be saved before anything relies on it.
            session.saved().await;
        }
    }

    fn response(&self, response: Response) {
        self.questions.settle(&response.id);
        let Some(session) = &self.session else {
            tracing::debug!("ignored a response before initialize");
            return;
        };
        if let Err(error) = session.response(response) {
            tracing::debug!(session = session.label(), %error, "dropped a response");
        }
    }

    /// Takes an array of messages, all or none.
    async fn batch(&self, elements: &[RawJson], bytes: usize) -> Result<(), Error> {
        let calls = &self.settings.calls;
        let (session, Batch { messages, requests }) = self.read_batch(elements).inspect_err(|error| {
            calls.refused_batch(elements.len(), bytes, &refusal(error, None));
        })?;
        for message in &messages {
            if let Message::Response(response) = message {
                self.questions.settle(&response.id);
            }
        }
        let of_batch = messages.iter().zip(elements).filter_map(|(message, element)| match message {
            Message::Request(request) => Some((request, element.bytes().len())),
            Message::Notification(_) | Message::Response(_) => None,
        });
        let mut caller = self.settings.caller.clone();
        if let Some(correlation) = calls.begin_batch(of_batch, messages.len(), session) {
            caller.correlation = Some(correlation);
        }
        let answer = session.batch(messages, &caller).inspect_err(|error| {
            requests.iter().for_each(|id| calls.end(id, &refusal(error, Some(id))));
        })?;
        if let Some(Answer::Stream(reader)) = answer {
            self.carry(session, reader, requests).await;
        }
        Ok(())
    }

    fn read_batch(&self, elements: &[RawJson]) -> Result<(&Arc<Session>, Batch), Error> {
        let session = self.session.as_ref().filter(|session| session.revision().has_batches());
        let session = session.ok_or_else(no_batch)?;
        let batch = Batch::read(elements, Eras::Both).map_err(|fault| match fault {
            BatchFault::Modern => modern_batch(),
            BatchFault::Initialize => no_message("initialize must not be part of a batch"),
            BatchFault::Malformed(Malformed::Syntax(_)) => no_message("an element is not JSON"),
            BatchFault::Malformed(Malformed::Envelope(detail, _)) => no_message(detail),
        })?;
        Ok((session, batch))
    }

    /// A message that was too long to keep: refuses the request, or answers the server's question with an error.
    async fn too_long(&self, message: OversizeMessage) {
        let limit = self.settings.max_bytes;
        let error = Error::new(Reason::BodyTooLarge, format!("The line is longer than {limit} bytes"))
            .with("limit", limit);
        match message {
            OversizeMessage::Request(id) => self.refuse(&error, Some(&id)).await,
            OversizeMessage::Answer(id) => {
                tracing::debug!(limit, "an answer of the client was too long; dropped");
                let text = "The answer of the client was too long";
                self.response(Response { id, outcome: Err(RpcError::of(Reason::BodyTooLarge, text)) });
            }
            OversizeMessage::Other => self.refuse(&error, None).await,
        }
    }

    async fn refuse(&self, error: &Error, id: Option<&RequestId>) {
        let refusal = refusal(error, id);
        match id {
            Some(id) => self.answer(id, refusal).await,
            None => self.say(refusal).await,
        }
    }

    /// Answers a request that no session has.
    async fn answer(&self, id: &RequestId, answer: Bytes) {
        self.settings.calls.end(id, &answer);
        self.say(answer).await;
    }

    async fn say(&self, message: Bytes) {
        // Fails only when the writer is gone; `read` finds that out when it next waits for room.
        drop(self.output.send(Outgoing::plain(message)).await);
    }

    fn outlet(&self, session: &Arc<Session>) -> Outlet {
        Outlet {
            session: Arc::clone(session),
            output: self.output.clone(),
            questions: Arc::clone(&self.questions),
            calls: self.settings.calls.clone(),
        }
    }
}

/// The JSON-RPC message for an error. Logs the error with its cause; nothing else logs it.
pub(super) fn refusal(error: &Error, id: Option<&RequestId>) -> Bytes {
    let reason = error.reason().as_str();
    match (error.kind(), std::error::Error::source(error)) {
        (Kind::Unavailable | Kind::Bug, Some(cause)) => {
            tracing::warn!(reason, %error, cause, "request refused")
        }
        (_, cause) => tracing::debug!(reason, %error, cause, "request refused"),
    }
    message::write_error(id, &error.to_rpc())
}

fn pong(id: &RequestId) -> Bytes {
    message::write_result(id, &RawJson::EMPTY_OBJECT)
}

/// The id of the message, if it is a ping.
fn pinged(line: &InputMessage) -> Option<RequestId> {
    let message = match line {
        InputMessage::Whole(body) => Message::parse(body).ok()?,
        InputMessage::Read(Incoming::One(message), _) => message.clone(),
        InputMessage::Read(Incoming::Batch(_), _) | InputMessage::TooLong(_) => return None,
    };
    match message {
        Message::Request(request) if request.method == Method::Ping => Some(request.id),
        _ => None,
    }
}

fn no_message(detail: &'static str) -> Error {
    Error::new(Reason::InvalidRequest, format!("The message is not a JSON-RPC message: {detail}"))
}
