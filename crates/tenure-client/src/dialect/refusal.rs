//! How a server says that a session is missing or over.
//!
//! Five generations of codes are in use, and one of them also means something else, so a reason in the
//! error's data counts more than its code, and its text decides where the code does not.

use serde_json::Value;

/// A request that was refused for the sake of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A session is needed, and the server saw none.
    Required,
    /// The session that was named is not there, or not any more.
    Gone(Why),
    /// One of the two; the code means both.
    Either,
}

/// Why a session is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The server does not know it.
    NotFound,
    /// Its time is over.
    Expired,
    /// The server ended it.
    Revoked,
}

impl Why {
    /// The word for it in an error's data and in the jar.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "session_not_found",
            Self::Expired => "session_expired",
            Self::Revoked => "session_revoked",
        }
    }
}

/// Reads the error that answered a request of this method.
pub fn of_error(method: &str, code: i32, message: &str, data: Option<&Value>) -> Option<Refusal> {
    match data.and_then(|data| data.get("reason")).and_then(Value::as_str) {
        Some("session_required" | "data_session_required") => return Some(Refusal::Required),
        Some("session_not_found" | "data_session_not_found") => return Some(Refusal::Gone(Why::NotFound)),
        Some("session_expired" | "data_session_expired") => return Some(Refusal::Gone(Why::Expired)),
        Some("session_revoked" | "data_session_revoked") => return Some(Refusal::Gone(Why::Revoked)),
        _ => {}
    }
    match code {
        -32044 | -31044 => Some(Refusal::Required),
        // For a day of drafts -32043 meant that a session is required, hence the look at the text.
        -32043 | -31043 => Some(of_text(message).unwrap_or(Refusal::Gone(Why::NotFound))),
        // In 2025-11-25 this is the code of a resource that was not found.
        -32002 => of_text(message).or_else(|| {
            let of_resource = method == "resources/read" || message.to_lowercase().contains("resource");
            (!of_resource || message.to_lowercase().contains("session")).then_some(Refusal::Either)
        }),
        _ => None,
    }
}

/// Reads the text of a tool result with `isError`: some servers' frameworks turn the error of a session into
/// that.
pub fn of_tool_text(text: &str) -> Option<Refusal> {
    of_text(text)
}

fn of_text(text: &str) -> Option<Refusal> {
    let text = text.to_lowercase();
    let says = |phrase: &str| text.contains(phrase);
    // "Required" first: "Session required. Call session/create" may go on about sessions not found.
    if says("session required") || says("send session/create") || says("send sessions/create") {
        Some(Refusal::Required)
    } else if says("session not found") {
        Some(Refusal::Gone(Why::NotFound))
    } else if says("session expired") {
        Some(Refusal::Gone(Why::Expired))
    } else if says("session revoked") {
        Some(Refusal::Gone(Why::Revoked))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Refusal, Why, of_error, of_tool_text};

    #[test]
    fn which_errors_are_about_a_session() {
        use Refusal::{Either, Gone, Required};
        let required = "Session required. Call session/create or session/resume first.";
        let reason = |reason: &str| json!({ "reason": reason });
        for (method, code, message, data, expected) in [
            ("tools/call", -32002, required, Value::Null, Some(Required)),
            ("resources/read", -32002, required, Value::Null, Some(Required)),
            ("resources/read", -32002, "Resource not found", json!({"uri": "x:y"}), None),
            ("resources/read", -32002, "not here", Value::Null, None),
            ("resources/read", -32002, "no such session", Value::Null, Some(Either)),
            ("resources/read", -32002, "Session not found", Value::Null, Some(Gone(Why::NotFound))),
            ("resources/read", -32002, "x", reason("session_expired"), Some(Gone(Why::Expired))),
            ("tools/call", -32002, "nope", Value::Null, Some(Either)),
            ("tools/call", -32002, "Resource not found", Value::Null, None),
            ("tools/call", -32043, "nope", json!({"sessionId": "s"}), Some(Gone(Why::NotFound))),
            ("tools/call", -32043, "SESSION REQUIRED", Value::Null, Some(Required)),
            ("tools/call", -32043, "x", reason("session_revoked"), Some(Gone(Why::Revoked))),
            ("tools/call", -32044, "nope", Value::Null, Some(Required)),
            ("tools/call", -31043, "nope", Value::Null, Some(Gone(Why::NotFound))),
            ("tools/call", -31044, "nope", Value::Null, Some(Required)),
            ("tools/call", -32000, "x", reason("session_required"), Some(Required)),
            ("tools/call", -32000, "x", reason("session_not_found"), Some(Gone(Why::NotFound))),
            ("tools/call", -31044, "x", reason("data_session_required"), Some(Required)),
            ("tools/call", -31043, "x", reason("data_session_expired"), Some(Gone(Why::Expired))),
            ("tools/call", -31043, "x", reason("data_session_deleted"), Some(Gone(Why::NotFound))),
            ("tools/call", -32000, "x", reason("rate_limited"), None),
            // A code that is not ours is not read for its text: any message may quote such words.
            ("tools/call", -32602, "session required", Value::Null, None),
            ("tools/call", -32601, "Method not found", Value::Null, None),
        ] {
            let data = Some(&data).filter(|data| !data.is_null());
            assert_eq!(of_error(method, code, message, data), expected, "{method} {code} {message}");
        }
    }

    #[test]
    fn which_tool_errors_are_about_a_session() {
        use Refusal::{Gone, Required};
        for (text, expected) in [
            ("Error calling tool 'x': Session not found", Some(Gone(Why::NotFound))),
            ("Session required: send session/create", Some(Required)),
            ("please SEND SESSIONS/CREATE first", Some(Required)),
            ("send session/create", Some(Required)),
            ("the session was long", None),
            ("", None),
        ] {
            assert_eq!(of_tool_text(text), expected, "{text}");
        }
    }
}
