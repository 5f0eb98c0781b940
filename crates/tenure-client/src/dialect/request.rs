//! The requests that the layer sends on its own behalf.

use serde_json::{Value, json};

use super::Dialect;
use crate::cookie::{Cookie, Object, SessionId};

/// A method and its params, to which the layer gives an id.
#[derive(Clone, PartialEq)]
pub struct Call {
    /// The JSON-RPC method.
    pub method: &'static str,
    /// Its params, or none at all.
    pub params: Option<Value>,
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The params hold ids.
        f.debug_struct("Call").field("method", &self.method).finish_non_exhaustive()
    }
}

/// Asks for a new session. The later draft has no hints, so label and data go nowhere in it, and it forbids a
/// cookie here.
pub fn create(dialect: Dialect, label: Option<&str>, data: Option<&Value>) -> Call {
    match dialect {
        Dialect::Strawman | Dialect::Extension => {
            let mut hints = Object::new();
            hints.extend(label.map(|label| ("label".to_owned(), Value::from(label))));
            hints.extend(data.map(|data| ("data".to_owned(), data.clone())));
            let params = if hints.is_empty() { json!({}) } else { json!({ "hints": hints }) };
            let method =
                if dialect == Dialect::Strawman { "session/create" } else { "dev.tenure/session/create" };
            Call { method, params: Some(params) }
        }
        Dialect::Sep => Call { method: "sessions/create", params: None },
    }
}

/// Asks for the cookie of a session that is known by its id. `None` where the dialect has no such method and
/// the id is simply used.
pub fn resume(dialect: Dialect, id: &SessionId) -> Option<Call> {
    named(dialect, ["session/resume", "dev.tenure/session/resume"], id)
}

/// Asks the server to end a session.
pub fn delete(dialect: Dialect, cookie: &Cookie) -> Call {
    let meta = json!({ dialect.meta_key(): dialect.to_send(cookie) });
    match dialect {
        // The document names the session in `id`, released clients and their servers in `_meta`: with both,
        // either kind of server understands.
        Dialect::Strawman => Call {
            method: "session/delete",
            params: Some(json!({ "id": cookie.id().reveal(), "_meta": meta })),
        },
        Dialect::Sep => Call { method: "sessions/delete", params: Some(json!({ "_meta": meta })) },
        Dialect::Extension => Call {
            method: "dev.tenure/session/delete",
            params: Some(json!({ "sessionId": cookie.id().reveal(), "_meta": meta })),
        },
    }
}

/// Asks for a page of the caller's sessions. `None` where the dialect has no such method.
pub fn list(dialect: Dialect, cursor: Option<&str>) -> Option<Call> {
    let method = either(dialect, ["session/list", "dev.tenure/session/list"])?;
    Some(Call { method, params: Some(cursor.map_or(json!({}), |cursor| json!({ "cursor": cursor }))) })
}

/// Asks for a session back whose time is over. `None` where the dialect has no such method.
pub fn recover(dialect: Dialect, id: &SessionId) -> Option<Call> {
    named(dialect, ["session/recover", "dev.tenure/session/recover"], id)
}

/// A request about one session, by its id.
fn named(dialect: Dialect, methods: [&'static str; 2], id: &SessionId) -> Option<Call> {
    let method = either(dialect, methods)?;
    Some(Call { method, params: Some(json!({ dialect.id_field(): id.reveal() })) })
}

/// The method of the strawman, or that of the extension; the later draft has neither.
fn either(dialect: Dialect, [strawman, extension]: [&'static str; 2]) -> Option<&'static str> {
    match dialect {
        Dialect::Strawman => Some(strawman),
        Dialect::Sep => None,
        Dialect::Extension => Some(extension),
    }
}

#[cfg(test)]
mod tests {
    use serde::Serialize;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};
    use tenure_protocol::data_session::{draft, extension, strawman};

    use super::{Call, Dialect, create, delete, list, recover, resume};
    use crate::cookie::{Cookie, SessionId};

    fn cookie(dialect: Dialect, fields: Value) -> Cookie {
        let Value::Object(fields) = fields else { panic!("an object") };
        Cookie::from_fields(dialect, fields).unwrap()
    }

    #[test]
    fn requests_have_the_shapes_of_their_dialect() {
        use Dialect::{Sep, Strawman};
        let id = SessionId::new("sess-a1b2c3d4e5f6");
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
            (create(Sep, Some("ignored"), Some(&title)), "sessions/create", None),
            (resume(Strawman, &id).unwrap(), "session/resume", Some(json!({"id": "sess-a1b2c3d4e5f6"}))),
            (
                delete(Strawman, &cookie(Strawman, held.clone())),
                "session/delete",
                Some(json!({"id": "sess-1", "_meta": {"mcp/session": held}})),
            ),
            (
                delete(Sep, &cookie(Sep, json!({"sessionId": "s", "expiresAt": "soon", "state": "x"}))),
                "sessions/delete",
                Some(json!({"_meta": {"io.modelcontextprotocol/session": {"sessionId": "s", "state": "x"}}})),
            ),
            (list(Strawman, None).unwrap(), "session/list", Some(json!({}))),
            (list(Strawman, Some("2")).unwrap(), "session/list", Some(json!({"cursor": "2"}))),
            (recover(Strawman, &id).unwrap(), "session/recover", Some(json!({"id": "sess-a1b2c3d4e5f6"}))),
        ] {
            assert!(call == Call { method, params: params.clone() }, "{method}: {:?}", call.params);
        }
        assert!(resume(Sep, &id).is_none() && list(Sep, None).is_none() && recover(Sep, &id).is_none());
    }

    /// A16.51: what is sent fits the types of the protocol, and those leave nothing out.
    #[test]
    fn requests_fit_the_types_of_the_protocol() {
        fn check<T: Serialize + DeserializeOwned>(call: &Call) {
            let mut request = json!({ "jsonrpc": "2.0", "id": 1, "method": call.method });
            if let Some(params) = &call.params {
                request["params"] = params.clone();
            }
            let read: T =
                serde_json::from_value(request.clone()).unwrap_or_else(|error| panic!("{request}: {error}"));
            assert_eq!(serde_json::to_value(&read).unwrap(), request);
        }
        for dialect in [Dialect::Strawman, Dialect::Sep, Dialect::Extension] {
            let (id, title) = (SessionId::new("sess-1"), json!({"title": "t"}));
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
                    Dialect::Sep => check::<draft::ClientRequest>(&call),
                    Dialect::Extension => check::<extension::ClientRequest>(&call),
                }
            }
        }
    }

    #[test]
    fn debug_shows_no_params() {
        let call = resume(Dialect::Strawman, &SessionId::new("geheim")).unwrap();
        assert!(!format!("{call:?}").contains("geheim"));
    }
}
