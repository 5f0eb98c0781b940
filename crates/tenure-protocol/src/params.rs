//! Reads single members of the params of requests and notifications, and decides whether a request may be repeated.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::error::{Error, Reason};
use crate::json::prefilter::Prefilter;
use crate::json::{RawJson, members, scan};
use crate::method::Method;
use crate::request_id::RequestId;

/// The request that a `notifications/cancelled` names.
pub fn cancelled_id(params: Option<&RawJson>) -> Option<RequestId> {
    #[derive(Deserialize)]
    struct Cancelled<'a> {
        #[serde(rename = "requestId", borrow)]
        request_id: &'a serde_json::value::RawValue,
    }
    let params = params?;
    let cancelled: Cancelled<'_> = params.read().ok()?;
    RequestId::from_raw(params.bytes().slice_ref(cancelled.request_id.get().as_bytes()))
}

/// Whether a request that the end of the process interrupted may be sent to the server again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repeat {
    /// It only reads, or a second run has no further effect.
    Safe,
    /// The annotations of the tool decide.
    AskTool,
    /// The first run may have had effects.
    Never,
}

/// Decides whether a request may be repeated.
pub fn repeat(method: &Method) -> Repeat {
    match method {
        Method::ToolsList
        | Method::ResourcesList
        | Method::ResourcesTemplatesList
        | Method::ResourcesRead
        | Method::ResourcesSubscribe
        | Method::ResourcesUnsubscribe
        | Method::PromptsList
        | Method::PromptsGet
        | Method::CompletionComplete
        | Method::Discover
        | Method::TasksGet
        | Method::LoggingSetLevel => Repeat::Safe,
        Method::ToolsCall => Repeat::AskTool,
        _ => Repeat::Never,
    }
}

/// Whether a request has `_meta`, which may hold the cookie of a data session.
pub fn has_meta(params: Option<&RawJson>) -> bool {
    params.is_some_and(|params| params.outline().is_some_and(|found| found.meta.or(found.misspelt).is_some()))
}

/// The tool that a `tools/call` names, or the prompt of a `prompts/get`; `None` if servers could read different names there.
pub fn tool_name(params: Option<&RawJson>) -> Option<String> {
    match params?.outline() {
        // Nearly always the parser has found it.
        Some(outline) => {
            scan::unquoted(std::str::from_utf8(outline.name?).ok()?).map(std::borrow::Cow::into_owned)
        }
        None => text_member(params, "name"),
    }
}

/// A member of params that is a string; `None` if servers could read different values there.
pub fn text_member(params: Option<&RawJson>, name: &str) -> Option<String> {
    let value = members::find_sent(params?.bytes(), name).value()?;
    serde_json::from_str(value.get()).ok()
}

/// The names of the tools in a `tools/list` result whose annotations allow a repeated call, and the cursor of the
/// next page.
pub fn repeatable_tools(result: &RawJson) -> (Vec<String>, Option<String>) {
    #[derive(Deserialize)]
    struct RepeatableToolsPage {
        #[serde(default)]
        tools: Vec<Tool>,
        #[serde(rename = "nextCursor", default)]
        next: Option<String>,
    }
    #[derive(Deserialize)]
    struct Tool {
        name: String,
        #[serde(default)]
        annotations: ToolAnnotations,
    }
    #[derive(Deserialize, Default)]
    struct ToolAnnotations {
        #[serde(rename = "readOnlyHint", default)]
        read_only: bool,
        #[serde(rename = "idempotentHint", default)]
        idempotent: bool,
    }
    let Ok(page) = result.read::<RepeatableToolsPage>() else { return (Vec::new(), None) };
    let safe = |tool: &Tool| tool.annotations.read_only || tool.annotations.idempotent;
    (page.tools.into_iter().filter(safe).map(|tool| tool.name).collect(), page.next)
}

