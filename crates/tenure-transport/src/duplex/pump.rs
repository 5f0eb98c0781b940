//! Carries the messages of one stream to the output, in their order, one when the last one was taken.
//!
//! A stream may close its connection while it goes on; over HTTP the client then comes back. Here the
//! connection is still there, so the pump does it for the client. If the answers to its requests are lost all the same, it
//! says so in their place: nobody may wait for ever.

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

/// How often a stream may close in a row without a message before its requests are given up.
const MAX_FRUITLESS: u32 = 5;

/// Where the messages of a session go.
#[derive(Clone, Debug)]
pub(crate) struct Outlet {
    pub(crate) session: Arc<Session>,
    pub(crate) output: mpsc::Sender<Outgoing>,
    pub(crate) questions: Arc<Questions>,
}

/// One stream on its way out.
struct Pump {
    outlet: Outlet,
    reader: Reader,
    /// Requests whose answers are to come on this stream.
    waiting: Vec<RequestId>,
    /// The last event that the client was given.
    last: Option<EventId>,
    /// Why an answer may be missing.
    amiss: Option<Error>,
    fruitless: u32,
}

/// How a stream came to an end.
#[derive(PartialEq, Eq)]
pub(crate) enum Ended {
    /// It is complete.
    Complete,
    /// It closed, and somebody may come back to it.
    Closed(Duration),
    /// Nobody takes its messages any more.
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
                    if !pump.come_back(retry).await {
                        break;
                    }
                }
            }
        }
        pump.own_up().await;
        // If nobody reads any more, nobody keeps count either.
        drop(output.send(Outgoing::Ended(stream)).await);
    }

    /// Carries what belongs to no request, until the session is over or, once `leaving`, all of it was taken.
    pub(crate) async fn news(self, reader: Reader, leaving: CancellationToken) -> Ended {
        let session = Arc::clone(&self.session);
        // Whenever that is: a reader that comes later looks for itself.
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
            // It goes on after the last event that was given.
            match session.listen(None).await {
                Ok(reader) => {
                    pump.reader = reader;
                    // Whoever left in between asked the reader before this one to close.
                    if leaving.is_cancelled() {
                        session.close_news();
                    }
                }
                Err(error) if error.kind() == Kind::Gone => return Ended::Complete,
                Err(error) => {
                    tracing::warn!(session = session.label(), %error, "news cannot be read; trying on");
                }
            }
        }
    }
}

impl Pump {
    fn new(outlet: Outlet, reader: Reader, waiting: Vec<RequestId>) -> Self {
        Self { outlet, reader, waiting, last: None, amiss: None, fruitless: 0 }
    }

    /// Carries messages until the reader ends.
    async fn carry(&mut self) -> Ended {
        while let Some(item) = self.reader.next().await {
            match item {
                Item::Prime(id) => self.last = Some(id),
                Item::Event { id, body } => {
                    self.fruitless = 0;
                    self.last = id.or(self.last);
                    // Before it is sent, because the client may answer at once.
                    self.look(&body);
                    if self.outlet.output.send(Outgoing::Message { body, event: id }).await.is_err() {
                        return Ended::Unread;
                    }
                }
                Item::Gap => {
                    self.amiss = Some(Error::new(
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

    /// Notes what a message settles or asks.
    fn look(&mut self, body: &Bytes) {
        let Outlet { session, questions, .. } = &self.outlet;
        match Message::parse(body) {
            Ok(Message::Response(response)) => self.waiting.retain(|id| *id != response.id),
            Ok(Message::Request(request)) => questions.ask(request.id, session),
            Ok(Message::Notification(told)) if told.method == Method::Cancelled => {
                if let Some(id) = params::cancelled_id(told.params.as_ref()) {
                    questions.settle(&id);
                }
            }
            Ok(Message::Notification(_)) => {}
            Err(fault) => tracing::error!(session = session.label(), ?fault, "a message of ours is none"),
        }
    }

    /// Resumes the stream after the last event. False if that cannot be done.
    async fn come_back(&mut self, retry: Duration) -> bool {
        self.pause(retry).await;
        let unreadable = || Error::new(Reason::StoreUnavailable, "The answer could not be read back");
        let Some(last) = self.last.filter(|_| self.fruitless <= MAX_FRUITLESS) else {
            self.amiss = Some(unreadable());
            return false;
        };
        match self.outlet.session.listen(Some(last.to_string().as_bytes())).await {
            Ok(reader) => {
                self.reader = reader;
                true
            }
            Err(error) => {
                self.amiss = Some(unreadable().caused_by(error));
                false
            }
        }
    }

    /// A stream that closed once is read on at once; one that does nothing but close is given time.
    async fn pause(&mut self, retry: Duration) {
        if self.fruitless > 0 {
            tokio::time::sleep(retry).await;
        }
        self.fruitless += 1;
    }

    /// Answers what went unanswered because messages were lost.
    async fn own_up(self) {
        let Some(error) = self.amiss else { return };
        for id in self.waiting {
            tracing::warn!(session = self.outlet.session.label(), request = ?id, %error, "an answer was lost");
            let body = message::write_error(Some(&id), &error.to_rpc());
            if self.outlet.output.send(Outgoing::plain(body)).await.is_err() {
                return;
            }
        }
    }
}
