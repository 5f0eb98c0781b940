//! Questions between nodes that belong to no request of a client: an operator asks one node about all of them.
//!
//! A question and its answer are bytes here. In: POST at the path of questions, from a node of the cluster. Out: what the
//! [`PeerQuestions`] of this node says. A node that has none says so, as one of an earlier version does.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use tenure_session::id::NodeId;
use tenure_session::port::BoxFuture;

use super::links::{PeerBody, SendFailure};
use super::relay::Relay;

/// Where questions are posted.
pub(crate) const PATH: &str = "/questions";

/// The most bytes of a question and of an answer.
const MOST_ASKED: usize = 4 << 20;
const MOST_ANSWERED: usize = 64 << 20;

/// How long a question may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(5);

/// Answers the questions of other nodes.
pub trait PeerQuestions: Send + Sync + 'static {
    /// The answer to a question.
    ///
    /// # Cancel safety
    /// What it has begun to change may be done or not.
    fn answer(&self, question: Bytes) -> BoxFuture<Bytes>;
}

/// A place for what answers questions: the peer port is open before everything is there that can be asked about. Cheap to clone.
#[derive(Clone, Default)]
pub struct QuestionDesk(Arc<OnceLock<Arc<dyn PeerQuestions>>>);

/// Why a question has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unanswered {
    /// It did not reach the node, for this reason.
    NotReached(&'static str),
    /// The connection broke: the node may have begun with it.
    Broken,
    /// The node took too long: it may have begun with it.
    Late,
    /// The node does not answer questions: it is of another version, or has only just started.
    NotUnderstood,
}

impl QuestionDesk {
    /// From now on these answers are given. Only the first call counts.
    pub fn open(&self, questions: Arc<dyn PeerQuestions>) {
        drop(self.0.set(questions));
    }

    /// Answers a request of another node.
    pub(crate) async fn serve(&self, request: Request<Incoming>) -> Response<Bytes> {
        let status = |status| {
            let mut response = Response::new(Bytes::new());
            *response.status_mut() = status;
            response
        };
        let Some(questions) = self.0.get().filter(|_| request.method() == Method::POST) else {
            return status(StatusCode::NOT_FOUND);
        };
        let body = Limited::new(request.into_body(), MOST_ASKED).collect();
        let Ok(Ok(body)) = tokio::time::timeout(ARRIVAL, body).await else {
            return status(StatusCode::BAD_REQUEST);
        };
        let mut response = Response::new(questions.answer(body.to_bytes()).await);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}

impl std::fmt::Debug for QuestionDesk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QuestionDesk").field("is_open", &self.0.get().is_some()).finish()
    }
}

impl Relay {
    /// Asks another node, and waits at most this long for all of its answer.
    ///
    /// # Errors
    /// When there is no answer.
    ///
    /// # Cancel safety
    /// The node may have begun with it.
    pub async fn ask(&self, node: NodeId, question: Bytes, limit: Duration) -> Result<Bytes, Unanswered> {
        let mut request = Request::new(Full::new(question));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_static("https://peer.invalid/questions");
        let asked = async {
            let response = self.links().send(node, request).await.map_err(|failure| match failure {
                SendFailure::NotSent(why) => Unanswered::NotReached(why),
                SendFailure::Broken => Unanswered::Broken,
            })?;
            if response.status() != StatusCode::OK {
                return Err(Unanswered::NotUnderstood);
            }
            collected(response.into_body()).await
        };
        tokio::time::timeout(limit, asked).await.unwrap_or(Err(Unanswered::Late))
    }
}

async fn collected(mut body: PeerBody) -> Result<Bytes, Unanswered> {
    let mut all = BytesMut::new();
    while let Some(data) = body.data().await {
        let data = data.map_err(|_| Unanswered::Broken)?;
        if all.len() + data.len() > MOST_ANSWERED {
            return Err(Unanswered::Broken);
        }
        all.extend_from_slice(&data);
    }
    Ok(all.freeze())
}

/// Why, as a fragment for people.
impl std::fmt::Display for Unanswered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NotReached(why) => why,
            Self::Broken => "the connection to it broke",
            Self::Late => "it did not answer in time",
            Self::NotUnderstood => "it does not understand the question",
        })
    }
}
