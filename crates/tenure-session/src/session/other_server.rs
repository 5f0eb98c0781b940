//! Checks that a woken session gets the server with which it was created.
//!
//! `fingerprint` compares the servers; this file acts on the result. A session of another server is refused, or woken
//! with a warning, as configured. A refusal changes nothing: when its own server is back, the session goes on. A
//! session without a fingerprint (written by an earlier version) is woken, and its next record gets one.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tenure_protocol::{Error, RawJson, Reason};

use crate::fingerprint::{self, Fingerprint, Fingerprints, Relation, SeenServer};
use crate::id::{Route, SessionKey};
use crate::limits::OtherServer;
use crate::record::SessionRecord;
use crate::session::sessions::SessionRuntime;

/// The servers behind the endpoints of this process.
pub(super) struct Servers {
    fingerprints: Fingerprints,
    /// The last name that the server of each endpoint sent in its `initialize` result.
    names: Mutex<HashMap<Route, Option<String>, RandomState>>,
}

impl Servers {
    pub(super) fn new(fingerprints: Fingerprints) -> Self {
        Self { fingerprints, names: Mutex::default() }
    }

    pub(super) fn at(&self, route: &Route) -> Option<&Fingerprint> {
        self.fingerprints.at(route)
    }

    /// Remembers the name that a server has sent.
    pub(super) fn heard(&self, route: &Route, initialize_result: &RawJson) {
        if self.at(route).is_some() {
            self.names.lock().insert(route.clone(), fingerprint::name_in(initialize_result));
        }
    }
}

impl SessionRuntime {
    /// Refuses a session of another server if that is known without starting a server: a client that tries again and
    /// again must not start a process each time.
    pub(super) fn check_known_server(&self, key: SessionKey, record: &SessionRecord) -> Result<(), Error> {
        if self.limits.other_server == OtherServer::Warn {
            return Ok(());
        }
        let heard = self.servers.names.lock().get(&Route::from(record.route.as_deref())).cloned();
        heard.map_or(Ok(()), |name| self.check_name(key, record, name.as_deref()))
    }

    /// Refuses a session of another server, or logs that it is woken with one.
    pub(super) fn check_server(
        &self,
        key: SessionKey,
        record: &SessionRecord,
        initialize_result: &RawJson,
    ) -> Result<(), Error> {
        self.check_name(key, record, fingerprint::name_in(initialize_result).as_deref())
    }

    fn check_name(&self, key: SessionKey, record: &SessionRecord, name: Option<&str>) -> Result<(), Error> {
        let now = self.servers.at(&Route::from(record.route.as_deref()));
        let (Some(then), Some(now)) = (&record.server, now) else { return Ok(()) };
        let name_then = fingerprint::name_in(&RawJson::of(&record.initialize_result));
        let then = SeenServer { fingerprint: then, name: name_then.as_deref() };
        let now = SeenServer { fingerprint: now, name };
        let (session, was, is) = (key.label(), words(then), words(now));
        match (fingerprint::compare(then, now), self.limits.other_server) {
            (Relation::Same, _) => Ok(()),
            (Relation::Reconfigured, _) => {
                tracing::info!(%session, was, is, "the server of a session is configured in another way now");
                Ok(())
            }
            (Relation::Other, OtherServer::Warn) => {
                tracing::warn!(%session, was, is, "a session goes on with another server than it was begun with");
                Ok(())
            }
            (Relation::Other, OtherServer::Refuse) => {
                tracing::warn!(
                    %session, was, is,
                    hint = "serve the earlier server from this store to go on with it, keep this server's sessions \
                            in another store, or set session.other_server = \"warn\"",
                    "a session of another server was refused"
                );
                Err(Error::new(Reason::SessionOfOtherServer, "The session belongs to another server"))
            }
        }
    }
}

/// A server as text for the log.
fn words(server: SeenServer<'_>) -> String {
    let Fingerprint { shown, .. } = server.fingerprint;
    let name = server.name.unwrap_or("a server without a name");
    match server.fingerprint.short() {
        "" => format!("{name} ({shown})"),
        short => format!("{name} ({shown}, {short})"),
    }
}
