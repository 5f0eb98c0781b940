//! The key of a dialect's cookie, the fields of it that are sent, and the dialect of a stored cookie.

use serde_json::Value;
use tenure_protocol::data_session::{draft, extension, strawman};

use crate::cookie::{Dialect, Object, SessionCookie};

pub(crate) use tenure_protocol::data_session::extension::EXTENSION;

impl Dialect {
    /// The key of the cookie in `_meta`.
    pub fn meta_key(self) -> &'static str {
        match self {
            Self::Strawman => strawman::KEY,
            Self::Sep => draft::KEY,
            Self::Extension => extension::KEY,
        }
    }

    /// The fields of a cookie that are sent: in the strawman all, in the others only the id and `state`. The expiry
    /// is the server's decision and is not sent.
    pub fn to_send(self, cookie: &SessionCookie) -> Value {
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

    /// Whether a cookie of the dialect `stored` also names its session in this dialect. The cookies of the later
    /// draft and of the extension look the same in the jar, and a server that offers both means the same session.
    pub(crate) fn reads(self, stored: Self) -> bool {
        self == stored || self.id_field() == stored.id_field()
    }

    /// The dialect of a stored cookie, by the field that holds its id.
    pub(crate) fn of_stored(fields: &Object) -> Option<Self> {
        // The later draft first: if a cookie has both `sessionId` and `id`, only `sessionId` is its id.
        [Self::Sep, Self::Strawman]
            .into_iter()
            .find(|dialect| fields.get(dialect.id_field()).is_some_and(Value::is_string))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::cookie::{Dialect, Object, SessionCookie};

    fn object(value: Value) -> Object {
        let Value::Object(fields) = value else { panic!("an object") };
        fields
    }

    #[test]
    fn what_is_sent_of_a_cookie() {
        let cookie = json!({"id": "a", "expiry": "soon", "data": {"x": 1}, "other": 2});
        let strawman = SessionCookie::from_fields(Dialect::Strawman, object(cookie.clone())).unwrap();
        assert_eq!(Dialect::Strawman.to_send(&strawman), cookie);

        let cookie = json!({"sessionId": "a", "expiresAt": "soon", "state": "s", "other": 2});
        let sep = SessionCookie::from_fields(Dialect::Sep, object(cookie)).unwrap();
        assert_eq!(Dialect::Sep.to_send(&sep), json!({"sessionId": "a", "state": "s"}));
        let bare = SessionCookie::from_fields(Dialect::Sep, object(json!({"sessionId": "a"}))).unwrap();
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
