//! Logging in with a browser: a one-time code from the control socket becomes a cookie.
//!
//! Both are random and kept as hashes, so that a look at our memory shows none. There are few codes at once, each good for a
//! minute and for one use, and a bounded number of logins, each good for eight hours whatever happens. Nothing outlives the
//! process but the hashes of logins, in a file beside the store, so that pages go on by themselves after a restart or a deploy.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tenure_session::port::clock::Time;

use super::role::AdminRole;

/// How long a code is good.
const CODE_TIME: Duration = Duration::from_secs(60);

/// How long a login is good.
pub(super) const LOGIN_TIME: Duration = Duration::from_secs(8 * 60 * 60);

/// Codes at once; another one replaces the oldest.
const MOST_CODES: usize = 16;

/// Logins at once; another one ends the oldest.
const MOST_LOGINS: usize = 64;

/// A one-time code, for the person who asked for it.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct LoginCode {
    pub(crate) code: String,
    /// The page that takes it.
    pub(crate) url: String,
    /// Until when.
    pub(crate) expires: u64,
}

/// What the file of logins is called.
const FILE: &str = "logins.json";

/// The codes and logins of a process. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Logins(Arc<Mutex<LoginTable>>);

/// A login in the file.
#[derive(Serialize, Deserialize)]
struct KeptLogin {
    /// The hash of the cookie.
    sha256: String,
    number: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uid: Option<u32>,
    role: AdminRole,
    since: u64,
    expires: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    remote: Option<SocketAddr>,
}

#[derive(Debug, Default)]
struct LoginTable {
    codes: HashMap<[u8; 32], Grant>,
    logins: HashMap<[u8; 32], Arc<Login>>,
    number: u64,
    /// Where logins are kept, if the store has a folder.
    file: Option<PathBuf>,
}

/// What a code becomes.
#[derive(Clone, Debug)]
struct Grant {
    number: u64,
    uid: Option<u32>,
    role: AdminRole,
    expires: Time,
}

/// A browser that is logged in.
#[derive(Debug)]
pub(super) struct Login {
    number: u64,
    pub(super) uid: Option<u32>,
    pub(super) role: AdminRole,
    since: Time,
    expires: Time,
    last_used: AtomicU64,
    remote: Option<SocketAddr>,
    is_revoked: AtomicBool,
}

/// Tells whether a login is still good.
#[derive(Clone, Debug)]
pub(super) struct LoginWatch(Arc<Login>);

/// A login, as operators see it.
#[derive(Serialize, Clone, PartialEq, Eq, Debug)]
pub(super) struct LoginRow {
    pub(super) label: String,
    pub(super) name: String,
    pub(super) role: AdminRole,
    pub(super) since: u64,
    pub(super) expires: u64,
    pub(super) last_used: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remote: Option<String>,
}

impl Logins {
    /// The logins that an earlier process has kept in this folder; without a folder none are kept.
    pub(super) fn kept_in(folder: Option<&Path>, now: Time) -> Self {
        let file = folder.map(|folder| folder.join(FILE));
        let mut table = LoginTable { file, ..LoginTable::default() };
        if let Err(error) = table.read(now) {
            tracing::warn!(%error, "the logins of operators cannot be read; they have to log in again");
        }
        Self(Arc::new(Mutex::new(table)))
    }

    /// A code with which this user can log in once.
    pub(super) fn code(&self, uid: Option<u32>, role: AdminRole, now: Time) -> (String, Time) {
        let (code, expires) = (random_text(), now.after(CODE_TIME));
        let mut table = self.0.lock();
        table.number += 1;
        let grant = Grant { number: table.number, uid, role, expires };
        table.codes.retain(|_, grant| grant.expires > now);
        if table.codes.len() >= MOST_CODES {
            let oldest = table.codes.iter().min_by_key(|(_, grant)| grant.number).map(|(hash, _)| *hash);
            oldest.and_then(|oldest| table.codes.remove(&oldest));
        }
        table.codes.insert(hash(&code), grant);
        (code, expires)
    }

    /// Turns a code into a login, and returns what the cookie holds; `None` if the code is not good.
    pub(super) fn log_in(
        &self,
        code: &str,
        remote: Option<SocketAddr>,
        now: Time,
    ) -> Option<(String, Arc<Login>)> {
        let mut table = self.0.lock();
        // Looked up by its hash, so that the time it takes tells nothing. Removed whether it is still good or not.
        let grant = table.codes.remove(&hash(code)).filter(|grant| grant.expires > now)?;
        let Grant { number, uid, role, .. } = grant;
        let (cookie, expires) = (random_text(), now.after(LOGIN_TIME));
        let login = Arc::new(Login {
            number,
            uid,
            role,
            since: now,
            expires,
            last_used: AtomicU64::new(now.0),
            remote,
            is_revoked: AtomicBool::new(false),
        });
        table.logins.retain(|_, login| login.expires > now);
        if table.logins.len() >= MOST_LOGINS {
            let oldest = table.logins.iter().min_by_key(|(_, login)| login.number).map(|(hash, _)| *hash);
            if let Some(oldest) = oldest.and_then(|oldest| table.logins.remove(&oldest)) {
                oldest.is_revoked.store(true, Ordering::Relaxed);
            }
        }
        table.logins.insert(hash(&cookie), Arc::clone(&login));
        table.keep();
        Some((cookie, login))
    }

