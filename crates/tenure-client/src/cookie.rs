//! A cookie, with which a server names a data session, and the id in it.
//!
//! Cookies and ids are secrets: a program that has one can use our session. `Debug` never prints them; it shows the
//! first digits of a hash, which is enough to tell two of them apart.

use std::fmt;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tenure_protocol::data_session::Dialect;
use time::OffsetDateTime;

use crate::clock;

pub(crate) type Object = Map<String, Value>;

/// The largest cookie. Most are far smaller, unless the cookie holds the whole state of a session.
const MAX_BYTES: usize = 64 * 1024;

/// The id of a data session, as the server wrote it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct DataSessionId(String);

impl DataSessionId {
    /// Takes an id exactly as a server wrote it, for example one that a user typed.
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// The id itself, which is a secret: do not print it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for DataSessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DataSessionId(#{})", &hex(&Sha256::digest(self.0.as_bytes()))[..8])
    }
}

/// The cookie that names the data session of a request.
///
/// Only its id and its expiry have a meaning for the client; the server may put anything else into it.
#[derive(Clone, PartialEq)]
pub struct SessionCookie {
    dialect: Dialect,
    id: DataSessionId,
    fields: Object,
}

impl SessionCookie {
    /// Reads a cookie; `None` if it lacks the id field of its dialect, or is too large: every request and the jar hold
    /// it.
    pub fn from_fields(dialect: Dialect, fields: Object) -> Option<Self> {
        if serde_json::to_vec(&fields).map_or(true, |text| text.len() > MAX_BYTES) {
            return None;
        }
        let id = fields.get(dialect.id_field())?.as_str().filter(|id| !id.is_empty())?;
        Some(Self { dialect, id: DataSessionId::new(id), fields })
    }

    /// A cookie with only an id, for a session whose cookie is not known.
    pub fn of_id(dialect: Dialect, id: &DataSessionId) -> Self {
        let mut fields = Object::new();
        fields.insert(dialect.id_field().to_owned(), Value::from(id.reveal()));
        Self { dialect, id: id.clone(), fields }
    }

    /// The dialect whose fields it has.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The session it names.
    pub fn id(&self) -> &DataSessionId {
        &self.id
    }

    /// When the session ends, as the server wrote it.
    pub fn expiry(&self) -> Option<&str> {
        self.fields.get(self.dialect.expiry_field())?.as_str()
    }

    /// All its fields, which are secrets: do not print them.
    pub fn reveal(&self) -> &Object {
        &self.fields
    }

    /// Reads a cookie from the jar. The field that holds its id shows its dialect.
    pub(crate) fn from_stored(fields: &Object) -> Option<Self> {
        // The later draft first: if a cookie has both `sessionId` and `id`, only `sessionId` is its id.
        let dialect = [Dialect::Draft, Dialect::Strawman]
            .into_iter()
            .find(|dialect| fields.get(dialect.id_field()).is_some_and(Value::is_string))?;
        Self::from_fields(dialect, fields.clone())
    }

    /// The fields that are sent in a dialect: in the strawman all, in the others only the id and `state`. The expiry is
    /// the server's decision and is not sent.
    pub fn to_send(&self, dialect: Dialect) -> Value {
        match dialect {
            Dialect::Strawman => Value::Object(self.fields.clone()),
            Dialect::Draft | Dialect::Extension => Value::Object(
                [dialect.id_field(), "state"]
                    .into_iter()
                    .filter_map(|field| Some((field.to_owned(), self.fields.get(field)?.clone())))
                    .collect::<Object>(),
            ),
        }
    }

    /// Whether it also names its session in this dialect. The cookies of the later draft and of the extension look the
    /// same in the jar, and a server that offers both means the same session.
    pub(crate) fn fits(&self, dialect: Dialect) -> bool {
        self.dialect.id_field() == dialect.id_field()
    }

    /// The same cookie in another dialect that has the same fields.
    pub(crate) fn spoken_in(self, dialect: Dialect) -> Self {
        Self { dialect, ..self }
    }

    /// Whether it has expired. A cookie without an expiry, or with one that cannot be parsed, has not.
    pub fn is_expired(&self, now: OffsetDateTime) -> bool {
        self.expiry().and_then(clock::parse).is_some_and(|expiry| expiry <= now)
    }

    /// Whether the two differ at most in their expiry.
    pub(crate) fn is_refresh_of(&self, other: &Self) -> bool {
        let without_expiry = |cookie: &Self| {
            let mut fields = cookie.fields.clone();
            fields.remove(cookie.dialect.expiry_field());
            fields
        };
        self.dialect == other.dialect && without_expiry(self) == without_expiry(other)
    }
}

impl fmt::Debug for SessionCookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionCookie")
            .field("dialect", &self.dialect)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// The hash that the jar keeps beside a cookie: SHA-256 of its JSON with sorted keys and no spaces.
pub(crate) fn hash(fields: &Object) -> String {
    hex(&Sha256::digest(sorted(&Value::Object(fields.clone())).to_string().as_bytes()))
}

