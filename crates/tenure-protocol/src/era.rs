//! The two eras of MCP, and the decision to which era a message belongs.
//!
//! Both eras share one endpoint. Legacy revisions open a session with `initialize`; from 2026-07-28 on a request
//! carries its own version in `_meta` and belongs to no session. A modern version in the body or in the header makes a
//! request modern; if the two differ, the request is refused.

use serde::Deserialize;

use crate::error::{Error, Reason};
use crate::json::members::{self, MemberLookup};
use crate::json::{RawJson, scan};
use crate::keys::META_VERSION;
use crate::message::Message;
use crate::method::Method;
use crate::revision::{MODERN, Revision, cut};

/// All revisions of both eras, newest first.
static SERVED: [&str; 5] = [
    MODERN,
    Revision::V2025_11_25.as_str(),
    Revision::V2025_06_18.as_str(),
    Revision::V2025_03_26.as_str(),
    Revision::V2024_11_05.as_str(),
];

/// Which eras an endpoint serves.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Eras {
    /// Sessions and exchanges; each message says to which it belongs.
    #[default]
    Both,
    /// Sessions only.
    Legacy,
    /// Exchanges only.
    Modern,
}

/// The revisions that an endpoint serves, newest first.
pub fn served(eras: Eras) -> &'static [&'static str] {
    let (modern, legacy) = SERVED.split_at(1);
    match eras {
        Eras::Both => &SERVED,
        Eras::Legacy => legacy,
        Eras::Modern => modern,
    }
}

/// Whether the endpoint answers requests of this version without a session. Legacy versions always need a session.
pub fn serves_exchanges(version: &str, eras: Eras) -> bool {
    eras != Eras::Legacy && version == MODERN
}

/// The error for a request without a session whose version the endpoint does not serve that way.
pub fn not_served(requested: &str, eras: Eras) -> Error {
    let requested = cut(requested);
    Error::new(Reason::VersionNotServed, format!("Unsupported protocol version: {requested}"))
        .with("supported", served(eras))
        .with("requested", requested)
}

/// The kind of message whose era is decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// GET or DELETE, no message.
    NoMessage,
    /// A request.
    Request,
    /// A notification.
    Notification,
    /// A response.
    Response,
    /// An array.
    Batch,
}

/// The era that handles a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Era {
    /// Sessions, revision 2025-11-25 and before.
    Legacy,
    /// Exchanges, revision 2026-07-28 and after.
    Modern,
}

/// The era that handles a message on an endpoint that serves both, even if that era will refuse it: a request with any
/// mark of the modern era never falls back to a session. For an array, call this once for each element.
pub fn belongs(shape: Shape, params: Option<&RawJson>, header: Option<&str>) -> Era {
    let modern = match shape {
        Shape::Response => false,
        Shape::Batch => carries_version(params),
        Shape::NoMessage | Shape::Notification => header.is_some_and(is_modern),
        Shape::Request => header.is_some_and(is_modern) || carries_version(params),
    };
    if modern { Era::Modern } else { Era::Legacy }
}

/// Dates compare as text. A version that does not look like a date is not modern.
fn is_modern(version: &str) -> bool {
    let dated = version.len() == 10 && version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    dated && version >= MODERN
}

/// The version in the `_meta` of a request, if there is one.
pub fn meta_version(params: Option<&RawJson>) -> Option<String> {
    let params = params?;
    // Nearly every legacy message returns here, without parsing.
    if !params.may_say_version() {
        return None;
    }
    // Looks up single members: serde would also read a struct from an array.
    let meta = members::find(params.bytes(), "_meta").value()?;
    let version = members::find(meta.get().as_bytes(), META_VERSION).value()?;
    serde_json::from_str(version.get()).ok()
}

/// The version that an `initialize` requests.
pub fn requested(message: &Message) -> Option<String> {
    #[derive(Deserialize)]
    struct RequestedVersionParams {
        #[serde(rename = "protocolVersion")]
        version: String,
    }
    match message {
        Message::Request(request) if request.method == Method::Initialize => {
            Some(request.params.as_ref()?.read::<RequestedVersionParams>().ok()?.version)
        }
        _ => None,
    }
}

