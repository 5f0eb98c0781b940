//! The cookie in use, and what has to be entered in the jar about it.
//!
//! Several requests may be in flight with different cookies, since a session can be changed at any time. So
//! an answer counts for the cookie that its request was sent with, and for the one in use only if that is
//! still the same.

use time::OffsetDateTime;
use tokio::sync::watch;

use super::handle::{Session, View};
use crate::{
    clock,
    cookie::{Cookie, SessionId},
    dialect::{Change, Dialect},
    jar::{Book, Jar, Server},
};

pub(super) struct Holder {
    jar: Jar,
    server: Server,
    dialect: Option<Dialect>,
    current: Option<Cookie>,
    view: watch::Sender<View>,
    urgent: Vec<Entry>,
    /// A later expiry of the cookie in use and nothing else: losing it does no harm, so it waits for company.
    /// Always older than all that is urgent.
    refresh: Option<Cookie>,
}

/// Something to enter in the jar.
#[derive(Clone, Debug)]
pub(super) enum Entry {
    KeepAsUsed(Cookie),
    Keep(Cookie),
    Select(SessionId),
    Invalidate(SessionId, &'static str),
    Forget(SessionId),
    ForgetServer,
}

impl Entry {
    pub(super) fn write(&self, book: &mut Book, server: &Server, now: OffsetDateTime) {
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
    pub(super) fn new(jar: Jar, server: Server, view: watch::Sender<View>) -> Self {
        Self { jar, server, dialect: None, current: None, view, urgent: Vec::new(), refresh: None }
    }

    /// The server has said who it is and which dialect is spoken: takes its cookie out of the jar.
    pub(super) fn introduce(&mut self, identity: Option<&str>, dialect: Option<Dialect>) {
        if let Some(identity) = identity {
            self.server = self.server.clone().with_identity(identity);
        }
        self.dialect = dialect;
        self.current = dialect.and_then(|dialect| match self.jar.active(&self.server, dialect) {
            Ok(cookie) => cookie,
            Err(error) => {
                tracing::warn!(%error, "cannot read the jar, going on without its sessions");
                None
            }
        });
        self.show();
    }

    pub(super) fn current(&self) -> Option<&Cookie> {
        self.current.as_ref()
    }

    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    /// A cookie of the jar, to go on with.
    pub(super) fn stored(&self, id: &SessionId) -> Option<Cookie> {
        self.jar.find(&self.server, self.dialect?, id).ok().flatten()
    }

    /// The sessions in the jar that may be gone on with.
    pub(super) fn all_stored(&self) -> Vec<Session> {
        let key = self.server.key();
        let records = self.jar.read().map(|book| book.records()).unwrap_or_default();
        let record = records.into_iter().find(|record| Some(&record.key) == key.as_ref());
        let now = clock::now();
        let kept = record.into_iter().flat_map(|record| record.cookies);
        let usable = kept.filter(|kept| {
            kept.invalidated.is_none()
                && self.dialect.is_some_and(|dialect| dialect.reads(kept.cookie.dialect()))
                && !kept.cookie.is_expired(now)
        });
        usable.map(|kept| Session::of(&kept.cookie)).collect()
    }

    /// Goes on with a cookie that the server has just given.
    pub(super) fn adopt(&mut self, cookie: Cookie) {
        self.urgent.push(Entry::KeepAsUsed(cookie.clone()));
        self.hold(Some(cookie));
    }

    /// Goes on with a cookie of the jar.
    pub(super) fn select(&mut self, cookie: Cookie) {
        self.urgent.push(Entry::Select(cookie.id().clone()));
        self.hold(Some(cookie));
    }

    /// The cookie that an answer is to be merged with: the newest that we have of the session.
    pub(super) fn latest<'a>(&'a self, sent: Option<&'a Cookie>) -> Option<&'a Cookie> {
        let sent = sent?;
        Some(self.current.as_ref().filter(|current| current.id() == sent.id()).unwrap_or(sent))
    }

    /// An answer said something about the cookie that its request was sent with.
    pub(super) fn apply(&mut self, sent: Option<&Cookie>, change: Change) {
        match change {
            Change::Keep => {}
            Change::Nonsense(what) => tracing::warn!(what, "ignored what a server said about a session"),
            Change::Revoked => {
                if let Some(sent) = sent {
                    self.lose(&sent.id().clone(), "session_revoked");
                }
            }
            Change::Set(cookie) => self.set(sent, cookie),
        }
    }

    /// The server does not accept this session any more.
    pub(super) fn lose(&mut self, id: &SessionId, reason: &'static str) {
        self.urgent.push(Entry::Invalidate(id.clone(), reason));
        self.drop_if_current(id);
    }

    /// The session was ended as we asked.
    pub(super) fn forget(&mut self, id: &SessionId) {
        self.urgent.push(Entry::Forget(id.clone()));
        self.drop_if_current(id);
    }

    pub(super) fn forget_all(&mut self) {
        self.urgent = vec![Entry::ForgetServer];
        self.hold(None);
    }

    /// What has to be in the jar before anything else happens; what could wait goes along.
    pub(super) fn take_urgent(&mut self) -> Vec<Entry> {
        if self.urgent.is_empty() { Vec::new() } else { self.take_all() }
    }

    pub(super) fn take_all(&mut self) -> Vec<Entry> {
        let mut entries = std::mem::take(&mut self.urgent);
        if let Some(cookie) = self.refresh.take() {
            entries.insert(0, Entry::KeepAsUsed(cookie));
        }
        entries
    }

    pub(super) fn has_refresh(&self) -> bool {
        self.refresh.is_some()
    }

    fn set(&mut self, sent: Option<&Cookie>, cookie: Cookie) {
        let in_use = match (&self.current, sent) {
            (Some(current), Some(sent)) => current.id() == sent.id() || current.id() == cookie.id(),
            (Some(current), None) => current.id() == cookie.id(),
            (None, Some(_)) => false,
            (None, None) => true,
        };
        if !in_use {
            // The session was changed while the request was in flight. Its cookie is worth keeping, but what
            // was lost meanwhile stays lost.
            if self.current.is_some() {
                self.urgent.push(Entry::Keep(cookie));
            }
            return;
        }
        match &self.current {
            Some(held) if *held == cookie => return,
            Some(held) if cookie.is_refresh_of(held) && self.urgent.is_empty() => {
                self.refresh = Some(cookie.clone());
            }
            Some(held) if held.id() != cookie.id() => {
                self.urgent.push(Entry::Invalidate(held.id().clone(), "rotated"));
                self.urgent.push(Entry::KeepAsUsed(cookie.clone()));
                self.refresh = None;
            }
            _ => {
                self.urgent.push(Entry::KeepAsUsed(cookie.clone()));
                self.refresh = None;
            }
        }
        self.current = Some(cookie);
        self.show();
    }

    fn drop_if_current(&mut self, id: &SessionId) {
        if self.current.as_ref().is_some_and(|current| current.id() == id) {
            self.hold(None);
        }
    }

    fn hold(&mut self, cookie: Option<Cookie>) {
        // A refresh of another session would make that one the last used again.
        self.refresh = None;
        self.current = cookie;
        self.show();
    }

    fn show(&self) {
        let view = View { dialect: self.dialect, current: self.current.as_ref().map(Session::of) };
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

    use super::{Entry, Holder, View};
    use crate::{
        cookie::Cookie,
        dialect::{Change, Dialect},
        jar::{Book, Jar, Server},
    };

    fn cookie(expiry: &str) -> Cookie {
        let fields = json!({"id": "a", "expiry": expiry}).as_object().unwrap().clone();
        Cookie::from_fields(Dialect::Strawman, fields).unwrap()
    }

    fn written(entries: &[Entry]) -> Option<String> {
        let (server, now) = (Server::url("u:1"), crate::clock::now());
        let mut book = Book::default();
        for entry in entries {
            entry.write(&mut book, &server, now);
        }
        book.active(&server, Dialect::Strawman, now)?.expiry().map(str::to_owned)
    }

    #[test]
    fn what_is_entered_last_is_what_was_said_last() {
        let holder = || Holder::new(Jar::in_memory(), Server::url("u:1"), watch::channel(View::default()).0);
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
