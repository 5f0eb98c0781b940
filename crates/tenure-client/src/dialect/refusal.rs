//! Reads from a server's error that a session is missing or has ended.
//!
//! Five generations of codes are in use, and one of them has a second meaning. So a reason in the error's data comes
//! first, then the code, and where the code is ambiguous the text decides.

use serde_json::Value;
use tenure_protocol::Reason;
use tenure_protocol::data_session::{DRAFT_NOT_FOUND, DRAFT_REQUIRED, STRAWMAN_REFUSED};

/// The codes of the extension.
const STATE_REQUIRED: i32 = Reason::StateRequired.code();
const STATE_NOT_FOUND: i32 = Reason::StateNotFound.code();

/// Why a request was refused because of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionRefusal {
    /// The request needs a session and named none.
    Required,
    /// The named session does not exist, or has ended.
    Gone(Why),
    /// One of the two; the code stands for both.
    Either,
}

/// Why a session does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The server does not know it.
    NotFound,
    /// It has expired.
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
pub fn of_error(method: &str, code: i32, message: &str, data: Option<&Value>) -> Option<SessionRefusal> {
    match data.and_then(|data| data.get("reason")).and_then(Value::as_str) {
        Some("session_required" | "data_session_required") => return Some(SessionRefusal::Required),
        Some("session_not_found" | "data_session_not_found") => {
            return Some(SessionRefusal::Gone(Why::NotFound));
        }
        Some("session_expired" | "data_session_expired") => return Some(SessionRefusal::Gone(Why::Expired)),
        Some("session_revoked" | "data_session_revoked") => return Some(SessionRefusal::Gone(Why::Revoked)),
        _ => {}
    }
    match code {
        DRAFT_REQUIRED | STATE_REQUIRED => Some(SessionRefusal::Required),
        // In one short-lived draft the first of these meant that a session is required, so the text is checked first.
        DRAFT_NOT_FOUND | STATE_NOT_FOUND => {
            Some(of_text(message).unwrap_or(SessionRefusal::Gone(Why::NotFound)))
        }
        // In 2025-11-25 this code also means that a resource was not found.
        STRAWMAN_REFUSED => of_text(message).or_else(|| {
            let of_resource = method == "resources/read" || message.to_lowercase().contains("resource");
            (!of_resource || message.to_lowercase().contains("session")).then_some(SessionRefusal::Either)
        }),
        _ => None,
    }
}

/// Reads the text of a tool result with `isError`, because some server frameworks turn session errors into such
/// results.
pub fn of_tool_text(text: &str) -> Option<SessionRefusal> {
    of_text(text)
}

fn of_text(text: &str) -> Option<SessionRefusal> {
    let text = text.to_lowercase();
    let says = |phrase: &str| text.contains(phrase);
    // "Required" first, because a text such as "Session required. Call session/create" may also mention sessions not
    // found.
    if says("session required") || says("send session/create") || says("send sessions/create") {
        Some(SessionRefusal::Required)
    } else if says("session not found") {
        Some(SessionRefusal::Gone(Why::NotFound))
    } else if says("session expired") {
        Some(SessionRefusal::Gone(Why::Expired))
    } else if says("session revoked") {
        Some(SessionRefusal::Gone(Why::Revoked))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{SessionRefusal, Why, of_error, of_tool_text};

    #[test]
    fn which_errors_are_about_a_session() {
        use SessionRefusal::{Either, Gone, Required};
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
            // With other codes the text does not count: any message may contain such words.
            ("tools/call", -32602, "session required", Value::Null, None),
            ("tools/call", -32601, "Method not found", Value::Null, None),
        ] {
            let data = Some(&data).filter(|data| !data.is_null());
            assert_eq!(of_error(method, code, message, data), expected, "{method} {code} {message}");
        }
    }

    #[test]
    fn which_tool_errors_are_about_a_session() {
        use SessionRefusal::{Gone, Required};
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
