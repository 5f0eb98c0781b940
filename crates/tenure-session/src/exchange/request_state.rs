//! `requestState`: the data that a client carries from one attempt at a request to the next.
//!
//! A client could change it, so it is sealed, bound to its caller, endpoint, method and params, and has an expiry. It
//! contains the text of a handler, the name of a parked call, or the instruction to run the request from its beginning.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use tenure_protocol::json::members::{self, MemberLookup};
use tenure_protocol::json::prefilter::Prefilter;
use tenure_protocol::modern::digest::Digest;
use tenure_protocol::{Error, RawJson, Reason, Request};

use crate::id::{NodeId, Principal, Route};
use crate::port::clock::Time;
use crate::port::seal::Seal;

/// The binding of a state: one caller's attempts at one request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Bound(Vec<u8>);

/// The content of a state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum SealedContent {
    /// The text of a handler.
    Text(String),
    /// The name of a parked call.
    Parked(ParkedName),
    /// The request has to run from its beginning, with the state and the answers of its earlier attempt.
    Again(Brought),
}

/// The name of a parked call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ParkedName {
    /// Its secret name.
    pub(super) name: u128,
    /// The process in which it is parked.
    pub(super) process: u64,
    /// The node of a cluster that this process was then.
    pub(super) node: Option<NodeId>,
}

/// The state and the answers that an attempt brings from earlier ones.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Brought {
    /// The text of a handler, or the state of a server that seals its states itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<String>,
    /// The answers, as JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) responses: Option<String>,
}

/// The result of opening a state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum OpenedState {
    /// Sealed by us, with this content.
    Holds(SealedContent),
    /// Sealed by us, but expired or unreadable.
    Spent,
    /// Not sealed by us, or not for this request.
    Foreign,
}

const TEXT: u8 = 1;
const PARKED: u8 = 2;
const AGAIN: u8 = 3;

impl Bound {
    pub(super) fn new(request: &Request, route: &Route, principal: &Principal) -> Self {
        let digest = Digest::of(request.params.as_ref());
        let mut bound = b"tenure state\0".to_vec();
        // Each text is prefixed with its presence and length, so that different texts never give the same bytes.
        for text in [principal.name(), route.name(), Some(request.method.as_str())] {
            bound.push(u8::from(text.is_some()));
            let text = text.unwrap_or_default();
            bound.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bound.extend_from_slice(text.as_bytes());
        }
        bound.extend_from_slice(digest.as_bytes());
        Self(bound)
    }

    /// Seals a content that is valid until `expires`.
    pub(super) fn seal(&self, seal: &dyn Seal, held: &SealedContent, expires: Time) -> Result<String, Error> {
        let mut plain = expires.0.to_le_bytes().to_vec();
        match held {
            SealedContent::Text(text) => {
                plain.push(TEXT);
                plain.extend_from_slice(text.as_bytes());
            }
            SealedContent::Parked(parked) => {
                plain.push(PARKED);
                plain.extend_from_slice(&parked.name.to_le_bytes());
                plain.extend_from_slice(&parked.process.to_le_bytes());
                // Last and only in a cluster: a process that is in none may be of a version that does not know it.
                if let Some(node) = parked.node {
                    plain.extend_from_slice(node.as_bytes());
                }
            }
            SealedContent::Again(brought) => {
                plain.push(AGAIN);
                plain.extend_from_slice(RawJson::of(brought).bytes());
            }
        }
        let sealed = seal.seal(&self.0, &plain);
        let sealed =
            sealed.ok_or_else(|| Error::new(Reason::Internal, "The request's state could not be sealed"))?;
        Ok(URL_SAFE_NO_PAD.encode(sealed))
    }

    /// Opens a sealed state.
    pub(super) fn open(&self, seal: &dyn Seal, text: &str, now: Time) -> OpenedState {
        let sealed = URL_SAFE_NO_PAD.decode(text).ok();
        match sealed.and_then(|sealed| seal.open(&self.0, &sealed)) {
            Some(plain) => read(&plain, now).map_or(OpenedState::Spent, OpenedState::Holds),
            None => OpenedState::Foreign,
        }
    }
}

fn read(plain: &[u8], now: Time) -> Option<SealedContent> {
    let (expires, rest) = plain.split_first_chunk::<8>()?;
    let (kind, content) = rest.split_first()?;
    if now.0 >= u64::from_le_bytes(*expires) {
        return None;
    }
    match *kind {
        TEXT => String::from_utf8(content.to_vec()).ok().map(SealedContent::Text),
        PARKED => {
            let (name, process) = content.split_first_chunk::<16>()?;
            let (process, node) = process.split_first_chunk::<8>()?;
            let node = match node {
                [] => None,
                node => Some(NodeId::from_bytes(node.try_into().ok()?)),
            };
            let (name, process) = (u128::from_le_bytes(*name), u64::from_le_bytes(*process));
            Some(SealedContent::Parked(ParkedName { name, process, node }))
        }
        AGAIN => serde_json::from_slice(content).ok().map(SealedContent::Again),
        _ => None,
    }
}

