//! Whether a session that is woken gets the server that it was begun with.
//!
//! The rule is in `fingerprint`; here is what follows from it. A session of another server is refused or woken with a
//! warning, as configured. A refusal changes nothing: with its own server back, the session goes on. A session without
//! a fingerprint (written by an earlier version) is woken, and gets one with its record.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tenure_protocol::{Error, RawJson, Reason};

use crate::fingerprint::{self, Fingerprint, Fingerprints, Relation, Seen};
use crate::id::{Route, SessionKey};
use crate::limits::OtherServer;
use crate::record::SessionRecord;
use crate::session::sessions::Inner;

/// The servers behind the endpoints of this process.
pub(super) struct Servers {
    fingerprints: Fingerprints,
    /// The name that the server of each endpoint gave itself last.
    names: Mutex<HashMap<Route, Option<String>, RandomState>>,
}

impl Servers {
    pub(super) fn new(fingerprints: Fingerprints) -> Self {
        Self { fingerprints, names: Mutex::default() }
    }

    pub(super) fn at(&self, route: &Route) -> Option<&Fingerprint> {
        self.fingerprints.at(route)
    }

    /// Remembers how a server introduced itself.
    pub(super) fn heard(&self, route: &Route, initialize_result: &RawJson) {
        if self.at(route).is_some() {
            self.names.lock().insert(route.clone(), fingerprint::name_in(initialize_result));
        }
    }
}

impl Inner {
    /// Refuses a session of another server as far as that is known without starting a server for it: a client that
    /// comes back again and again must not cost a process each time.
    pub(super) fn check_known_server(&self, key: SessionKey, record: &SessionRecord) -> Result<(), Error> {
        if self.limits.other_server == OtherServer::Warn {
            return Ok(());
        }
        let heard = self.servers.names.lock().get(&Route::from(record.route.as_deref())).cloned();
        heard.map_or(Ok(()), |name| self.check_name(key, record, name.as_deref()))
    }

    /// Refuses a session of another server, or logs that it is woken at one.
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
        let then = Seen { fingerprint: then, name: name_then.as_deref() };
        let now = Seen { fingerprint: now, name };
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

/// A server in a log.
fn words(server: Seen<'_>) -> String {
    let Fingerprint { shown, .. } = server.fingerprint;
    let name = server.name.unwrap_or("a server without a name");
    match server.fingerprint.short() {
        "" => format!("{name} ({shown})"),
        short => format!("{name} ({shown}, {short})"),
    }
}
