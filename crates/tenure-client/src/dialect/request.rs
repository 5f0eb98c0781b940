//! Builds the layer's own requests about data sessions.

use serde_json::{Value, json};

use super::{Dialect, Verb};
use crate::cookie::{DataSessionId, Object, SessionCookie};

/// A method and its params. The layer adds the id.
#[derive(Clone, PartialEq)]
pub struct DialectRequest {
    /// The JSON-RPC method.
    pub method: &'static str,
    /// Its params, if it has any.
    pub params: Option<Value>,
}

impl std::fmt::Debug for DialectRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The params hold ids.
        f.debug_struct("DialectRequest").field("method", &self.method).finish_non_exhaustive()
    }
}

/// Asks for a new session. The later draft has no hints, so it ignores label and data, and it forbids a cookie here.
pub fn create(dialect: Dialect, label: Option<&str>, data: Option<&Value>) -> DialectRequest {
    let params = match dialect {
        Dialect::Strawman | Dialect::Extension => {
            let mut hints = Object::new();
            hints.extend(label.map(|label| ("label".to_owned(), Value::from(label))));
            hints.extend(data.map(|data| ("data".to_owned(), data.clone())));
            Some(if hints.is_empty() { json!({}) } else { json!({ "hints": hints }) })
        }
        Dialect::Draft => None,
    };
    DialectRequest { method: dialect.method(Verb::Create).expect("every dialect has it"), params }
}

/// Asks for the cookie of a session by its id. `None` if the dialect has no such method; then the client just uses the
/// id.
pub fn resume(dialect: Dialect, id: &DataSessionId) -> Option<DialectRequest> {
    named(dialect, Verb::Resume, id)
}

/// Asks the server to end a session.
pub fn delete(dialect: Dialect, cookie: &SessionCookie) -> DialectRequest {
    let mut params = json!({ "_meta": { dialect.key(): cookie.to_send(dialect) } });
    // The specification of the strawman puts the session into `id`, released clients and servers into `_meta`. Both are
    // sent, so that either kind of server understands it.
    if dialect != Dialect::Draft {
        params[dialect.id_field()] = cookie.id().reveal().into();
    }
    let method = dialect.method(Verb::Delete).expect("every dialect has it");
    DialectRequest { method, params: Some(params) }
}

/// Asks for a page of the caller's sessions. `None` if the dialect has no such method.
pub fn list(dialect: Dialect, cursor: Option<&str>) -> Option<DialectRequest> {
    let params = cursor.map_or(json!({}), |cursor| json!({ "cursor": cursor }));
    Some(DialectRequest { method: dialect.method(Verb::List)?, params: Some(params) })
}

/// Asks to bring back an expired session. `None` if the dialect has no such method.
pub fn recover(dialect: Dialect, id: &DataSessionId) -> Option<DialectRequest> {
    named(dialect, Verb::Recover, id)
}

/// A request that names one session by its id.
fn named(dialect: Dialect, verb: Verb, id: &DataSessionId) -> Option<DialectRequest> {
    let params = json!({ dialect.id_field(): id.reveal() });
    Some(DialectRequest { method: dialect.method(verb)?, params: Some(params) })
}

#[cfg(test)]
mod tests {
    use serde::Serialize;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};
    use tenure_protocol::data_session::{draft, extension, strawman};

    use super::{Dialect, DialectRequest, create, delete, list, recover, resume};
    use crate::cookie::{DataSessionId, SessionCookie};

    fn cookie(dialect: Dialect, fields: Value) -> SessionCookie {
        let Value::Object(fields) = fields else { panic!("an object") };
        SessionCookie::from_fields(dialect, fields).unwrap()
    }

    #[test]
    fn requests_have_the_shapes_of_their_dialect() {
        use Dialect::{Draft, Strawman};
        let id = DataSessionId::new("sess-a1b2c3d4e5f6");
        let held = json!({"id": "sess-1", "expiry": "2026-02-23T14:30:00Z", "data": {"title": "t"}});
        let title = json!({"title": "Code Review Session"});
        for (call, method, params) in [
            (
                create(Strawman, Some("my-agent-workspace"), Some(&title)),
                "session/create",
                Some(json!({"hints": {"label": "my-agent-workspace", "data": title}})),
            ),
            (create(Strawman, None, None), "session/create", Some(json!({}))),
            (create(Strawman, Some("l"), None), "session/create", Some(json!({"hints": {"label": "l"}}))),
            (create(Draft, Some("ignored"), Some(&title)), "sessions/create", None),
            (resume(Strawman, &id).unwrap(), "session/resume", Some(json!({"id": "sess-a1b2c3d4e5f6"}))),
            (
                delete(Strawman, &cookie(Strawman, held.clone())),
                "session/delete",
                Some(json!({"id": "sess-1", "_meta": {"mcp/session": held}})),
            ),
            (
                delete(Draft, &cookie(Draft, json!({"sessionId": "s", "expiresAt": "soon", "state": "x"}))),
                "sessions/delete",
                Some(json!({"_meta": {"io.modelcontextprotocol/session": {"sessionId": "s", "state": "x"}}})),
            ),
            (list(Strawman, None).unwrap(), "session/list", Some(json!({}))),
            (list(Strawman, Some("2")).unwrap(), "session/list", Some(json!({"cursor": "2"}))),
            (recover(Strawman, &id).unwrap(), "session/recover", Some(json!({"id": "sess-a1b2c3d4e5f6"}))),
        ] {
            assert!(call == DialectRequest { method, params: params.clone() }, "{method}: {:?}", call.params);
        }
        assert!(resume(Draft, &id).is_none() && list(Draft, None).is_none() && recover(Draft, &id).is_none());
    }

    /// A16.51: the requests fit the types of the protocol, and the types lose nothing of them.
    #[test]
    fn requests_fit_the_types_of_the_protocol() {
        fn check<T: Serialize + DeserializeOwned>(call: &DialectRequest) {
            let mut request = json!({ "jsonrpc": "2.0", "id": 1, "method": call.method });
            if let Some(params) = &call.params {
                request["params"] = params.clone();
            }
            let read: T =
                serde_json::from_value(request.clone()).unwrap_or_else(|error| panic!("{request}: {error}"));
            assert_eq!(serde_json::to_value(&read).unwrap(), request);
        }
        for dialect in [Dialect::Strawman, Dialect::Draft, Dialect::Extension] {
            let (id, title) = (DataSessionId::new("sess-1"), json!({"title": "t"}));
            let held = json!({ dialect.id_field(): "sess-1", dialect.expiry_field(): "soon", "state": "x" });
            let calls = [
                Some(create(dialect, Some("l"), Some(&title))),
                Some(create(dialect, None, None)),
                Some(delete(dialect, &cookie(dialect, held))),
                resume(dialect, &id),
                list(dialect, Some("2")),
                recover(dialect, &id),
            ];
            for call in calls.into_iter().flatten() {
                match dialect {
                    Dialect::Strawman => check::<strawman::ClientRequest>(&call),
                    Dialect::Draft => check::<draft::ClientRequest>(&call),
                    Dialect::Extension => check::<extension::ClientRequest>(&call),
                }
            }
        }
    }

    #[test]
    fn debug_shows_no_params() {
        let call = resume(Dialect::Strawman, &DataSessionId::new("geheim")).unwrap();
        assert!(!format!("{call:?}").contains("geheim"));
    }
}
