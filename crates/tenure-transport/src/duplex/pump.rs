//! Carries the messages of one stream to the output queue, in order. It pulls a message when the last one was queued.
//!
//! A stream may close while its requests go on; over HTTP the client then resumes it. Here the connection stays open,
//! so the pump resumes the stream for the client. If an answer is lost all the same, the pump sends an error in its
//! place, so that the client does not wait for ever.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tenure_protocol::{Error, Kind, Message, Method, Reason, RequestId, message, params};
use tenure_session::session::Item;
use tenure_session::{EventId, Reader, Session};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::outgoing::Outgoing;
use super::questions::Questions;
use crate::observe::OpenCalls;

/// How often a stream may close in a row without a message before its requests are given up.
const MAX_FRUITLESS: u32 = 5;

/// Where the messages of a session go.
#[derive(Clone, Debug)]
pub(crate) struct Outlet {
    pub(crate) session: Arc<Session>,
    pub(crate) output: mpsc::Sender<Outgoing>,
    pub(crate) questions: Arc<Questions>,
    /// The requests that are observed.
    pub(crate) calls: OpenCalls,
}

/// One stream on its way out.
struct Pump {
    outlet: Outlet,
    reader: Reader,
    /// Requests whose answers have not come on this stream yet.
    waiting: Vec<RequestId>,
    /// The last event that was queued for the client.
    last: Option<EventId>,
    /// Why an answer may be missing.
    lost: Option<Error>,
    fruitless: u32,
}

/// How a stream came to an end.
#[derive(PartialEq, Eq)]
pub(crate) enum Ended {
    /// It is complete.
    Complete,
    /// It closed, and can be resumed after this time.
    Closed(Duration),
    /// The writer is gone, so its messages are not read any more.
    Unread,
}

impl Outlet {
    /// Carries the stream of these requests until all are answered.
    pub(crate) async fn answers(self, reader: Reader, waiting: Vec<RequestId>) {
        let (stream, output) = (reader.after().stream, self.output.clone());
        let mut pump = Pump::new(self, reader, waiting);
        loop {
            match pump.carry().await {
                Ended::Complete => break,
                Ended::Unread => return,
                Ended::Closed(retry) => {
                    if !pump.resume(retry).await {
                        break;
                    }
                }
            }
        }
        let (calls, left) = (pump.outlet.calls.clone(), pump.waiting.clone());
        pump.answer_lost().await;
        left.iter().for_each(|id| calls.withdrawn(id));
        // Fails only when the writer is gone; then the cursor is not kept any more.
        drop(output.send(Outgoing::Ended(stream)).await);
    }

    /// Carries the standalone stream until the session is over or, once `leaving`, until all its messages were queued.
    pub(crate) async fn news(self, reader: Reader, leaving: CancellationToken) -> Ended {
        let session = Arc::clone(&self.session);
        // Closes the current reader, whenever `leaving` is cancelled; a later reader checks `leaving` itself.
        let told = async {
            leaving.cancelled().await;
            session.close_news();
            std::future::pending().await
        };
        tokio::select! {
            ended = self.carry_news(reader, &leaving) => ended,
            ended = told => ended,
        }
    }

    async fn carry_news(self, reader: Reader, leaving: &CancellationToken) -> Ended {
        let session = Arc::clone(&self.session);
        let mut pump = Pump::new(self, reader, Vec::new());
        loop {
            let ended = pump.carry().await;
            let Ended::Closed(retry) = ended else { return ended };
            if leaving.is_cancelled() {
                return ended;
            }
            leaving.run_until_cancelled(pump.pause(retry)).await;
            // Resumes after the last event that was read.
            match session.listen(None).await {
                Ok(reader) => {
                    pump.reader = reader;
                    // If `leaving` was cancelled in between, only the reader before this one was told to close.
                    if leaving.is_cancelled() {
                        session.close_news();
                    }
                }
                Err(error) if error.kind() == Kind::Gone => return Ended::Complete,
                Err(error) => {
                    let session = session.label();
                    tracing::warn!(session, %error, "the standalone stream cannot be read; trying again");
                }
            }
        }
    }
}

impl Pump {
    fn new(outlet: Outlet, reader: Reader, waiting: Vec<RequestId>) -> Self {
        Self { outlet, reader, waiting, last: None, lost: None, fruitless: 0 }
    }

    /// Carries messages until the reader ends.
    async fn carry(&mut self) -> Ended {
        while let Some(item) = self.reader.next().await {
            match item {
                Item::Prime(id) => self.last = Some(id),
                Item::Event { id, body } => {
                    self.fruitless = 0;
                    self.last = id.or(self.last);
                    // Noted before it is queued, because the client may answer at once.
                    self.look(&body);
                    if self.outlet.output.send(Outgoing::Message { body, event: id }).await.is_err() {
                        return Ended::Unread;
                    }
                }
                Item::Gap => {
                    self.lost = Some(Error::new(
                        Reason::StreamForgotten,
                        "The answer was dropped because the client read too slowly",
                    ));
                    let session = self.outlet.session.label();
                    tracing::debug!(session, "messages were dropped: the client reads too slowly");
                }
                Item::Close(retry) => return Ended::Closed(retry),
            }
        }
        Ended::Complete
    }

    /// Notes which request a message answers, or which question it asks or cancels.
    fn look(&mut self, body: &Bytes) {
        let Outlet { session, questions, calls, .. } = &self.outlet;
        match Message::parse(body) {
            Ok(Message::Response(response)) => {
                calls.end(&response.id, body);
                self.waiting.retain(|id| *id != response.id);
            }
            Ok(Message::Request(request)) => questions.ask(request.id, session),
            Ok(Message::Notification(told)) if told.method == Method::Cancelled => {
                if let Some(id) = params::cancelled_id(told.params.as_ref()) {
                    questions.settle(&id);
                }
            }
            Ok(Message::Notification(_)) => {}
            Err(fault) => {
                tracing::error!(session = session.label(), ?fault, "the session sent a malformed message")
            }
        }
    }

    /// Resumes the stream after the last event. Returns whether that worked.
    async fn resume(&mut self, retry: Duration) -> bool {
        self.pause(retry).await;
        let unreadable = || Error::new(Reason::StoreUnavailable, "The answer could not be read back");
        let Some(last) = self.last.filter(|_| self.fruitless <= MAX_FRUITLESS) else {
            self.lost = Some(unreadable());
            return false;
        };
        match self.outlet.session.listen(Some(last.to_string().as_bytes())).await {
            Ok(reader) => {
                self.reader = reader;
                true
            }
            Err(error) => {
                self.lost = Some(unreadable().caused_by(error));
                false
            }
        }
    }

    /// Waits before a resume, if the stream closed without a message since the last resume.
    async fn pause(&mut self, retry: Duration) {
        if self.fruitless > 0 {
            tokio::time::sleep(retry).await;
        }
        self.fruitless += 1;
    }

    /// Sends an error for each request whose answer was lost.
    async fn answer_lost(self) {
        let Some(error) = self.lost else { return };
        for id in self.waiting {
            tracing::warn!(session = self.outlet.session.label(), request = ?id, %error, "an answer was lost");
            let body = message::write_error(Some(&id), &error.to_rpc());
            self.outlet.calls.end(&id, &body);
            if self.outlet.output.send(Outgoing::plain(body)).await.is_err() {
                return;
            }
        }
    }
}