/// The same value with sorted keys in all objects, also if serde_json is built to keep their order.
pub(crate) fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut keys: Vec<_> = fields.iter().collect();
            keys.sort_by_key(|(key, _)| *key);
            Value::Object(keys.into_iter().map(|(key, value)| (key.clone(), sorted(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        plain => plain.clone(),
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Dialect, Object, SessionCookie, hash};
    use crate::clock;

    fn object(value: Value) -> Object {
        let Value::Object(fields) = value else { panic!("an object") };
        fields
    }

    #[test]
    fn debug_shows_neither_id_nor_content() {
        let cookie = SessionCookie::from_fields(
            Dialect::Draft,
            object(json!({"sessionId": "sess-geheim", "state": "auch-geheim", "expiresAt": "bald"})),
        )
        .unwrap();
        let text = format!("{cookie:?} {:?}", cookie.id());
        assert!(!text.contains("geheim") && text.contains("DataSessionId(#"), "{text}");
    }

    #[test]
    fn a_cookie_needs_the_id_of_its_own_dialect() {
        let strawman = object(json!({"id": "a"}));
        let sep = object(json!({"sessionId": "a"}));
        assert!(SessionCookie::from_fields(Dialect::Strawman, strawman.clone()).is_some());
        assert!(SessionCookie::from_fields(Dialect::Draft, strawman).is_none());
        assert!(SessionCookie::from_fields(Dialect::Draft, sep.clone()).is_some());
        assert!(SessionCookie::from_fields(Dialect::Strawman, sep).is_none());
        assert!(SessionCookie::from_fields(Dialect::Strawman, object(json!({"id": ""}))).is_none());
        assert!(SessionCookie::from_fields(Dialect::Strawman, object(json!({"id": 7}))).is_none());
        let large = |length| object(json!({"id": "a", "data": "x".repeat(length)}));
        assert!(SessionCookie::from_fields(Dialect::Strawman, large(60 * 1024)).is_some());
        assert!(SessionCookie::from_fields(Dialect::Strawman, large(64 * 1024)).is_none());
    }

    #[test]
    fn what_is_sent_of_a_cookie() {
        let cookie = json!({"id": "a", "expiry": "soon", "data": {"x": 1}, "other": 2});
        let strawman = SessionCookie::from_fields(Dialect::Strawman, object(cookie.clone())).unwrap();
        assert_eq!(strawman.to_send(Dialect::Strawman), cookie);

        let cookie = json!({"sessionId": "a", "expiresAt": "soon", "state": "s", "other": 2});
        let sep = SessionCookie::from_fields(Dialect::Draft, object(cookie)).unwrap();
        assert_eq!(sep.to_send(Dialect::Draft), json!({"sessionId": "a", "state": "s"}));
        let bare = SessionCookie::from_fields(Dialect::Draft, object(json!({"sessionId": "a"}))).unwrap();
        assert_eq!(bare.to_send(Dialect::Draft), json!({"sessionId": "a"}));
    }

    #[test]
    fn a_stored_cookie_shows_its_dialect() {
        for (stored, dialect) in [
            (json!({"id": "a"}), Some(Dialect::Strawman)),
            (json!({"sessionId": "a"}), Some(Dialect::Draft)),
            (json!({"sessionId": "a", "id": "b"}), Some(Dialect::Draft)),
            (json!({"id": 1}), None),
            (json!({}), None),
        ] {
            let cookie = SessionCookie::from_stored(&object(stored.clone()));
            assert_eq!(cookie.map(|cookie| cookie.dialect()), dialect, "{stored}");
        }
    }

    #[test]
    fn the_hash_is_the_one_that_other_programs_compute() {
        // sha256sum of {"expiresAt":"2026-11-15T18:21:30Z","sessionId":"sess-ü","state":{"a":1,"b":[true,null]}}
        let cookie = json!({"state": {"b": [true, null], "a": 1}, "sessionId": "sess-ü",
            "expiresAt": "2026-11-15T18:21:30Z"});
        assert_eq!(hash(&object(cookie)), "cba85e870e0d43fd119036a38582e7b914d788ac4f7615c10bd078d11acca1df");
    }

    #[test]
    fn only_a_readable_expiry_in_the_past_is_over() {
        let now = clock::parse("2026-02-23T14:30:00Z").unwrap();
        for (expiry, over) in [
            (json!("2026-02-23T14:29:59Z"), true),
            (json!("2026-02-23T14:30:00Z"), true),
            (json!("2026-02-23T14:30:01Z"), false),
            (json!("2026-02-23T15:30:00+02:00"), true),
            (json!("soon"), false),
            (json!(5), false),
            (Value::Null, false),
        ] {
            let cookie =
                SessionCookie::from_fields(Dialect::Strawman, object(json!({"id": "a", "expiry": expiry})))
                    .unwrap();
            assert_eq!(cookie.is_expired(now), over, "{expiry}");
        }
    }

    #[test]
    fn a_refresh_changes_nothing_but_the_expiry() {
        let cookie = |fields| SessionCookie::from_fields(Dialect::Strawman, object(fields)).unwrap();
        let held = cookie(json!({"id": "a", "expiry": "1", "data": {"x": 1}}));
        assert!(cookie(json!({"id": "a", "expiry": "2", "data": {"x": 1}})).is_refresh_of(&held));
        assert!(!cookie(json!({"id": "a", "expiry": "1", "data": {"x": 2}})).is_refresh_of(&held));
        assert!(!cookie(json!({"id": "b", "expiry": "1", "data": {"x": 1}})).is_refresh_of(&held));
    }
}