    /// The login of this cookie.
    pub(super) fn find(&self, cookie: &str, now: Time) -> Option<Arc<Login>> {
        let login = Arc::clone(self.0.lock().logins.get(&hash(cookie))?);
        if login.expires <= now {
            return None;
        }
        login.last_used.store(now.0, Ordering::Relaxed);
        Some(login)
    }

    /// Ends the login of this cookie.
    pub(super) fn log_out(&self, cookie: &str) {
        let mut table = self.0.lock();
        if let Some(login) = table.logins.remove(&hash(cookie)) {
            login.is_revoked.store(true, Ordering::Relaxed);
            table.keep();
        }
    }

    /// Ends the login with this label. Returns whose it was.
    pub(super) fn revoke(&self, label: &str) -> Option<Arc<Login>> {
        let mut table = self.0.lock();
        let found = table.logins.iter().find(|(_, login)| login.label() == label).map(|(hash, _)| *hash)?;
        let login = table.logins.remove(&found)?;
        login.is_revoked.store(true, Ordering::Relaxed);
        table.keep();
        Some(login)
    }

    /// All logins, the newest first.
    pub(super) fn list(&self, now: Time) -> Vec<LoginRow> {
        let mut logins: Vec<_> = self.0.lock().logins.values().cloned().collect();
        logins.retain(|login| login.expires > now);
        logins.sort_by_key(|login| std::cmp::Reverse(login.number));
        logins.iter().map(|login| login.row()).collect()
    }
}

impl LoginTable {
    /// Writes the file, which is small and changes when somebody logs in or out. A login that could not be kept ends with the process.
    fn keep(&self) {
        let Some(file) = &self.file else { return };
        let kept = |(hash, login): (&[u8; 32], &Arc<Login>)| KeptLogin {
            sha256: URL_SAFE_NO_PAD.encode(hash),
            number: login.number,
            uid: login.uid,
            role: login.role,
            since: login.since.0,
            expires: login.expires.0,
            remote: login.remote,
        };
        let kept: Vec<_> = self.logins.iter().map(kept).collect();
        if let Err(error) = write(file, &serde_json::to_vec(&kept).unwrap_or_default()) {
            tracing::warn!(%error, file = %file.display(), "the logins of operators cannot be kept; they end with the process");
        }
    }

    fn read(&mut self, now: Time) -> std::io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let bytes = match std::fs::read(file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let all: Vec<KeptLogin> = serde_json::from_slice(&bytes)?;
        for kept in all.into_iter().take(MOST_LOGINS).filter(|kept| kept.expires > now.0) {
            let hash =
                URL_SAFE_NO_PAD.decode(&kept.sha256).ok().and_then(|hash| <[u8; 32]>::try_from(hash).ok());
            let Some(hash) = hash else { continue };
            self.number = self.number.max(kept.number);
            let login = Login {
                number: kept.number,
                uid: kept.uid,
                role: kept.role,
                since: Time(kept.since),
                // Never longer than this process would let it last.
                expires: Time(kept.expires.min(now.after(LOGIN_TIME).0)),
                last_used: AtomicU64::new(kept.since),
                remote: kept.remote,
                is_revoked: AtomicBool::new(false),
            };
            self.logins.insert(hash, Arc::new(login));
        }
        Ok(())
    }
}

/// Replaces a file as a whole. Only its owner may read it.
fn write(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let new = file.with_extension("json.new");
    let mut out = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    out.write_all(bytes)?;
    drop(out);
    std::fs::rename(&new, file)
}

impl Login {
    fn label(&self) -> String {
        format!("login-{}", self.number)
    }

    pub(super) fn watch(self: &Arc<Self>) -> LoginWatch {
        LoginWatch(Arc::clone(self))
    }

    fn row(&self) -> LoginRow {
        LoginRow {
            label: self.label(),
            name: super::caller::user_name(self.uid),
            role: self.role,
            since: self.since.0,
            expires: self.expires.0,
            last_used: self.last_used.load(Ordering::Relaxed),
            remote: self.remote.map(|remote| remote.ip().to_string()),
        }
    }
}

