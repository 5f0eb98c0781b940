//! The content of a jar, and the operations on it. Pure: the time is an argument.
//!
//! The book keeps the JSON that was read, so that entries of other programs survive a write.

use std::fmt;

use serde_json::{Value, json};
use time::OffsetDateTime;

use super::JarServer;
use crate::{
    clock,
    cookie::{DataSessionId, Object, SessionCookie, hash, sorted},
    dialect::Dialect,
    error::{ClientErrorKind, Error},
};

/// The version of the format that we write. Version 2 differs only in how its keys are built, and is read too.
const VERSION: u64 = 3;
/// The most cookies of one server. Beyond it invalidated cookies are removed first, then the oldest.
const MAX_COOKIES_PER_SERVER: usize = 64;

/// The content of a jar.
#[derive(Clone, PartialEq)]
pub struct Book {
    root: Object,
}

/// The entries of one server, to show to people.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct JarRecord {
    /// Its key in the jar.
    pub key: String,
    /// The server's own name.
    pub identity: Option<String>,
    /// The user's name for it.
    pub name: Option<String>,
    /// The user of the server.
    pub principal: Option<String>,
    /// Its cookies, oldest first.
    pub cookies: Vec<KeptCookie>,
}

/// A cookie in the jar.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct KeptCookie {
    /// The cookie.
    pub cookie: SessionCookie,
    /// When it was last changed.
    pub updated_at: Option<String>,
    /// When and why it was invalidated.
    pub invalidated: Option<(String, Option<String>)>,
    /// Whether it was used last.
    pub last_used: bool,
}

impl Default for Book {
    fn default() -> Self {
        let Value::Object(root) = json!({"version": VERSION, "cookies": {}}) else { unreachable!() };
        Self { root }
    }
}

impl Book {
    /// Reads a jar.
    ///
    /// # Errors
    ///
    /// `ClientErrorKind::Invalid` if it is damaged, `ClientErrorKind::Jar` if a newer version of the format wrote it.
    pub fn parse(text: &[u8]) -> Result<Self, Error> {
        let damaged = |why: &str| Error::new(ClientErrorKind::Invalid, format!("the jar is damaged: {why}"));
        let root: Value =
            serde_json::from_slice(text).map_err(|error| damaged(&format!("line {}", error.line())))?;
        let Value::Object(root) = root else { return Err(damaged("it is not an object")) };
        match root.get("version").and_then(Value::as_u64) {
            Some(2..=VERSION) => {}
            Some(newer) if newer > VERSION => {
                return Err(Error::new(
                    ClientErrorKind::Jar,
                    format!("the jar has version {newer}, newer than {VERSION}"),
                ));
            }
            _ => return Err(damaged("it has no known version")),
        }
        if !root.get("cookies").is_some_and(Value::is_object) {
            return Err(damaged("it has no cookies"));
        }
        Ok(Self { root })
    }

    /// The text of the file: sorted keys, indented, with a final line break.
    pub fn to_text(&self) -> String {
        let mut root = self.root.clone();
        root.insert("version".to_owned(), json!(VERSION));
        format!("{:#}\n", sorted(&Value::Object(root)))
    }

    /// The records of all servers.
    pub fn records(&self) -> Vec<JarRecord> {
        let servers = self.root.get("cookies").and_then(Value::as_object).into_iter().flatten();
        let mut records: Vec<_> =
            servers.filter_map(|(key, record)| Some(summary(key, record.as_object()?))).collect();
        records.sort_by(|left, right| left.key.cmp(&right.key));
        records
    }

    /// The cookie to continue with.
    pub fn active(&self, server: &JarServer, dialect: Dialect, now: OffsetDateTime) -> Option<SessionCookie> {
        let cookies = self.record(server)?.cookies;
        let mut usable: Vec<_> = cookies.into_iter().filter(|kept| kept.is_usable(dialect, now)).collect();
        if let Some(last) = usable.iter().position(|kept| kept.last_used) {
            return Some(usable.swap_remove(last).cookie.spoken_in(dialect));
        }
        // Of equally new cookies `max_by_key` returns the last, which is the newest entry.
        usable
            .into_iter()
            .max_by_key(|kept| kept.updated_at.as_deref().and_then(clock::parse))
            .map(|kept| kept.cookie.spoken_in(dialect))
    }