/// Whether the `_meta` of a message has a version, even one of the wrong type.
fn carries_version(params: Option<&RawJson>) -> bool {
    let Some(params) = params else { return false };
    // Nearly every legacy message returns here.
    if !params.may_say_version() {
        return false;
    }
    // If `_meta` is there more than once, one with a version is enough: servers differ in which one they read. A name
    // that is not valid text does not stop the search.
    let mut carries = false;
    scan::each_as_written(std::str::from_utf8(params.bytes()).unwrap_or_default(), |_, name, value| {
        let is_meta = name.is_some_and(|name| name == "_meta");
        carries |= is_meta && !matches!(members::find(value.as_bytes(), META_VERSION), MemberLookup::Absent);
        Some(())
    });
    carries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::revision::Revision;

    #[test]
    fn an_endpoint_lists_the_versions_it_serves() {
        let legacy: Vec<_> = Revision::ALL.iter().rev().map(|revision| revision.as_str()).collect();
        assert_eq!(served(Eras::Legacy), legacy);
        assert_eq!(served(Eras::Modern), [MODERN]);
        assert_eq!(served(Eras::Both), [&[MODERN], &legacy[..]].concat());
        for version in served(Eras::Both) {
            assert_eq!(serves_exchanges(version, Eras::Both), *version == MODERN, "{version}");
            assert!(!serves_exchanges(version, Eras::Legacy), "{version}");
        }
        assert!(!serves_exchanges("2027-01-01", Eras::Modern));
        let long = not_served(&"x".repeat(1000), Eras::Modern).to_rpc();
        assert!(long.raw().bytes().len() < 300, "the version is repeated, but shortened");
    }

    /// Params as `Message::parse` returns them.
    fn read(params: &str) -> RawJson {
        let written = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{params}}}"#);
        match Message::parse(&written.into()) {
            Ok(Message::Request(request)) => request.params.unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_request_with_a_modern_mark_is_never_handled_as_legacy() {
        use Shape::{Batch, NoMessage, Notification, Request, Response};
        const M: Option<&str> = Some("2026-07-28");
        const L: Option<&str> = Some("2025-11-25");
        let modern = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#;
        let strange = [
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":7}}"#,
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":null}}"#,
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2025-11-25"}}"#,
            r#"{"_meta":{"io.modelcontextprotocol\/protocolVersion":"v999"}}"#,
            r#"{"\u005fmeta":{"io.modelcontextprotocol/protocolVer\u0073ion":"v999"}}"#,
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":1},"_meta":{}}"#,
            r#"{"\ud800":1,"_meta":{"io.modelcontextprotocol/protocolVersion":1}}"#,
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":1},"meta":1,"Name":2}"#,
        ];
        let legacy = [
            "{}",
            r#"{"_meta":{"progressToken":1}}"#,
            r#"{"_meta":"io.modelcontextprotocol/protocolVersion"}"#,
            r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#,
            r#"{"arguments":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
        ];
        let ask = |shape, params: &'static str, header| {
            let era = belongs(shape, Some(&RawJson::trusted(params)), header);
            assert_eq!(belongs(shape, Some(&read(params)), header), era, "{params} {header:?}");
            era
        };
        for params in strange.into_iter().chain([modern]) {
            for header in [None, M, L, Some("v999")] {
                assert_eq!(ask(Request, params, header), Era::Modern, "{params} {header:?}");
            }
            assert_eq!(ask(Batch, params, None), Era::Modern, "{params}");
            assert_eq!(ask(Response, params, M), Era::Legacy, "{params}");
        }
        for params in legacy {
            for (header, era) in
                [(None, Era::Legacy), (L, Era::Legacy), (M, Era::Modern), (Some("v999"), Era::Legacy)]
            {
                assert_eq!(ask(Request, params, header), era, "{params} {header:?}");
                assert_eq!(ask(Notification, params, header), era, "{params} {header:?}");
                assert_eq!(belongs(NoMessage, None, header), era, "{header:?}");
                assert_eq!(belongs(Request, None, header), era, "{header:?}");
            }
            assert_eq!(ask(Batch, params, M), Era::Legacy, "{params}");
        }
        assert_eq!(ask(Notification, modern, L), Era::Legacy, "the header decides");
    }

    #[test]
    fn a_version_in_meta_is_found_only_where_it_belongs() {
        let version = |text: &'static str| {
            let version = meta_version(Some(&RawJson::trusted(text)));
            assert_eq!(meta_version(Some(&read(text))), version, "{text}");
            version
        };
        let meta = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#;
        assert_eq!(version(meta).as_deref(), Some("2026-07-28"));
        let slashed = r#"{"_meta":{"io.modelcontextprotocol\/protocolVersion":"2026-07-28"}}"#;
        assert_eq!(version(slashed).as_deref(), Some("2026-07-28"));
        assert_eq!(version(r#"{"text":"io.modelcontextprotocol/protocolVersion"}"#), None);
        assert_eq!(version("{}"), None);
        assert_eq!(version(r#"{"_meta":["\u0041"]}"#), None);
        let behind = r#"{"\ud800":1,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#;
        assert_eq!(version(behind).as_deref(), Some("2026-07-28"));
    }
}