impl LoginWatch {
    /// The number of the login, which no other one has.
    pub(super) fn number(&self) -> u64 {
        self.0.number
    }

    pub(super) fn is_good(&self) -> bool {
        !self.0.is_revoked.load(Ordering::Relaxed) && self.0.expires > crate::operator::now()
    }
}

/// 256 random bits as text.
fn random_text() -> String {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).expect("the operating system gives random numbers");
    URL_SAFE_NO_PAD.encode(bytes)
}

fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000_000_000);

    #[test]
    fn a_code_is_good_once_and_for_a_minute() {
        let logins = Logins::default();
        let (code, _) = logins.code(Some(7), AdminRole::Viewer, NOW);
        let (cookie, login) = logins.log_in(&code, None, NOW).unwrap();
        assert_eq!((login.uid, login.role), (Some(7), AdminRole::Viewer));
        assert!(logins.log_in(&code, None, NOW).is_none(), "it was used");
        assert!(logins.find(&cookie, NOW).is_some());
        assert!(logins.find(&code, NOW).is_none(), "a code is no cookie");

        let (late, expires) = logins.code(None, AdminRole::Admin, NOW);
        assert!(logins.log_in(&late, None, expires).is_none(), "its minute is over");
        assert!(logins.log_in("", None, NOW).is_none());
    }

    #[test]
    fn a_login_ends_after_eight_hours_when_it_is_revoked_and_when_there_are_too_many() {
        let logins = Logins::default();
        let log_in = || {
            let (code, _) = logins.code(Some(7), AdminRole::Admin, NOW);
            logins.log_in(&code, None, NOW).unwrap()
        };
        let (first, login) = log_in();
        let watch = login.watch();
        assert!(logins.find(&first, NOW.after(LOGIN_TIME)).is_none());
        let (second, _) = log_in();
        let rows = logins.list(NOW);
        assert_eq!(rows.len(), 2);
        assert!(logins.revoke(&rows[0].label).is_some());
        assert!(logins.find(&second, NOW).is_none(), "the newest stands first");
        assert!(logins.revoke(&rows[0].label).is_none());

        for _ in 0..MOST_LOGINS {
            log_in();
        }
        assert!(logins.find(&first, NOW).is_none(), "it was the oldest");
        assert!(login.is_revoked.load(Ordering::Relaxed) && !watch.is_good(), "its streams hear of it");
        assert_eq!(logins.list(NOW).len(), MOST_LOGINS);

        let (last, _) = log_in();
        logins.log_out(&last);
        assert!(logins.find(&last, NOW).is_none());
    }

    #[test]
    fn logins_outlive_a_process_and_revoked_ones_do_not_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let logins = Logins::kept_in(Some(folder.path()), NOW);
        let log_in = |role| {
            let (code, _) = logins.code(Some(7), role, NOW);
            logins.log_in(&code, None, NOW).unwrap().0
        };
        let [kept, revoked, left] = [AdminRole::Viewer, AdminRole::Admin, AdminRole::Admin].map(log_in);
        let label = logins.list(NOW)[1].label.clone();
        logins.revoke(&label).unwrap();
        logins.log_out(&left);
        let text = std::fs::read_to_string(folder.path().join(FILE)).unwrap();
        assert!(!text.contains(&kept), "only the hash is kept");

        let next = Logins::kept_in(Some(folder.path()), NOW);
        assert_eq!(
            next.find(&kept, NOW).map(|login| (login.uid, login.role)),
            Some((Some(7), AdminRole::Viewer))
        );
        assert!(next.find(&revoked, NOW).is_none() && next.find(&left, NOW).is_none());
        assert!(next.find(&kept, NOW.after(LOGIN_TIME)).is_none(), "not for longer");
        let (code, _) = next.code(None, AdminRole::Admin, NOW);
        next.log_in(&code, None, NOW).unwrap();
        let labels: Vec<_> = next.list(NOW).into_iter().map(|row| row.label).collect();
        assert_eq!(labels.len(), 2);
        assert_ne!(labels[0], labels[1]);

        std::fs::write(folder.path().join(FILE), "not ours").unwrap();
        assert!(Logins::kept_in(Some(folder.path()), NOW).list(NOW).is_empty());
    }

    #[test]
    fn unused_codes_do_not_pile_up() {
        let logins = Logins::default();
        let (first, _) = logins.code(None, AdminRole::Admin, NOW);
        for _ in 0..MOST_CODES {
            logins.code(None, AdminRole::Admin, NOW);
        }
        assert_eq!(logins.0.lock().codes.len(), MOST_CODES);
        assert!(logins.log_in(&first, None, NOW).is_none());
    }
}
