//! The checks of a modern request before its method is handled.
//!
//! Clients can observe the order of the checks, so it is part of the protocol: `_meta`, the version header, the
//! version, the headers that repeat the body, the removed methods. Without headers (stdio) only `_meta`, version and
//! method are checked.

use std::borrow::Cow;

use crate::era::{self, Eras};
use crate::error::{Error, Reason};
use crate::json::members::{self, MemberLookup};
use crate::message::Request;
use crate::method::Method;
use crate::modern::header_value;
use crate::modern::meta::Meta;

/// The values of one header of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Header<'a> {
    /// No value.
    Absent,
    /// One value.
    One(&'a str),
    /// A value with characters that a header must not have.
    Unreadable,
    /// More than one value.
    Twice,
}

/// The headers of a request that repeat parts of its body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Heads<'a> {
    /// `MCP-Protocol-Version`
    pub version: Header<'a>,
    /// `Mcp-Method`
    pub method: Header<'a>,
    /// `Mcp-Name`
    pub name: Header<'a>,
    /// All `Mcp-Param-*` headers in their order, repetitions included; the name is the part after `Mcp-Param-`.
    pub params: Vec<(&'a str, &'a [u8])>,
}

/// A request that passed all checks.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The request itself.
    pub request: Request,
    /// Its `_meta`.
    pub meta: Meta,
    /// Its `Mcp-Param-*` headers, not checked yet: that needs the schema of the tool, see
    /// [`HeaderParams`](crate::modern::HeaderParams). An unreadable value contains U+FFFD, which no valid header does.
    /// `None` where there are no headers.
    pub params: Option<Vec<(Box<str>, Box<str>)>>,
    /// Whether its answer may be a stream. [`StreamSupport::Allowed`], until the transport changes it.
    pub streams: StreamSupport,
}

/// Whether a client accepts a stream as the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamSupport {
    /// It does, and it can resume a broken stream by the id of an event.
    Resumable,
    /// It does.
    Allowed,
    /// It does not: notifications before the result are dropped.
    No,
}

/// Checks a request; `heads` is `None` where there are no headers.
///
/// # Errors
/// In this order: [`Reason::InvalidMeta`], [`Reason::HeaderMismatch`] for the version,
/// [`Reason::VersionNotServed`], [`Reason::HeaderMismatch`] for method and name, [`Reason::MethodNotFound`].
pub fn check(request: Request, heads: Option<Heads<'_>>, eras: Eras) -> Result<Checked, Error> {
    let meta = Meta::read(request.params.as_ref())?;
    if let Some(heads) = &heads {
        equal("MCP-Protocol-Version", heads.version, &meta.version)?;
    }
    if !era::serves_exchanges(&meta.version, eras) {
        return Err(era::not_served(&meta.version, eras));
    }
    if let Some(heads) = &heads {
        equal("Mcp-Method", heads.method, request.method.as_str())?;
        check_name(&request, heads.name)?;
    }
    if is_gone(&request.method) {
        return Err(Error::new(Reason::MethodNotFound, format!("Method not found: {}", request.method)));
    }
    let written = |(name, value): (&str, &[u8])| (name.into(), readable(value));
    let params = heads.map(|heads| heads.params.into_iter().map(written).collect());
    Ok(Checked { request, meta, params, streams: StreamSupport::Allowed })
}

/// The member of a request's params that `Mcp-Name` repeats, if its method has one.
pub fn named_by(method: &Method) -> Option<&'static str> {
    match method {
        Method::ToolsCall | Method::PromptsGet => Some("name"),
        Method::ResourcesRead => Some("uri"),
        Method::TasksGet | Method::TasksUpdate | Method::TasksCancel => Some("taskId"),
        _ => None,
    }
}

/// Methods of the legacy era that no modern server answers.
pub fn is_gone(method: &Method) -> bool {
    matches!(
        method,
        Method::Initialize
            | Method::Ping
            | Method::LoggingSetLevel
            | Method::ResourcesSubscribe
            | Method::ResourcesUnsubscribe
            | Method::TasksResult
            | Method::TasksList
    )
}

/// Checks `Mcp-Name`. If header and body both have no name, the request passes here and is refused later for its
/// params.
fn check_name(request: &Request, header: Header<'_>) -> Result<(), Error> {
    const NAME: &str = "Mcp-Name";
    let Some(member) = named_by(&request.method) else { return Ok(()) };
    let params = request.params.as_ref().map_or(b"{}".as_slice(), |params| params.bytes());
    let body = match members::find_sent(params, member) {
        MemberLookup::Absent => None,
        MemberLookup::One(value) => serde_json::from_str::<Cow<'_, str>>(value.get()).ok(),
        MemberLookup::Twice => {
            return Err(mismatch(NAME, &format!("cannot be compared: params.{member} stands twice")));
        }
    };
    match (header, body) {
        (Header::Absent, None) => Ok(()),
        (Header::One(_), None) => Err(mismatch(NAME, &format!("is there, but params.{member} is not"))),
        (header, body) => {
            let header = sole(NAME, header)?;
            let value = header_value::decode(header).ok_or_else(|| mismatch(NAME, "cannot be decoded"))?;
            if Some(value) == body { Ok(()) } else { Err(mismatch(NAME, &format!("is not params.{member}"))) }
        }
    }
}

fn equal(name: &'static str, header: Header<'_>, body: &str) -> Result<(), Error> {
    if sole(name, header)? == body { Ok(()) } else { Err(mismatch(name, "differs from the body")) }
}

/// The only value of a header, without the space around it.
fn sole<'a>(name: &'static str, header: Header<'a>) -> Result<&'a str, Error> {
    match header {
        Header::One(text) => Ok(text.trim_matches([' ', '\t'])),
        Header::Absent => Err(mismatch(name, "is missing")),
        Header::Unreadable => Err(mismatch(name, "has characters that a header must not have")),
        Header::Twice => Err(mismatch(name, "stands twice")),
    }
}

/// The error for a header that contradicts the body.
pub(crate) fn mismatch(header: &str, what: &str) -> Error {
    Error::new(Reason::HeaderMismatch, format!("The header {header} {what}")).with("header", header)
}

fn readable(value: &[u8]) -> Box<str> {
    String::from_utf8_lossy(value).trim_matches([' ', '\t']).into()
}

#[cfg(test)]
mod tests;
