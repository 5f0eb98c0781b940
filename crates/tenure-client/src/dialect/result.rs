//! Reads cookies from results.

use serde_json::Value;

use super::Dialect;
use crate::cookie::{DataSessionId, Object, SessionCookie};

/// The effect of a result on the cookie of its request.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The cookie stays.
    Keep,
    /// The new cookie. In the strawman its id may be new too.
    Set(SessionCookie),
    /// The server ended the session.
    Revoked,
    /// The result breaks the rules of the dialect. It is ignored and logged as a warning.
    Nonsense(&'static str),
}

/// One page of a list of sessions.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionPage {
    /// The sessions on it, as cookies.
    pub sessions: Vec<SessionCookie>,
    /// The cursor of the next page.
    pub next: Option<String>,
}

/// Reads the `_meta` of a result. `sent` is the cookie of its request.
pub fn change(dialect: Dialect, sent: Option<&SessionCookie>, meta: Option<&Object>) -> Change {
    let Some(said) = meta.and_then(|meta| meta.get(dialect.key())) else { return Change::Keep };
    let fields = match said {
        Value::Null => return Change::Revoked,
        Value::Object(fields) => fields,
        _ => return Change::Nonsense("the session in the result's metadata is neither an object nor null"),
    };
    match dialect {
        // In the strawman the server's cookie replaces the old one completely, as on the web, whether or not the
        // request had one.
        Dialect::Strawman => SessionCookie::from_fields(dialect, fields.clone()).map_or(
            Change::Nonsense("the session in the result's metadata has no id, or is too large"),
            Change::Set,
        ),
        Dialect::Draft | Dialect::Extension => match sent {
            None => Change::Nonsense("the result names a session, its request named none"),
            Some(sent) => merge(dialect, sent, fields),
        },
    }
}

/// Reads the result of a method that returns a session: create, resume, recover.
pub fn created(dialect: Dialect, result: &Value) -> Option<SessionCookie> {
    match dialect {
        Dialect::Strawman | Dialect::Extension => {
            // The body is for people, `_meta` holds the cookie that the server wants back; some servers send only one
            // of them.
            let cookie =
                result.get("_meta").and_then(|meta| meta.get(dialect.key())).and_then(Value::as_object);
            let cookie = cookie.and_then(|fields| SessionCookie::from_fields(dialect, fields.clone()));
            cookie.or_else(|| SessionCookie::from_fields(dialect, session_fields(dialect, result)))
        }
        Dialect::Draft => SessionCookie::from_fields(dialect, result.get("session")?.as_object()?.clone()),
    }
}

/// Reads the result of a list. Sessions without an id are left out.
pub fn page(dialect: Dialect, result: &Value) -> Option<SessionPage> {
    let sessions = result.get("sessions")?.as_array()?;
    let sessions = sessions.iter().filter_map(Value::as_object);
    Some(SessionPage {
        sessions: sessions.filter_map(|fields| SessionCookie::from_fields(dialect, fields.clone())).collect(),
        next: result.get("nextCursor").and_then(Value::as_str).map(str::to_owned),
    })
}

fn merge(dialect: Dialect, sent: &SessionCookie, fields: &Object) -> Change {
    // The id may be left out, but not changed: the draft forbids rotation.
    match fields.get(dialect.id_field()) {
        None => {}
        Some(Value::String(id)) if *sent.id() == DataSessionId::new(id.clone()) => {}
        Some(_) => return Change::Nonsense("the result names another session than its request did"),
    }
    let mut merged = sent.reveal().clone();
    merged.extend(fields.clone());
    SessionCookie::from_fields(dialect, merged)
        .map_or(Change::Nonsense("the session grew too large"), Change::Set)
}

