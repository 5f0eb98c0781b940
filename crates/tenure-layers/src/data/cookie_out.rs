//! The cookie in an answer.

use std::sync::Arc;

use parking_lot::Mutex;
use tenure_protocol::RawJson;
use tenure_session::port::clock::Time;
use tenure_session::state::{Date, State};

use crate::data::backend::Shared;
use crate::data::dialect::Dialect;
use crate::data::splice::Meta;

/// The cookie that was written last for a data session, and to the second when that expires: nothing else in it
/// changes, unless the client carries the state itself.
#[derive(Default)]
pub(super) struct Echo(Mutex<Option<(Option<u64>, Arc<Meta>)>>);

impl Echo {
    fn put_into(&self, result: &RawJson, dialect: Dialect, id: &str, expiry: Option<Time>) -> RawJson {
        let second = expiry.map(|at| at.0 / 1000);
        self.meta(second, || {
            let expiry = expiry.map(Date::of);
            Meta::new(dialect.key(), &dialect.cookie(id, expiry.as_ref(), None))
        })
        .put_into(result)
    }

    fn meta(&self, second: Option<u64>, write: impl FnOnce() -> Meta) -> Arc<Meta> {
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

impl Shared {
    /// A result with the cookie of a state as it stands now, or with the word that there is none any more. The
    /// draft's clients are told only of what changed, unless they are to be told always.
    pub(super) fn echoed(
        &self,
        result: RawJson,
        (dialect, id): (Dialect, &str),
        state: &State,
        now: Time,
        last: &Echo,
    ) -> RawJson {
        match state.outlook(now) {
            Ok(_) if dialect == Dialect::Draft && !self.policy.always_echo && !state.was_written() => result,
            Ok(expiry) => match dialect.carried(id, state, &self.policy) {
                None => last.put_into(&result, dialect, id, expiry),
                Some(carried) => {
                    let expiry = expiry.map(Date::of);
                    let cookie = dialect.cookie(id, expiry.as_ref(), Some(&carried));
                    Meta::new(dialect.key(), &cookie).put_into(&result)
                }
            },
            Err(_) => without(dialect, &result),
        }
    }
}

/// A result that takes the cookie back.
pub(super) fn without(dialect: Dialect, result: &RawJson) -> RawJson {
    Meta::new(dialect.key(), &["null"]).put_into(result)
}
