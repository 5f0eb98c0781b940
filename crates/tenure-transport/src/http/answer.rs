//! The shape that the answer to a POST takes: as `/mcp` has it, or as one of the doors does.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, Response, StatusCode};
use tenure_protocol::{Error, Message, Reason, RequestId, RpcError, message};
use tenure_session::call::Collect;
use tenure_session::{Answer, Reader, Session};
use tokio::sync::mpsc;

use super::body::Body;
use super::endpoint::{Endpoint, event_stream};
use super::headers::Wanted;
use super::leniencies::Leniencies;
use super::reject::{json, reject};
use super::sse;
use crate::duplex::{MAX_WAITING, Outgoing, Outlet, Questions};

/// How a POST is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Manner {
    /// With JSON if the answer is the first thing to say and comes soon, with a stream otherwise: `/mcp`.
    Streamable,
    /// With JSON, however long it takes: `/rpc`.
    Json,
    /// With a stream that ends with `done`: POST `/sse`.
    Done,
}

/// What the answer is to.
pub(super) enum Asked {
    /// One request.
    One(RequestId),
    /// An array of them.
    Batch(Vec<RequestId>),
}

impl Manner {
    pub(super) fn check_accept(self, headers: &HeaderMap, leniencies: Leniencies) -> Result<(), Error> {
        match self {
            Self::Streamable => leniencies.check_accept(headers, Wanted::JsonAndEvents),
            // There is no choice to be made, and old clients say nothing or anything.
            Self::Json | Self::Done => Ok(()),
        }
    }

    /// How a client gets an answer whose connection closed.
    pub(super) fn collect(self) -> Collect {
        match self {
            Self::Streamable => Collect::Resumes,
            Self::Json | Self::Done => Collect::Here,
        }
    }

    /// One message that is the whole answer.
    pub(super) fn say(self, body: Bytes) -> Response<Body> {
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

    /// The response for an error. One that is an answer to the request has the shape of answers.
    pub(super) fn refuse(self, error: &Error, id: Option<&RequestId>) -> Response<Body> {
        let response = reject(error, id);
        match self {
            Self::Done if response.status() == StatusCode::OK => {
                self.say(message::write_error(id, &error.to_rpc()))
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
        asked: Asked,
        manner: Manner,
    ) -> Response<Body> {
        match (answer, manner) {
            (Answer::Json(body), _) => manner.say(body),
            (Answer::Stream(reader), Manner::Streamable) => self.stream(reader),
            (Answer::Stream(reader), Manner::Done) => {
                event_stream(Body::events_then_done(reader, self.0.rules.keep_alive))
            }
            (answer @ Answer::Stream(_), Manner::Json) => {
                json(StatusCode::OK, self.whole(answer, session, asked).await)
            }
            // The client said it does not want an answer, so it gets a stream without one.
            (Answer::Withdrawn, Manner::Streamable) => event_stream(Body::comment(b": cancelled\n\n")),
            (Answer::Withdrawn, Manner::Done) => event_stream(Body::comment(sse::DONE)),
            (Answer::Withdrawn, Manner::Json) => json(StatusCode::OK, withdrawn(&asked)),
        }
    }

    /// The answer as one JSON text, however long it takes.
    pub(super) async fn whole(&self, answer: Answer, session: &Arc<Session>, asked: Asked) -> Bytes {
        match answer {
            Answer::Json(body) => body,
            Answer::Stream(reader) => Box::pin(collect(reader, session, asked)).await,
            Answer::Withdrawn => withdrawn(&asked),
        }
    }
}

/// Waits for the last answer of a stream. What is said meanwhile has no place in one JSON answer and is dropped, and
/// what the server asks is answered for the client: nobody there can.
async fn collect(reader: Reader, session: &Arc<Session>, asked: Asked) -> Bytes {
    let (output, mut said) = mpsc::channel(MAX_WAITING);
    let questions = Arc::new(Questions::unanswerable());
    let outlet = Outlet { session: Arc::clone(session), output, questions };
    let waiting = match &asked {
        Asked::One(id) => vec![id.clone()],
        Asked::Batch(ids) => ids.clone(),
    };
    let gather = async {
        let mut answers: Vec<Bytes> = Vec::new();
        while let Some(outgoing) = said.recv().await {
            let Outgoing::Message { body, .. } = outgoing else { continue };
            if let Ok(Message::Response(_)) = Message::parse(&body) {
                answers.push(body);
            }
        }
        answers
    };
    let ((), mut answers) = tokio::join!(outlet.answers(reader, waiting), gather);
    match asked {
        Asked::One(_) => answers.pop().unwrap_or_else(|| withdrawn(&asked)),
        Asked::Batch(_) => {
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
    }
}

/// A client that withdrew its request still waits for the response to its POST.
fn withdrawn(asked: &Asked) -> Bytes {
    match asked {
        Asked::One(id) => {
            message::write_error(Some(id), &RpcError::of(Reason::Cancelled, "The request was withdrawn"))
        }
        Asked::Batch(_) => Bytes::from_static(b"[]"),
    }
}