/// The state that a request brings.
///
/// # Errors
/// When it is not a string, or appears twice.
pub fn brought(params: Option<&RawJson>) -> Result<Option<String>, Error> {
    let Some(params) = params else { return Ok(None) };
    // Nearly every request is a first attempt.
    static MENTIONED: LazyLock<Prefilter> = LazyLock::new(|| Prefilter::of("requestState"));
    if !MENTIONED.may_be_in(params.bytes()) {
        return Ok(None);
    }
    let value = match members::find(params.bytes(), "requestState") {
        MemberLookup::Absent => return Ok(None),
        MemberLookup::One(value) if value.get() == "null" => return Ok(None),
        MemberLookup::One(value) => value,
        MemberLookup::Twice => return Err(Error::new(Reason::InvalidParams, "requestState stands twice")),
    };
    serde_json::from_str(value.get())
        .map(Some)
        .map_err(|_| Error::new(Reason::InvalidParams, "requestState must be a string"))
}

/// The error for a state that cannot be used.
pub fn invalid() -> Error {
    Error::new(
        Reason::InvalidRequestState,
        "The requestState is not one of ours, or not for this request, or it is too old: send the request anew without it",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_protocol::Method;
    use tenure_protocol::RequestId;

    /// Binds by a checksum, which is enough to test the binding.
    struct Plain;

    impl Seal for Plain {
        fn seal(&self, bound: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
            use sha2::Digest as _;
            Some([&sha2::Sha256::digest([bound, plain].concat())[..], plain].concat())
        }

        fn open(&self, bound: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
            let (_, plain) = sealed.split_at_checked(32)?;
            (self.seal(bound, plain)? == sealed).then(|| plain.to_vec())
        }
    }

    fn request(method: &str, params: &'static str) -> Request {
        Request {
            id: RequestId::from_number(1),
            method: Method::new(method),
            params: Some(RawJson::trusted(params)),
        }
    }

    #[test]
    fn a_state_is_good_for_one_callers_attempts_at_one_request() {
        let params = r#"{"name":"t","arguments":{"a":1},"_meta":{"x":1}}"#;
        let later = r#"{"arguments":{"a":1},"name":"t","inputResponses":{},"requestState":"s"}"#;
        let (ann, main) = (Principal::named("ann"), Route::MAIN);
        let bound = Bound::new(&request("tools/call", params), &main, &ann);
        let held = SealedContent::Text("step 2".to_owned());
        let text = bound.seal(&Plain, &held, Time(1000)).unwrap();
        let open = |request: &Request, route: &Route, principal: &Principal, now| {
            Bound::new(request, route, principal).open(&Plain, &text, Time(now))
        };
        let (call, other) = (request("tools/call", later), r#"{"name":"t","arguments":{"a":2}}"#);
        assert_eq!(open(&call, &main, &ann, 999), OpenedState::Holds(held));
        assert_eq!(open(&call, &main, &ann, 1000), OpenedState::Spent, "too old");
        assert_eq!(
            open(&request("prompts/get", later), &main, &ann, 0),
            OpenedState::Foreign,
            "another method"
        );
        assert_eq!(open(&request("tools/call", other), &main, &ann, 0), OpenedState::Foreign);
        assert_eq!(open(&call, &Route::named("b"), &ann, 0), OpenedState::Foreign);
        assert_eq!(open(&call, &main, &Principal::named("bob"), 0), OpenedState::Foreign);
        assert_eq!(open(&call, &main, &Principal::ANONYMOUS, 0), OpenedState::Foreign);
        assert_eq!(bound.open(&Plain, &(text + "-TAMPERED"), Time(0)), OpenedState::Foreign);
        let brought = Brought { state: Some("step 1".to_owned()), responses: Some("{}".to_owned()) };
        for held in [
            SealedContent::Parked(ParkedName { name: u128::MAX - 1, process: 7, node: None }),
            SealedContent::Parked(ParkedName { name: 1, process: 7, node: Some(NodeId::from_bytes([8; 8])) }),
            SealedContent::Again(Brought::default()),
            SealedContent::Again(brought),
        ] {
            let text = bound.seal(&Plain, &held, Time(9)).unwrap();
            assert_eq!(bound.open(&Plain, &text, Time(0)), OpenedState::Holds(held));
        }
    }

    #[test]
    fn what_a_request_brings() {
        let brought = |params: &'static str| brought(Some(&RawJson::trusted(params)));
        assert_eq!(brought(r#"{"name":"requestState"}"#).unwrap(), None);
        assert_eq!(brought(r#"{"requestState":null}"#).unwrap(), None);
        assert_eq!(brought(r#"{"requestState":"a\u0062"}"#).unwrap().as_deref(), Some("ab"));
        assert_eq!(brought(r#"{"request\u0053tate":"a"}"#).unwrap().as_deref(), Some("a"));
        for bad in [r#"{"requestState":7}"#, r#"{"requestState":"a","request\u0053tate":"a"}"#] {
            assert_eq!(brought(bad).unwrap_err().reason(), Reason::InvalidParams, "{bad}");
        }
    }
}