/// The lists that may have changed, by comparing the server's `initialize` result from before with the one from now.
pub fn changed_lists(before: &RawJson, now: &RawJson) -> Vec<Method> {
    #[derive(Deserialize, Default)]
    struct InitializeAnswer {
        #[serde(default)]
        capabilities: serde_json::Map<String, serde_json::Value>,
        #[serde(rename = "serverInfo", default)]
        server: serde_json::Value,
    }
    let read = |result: &RawJson| result.read::<InitializeAnswer>().unwrap_or_default();
    let (before, now) = (read(before), read(now));
    let lists = [
        ("tools", Method::ToolsListChanged),
        ("prompts", Method::PromptsListChanged),
        ("resources", Method::ResourcesListChanged),
    ];
    let changed = |name: &str| {
        let (before_has, now_has) = (before.capabilities.get(name), now.capabilities.get(name));
        // Another version of the server may have other lists under the same capability.
        before_has != now_has || (now_has.is_some() && before.server != now.server)
    };
    lists.into_iter().filter(|(name, _)| changed(name)).map(|(_, method)| method).collect()
}

/// The value of a progress notification's `progress`.
pub fn progress_value(params: Option<&RawJson>) -> Option<f64> {
    #[derive(Deserialize)]
    struct ProgressValueParams {
        progress: f64,
    }
    params?.read::<ProgressValueParams>().ok().map(|params| params.progress)
}

/// The `uri` of a subscribe or unsubscribe request.
pub fn subscription_uri(params: Option<&RawJson>) -> Option<String> {
    #[derive(Deserialize)]
    struct SubscriptionParams {
        uri: String,
    }
    params?.read::<SubscriptionParams>().ok().map(|params| params.uri)
}

/// The longest progress token that is accepted. Every progress notification repeats it.
pub const MAX_TOKEN_BYTES: usize = RequestId::MAX_BYTES;

static PROGRESS_TOKEN: LazyLock<Prefilter> = LazyLock::new(|| Prefilter::of("progressToken"));

/// Checks that the progress token of a request is not too long to be repeated in every progress notification.
///
/// # Errors
/// When it is too long. Params shorter than the limit are not parsed.
pub fn check_progress_token(params: Option<&RawJson>) -> Result<(), Error> {
    let long = params.filter(|params| params.bytes().len() > MAX_TOKEN_BYTES);
    let Some(params) = long.filter(|params| PROGRESS_TOKEN.may_be_in(params.bytes())) else { return Ok(()) };
    match progress_token(Some(params)) {
        Some(token) if token.bytes().len() > MAX_TOKEN_BYTES => Err(token_too_long()),
        _ => Ok(()),
    }
}

/// The error for a progress token that is too long.
pub fn token_too_long() -> Error {
    let message = "The progress token must be a string or a number of at most 1024 bytes";
    Error::new(Reason::InvalidParams, message).with("limit", MAX_TOKEN_BYTES)
}

/// The progress token of a request's `_meta`, raw.
pub fn progress_token(params: Option<&RawJson>) -> Option<RawJson> {
    #[derive(Deserialize)]
    struct ProgressTokenParams<'a> {
        #[serde(rename = "_meta", borrow)]
        meta: ProgressTokenMeta<'a>,
    }
    #[derive(Deserialize)]
    struct ProgressTokenMeta<'a> {
        #[serde(rename = "progressToken", borrow)]
        token: &'a serde_json::value::RawValue,
    }
    let params = params?;
    let token = match params.outline() {
        // Nearly always the parser has found `_meta`, so the rest of the params is not read again.
        Some(outline) => {
            let meta = outline.meta.filter(|meta| PROGRESS_TOKEN.may_be_in(meta))?;
            serde_json::from_slice::<ProgressTokenMeta<'_>>(meta).ok()?.token
        }
        None => params.read::<ProgressTokenParams<'_>>().ok()?.meta.token,
    };
    Some(RawJson::trusted(params.bytes().slice_ref(token.get().as_bytes())))
}

/// How serious a log message is (RFC 5424), least first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LogLevel {
    /// debug
    Debug,
    /// info
    Info,
    /// notice
    Notice,
    /// warning
    Warning,
    /// error
    Error,
    /// critical
    Critical,
    /// alert
    Alert,
    /// emergency
    Emergency,
}

