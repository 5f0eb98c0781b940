//! Decides which part serves a message: the sessions or the exchanges. Every message is asked about once, whichever way
//! it came.
//!
//! `tenure_protocol::era` says to which era a message belongs; here that meets the eras that are served.

use tenure_protocol::era::{self, Shape};
use tenure_protocol::message::Malformed;
use tenure_protocol::{Era, Eras, Error, Message, Method, RawJson, Reason, RequestId, revision};

/// The part that serves a message.
pub(crate) enum EraChoice {
    Session,
    Exchange,
    /// Its era is not served here.
    NotServed(Error),
}

/// Chooses the part for a message. Over HTTP a header may name its version too.
pub(crate) fn choose(eras: Eras, message: &Message, header: Option<&str>) -> EraChoice {
    let (shape, params) = match message {
        Message::Request(request) => (Shape::Request, request.params.as_ref()),
        Message::Notification(_) => (Shape::Notification, None),
        Message::Response(_) => (Shape::Response, None),
    };
    match (era::belongs(shape, params, header), eras) {
        (Era::Legacy, Eras::Both | Eras::Legacy) => EraChoice::Session,
        (Era::Modern, Eras::Both | Eras::Modern) => EraChoice::Exchange,
        (Era::Legacy, Eras::Modern) => {
            let requested = era::requested(message);
            EraChoice::NotServed(era::not_served(requested.as_deref().or(header).unwrap_or_default(), eras))
        }
        // A client that tries the modern era falls back to `initialize` when it gets this error.
        (Era::Modern, Eras::Legacy) => match era::meta_version(params) {
            Some(version) => EraChoice::NotServed(revision::unsupported(&version)),
            None if is_modern(header) => {
                EraChoice::NotServed(revision::unsupported(header.unwrap_or_default()))
            }
            // A version that is not a text. Servers of the legacy era do not know this member.
            None => EraChoice::Session,
        },
    }
}

/// Whether the version in a header is of the modern era.
pub(crate) fn is_modern(header: Option<&str>) -> bool {
    era::belongs(Shape::NoMessage, None, header) == Era::Modern
}

/// The messages of a batch, which belong to a session.
pub(crate) struct Batch {
    pub(crate) messages: Vec<Message>,
    /// The ids of its requests.
    pub(crate) requests: Vec<RequestId>,
}

/// Why a batch is refused as a whole.
pub(crate) enum BatchFault {
    /// It contains a request of the modern era, which has no batches.
    Modern,
    Initialize,
    Malformed(Malformed),
}

impl Batch {
    /// Reads a batch, all or none, so that the client can repeat it and no element is done twice.
    /// Where only sessions are served, a version in `_meta` means nothing.
    pub(crate) fn read(elements: &[RawJson], eras: Eras) -> Result<Self, BatchFault> {
        let (mut messages, mut requests) = (Vec::with_capacity(elements.len()), Vec::new());
        for element in elements {
            let message = Message::parse(element.bytes()).map_err(BatchFault::Malformed)?;
            if let Message::Request(request) = &message {
                let is_modern = || era::belongs(Shape::Batch, request.params.as_ref(), None) == Era::Modern;
                if eras != Eras::Legacy && is_modern() {
                    return Err(BatchFault::Modern);
                }
                if request.method == Method::Initialize {
                    return Err(BatchFault::Initialize);
                }
                requests.push(request.id.clone());
            }
            messages.push(message);
        }
        Ok(Self { messages, requests })
    }
}

/// The error for a batch of the modern era.
pub(crate) fn modern_batch() -> Error {
    Error::new(Reason::InvalidRequest, "This revision has no batches: send one message")
}

/// The error for a batch in a session that has none.
pub(crate) fn no_batch() -> Error {
    Error::new(Reason::BatchNotAllowed, "Batches are only allowed in sessions of revision 2025-03-26")
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: &str = "2026-07-28";
    const L: &str = "2025-11-25";

    fn request(method: &str, params: &str) -> RawJson {
        RawJson::trusted(format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#))
    }

    fn versioned(version: &str) -> RawJson {
        request("x", &format!(r#"{{"_meta":{{"io.modelcontextprotocol/protocolVersion":{version}}}}}"#))
    }

    #[test]
    fn each_message_is_served_by_one_part_or_refused_with_the_version_it_names() {
        let chosen = |eras, message: &RawJson, header| match choose(
            eras,
            &Message::parse(message.bytes()).unwrap(),
            header,
        ) {
            EraChoice::Session => "session".to_owned(),
            EraChoice::Exchange => "exchange".to_owned(),
            EraChoice::NotServed(error) => format!("{}: {error}", error.reason().as_str()),
        };
        let unsupported =
            |version: &str| format!("unsupported_version: Unsupported protocol version: {version}");
        let not_served =
            |version: &str| format!("version_not_served: Unsupported protocol version: {version}");
        let (modern, legacy) = (versioned(r#""2026-07-28""#), request("tools/list", "{}"));
        let opening = request("initialize", r#"{"protocolVersion":"2025-06-18"}"#);
        let notification = RawJson::trusted(r#"{"jsonrpc":"2.0","method":"notifications/x"}"#);
        let response = RawJson::trusted(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        for (eras, message, header, expected) in [
            (Eras::Both, &modern, Some(M), "exchange".to_owned()),
            (Eras::Both, &modern, None, "exchange".to_owned()),
            (Eras::Both, &legacy, Some(M), "exchange".to_owned()),
            (Eras::Both, &legacy, Some(L), "session".to_owned()),
            (Eras::Both, &notification, Some(M), "exchange".to_owned()),
            (Eras::Both, &response, Some(M), "session".to_owned()),
            (Eras::Modern, &modern, Some(M), "exchange".to_owned()),
            (Eras::Modern, &legacy, Some(L), not_served(L)),
            (Eras::Modern, &opening, None, not_served("2025-06-18")),
            (Eras::Legacy, &legacy, None, "session".to_owned()),
            (Eras::Legacy, &modern, None, unsupported(M)),
            (Eras::Legacy, &modern, Some(L), unsupported(M)),
            (Eras::Legacy, &legacy, Some(M), unsupported(M)),
            (Eras::Legacy, &notification, Some(M), unsupported(M)),
            (Eras::Legacy, &versioned("7"), None, "session".to_owned()),
        ] {
            assert_eq!(chosen(eras, message, header), expected, "{eras:?} {message:?} {header:?}");
        }
    }

    #[test]
    fn a_batch_is_refused_as_a_whole() {
        let ping = request("ping", "{}");
        let read = |last: RawJson| Batch::read(&[ping.clone(), last], Eras::Both);
        assert!(read(ping.clone()).is_ok_and(|batch| batch.messages.len() == 2 && batch.requests.len() == 2));
        assert!(matches!(read(versioned("7")), Err(BatchFault::Modern)));
        assert!(Batch::read(&[versioned("7")], Eras::Legacy).is_ok(), "sessions do not know this member");
        assert!(matches!(read(request("initialize", "{}")), Err(BatchFault::Initialize)));
        assert!(matches!(read(RawJson::trusted("17")), Err(BatchFault::Malformed(_))));
    }
}
