//! What is in a jar, and what is done with it. Pure: time is an argument.
//!
//! The book is kept as the JSON that was read, so that whatever other programs put into it stays in it.

use std::fmt;

use serde_json::{Value, json};
use time::OffsetDateTime;

use super::Server;
use crate::{
    clock,
    cookie::{Cookie, Object, SessionId, hash, sorted},
    dialect::Dialect,
    error::{Error, Kind},
};

/// The version of the format that we write. The one before differs only in what its keys are made of.
const VERSION: u64 = 3;
/// More cookies than this of one server are not kept; the oldest go, those that are over first.
const MAX_COOKIES_PER_SERVER: usize = 64;

/// All that is in a jar.
#[derive(Clone, PartialEq)]
pub struct Book {
    root: Object,
}

/// What the jar knows of one server, for people to look at.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Record {
    /// The key under which it is kept.
    pub key: String,
    /// What the server calls itself.
    pub identity: Option<String>,
    /// The user's name for it.
    pub name: Option<String>,
    /// On whose behalf it is used.
    pub principal: Option<String>,
    /// Its cookies, in the order in which they came.
    pub cookies: Vec<KeptCookie>,
}

/// A cookie in the jar.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct KeptCookie {
    /// The cookie.
    pub cookie: Cookie,
    /// When it was last changed.
    pub updated_at: Option<String>,
    /// When, and why, it was found to be of no use any more.
    pub invalidated: Option<(String, Option<String>)>,
    /// Whether it was the last one to be used.
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
    /// `Kind::Invalid` if it is damaged, `Kind::Jar` if a newer version of the format wrote it.
    pub fn parse(text: &[u8]) -> Result<Self, Error> {
        let damaged = |why: &str| Error::new(Kind::Invalid, format!("the jar is damaged: {why}"));
        let root: Value =
            serde_json::from_slice(text).map_err(|error| damaged(&format!("line {}", error.line())))?;
        let Value::Object(root) = root else { return Err(damaged("it is not an object")) };
        match root.get("version").and_then(Value::as_u64) {
            Some(2..=VERSION) => {}
            Some(newer) if newer > VERSION => {
                return Err(Error::new(
                    Kind::Jar,
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

    /// The jar as it is written: sorted, indented, with a line's end at the end.
    pub fn to_text(&self) -> String {
        let mut root = self.root.clone();
        root.insert("version".to_owned(), json!(VERSION));
        format!("{:#}\n", sorted(&Value::Object(root)))
    }

    /// What is known of all servers.
    pub fn records(&self) -> Vec<Record> {
        let servers = self.root.get("cookies").and_then(Value::as_object).into_iter().flatten();
        let mut records: Vec<_> =
            servers.filter_map(|(key, record)| Some(summary(key, record.as_object()?))).collect();
        records.sort_by(|left, right| left.key.cmp(&right.key));
        records
    }

    /// The cookie to go on with.
    pub fn active(&self, server: &Server, dialect: Dialect, now: OffsetDateTime) -> Option<Cookie> {
        let cookies = self.record(server)?.cookies;
        let mut usable: Vec<_> = cookies.into_iter().filter(|kept| is_usable(kept, dialect, now)).collect();
        if let Some(last) = usable.iter().position(|kept| kept.last_used) {
            return Some(usable.swap_remove(last).cookie.spoken_in(dialect));
        }
        // Of equally new ones the later, as it came later.
        usable
            .into_iter()
            .max_by_key(|kept| kept.updated_at.as_deref().and_then(clock::parse))
            .map(|kept| kept.cookie.spoken_in(dialect))
    }

    /// The cookie of one session, unless it was found to be of no use.
    pub fn find(&self, server: &Server, dialect: Dialect, id: &SessionId) -> Option<Cookie> {
        let kept = self.record(server)?.cookies.into_iter().find(|kept| kept.cookie.id() == id)?;
        (kept.invalidated.is_none() && dialect.reads(kept.cookie.dialect()))
            .then(|| kept.cookie.spoken_in(dialect))
    }

    /// Keeps a cookie that the server has just given, and remembers it as the last used.
    pub fn keep_as_used(&mut self, server: &Server, cookie: &Cookie, now: OffsetDateTime) {
        self.keep(server, cookie, now);
        self.select(server, cookie.id());
    }

    /// Keeps a cookie that the server has just given for a session that is not the one in use.
    pub fn keep(&mut self, server: &Server, cookie: &Cookie, now: OffsetDateTime) {
        let Some(record) = self.record_mut(server) else { return };
        let digest = hash(cookie.reveal());
        let cookies = cookies_mut(record);
        let known = cookies.iter().position(|kept| id_of(kept) == Some(cookie.id().reveal()));
        let mut entry = known.and_then(|index| cookies[index].as_object().cloned()).unwrap_or_default();
        let changed = entry.get("hash").and_then(Value::as_str) != Some(&digest);
        // Whatever was thought of it, the server has just vouched for it.
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

    /// Remembers a session as the last used.
    pub fn select(&mut self, server: &Server, id: &SessionId) {
        if let Some(record) = self.record_mut(server) {
            record.insert("last_used_id".to_owned(), json!(id.reveal()));
        }
    }

    /// Marks a session's cookie, so that it is not chosen again. One that is not here is not entered.
    pub fn invalidate(&mut self, server: &Server, id: &SessionId, reason: &str, now: OffsetDateTime) {
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
    pub fn forget(&mut self, server: &Server, id: &SessionId) {
        let Some(record) = self.existing_mut(server) else { return };
        cookies_mut(record).retain(|kept| id_of(kept) != Some(id.reveal()));
        unselect(record, id);
    }

    /// Forgets all sessions of one server.
    pub fn forget_server(&mut self, server: &Server) {
        if let Some(key) = server.key() {
            self.forget_key(&key);
        }
    }

    /// Forgets all that is kept under a key.
    pub fn forget_key(&mut self, key: &str) {
        if let Some(servers) = self.root.get_mut("cookies").and_then(Value::as_object_mut) {
            servers.remove(key);
        }
    }

    fn record(&self, server: &Server) -> Option<Record> {
        let key = server.key()?;
        let record = self.root.get("cookies")?.get(&key)?.as_object()?;
        Some(summary(&key, record))
    }

    fn existing_mut(&mut self, server: &Server) -> Option<&mut Object> {
        self.root.get_mut("cookies")?.get_mut(&server.key()?)?.as_object_mut()
    }

    fn record_mut(&mut self, server: &Server) -> Option<&mut Object> {
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

fn summary(key: &str, record: &Object) -> Record {
    let text = |field: &str| record.get(field).and_then(Value::as_str).map(str::to_owned);
    let last_used = record.get("last_used_id").and_then(Value::as_str).filter(|id| !id.is_empty());
    let kept = record.get("cookies").and_then(Value::as_array).into_iter().flatten();
    Record {
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
    let cookie = Cookie::from_fields(Dialect::of_stored(fields)?, fields.clone())?;
    Some(KeptCookie {
        updated_at: text("updatedAt"),
        invalidated: text("invalidatedAt")
            .filter(|at| !at.is_empty())
            .map(|at| (at, text("invalidatedReason"))),
        last_used: last_used == Some(cookie.id().reveal()),
        cookie,
    })
}

fn is_usable(kept: &KeptCookie, dialect: Dialect, now: OffsetDateTime) -> bool {
    kept.invalidated.is_none() && dialect.reads(kept.cookie.dialect()) && !kept.cookie.is_expired(now)
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

fn unselect(record: &mut Object, id: &SessionId) {
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
