//! The dialects, and the words of each that all the rest needs: its key, its fields, what is sent.

use serde_json::Value;
use tenure_protocol::data_session::{draft, extension, strawman};

use crate::cookie::{Cookie, Object};

/// A way of speaking of data sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// The strawman: `session/create`, `_meta["mcp/session"]`, capability `experimental.session`.
    Strawman,
    /// The later draft of a specification: `sessions/create`, `_meta["io.modelcontextprotocol/session"]`,
    /// capability `sessions`.
    Sep,
    /// The extension `dev.tenure/sessions` of servers without transport sessions (2026-07-28):
    /// `dev.tenure/session/create`, `_meta["dev.tenure/session"]`. Its cookie has the fields of the later draft.
    Extension,
}

pub(crate) use tenure_protocol::data_session::extension::EXTENSION;

impl Dialect {
    /// The key in `_meta` under which the cookie goes.
    pub fn meta_key(self) -> &'static str {
        match self {
            Self::Strawman => strawman::KEY,
            Self::Sep => draft::KEY,
            Self::Extension => extension::KEY,
        }
    }

    /// The field of a cookie that holds the session's id.
    pub fn id_field(self) -> &'static str {
        match self {
            Self::Strawman => "id",
            Self::Sep | Self::Extension => "sessionId",
        }
    }

    /// The field of a cookie that says when the session ends.
    pub fn expiry_field(self) -> &'static str {
        match self {
            Self::Strawman => "expiry",
            Self::Sep | Self::Extension => "expiresAt",
        }
    }

    /// What is sent of a cookie: in the strawman all of it, in the others no expiry, which is the
    /// server's to say.
    pub fn to_send(self, cookie: &Cookie) -> Value {
        match self {
            Self::Strawman => Value::Object(cookie.reveal().clone()),
            Self::Sep | Self::Extension => Value::Object(
                ["sessionId", "state"]
                    .into_iter()
                    .filter_map(|field| Some((field.to_owned(), cookie.reveal().get(field)?.clone())))
                    .collect::<Object>(),
            ),
        }
    }

    /// Whether a cookie of `stored` also names its session in this dialect. The cookies of the later draft and of
    /// the extension look the same in the jar, and a server that offers both means the same session by them.
    pub(crate) fn reads(self, stored: Self) -> bool {
        self == stored || self.id_field() == stored.id_field()
    }

    /// The dialect of a stored cookie, by the field that holds its id.
    pub(crate) fn of_stored(fields: &Object) -> Option<Self> {
        // The later draft first: its `state` may be an object of its own, but an `id` beside `sessionId` is
        // nothing it knows.
        [Self::Sep, Self::Strawman]
            .into_iter()
            .find(|dialect| fields.get(dialect.id_field()).is_some_and(Value::is_string))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Dialect;
    use crate::cookie::{Cookie, Object};

    fn object(value: Value) -> Object {
        let Value::Object(fields) = value else { panic!("an object") };
        fields
    }

    #[test]
    fn what_is_sent_of_a_cookie() {
        let cookie = json!({"id": "a", "expiry": "soon", "data": {"x": 1}, "other": 2});
        let strawman = Cookie::from_fields(Dialect::Strawman, object(cookie.clone())).unwrap();
        assert_eq!(Dialect::Strawman.to_send(&strawman), cookie);

        let cookie = json!({"sessionId": "a", "expiresAt": "soon", "state": "s", "other": 2});
        let sep = Cookie::from_fields(Dialect::Sep, object(cookie)).unwrap();
        assert_eq!(Dialect::Sep.to_send(&sep), json!({"sessionId": "a", "state": "s"}));
        let bare = Cookie::from_fields(Dialect::Sep, object(json!({"sessionId": "a"}))).unwrap();
        assert_eq!(Dialect::Sep.to_send(&bare), json!({"sessionId": "a"}));
    }

    #[test]
    fn a_stored_cookie_shows_its_dialect() {
        for (stored, dialect) in [
            (json!({"id": "a"}), Some(Dialect::Strawman)),
            (json!({"sessionId": "a"}), Some(Dialect::Sep)),
            (json!({"sessionId": "a", "id": "b"}), Some(Dialect::Sep)),
            (json!({"id": 1}), None),
            (json!({}), None),
        ] {
            assert_eq!(Dialect::of_stored(&object(stored.clone())), dialect, "{stored}");
        }
    }
}
