//! The kind of a message that we wrote ourselves, without a JSON parser: a result, or which error.
//!
//! In: bytes from [`write_response`](super::write_response) and the functions beside it. They always put the members in the
//! same order, so the first bytes decide. Out: [`WrittenAnswer`]. For observers, which must cost next to nothing.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::error::Reason;
use crate::json::members;
use crate::json::prefilter::Prefilter;

static IS_ERROR: LazyLock<Prefilter> = LazyLock::new(|| Prefilter::of("isError"));

/// The member of `_meta` in the result of a tool that stands for a refusal of ours. It holds the `data` of the error.
pub const REFUSED: &str = "dev.tenure/refused";

/// An answer that was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WrittenAnswer {
    /// A result.
    Result {
        /// The result of a tool that says that the tool failed.
        is_tool_error: bool,
    },
    /// The result of a tool that says in words that the call was refused.
    Refused {
        /// Why.
        reason: Reason,
    },
    /// An error.
    Error {
        /// Its code; 0 if it has none.
        code: i64,
        /// Why, if the error is our own.
        reason: Option<Reason>,
    },
}

/// Reads an answer; `None` for any other message. `has_tool_result` says whether to look if the tool failed.
pub fn written_answer(message: &[u8], has_tool_result: bool) -> Option<WrittenAnswer> {
    let rest = message.strip_prefix(br#"{"jsonrpc":"2.0","#)?;
    let rest = match rest.strip_prefix(br#""id":"#) {
        Some(rest) => rest.get(id_length(rest)?..)?.strip_prefix(b",")?,
        None => rest,
    };
    if let Some(result) = rest.strip_prefix(br#""result":"#) {
        let result = result.strip_suffix(b"}")?;
        let is_tool_error = has_tool_result && says_it_failed(result);
        let refused = if is_tool_error { refusal_in(result) } else { None };
        return Some(match refused {
            Some(reason) => WrittenAnswer::Refused { reason },
            None => WrittenAnswer::Result { is_tool_error },
        });
    }
    let error = rest.strip_prefix(br#""error":"#)?.strip_suffix(b"}")?;
    let said = serde_json::from_slice::<Said>(error).unwrap_or_default();
    let ours = || Reason::ALL.iter().find(|reason| reason.as_str() == said.data.reason).copied();
    let reason = ours().filter(|reason| i64::from(reason.code()) == said.code);
    Some(WrittenAnswer::Error { code: said.code, reason })
}

/// Whether the result of a tool says that the tool failed.
pub fn says_it_failed(result: &[u8]) -> bool {
    IS_ERROR.may_be_in(result)
        && members::find(result, "isError").value().is_some_and(|value| value.get() == "true")
}

/// Why a call was refused whose result says so in words ([`REFUSED`]). A server can claim that of its own results, as it can claim
/// an error of ours: it says something untrue about itself then.
pub fn refusal_in(result: &[u8]) -> Option<Reason> {
    let meta = members::find(result, "_meta").value()?.get();
    let refused = members::find(meta.as_bytes(), REFUSED).value()?.get();
    let reason = members::find(refused.as_bytes(), "reason").value()?.get();
    Reason::ALL.iter().find(|known| reason.trim_matches('"') == known.as_str()).copied()
}

/// How long the id at the front is: a string, or a number.
fn id_length(text: &[u8]) -> Option<usize> {
    if !text.starts_with(b"\"") {
        return text.iter().position(|byte| *byte == b',');
    }
    let mut is_escaped = false;
    let end = text[1..].iter().position(|byte| {
        let ends = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        ends
    })?;
    Some(end + 2)
}

#[derive(Deserialize, Default)]
struct Said {
    #[serde(default)]
    code: i64,
    #[serde(default)]
    data: SaidData,
}

#[derive(Deserialize, Default)]
#[serde(from = "serde_json::Value")]
struct SaidData {
    reason: String,
}

impl From<serde_json::Value> for SaidData {
    /// A server may put anything into `data`.
    fn from(data: serde_json::Value) -> Self {
        Self { reason: data["reason"].as_str().unwrap_or_default().to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, RpcError};
    use crate::json::RawJson;
    use crate::message::{
        Message, write_error, write_notification, write_request, write_response, write_result,
    };
    use crate::method::Method;
    use crate::request_id::RequestId;

    #[test]
    fn what_we_write_is_told_by_its_first_bytes() {
        let odd = br#"{"jsonrpc":"2.0","id":"a\",\"result\":\\ ","method":"ping"}"#;
        let Ok(Message::Request(odd)) = Message::parse(&bytes::Bytes::from_static(odd)) else {
            panic!("a request")
        };
        let ids = [RequestId::from_number(7), odd.id];
        for id in &ids {
            let result = |text: &str, is_tool| {
                let body = write_result(id, &RawJson::trusted(text.to_owned()));
                written_answer(&body, is_tool)
            };
            let fine = Some(WrittenAnswer::Result { is_tool_error: false });
            let failed = Some(WrittenAnswer::Result { is_tool_error: true });
            assert_eq!(result("{}", true), fine);
            assert_eq!(result(r#"{"content":[],"isError":true}"#, true), failed);
            assert_eq!(result(r#"{"content":[],"isError":true}"#, false), fine, "only a tool has failed");
            let limited =
                r#"{"_meta":{"dev.tenure/refused":{"reason":"rate_limited"}},"content":[],"isError":true}"#;
            let refused = Some(WrittenAnswer::Refused { reason: Reason::RateLimited });
            assert_eq!(result(limited, true), refused);
            assert_eq!(result(limited, false), fine);
            assert_eq!(result(&limited.replace("true", "false"), true), fine, "a result that is one");
            assert_eq!(result(&limited.replace("rate_limited", "no_word"), true), failed);
            assert_eq!(result(r#"{"is\u0045rror":true}"#, true), failed);
            assert_eq!(result(r#"{"isErrors":true,"content":["isError"]}"#, true), fine);
            assert_eq!(result(r#"{"error":{"code":1},"content":[{"isError":true}]}"#, true), fine);
            let ours = Error::new(Reason::TimedOut, "late").to_rpc();
            let told = WrittenAnswer::Error { code: -31012, reason: Some(Reason::TimedOut) };
            assert_eq!(written_answer(&write_response(id, &Err(ours)), true), Some(told));
            assert_eq!(written_answer(&write_request(id, &Method::Ping, None), true), None);
        }
        let theirs =
            RpcError::from_raw(RawJson::trusted(r#"{"code":-32000,"data":[1],"message":"timed_out"}"#));
        let told = Some(WrittenAnswer::Error { code: -32000, reason: None });
        assert_eq!(written_answer(&write_error(None, &theirs), false), told);
        let borrowed = r#"{"code":5,"data":{"reason":"timed_out"},"message":"a word of ours, not our code"}"#;
        let borrowed = RpcError::from_raw(RawJson::trusted(borrowed));
        let told = Some(WrittenAnswer::Error { code: 5, reason: None });
        assert_eq!(written_answer(&write_error(Some(&ids[0]), &borrowed), false), told);
        assert_eq!(written_answer(&write_notification(&Method::Progress, None), false), None);
        for odd in ["", "{", "[]", r#"{"jsonrpc":"2.0","id":"#, r#"{"jsonrpc":"2.0","id":"\"#] {
            assert_eq!(written_answer(odd.as_bytes(), true), None, "{odd}");
        }
    }
}
