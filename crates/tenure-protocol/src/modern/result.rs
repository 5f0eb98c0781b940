//! Adds the members that every modern result must have, where a server left them out.
//!
//! In: the result of a server. Out: the same bytes in the same order, plus the result type, `serverInfo` and the
//! caching members.

use std::borrow::Cow;
use std::sync::LazyLock;

use bytes::{BufMut, BytesMut};

use crate::json::RawJson;
use crate::json::members::{self, MemberLookup, WrittenValue};
use crate::json::prefilter::Prefilter;
use crate::keys::SERVER;
use crate::method::{Method, is_cacheable};

const TYPE: &str = "resultType";
const TTL: &str = "ttlMs";
const SCOPE: &str = "cacheScope";
const META: &str = "_meta";

static TYPE_MENTIONED: LazyLock<Prefilter> = LazyLock::new(|| Prefilter::of(TYPE));
static TTL_MENTIONED: LazyLock<Prefilter> = LazyLock::new(|| Prefilter::of(TTL));
static SCOPE_MENTIONED: LazyLock<Prefilter> = LazyLock::new(|| Prefilter::of(SCOPE));
static META_MENTIONED: LazyLock<Prefilter> = LazyLock::new(|| Prefilter::of(META));

/// The type of a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResultType {
    /// The final answer.
    Complete,
    /// Questions; the client has to retry with the answers.
    InputRequired,
    /// A task that will have the answer.
    Task,
    /// A type that the protocol does not have.
    Unknown,
}

impl ResultType {
    /// The type in the result. Older servers leave it out and mean [`Self::Complete`].
    pub fn of(result: &RawJson) -> Self {
        let bytes = result.bytes();
        if !TYPE_MENTIONED.may_be_in(bytes) {
            return Self::Complete;
        }
        match members::find(bytes, TYPE) {
            MemberLookup::Absent => Self::Complete,
            MemberLookup::One(value) => Self::parse(value),
            MemberLookup::Twice => Self::Unknown,
        }
    }

    fn parse(value: WrittenValue<'_>) -> Self {
        match serde_json::from_str::<Cow<'_, str>>(value.get()).as_deref() {
            Ok("complete") => Self::Complete,
            Ok("input_required") => Self::InputRequired,
            Ok("task") => Self::Task,
            _ => Self::Unknown,
        }
    }
}

/// How much of the caching that a server allows for a result is passed on. If the server is silent, nothing is allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caching {
    /// All that the server allows.
    AsSaid,
    /// As long as the server allows, but only for the caller.
    Private,
    /// No caching: the request was a retry with answers or a state.
    Never,
}

impl Caching {
    /// The caching for the result of a request with these params.
    #[must_use]
    pub fn of_request(self, params: Option<&RawJson>) -> Self {
        let has = |name| {
            params.is_some_and(|params| !matches!(members::find(params.bytes(), name), MemberLookup::Absent))
        };
        if has("inputResponses") || has("requestState") { Self::Never } else { self }
    }

    fn ttl(self, said: Option<&str>) -> &str {
        // A whole number, not below zero.
        let whole = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match self {
            Self::AsSaid | Self::Private => said.filter(whole).unwrap_or("0"),
            Self::Never => "0",
        }
    }

