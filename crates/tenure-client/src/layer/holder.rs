//! The cookie in use, and the entries that have to be written to the jar.
//!
//! Requests with different cookies may be in flight, because the session can change at any time. So an answer changes
//! the cookie of its own request, and the cookie in use only if that is still the same session.

use time::OffsetDateTime;
use tokio::sync::watch;

use super::handle::{DataSession, View};
use crate::{
    clock,
    cookie::{DataSessionId, SessionCookie},
    dialect::{Change, Dialect},
    jar::{Book, Jar, JarServer},
};

pub(super) struct Holder {
    jar: Jar,
    server: JarServer,
    dialect: Option<Dialect>,
    current: Option<SessionCookie>,
    view: watch::Sender<View>,
    urgent: Vec<JarEntry>,
    /// The cookie in use with only a later expiry. Its write may wait, because losing it does no harm. Always older
    /// than all urgent entries.
    refresh: Option<SessionCookie>,
}

/// One change to the jar.
#[derive(Clone, Debug)]
pub(super) enum JarEntry {
    KeepAsUsed(SessionCookie),
    Keep(SessionCookie),
    Select(DataSessionId),
    Invalidate(DataSessionId, &'static str),
    Forget(DataSessionId),
    ForgetServer,
}

impl JarEntry {
    pub(super) fn write(&self, book: &mut Book, server: &JarServer, now: OffsetDateTime) {
        match self {
            Self::KeepAsUsed(cookie) => book.keep_as_used(server, cookie, now),
            Self::Keep(cookie) => book.keep(server, cookie, now),
            Self::Select(id) => book.select(server, id),
            Self::Invalidate(id, reason) => book.invalidate(server, id, reason, now),
            Self::Forget(id) => book.forget(server, id),
            Self::ForgetServer => book.forget_server(server),
        }
    }
}

impl Holder {
    pub(super) fn new(jar: Jar, server: JarServer, view: watch::Sender<View>) -> Self {
        Self { jar, server, dialect: None, current: None, view, urgent: Vec::new(), refresh: None }
    }

    /// The server's name and dialect are known: takes its cookie from the jar.
    pub(super) fn introduce(&mut self, identity: Option<&str>, dialect: Option<Dialect>) {
        if let Some(identity) = identity {
            self.server = self.server.clone().with_identity(identity);
        }
        self.dialect = dialect;
        self.current = dialect.and_then(|dialect| match self.jar.active(&self.server, dialect) {
            Ok(cookie) => cookie,
            Err(error) => {
                tracing::warn!(%error, "cannot read the jar, continuing without its sessions");
                None
            }
        });
        self.show();
    }

    pub(super) fn current(&self) -> Option<&SessionCookie> {
        self.current.as_ref()
    }

    pub(super) fn server(&self) -> &JarServer {
        &self.server
    }

    /// The cookie of a session in the jar, if it may still be used.
    pub(super) fn stored(&self, id: &DataSessionId) -> Option<SessionCookie> {
        self.jar.find(&self.server, self.dialect?, id).ok().flatten()
    }

    /// The usable sessions in the jar.
    pub(super) fn all_stored(&self) -> Vec<DataSession> {
        let key = self.server.key();
        let records = self.jar.read().map(|book| book.records()).unwrap_or_default();
        let record = records.into_iter().find(|record| Some(&record.key) == key.as_ref());
        let now = clock::now();
        let kept = record.into_iter().flat_map(|record| record.cookies);
        let usable = kept.filter(|kept| self.dialect.is_some_and(|dialect| kept.is_usable(dialect, now)));
        usable.map(|kept| DataSession::of(&kept.cookie)).collect()
    }

    /// Uses a cookie that the server has just sent.
    pub(super) fn adopt(&mut self, cookie: SessionCookie) {
        self.urgent.push(JarEntry::KeepAsUsed(cookie.clone()));
        self.hold(Some(cookie));
    }

    /// Uses a cookie from the jar.
    pub(super) fn select(&mut self, cookie: SessionCookie) {
        self.urgent.push(JarEntry::Select(cookie.id().clone()));
        self.hold(Some(cookie));
    }

    /// The cookie that an answer is merged with: our newest one of that session.
    pub(super) fn latest<'a>(&'a self, sent: Option<&'a SessionCookie>) -> Option<&'a SessionCookie> {
        let sent = sent?;
        Some(self.current.as_ref().filter(|current| current.id() == sent.id()).unwrap_or(sent))
    }

    /// Applies the change in an answer to the cookie of its request.
    pub(super) fn apply(&mut self, sent: Option<&SessionCookie>, change: Change) {
        match change {
            Change::Keep => {}
            Change::Nonsense(what) => tracing::warn!(what, "ignored an invalid session in a result"),
            Change::Revoked => {
                if let Some(sent) = sent {
                    self.lose(&sent.id().clone(), "session_revoked");
                }
            }
            Change::Set(cookie) => self.set(sent, cookie),
        }
    }

