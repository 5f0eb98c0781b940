//! The record of a call whose client can come back for it: the request, and later its answer.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tenure_protocol::json::object;
use tenure_protocol::{Method, RawJson, Request, RequestId};

use crate::fingerprint::Fingerprint;
use crate::framed::{Frame, UnreadableFrame};
use crate::id::{NodeId, Route};

const FRAME: Frame = Frame { of: "call", format: 1 };

/// A call as it is kept.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct CallRecord {
    pub(crate) head: CallHead,
    /// The whole response, as the client gets it. Empty until the call is answered.
    pub(crate) outcome: Bytes,
}

/// Everything about a call but its outcome.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct CallHead {
    /// `None` for the endpoint without a name.
    pub(crate) route: Option<String>,
    /// The id of the request, as JSON text.
    id: String,
    method: String,
    /// The params as the server gets them, as JSON text; until there is an outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    params: Option<String>,
    /// Whether a server may have seen the call. If not, the next process may start it, whatever the call does.
    pub(crate) begun: bool,
    /// The server that the call was for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<NotedServer>,
    /// The node at which the call runs, as 16 hex digits; only in a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
}

/// A server as it is written in a record.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct NotedServer {
    pub(crate) fingerprint: Fingerprint,
    /// The name that the server gave itself, if it was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
}

impl CallHead {
    pub(crate) fn new(request: &Request, route: &Route, begun: bool, server: Option<NotedServer>) -> Self {
        Self {
            route: route.name().map(str::to_owned),
            id: String::from_utf8_lossy(request.id.raw()).into_owned(),
            method: request.method.as_str().to_owned(),
            params: request.params.as_ref().map(|params| object::text(params).to_owned()),
            begun,
            server,
            node: None,
        }
    }

    /// The same for a call that runs at this node, if it is in a cluster.
    pub(crate) fn at(self, node: Option<String>) -> Self {
        Self { node, ..self }
    }

    /// The node at which the call runs, if it is in a cluster.
    pub(crate) fn node(&self) -> Option<NodeId> {
        NodeId::parse(self.node.as_deref()?)
    }

    /// The request, if it is still there.
    pub(crate) fn request(&self) -> Option<Request> {
        let params = match &self.params {
            Some(params) => Some(RawJson::parse(params.clone())?),
            None => None,
        };
        let id = RequestId::from_raw(Bytes::from(self.id.clone()))?;
        Some(Request { id, method: Method::new(&self.method), params })
    }
}

impl CallRecord {
    /// The record of a call without an outcome.
    pub(crate) fn open(head: CallHead) -> Self {
        Self { head, outcome: Bytes::new() }
    }

    /// The record of a call with its outcome. The params are removed, because they are no longer needed.
    pub(crate) fn ended(mut head: CallHead, outcome: Bytes) -> Self {
        head.params = None;
        Self { head, outcome }
    }

    pub(crate) fn encode(&self) -> Bytes {
        FRAME.encode(&self.head, &self.outcome)
    }

    pub(crate) fn decode(bytes: &Bytes) -> Result<Self, UnreadableFrame> {
        FRAME.decode(bytes).map(|(head, outcome)| Self { head, outcome })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> CallHead {
        let request = Request {
            id: RequestId::from_number(7),
            method: Method::ToolsCall,
            params: Some(RawJson::trusted(r#"{ "name":"dig" }"#)),
        };
        let server =
            NotedServer { fingerprint: Fingerprint::unconfigured("foo"), name: Some("foo".to_owned()) };
        CallHead::new(&request, &Route::named("b"), true, Some(server))
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
        let ended = CallRecord::ended(head(), Bytes::from_static(b"{}"));
        for record in [CallRecord::open(head()), ended] {
            assert_eq!(CallRecord::decode(&record.encode()).unwrap(), record);
        }
        let request = head().request().unwrap();
        assert_eq!((request.id, request.method), (RequestId::from_number(7), Method::ToolsCall));
        assert_eq!(object::text(&request.params.unwrap()), r#"{ "name":"dig" }"#);
    }

    #[test]
    fn the_params_are_kept_until_there_is_an_outcome() {
        let ended = CallRecord::ended(head(), Bytes::from_static(b"{}"));
        assert!(!String::from_utf8_lossy(&ended.encode()).contains("dig"));
    }

    #[test]
    fn other_bytes_are_no_record() {
        let whole = CallRecord::open(head()).encode();
        let newer = CallRecord::decode(&Bytes::from_static(b"\x02x"));
        assert!(matches!(newer, Err(UnreadableFrame::Newer { found: 2, .. })));
        for cut in 0..whole.len() {
            assert!(
                matches!(CallRecord::decode(&whole.slice(..cut)), Err(UnreadableFrame::Broken(_))),
                "cut at {cut}"
            );
        }
    }
}
