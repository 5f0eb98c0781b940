//! Puts the cookie into an answer, or takes it back.

use std::sync::Arc;

use parking_lot::Mutex;
use tenure_protocol::RawJson;
use tenure_session::port::clock::Time;
use tenure_session::state::{Date, State};

use crate::data::backend::DataShared;
use crate::data::dialect::Dialect;
use crate::data::splice::MetaMember;

/// Cache of the cookie that was written last for a data session, keyed by its expiry in seconds: nothing else in a
/// cookie changes, unless the client carries the state itself.
#[derive(Default)]
pub(super) struct CookieEcho(Mutex<Option<(Option<u64>, Arc<MetaMember>)>>);

impl CookieEcho {
    fn put_into(&self, result: &RawJson, dialect: Dialect, id: &str, expiry: Option<Time>) -> RawJson {
        let second = expiry.map(|at| at.0 / 1000);
        self.meta(second, || {
            let expiry = expiry.map(Date::of);
            MetaMember::new(dialect.key(), &dialect.cookie(id, expiry.as_ref(), None))
        })
        .put_into(result)
    }

    fn meta(&self, second: Option<u64>, write: impl FnOnce() -> MetaMember) -> Arc<MetaMember> {
        let mut last = self.0.lock();
        match &*last {
            Some((expires, meta)) if *expires == second => Arc::clone(meta),
            _ => {
                let meta = Arc::new(write());
                *last = Some((second, Arc::clone(&meta)));
                meta
            }
        }
    }
}

impl DataShared {
    /// A result with the current cookie of a state, or with a null cookie if the state has ended. Clients of the draft
    /// get a cookie only if the state changed, unless the policy says always.
    pub(super) fn echoed(
        &self,
        result: RawJson,
        (dialect, id): (Dialect, &str),
        state: &State,
        now: Time,
        last: &CookieEcho,
    ) -> RawJson {
        match state.outlook(now) {
            Ok(_) if dialect == Dialect::Draft && !self.policy.always_echo && !state.was_written() => result,
            Ok(expiry) => match dialect.carried(id, state, &self.policy) {
                None => last.put_into(&result, dialect, id, expiry),
                Some(carried) => {
                    let expiry = expiry.map(Date::of);
                    let cookie = dialect.cookie(id, expiry.as_ref(), Some(&carried));
                    MetaMember::new(dialect.key(), &cookie).put_into(&result)
                }
            },
            Err(_) => without(dialect, &result),
        }
    }
}

/// A result that takes the cookie back.
pub(super) fn without(dialect: Dialect, result: &RawJson) -> RawJson {
    MetaMember::new(dialect.key(), &["null"]).put_into(result)
}
