//! The format of the answer to a POST: of `/mcp`, or of one of the doors.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, Response, StatusCode};
use tenure_protocol::{Error, Message, Reason, RequestId, RpcError, message};
use tenure_session::call::Collect;
use tenure_session::{Answer, Reader, Session};
use tokio::sync::mpsc;

use super::body::Body;
use super::endpoint::{Endpoint, event_stream};
use super::event_body::EventsThenDone;
use super::headers::RequiredAccept;
use super::leniencies::Leniencies;
use super::reject::{json, reject, reject_new, with_retry};
use super::sse;
use crate::duplex::{MAX_WAITING, Outgoing, Outlet, Questions};
use crate::observe::OpenCalls;

/// The format in which a POST is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AnswerFormat {
    /// JSON if the answer comes soon and no other message comes before it, a stream otherwise: `/mcp`.
    Streamable,
    /// JSON, however long it takes: `/rpc`.
    Json,
    /// A stream that ends with `done`: POST `/sse`.
    Done,
}

/// The requests of one POST.
pub(super) enum PostedRequests {
    /// One request.
    One(RequestId),
    /// An array of them.
    Batch(Vec<RequestId>),
}

impl AnswerFormat {
    pub(super) fn check_accept(self, headers: &HeaderMap, leniencies: Leniencies) -> Result<(), Error> {
        match self {
            Self::Streamable => leniencies.check_accept(headers, RequiredAccept::JsonAndEvents),
            // The format is fixed, and old clients send no `Accept`, or a wrong one.
            Self::Json | Self::Done => Ok(()),
        }
    }

    /// How a client gets its answer if its connection closes first.
    pub(super) fn collect(self) -> Collect {
        match self {
            Self::Streamable => Collect::Resumes,
            Self::Json | Self::Done => Collect::Here,
        }
    }

    /// The response for an answer of one message.
    pub(super) fn respond(self, body: Bytes) -> Response<Body> {
        match self {
            Self::Streamable | Self::Json => json(StatusCode::OK, body),
            Self::Done => {
                let mut out = BytesMut::new();
                sse::write_message(&body, &mut out);
                out.put_slice(sse::DONE);
                event_stream(Body::full(out.freeze()))
            }
        }
    }

    /// The response for an error. An error that answers the request (status 200) has the format of answers.
    pub(super) fn refuse(self, error: &Error, id: Option<&RequestId>) -> Response<Body> {
        self.formatted(reject(error, id), error, id)
    }

    /// The response for an error about a session that was not opened.
    pub(super) fn refuse_new(self, error: &Error, id: &RequestId) -> Response<Body> {
        self.formatted(reject_new(error, id), error, Some(id))
    }

    fn formatted(self, response: Response<Body>, error: &Error, id: Option<&RequestId>) -> Response<Body> {
        match self {
            Self::Done if response.status() == StatusCode::OK => {
                self.respond(message::write_error(id, &error.to_rpc()))
            }
            _ => response,
        }
    }
}

impl Endpoint {
    pub(super) async fn answer(
        &self,
        answer: Answer,
        session: &Arc<Session>,
        requests: PostedRequests,
        format: AnswerFormat,
    ) -> Response<Body> {
        match (answer, format) {
            (Answer::Json(body), _) => format.respond(body),
            (Answer::TryLater { body, retry_after }, _) => with_retry(format.respond(body), retry_after),
            (Answer::Stream(reader), AnswerFormat::Streamable) => self.stream(reader),
            (Answer::Stream(reader), AnswerFormat::Done) => {
                event_stream(Body::events(EventsThenDone::new(reader), self.0.rules.keep_alive))
            }
            (answer @ Answer::Stream(_), AnswerFormat::Json) => {
                json(StatusCode::OK, self.whole(answer, session, requests).await)
            }
            // The client has cancelled the request, so it gets a stream without an answer.
            (Answer::Withdrawn, AnswerFormat::Streamable) => event_stream(Body::comment(b": cancelled\n\n")),
            (Answer::Withdrawn, AnswerFormat::Done) => event_stream(Body::comment(sse::DONE)),
            (Answer::Withdrawn, AnswerFormat::Json) => json(StatusCode::OK, withdrawn(&requests)),
        }
    }

    /// Waits for the whole answer as one JSON text, however long it takes.
    pub(super) async fn whole(
        &self,
        answer: Answer,
        session: &Arc<Session>,
        requests: PostedRequests,
    ) -> Bytes {
        match answer {
            Answer::Json(body) | Answer::TryLater { body, .. } => body,
            Answer::Stream(reader) => Box::pin(collect(reader, session, requests)).await,
            Answer::Withdrawn => withdrawn(&requests),
        }
    }
}

/// Waits for the last answer of a stream. Notifications do not fit into one JSON answer and are dropped. The server's
/// questions are answered with an error, because this client cannot be asked.
async fn collect(reader: Reader, session: &Arc<Session>, requests: PostedRequests) -> Bytes {
    let (output, mut messages) = mpsc::channel(MAX_WAITING);
    let questions = Arc::new(Questions::unanswerable());
    let outlet = Outlet { session: Arc::clone(session), output, questions, calls: OpenCalls::default() };
    let waiting = match &requests {
        PostedRequests::One(id) => vec![id.clone()],
        PostedRequests::Batch(ids) => ids.clone(),
    };
    let gather = async {
        let mut answers: Vec<Bytes> = Vec::new();
        while let Some(outgoing) = messages.recv().await {
            let Outgoing::Message { body, .. } = outgoing else { continue };
            if let Ok(Message::Response(_)) = Message::parse(&body) {
                answers.push(body);
            }
        }
        answers
    };
    let ((), mut answers) = tokio::join!(outlet.answers(reader, waiting), gather);
    match requests {
        PostedRequests::One(_) => answers.pop().unwrap_or_else(|| withdrawn(&requests)),
        PostedRequests::Batch(_) => array(&answers),
    }
}

/// The same error as the answer to each of these requests.
pub(super) fn errors(requests: &[RequestId], error: &Error) -> Bytes {
    let error = error.to_rpc();
    let answers: Vec<Bytes> = requests.iter().map(|id| message::write_error(Some(id), &error)).collect();
    array(&answers)
}

fn array(answers: &[Bytes]) -> Bytes {
    let mut all = BytesMut::from(&b"["[..]);
    for (index, answer) in answers.iter().enumerate() {
        if index > 0 {
            all.put_u8(b',');
        }
        all.put_slice(answer);
    }
    all.put_u8(b']');
    all.freeze()
}

/// The answer for a request that the client withdrew: its POST still needs a response.
fn withdrawn(requests: &PostedRequests) -> Bytes {
    match requests {
        PostedRequests::One(id) => {
            message::write_error(Some(id), &RpcError::of(Reason::Cancelled, "The request was withdrawn"))
        }
        PostedRequests::Batch(_) => Bytes::from_static(b"[]"),
    }
}