fn session_fields(dialect: Dialect, body: &Value) -> Object {
    // `data` is shown to people, `state` is sent back.
    let known = [dialect.id_field(), dialect.expiry_field(), "data", "state"].into_iter();
    known.filter_map(|field| Some((field.to_owned(), body.get(field)?.clone()))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Change, Dialect, SessionPage, change, created, page};
    use crate::cookie::{Object, SessionCookie};

    fn object(value: Value) -> Object {
        let Value::Object(fields) = value else { panic!("an object") };
        fields
    }

    fn cookie(dialect: Dialect, fields: Value) -> SessionCookie {
        SessionCookie::from_fields(dialect, object(fields)).unwrap()
    }

    #[test]
    fn what_a_strawman_result_does_to_a_cookie() {
        let held = cookie(Dialect::Strawman, json!({"id": "a", "expiry": "1", "data": {"x": 1}}));
        let read = |meta: Value| change(Dialect::Strawman, Some(&held), Some(&object(meta)));
        let set = |fields| Change::Set(cookie(Dialect::Strawman, fields));

        assert_eq!(change(Dialect::Strawman, Some(&held), None), Change::Keep);
        assert_eq!(read(json!({"progressToken": 1})), Change::Keep);
        assert_eq!(
            read(json!({"io.modelcontextprotocol/session": null})),
            Change::Keep,
            "the other dialect's"
        );
        assert_eq!(read(json!({"mcp/session": null})), Change::Revoked);
        // The new cookie replaces the old one, so its data is gone.
        assert_eq!(
            read(json!({"mcp/session": {"id": "a", "expiry": "2"}})),
            set(json!({"id": "a", "expiry": "2"}))
        );
        assert_eq!(read(json!({"mcp/session": {"id": "b"}})), set(json!({"id": "b"})), "rotation");
        assert!(matches!(read(json!({"mcp/session": {"expiry": "2"}})), Change::Nonsense(_)));
        assert!(matches!(read(json!({"mcp/session": "a"})), Change::Nonsense(_)));
        let unasked = change(Dialect::Strawman, None, Some(&object(json!({"mcp/session": {"id": "n"}}))));
        assert_eq!(unasked, set(json!({"id": "n"})));
    }

    #[test]
    fn what_a_result_of_the_later_draft_does_to_a_cookie() {
        const KEY: &str = "io.modelcontextprotocol/session";
        let held = cookie(Dialect::Draft, json!({"sessionId": "a", "expiresAt": "1", "state": "s"}));
        let read = |said: Value| change(Dialect::Draft, Some(&held), Some(&object(json!({ KEY: said }))));
        let set = |fields| Change::Set(cookie(Dialect::Draft, fields));

        assert_eq!(change(Dialect::Draft, Some(&held), None), Change::Keep);
        assert_eq!(read(Value::Null), Change::Revoked);
        assert_eq!(
            read(json!({"sessionId": "a", "state": "t"})),
            set(json!({"sessionId": "a", "expiresAt": "1", "state": "t"}))
        );
        assert_eq!(
            read(json!({"expiresAt": "2"})),
            set(json!({"sessionId": "a", "expiresAt": "2", "state": "s"}))
        );
        assert!(matches!(read(json!({"sessionId": "b"})), Change::Nonsense(_)));
        assert!(matches!(read(json!({"sessionId": null})), Change::Nonsense(_)));
        let unasked = change(Dialect::Draft, None, Some(&object(json!({ KEY: {"sessionId": "n"} }))));
        assert!(matches!(unasked, Change::Nonsense(_)));
        assert_eq!(
            change(Dialect::Draft, Some(&held), Some(&object(json!({"mcp/session": null})))),
            Change::Keep
        );
    }

    #[test]
    fn the_cookie_of_a_new_session() {
        use Dialect::{Draft, Extension, Strawman};
        for (dialect, result, expected) in [
            (
                Extension,
                json!({"sessionId": "a", "expiresAt": "e", "data": {}, "_meta": {"dev.tenure/session": {"sessionId": "a", "expiresAt": "e"}}}),
                Some(json!({"sessionId": "a", "expiresAt": "e"})),
            ),
            // Some servers send only the body: its `state` is sent back, its `data` is shown.
            (
                Extension,
                json!({"sessionId": "a", "expiresAt": "e", "data": {"n": 1}, "state": "s", "recovered": true}),
                Some(json!({"sessionId": "a", "expiresAt": "e", "data": {"n": 1}, "state": "s"})),
            ),
            (Extension, json!({"id": "a"}), None),
            (
                Strawman,
                json!({"id": "a", "expiry": "e", "data": {"title": "t"}, "_meta": {"mcp/session": {"id": "a", "expiry": "e"}}}),
                Some(json!({"id": "a", "expiry": "e"})),
            ),
            (Strawman, json!({"_meta": {"mcp/session": {"id": "a"}}}), Some(json!({"id": "a"}))),
            (
                Strawman,
                json!({"id": "a", "expiry": "e", "data": {}, "recovered": true}),
                Some(json!({"id": "a", "expiry": "e", "data": {}})),
            ),
            (Strawman, json!({"id": "a", "_meta": {"mcp/session": null}}), Some(json!({"id": "a"}))),
            (Strawman, json!({"deleted": true}), None),
            (Strawman, json!({}), None),
            (
                Draft,
                json!({"session": {"sessionId": "s", "expiresAt": "e", "state": "x"}}),
                Some(json!({"sessionId": "s", "expiresAt": "e", "state": "x"})),
            ),
            (Draft, json!({"sessionId": "s"}), None),
            (Draft, json!({"session": {}}), None),
        ] {
            let expected = expected.map(|fields| cookie(dialect, fields));
            assert_eq!(created(dialect, &result), expected, "{result}");
        }
    }

    #[test]
    fn pages_of_sessions() {
        let read = |result: Value| page(Dialect::Strawman, &result);
        let one = vec![cookie(Dialect::Strawman, json!({"id": "a", "data": {}}))];
        assert_eq!(
            read(json!({"sessions": [{"id": "a", "data": {}}, {"expiry": "x"}, 3], "nextCursor": "2"})),
            Some(SessionPage { sessions: one, next: Some("2".to_owned()) })
        );
        assert_eq!(read(json!({"sessions": []})), Some(SessionPage { sessions: vec![], next: None }));
        assert_eq!(read(json!({})), None);
    }
}