    /// The cookie of one session, unless it was invalidated or has expired.
    pub fn find(
        &self,
        server: &JarServer,
        dialect: Dialect,
        id: &DataSessionId,
        now: OffsetDateTime,
    ) -> Option<SessionCookie> {
        let kept = self.record(server)?.cookies.into_iter().find(|kept| kept.cookie.id() == id)?;
        kept.is_usable(dialect, now).then(|| kept.cookie.spoken_in(dialect))
    }

    /// Keeps a cookie that the server has just sent, and marks it as used last.
    pub fn keep_as_used(&mut self, server: &JarServer, cookie: &SessionCookie, now: OffsetDateTime) {
        self.keep(server, cookie, now);
        self.select(server, cookie.id());
    }

    /// Keeps a cookie that the server has just sent for a session that is not in use.
    pub fn keep(&mut self, server: &JarServer, cookie: &SessionCookie, now: OffsetDateTime) {
        let Some(record) = self.record_mut(server) else { return };
        let digest = hash(cookie.reveal());
        let cookies = cookies_mut(record);
        let known = cookies.iter().position(|kept| id_of(kept) == Some(cookie.id().reveal()));
        let mut entry = known.and_then(|index| cookies[index].as_object().cloned()).unwrap_or_default();
        let changed = entry.get("hash").and_then(Value::as_str) != Some(&digest);
        // The server has just sent the cookie, so it is valid again.
        let revived = entry.remove("invalidatedAt").is_some();
        entry.remove("invalidatedReason");
        if changed || revived {
            entry.insert("id".to_owned(), json!(cookie.id().reveal()));
            entry.insert("cookie".to_owned(), Value::Object(cookie.reveal().clone()));
            entry.insert("hash".to_owned(), json!(digest));
            entry.insert("updatedAt".to_owned(), json!(clock::stamp(now)));
        }
        match known {
            Some(index) => cookies[index] = Value::Object(entry),
            None => {
                cookies.push(Value::Object(entry));
                trim(cookies);
            }
        }
    }

    /// Marks a session as used last.
    pub fn select(&mut self, server: &JarServer, id: &DataSessionId) {
        if let Some(record) = self.record_mut(server) {
            record.insert("last_used_id".to_owned(), json!(id.reveal()));
        }
    }

    /// Marks a session's cookie as invalid, so that it is not used again. A session that is not in the jar is not
    /// added.
    pub fn invalidate(&mut self, server: &JarServer, id: &DataSessionId, reason: &str, now: OffsetDateTime) {
        let Some(record) = self.existing_mut(server) else { return };
        for kept in cookies_mut(record).iter_mut().filter(|kept| id_of(kept) == Some(id.reveal())) {
            if let Value::Object(entry) = kept {
                entry.insert("invalidatedAt".to_owned(), json!(clock::stamp(now)));
                entry.insert("invalidatedReason".to_owned(), json!(reason));
            }
        }
        unselect(record, id);
    }

    /// Forgets one session.
    pub fn forget(&mut self, server: &JarServer, id: &DataSessionId) {
        let Some(record) = self.existing_mut(server) else { return };
        cookies_mut(record).retain(|kept| id_of(kept) != Some(id.reveal()));
        unselect(record, id);
    }

    /// Forgets all sessions of one server.
    pub fn forget_server(&mut self, server: &JarServer) {
        if let Some(key) = server.key() {
            self.forget_key(&key);
        }
    }

    /// Forgets all sessions under a key.
    pub fn forget_key(&mut self, key: &str) {
        if let Some(servers) = self.root.get_mut("cookies").and_then(Value::as_object_mut) {
            servers.remove(key);
        }
    }