impl LogLevel {
    const ALL: [(Self, &'static str); 8] = [
        (Self::Debug, "debug"),
        (Self::Info, "info"),
        (Self::Notice, "notice"),
        (Self::Warning, "warning"),
        (Self::Error, "error"),
        (Self::Critical, "critical"),
        (Self::Alert, "alert"),
        (Self::Emergency, "emergency"),
    ];

    /// Reads a level's name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, name)| *name == text).map(|(level, _)| *level)
    }

    /// The level's name.
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(level, _)| *level == self).map_or("debug", |(_, name)| *name)
    }
}

/// The `level` of `logging/setLevel` or of a log message.
pub fn log_level(params: Option<&RawJson>) -> Option<LogLevel> {
    #[derive(Deserialize)]
    struct LogLevelParams {
        level: String,
    }
    LogLevel::parse(&params?.read::<LogLevelParams>().ok()?.level)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;

    #[test]
    fn a_tool_is_known_by_a_name_that_every_server_reads_alike() {
        let name = |params: &'static str| tool_name(Some(&RawJson::trusted(params)));
        assert_eq!(name(r#"{"name":"a","arguments":{"Name":"b"}}"#).as_deref(), Some("a"));
        assert_eq!(name(r#"{"n\u0061me":"\u0061"}"#).as_deref(), Some("a"));
        for params in [
            r#"{"name":"a","Name":"b"}"#,
            r#"{"name":"a","name":"a"}"#,
            r#"{"NAME":"b"}"#,
            r#"{"name":7}"#,
            r#"{"name":null}"#,
            "{}",
        ] {
            assert_eq!(name(params), None, "{params}");
        }
        assert_eq!(name(r#"{"name":"a","arguments":{},"arguments":{}}"#).as_deref(), Some("a"));
        let whole =
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a\"b","arguments":{}}}"#;
        let Ok(Message::Request(request)) = Message::parse(&whole.into()) else { panic!("a request") };
        assert_eq!(tool_name(request.params.as_ref()).as_deref(), Some("a\"b"), "as the parser found it");
        assert_eq!(tool_name(None), None);
    }

    #[test]
    fn levels_order_and_read_back() {
        assert!(LogLevel::Debug < LogLevel::Info && LogLevel::Alert < LogLevel::Emergency);
        for (level, name) in LogLevel::ALL {
            assert_eq!((LogLevel::parse(name), level.as_str()), (Some(level), name));
        }
        assert_eq!(log_level(Some(&RawJson::trusted(r#"{"level":"loud"}"#))), None);
    }

    #[test]
    fn a_progress_token_is_found_raw() {
        let params = RawJson::trusted(r#"{"_meta":{"progressToken":"p-1"},"name":"x"}"#);
        assert_eq!(progress_token(Some(&params)).unwrap().bytes(), &r#""p-1""#);
        assert_eq!(progress_token(Some(&RawJson::EMPTY_OBJECT)), None);
        for (written, token) in [
            (r#"{"name":"x","_meta":{"a":[1],"progressToken": 7 }}"#, Some("7")),
            (r#"{"_meta":{"progress\u0054oken":"é"}}"#, Some("\"é\"")),
            (r#"{"\u005fmeta":{"progressToken":7}}"#, Some("7")),
            // Readers differ in which one they use.
            (r#"{"_meta":{"progressToken":7},"_meta":{"progressToken":8}}"#, None),
            (r#"{"_meta":{"progressToken":7,"progressToken":8}}"#, None),
            (r#"{"arguments":{"_meta":{"progressToken":7}}}"#, None),
            (r#"{"progressToken":7,"_meta":{}}"#, None),
            (r#"{"_meta":null}"#, None),
        ] {
            let whole = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{written}}}"#);
            let Ok(Message::Request(request)) = Message::parse(&whole.into()) else { panic!("{written}") };
            let trusted = RawJson::trusted(written);
            for params in [&trusted, request.params.as_ref().unwrap()] {
                let found = progress_token(Some(params));
                let found = found.as_ref().map(|found| std::str::from_utf8(found.bytes()).unwrap());
                assert_eq!(found, token, "{written}");
            }
        }
    }
}