    fn scope(self, said: Option<&str>) -> &'static str {
        match (self, said) {
            (Self::AsSaid, Some(r#""public""#)) => r#""public""#,
            _ => r#""private""#,
        }
    }
}

/// The result with its type, with `serverInfo` and, if its method is cacheable, with the caching members. A result
/// that is not a readable object is returned unchanged. The results of `tasks/update` and `tasks/cancel` get no
/// `serverInfo`: rmcp's client would take them for the result of a tool.
pub fn complete(method: &Method, result: &RawJson, server: Option<&RawJson>, caching: Caching) -> RawJson {
    let bytes = result.bytes();
    let Some(open) =
        bytes.iter().position(|byte| !byte.is_ascii_whitespace()).filter(|at| bytes[*at] == b'{')
    else {
        return result.clone();
    };
    let server = server.filter(|_| !matches!(method, Method::TasksUpdate | Method::TasksCancel));
    // Nearly every result has none of these members, and is not parsed.
    let cacheable = is_cacheable(method);
    let known = [
        (&TYPE_MENTIONED, true),
        (&META_MENTIONED, server.is_some()),
        (&TTL_MENTIONED, cacheable),
        (&SCOPE_MENTIONED, cacheable),
    ];
    let unread = known.iter().all(|(name, matters)| !matters || !name.may_be_in(bytes));
    let members = if unread { Some(Vec::new()) } else { members::read(bytes) };
    let Some(members) = members else { return result.clone() };
    let mut edits = Edits::new(bytes, open);

    let mut complete = true;
    edits.member(&members, TYPE, |said| match said {
        Some(value) if value.get() != "null" => {
            complete = ResultType::parse(value) == ResultType::Complete;
            None
        }
        _ => {
            complete = true;
            Some(r#""complete""#.into())
        }
    });
    if cacheable && complete {
        edits.member(&members, TTL, |said| Some(caching.ttl(said.map(WrittenValue::get)).into()));
        edits.member(&members, SCOPE, |said| Some(caching.scope(said.map(WrittenValue::get)).into()));
    }
    if let Some(server) = server {
        edits.member(&members, META, |said| introduced(said, server));
    }
    RawJson::trusted(edits.apply())
}

/// The `_meta` of a result with `serverInfo` added; `None` if it has one already, or is not an object.
fn introduced(said: Option<WrittenValue<'_>>, server: &RawJson) -> Option<Cow<'static, str>> {
    let server = std::str::from_utf8(server.bytes()).ok()?;
    let said = said.map(WrittenValue::get).filter(|said| *said != "null").unwrap_or("{}");
    let rest = said.strip_prefix('{')?;
    if !matches!(members::find(said.as_bytes(), SERVER), MemberLookup::Absent) {
        return None;
    }
    let comma = if rest.trim_start().starts_with('}') { "" } else { "," };
    Some([r#"{""#, SERVER, r#"":"#, server, comma, rest].concat().into())
}

/// The changes to an object: members to insert in front of the others, and values to replace.
struct Edits<'a> {
    bytes: &'a [u8],
    open: usize,
    front: String,
    /// The range of an old value, and the new value.
    over: Vec<(std::ops::Range<usize>, Cow<'a, str>)>,
}

impl<'a> Edits<'a> {
    fn new(bytes: &'a [u8], open: usize) -> Self {
        // Enough for the members that nearly every result gets.
        Self { bytes, open, front: String::with_capacity(192), over: Vec::new() }
    }

    /// Calls `decide` for each value of a member, or once for its absence; `None` changes nothing.
    fn member(
        &mut self,
        members: &[members::RawMember<'a>],
        name: &str,
        mut decide: impl FnMut(Option<WrittenValue<'a>>) -> Option<Cow<'a, str>>,
    ) {
        let mut there = false;
        for (_, value) in members.iter().filter(|(other, _)| other == name) {
            there = true;
            if let Some(new) = decide(Some(*value)).filter(|new| new != value.get()) {
                // Both are slices of the same text.
                let start = value.get().as_ptr() as usize - self.bytes.as_ptr() as usize;
                self.over.push((start..start + value.get().len(), new));
            }
        }
        if !there && let Some(new) = decide(None) {
            self.front.push_str(if self.front.is_empty() { "\"" } else { ",\"" });
            self.front.push_str(name);
            self.front.push_str("\":");
            self.front.push_str(&new);
        }
    }

    fn apply(mut self) -> bytes::Bytes {
        let grown: usize = self.over.iter().map(|(_, new)| new.len()).sum();
        let mut text = BytesMut::with_capacity(self.bytes.len() + self.front.len() + 1 + grown);
        let first = self.open + 1;
        text.put_slice(&self.bytes[..first]);
        text.put_slice(self.front.as_bytes());
        let more = self.bytes[first..].iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'}');
        if more && !self.front.is_empty() {
            text.put_u8(b',');
        }
        let mut done = first;
        self.over.sort_unstable_by_key(|(place, _)| place.start);
        for (place, new) in &self.over {
            text.put_slice(&self.bytes[done..place.start]);
            text.put_slice(new.as_bytes());
            done = place.end;
        }
        text.put_slice(&self.bytes[done..]);
        text.freeze()
    }
}

#[cfg(test)]
mod tests;