    fn record(&self, server: &JarServer) -> Option<JarRecord> {
        let key = server.key()?;
        let record = self.root.get("cookies")?.get(&key)?.as_object()?;
        Some(summary(&key, record))
    }

    fn existing_mut(&mut self, server: &JarServer) -> Option<&mut Object> {
        self.root.get_mut("cookies")?.get_mut(&server.key()?)?.as_object_mut()
    }

    fn record_mut(&mut self, server: &JarServer) -> Option<&mut Object> {
        let key = server.key()?;
        let servers = self.root.get_mut("cookies")?.as_object_mut()?;
        let record = servers.entry(key).or_insert_with(|| json!({}));
        if !record.is_object() {
            *record = json!({});
        }
        let record = record.as_object_mut()?;
        let name = server.name.as_ref().or(server.identity.as_ref()).or(server.target.as_ref());
        for (field, known) in [
            ("server_name", name),
            ("server_identity", server.identity.as_ref()),
            ("target", server.target.as_ref()),
            ("principal", server.principal.as_ref()),
        ] {
            if let Some(known) = known
                && !record.get(field).is_some_and(Value::is_string)
            {
                record.insert(field.to_owned(), json!(known));
            }
        }
        Some(record)
    }
}

impl fmt::Debug for Book {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Book").field("servers", &self.records().len()).finish_non_exhaustive()
    }
}

fn summary(key: &str, record: &Object) -> JarRecord {
    let text = |field: &str| record.get(field).and_then(Value::as_str).map(str::to_owned);
    let last_used = record.get("last_used_id").and_then(Value::as_str).filter(|id| !id.is_empty());
    let kept = record.get("cookies").and_then(Value::as_array).into_iter().flatten();
    JarRecord {
        key: key.to_owned(),
        identity: text("server_identity"),
        name: text("server_name"),
        principal: text("principal"),
        cookies: kept.filter_map(|kept| kept_cookie(kept.as_object()?, last_used)).collect(),
    }
}

fn kept_cookie(entry: &Object, last_used: Option<&str>) -> Option<KeptCookie> {
    let text = |field: &str| entry.get(field).and_then(Value::as_str).map(str::to_owned);
    let fields = entry.get("cookie")?.as_object()?;
    let cookie = SessionCookie::from_stored(fields)?;
    Some(KeptCookie {
        updated_at: text("updatedAt"),
        invalidated: text("invalidatedAt")
            .filter(|at| !at.is_empty())
            .map(|at| (at, text("invalidatedReason"))),
        last_used: last_used == Some(cookie.id().reveal()),
        cookie,
    })
}

impl KeptCookie {
    /// Whether requests in this dialect may use it.
    pub(crate) fn is_usable(&self, dialect: Dialect, now: OffsetDateTime) -> bool {
        self.invalidated.is_none() && self.cookie.fits(dialect) && !self.cookie.is_expired(now)
    }
}

fn cookies_mut(record: &mut Object) -> &mut Vec<Value> {
    let cookies = record.entry("cookies").or_insert_with(|| json!([]));
    if !cookies.is_array() {
        *cookies = json!([]);
    }
    cookies.as_array_mut().expect("made an array above")
}

fn id_of(kept: &Value) -> Option<&str> {
    kept.get("id")?.as_str()
}

fn unselect(record: &mut Object, id: &DataSessionId) {
    if record.get("last_used_id").and_then(Value::as_str) == Some(id.reveal()) {
        record.insert("last_used_id".to_owned(), Value::Null);
    }
}

fn trim(cookies: &mut Vec<Value>) {
    while cookies.len() > MAX_COOKIES_PER_SERVER {
        let over = |kept: &Value| kept.get("invalidatedAt").is_some_and(Value::is_string);
        let oldest = cookies.iter().position(over).unwrap_or(0);
        cookies.remove(oldest);
    }
}

#[cfg(test)]
mod tests;