    /// Invalidates a session that the server no longer accepts.
    pub(super) fn lose(&mut self, id: &DataSessionId, reason: &'static str) {
        self.urgent.push(JarEntry::Invalidate(id.clone(), reason));
        self.drop_if_current(id);
    }

    /// Forgets a session that the server ended on our request.
    pub(super) fn forget(&mut self, id: &DataSessionId) {
        self.urgent.push(JarEntry::Forget(id.clone()));
        self.drop_if_current(id);
    }

    pub(super) fn forget_all(&mut self) {
        self.urgent = vec![JarEntry::ForgetServer];
        self.hold(None);
    }

    /// All open entries, if one of them must be in the jar before the next step; else none.
    pub(super) fn take_urgent(&mut self) -> Vec<JarEntry> {
        if self.urgent.is_empty() { Vec::new() } else { self.take_all() }
    }

    pub(super) fn take_all(&mut self) -> Vec<JarEntry> {
        let mut entries = std::mem::take(&mut self.urgent);
        if let Some(cookie) = self.refresh.take() {
            entries.insert(0, JarEntry::KeepAsUsed(cookie));
        }
        entries
    }

    pub(super) fn has_refresh(&self) -> bool {
        self.refresh.is_some()
    }

    fn set(&mut self, sent: Option<&SessionCookie>, cookie: SessionCookie) {
        let in_use = match (&self.current, sent) {
            (Some(current), Some(sent)) => current.id() == sent.id() || current.id() == cookie.id(),
            (Some(current), None) => current.id() == cookie.id(),
            (None, Some(_)) => false,
            (None, None) => true,
        };
        if !in_use {
            // The session in use changed while the request was in flight. Its cookie is kept in the jar, unless the
            // session was lost meanwhile.
            if self.current.is_some() {
                self.urgent.push(JarEntry::Keep(cookie));
            }
            return;
        }
        match &self.current {
            Some(held) if *held == cookie => return,
            Some(held) if cookie.is_refresh_of(held) && self.urgent.is_empty() => {
                self.refresh = Some(cookie.clone());
            }
            Some(held) if held.id() != cookie.id() => {
                self.urgent.push(JarEntry::Invalidate(held.id().clone(), "rotated"));
                self.urgent.push(JarEntry::KeepAsUsed(cookie.clone()));
                self.refresh = None;
            }
            _ => {
                self.urgent.push(JarEntry::KeepAsUsed(cookie.clone()));
                self.refresh = None;
            }
        }
        self.current = Some(cookie);
        self.show();
    }

    fn drop_if_current(&mut self, id: &DataSessionId) {
        if self.current.as_ref().is_some_and(|current| current.id() == id) {
            self.hold(None);
        }
    }

    fn hold(&mut self, cookie: Option<SessionCookie>) {
        // Writing a refresh of another session would mark that one as used last.
        self.refresh = None;
        self.current = cookie;
        self.show();
    }

    fn show(&self) {
        let view = View { dialect: self.dialect, current: self.current.as_ref().map(DataSession::of) };
        self.view.send_if_modified(|shown| {
            let changed = *shown != view;
            *shown = view;
            changed
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::sync::watch;

    use super::{Holder, JarEntry, View};
    use crate::{
        cookie::SessionCookie,
        dialect::{Change, Dialect},
        jar::{Book, Jar, JarServer},
    };

    fn cookie(expiry: &str) -> SessionCookie {
        let fields = json!({"id": "a", "expiry": expiry}).as_object().unwrap().clone();
        SessionCookie::from_fields(Dialect::Strawman, fields).unwrap()
    }

    fn written(entries: &[JarEntry]) -> Option<String> {
        let (server, now) = (JarServer::url("u:1"), crate::clock::now());
        let mut book = Book::default();
        for entry in entries {
            entry.write(&mut book, &server, now);
        }
        book.active(&server, Dialect::Strawman, now)?.expiry().map(str::to_owned)
    }

    #[test]
    fn what_is_entered_last_is_what_was_said_last() {
        let holder =
            || Holder::new(Jar::in_memory(), JarServer::url("u:1"), watch::channel(View::default()).0);
        let set =
            |holder: &mut Holder, expiry| holder.apply(Some(&cookie("first")), Change::Set(cookie(expiry)));

        let mut new_then_refreshed = holder();
        new_then_refreshed.adopt(cookie("first"));
        set(&mut new_then_refreshed, "second");
        assert_eq!(written(&new_then_refreshed.take_all()).as_deref(), Some("second"));

        let mut refreshed_then_lost = holder();
        refreshed_then_lost.adopt(cookie("first"));
        refreshed_then_lost.take_all();
        set(&mut refreshed_then_lost, "second");
        assert!(refreshed_then_lost.has_refresh() && refreshed_then_lost.take_urgent().is_empty());
        refreshed_then_lost.lose(cookie("first").id(), "session_revoked");
        assert_eq!(written(&refreshed_then_lost.take_all()), None);
    }
}
