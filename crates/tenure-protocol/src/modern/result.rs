//! Adds the members that every modern result must have, where a server left them out.
//!
//! In: the result of a server. Out: the same bytes in the same order, plus the result type, `serverInfo` and the
//! caching members.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use crate::json::members::{self, MemberLookup, WrittenValue};
use crate::json::prefilter::Prefilter;
use crate::json::{RawJson, splice};
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
    let Some((front, others_follow)) = splice::front(bytes) else { return result.clone() };
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
    // Enough for the members that nearly every result gets.
    let mut edits = Edits { bytes, first: String::with_capacity(192), over: Vec::new() };

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
    let Edits { mut first, mut over, .. } = edits;
    if others_follow && !first.is_empty() {
        first.push(',');
    }
    over.push((front..front, first));
    over.sort_unstable_by_key(|(place, _)| place.start);
    splice::replace(bytes, &over)
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

/// The changes to a result: members to insert in front of the others, and values to replace.
struct Edits<'a> {
    bytes: &'a [u8],
    first: String,
    over: Vec<(Range<usize>, String)>,
}

impl<'a> Edits<'a> {
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
                self.over.push((splice::place(self.bytes, value.get().as_bytes()), new.into_owned()));
            }
        }
        if !there && let Some(new) = decide(None) {
            self.first.push_str(if self.first.is_empty() { "\"" } else { ",\"" });
            self.first.push_str(name);
            self.first.push_str("\":");
            self.first.push_str(&new);
        }
    }
}

#[cfg(test)]
mod tests;
