//! Puts the cookie into an answer, or takes it back.

use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use tenure_protocol::RawJson;
use tenure_protocol::data_session::Dialect;
use tenure_protocol::json::prefilter::Prefilter;
use tenure_protocol::json::{object, splice};
use tenure_session::port::clock::Time;
use tenure_session::state::{Date, State};

use crate::data::dialect;
use crate::data::path::DataShared;

/// Cache of the cookie that was written last for a data session, keyed by its expiry in seconds: nothing else in a
/// cookie changes, unless the client carries the state itself.
#[derive(Default)]
pub(super) struct CookieEcho(Mutex<Option<(Option<u64>, Arc<MetaMember>)>>);

impl CookieEcho {
    fn put_into(&self, result: &RawJson, dialect: Dialect, id: &str, expiry: Option<Time>) -> RawJson {
        let second = expiry.map(|at| at.0 / 1000);
        self.meta(second, || {
            let expiry = expiry.map(Date::of);
            MetaMember::new(dialect.key(), &dialect::cookie(dialect, id, expiry.as_ref(), None))
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
            Ok(expiry) => match dialect::carried(dialect, id, state, &self.policy) {
                None => last.put_into(&result, dialect, id, expiry),
                Some(carried) => {
                    let expiry = expiry.map(Date::of);
                    let cookie = dialect::cookie(dialect, id, expiry.as_ref(), Some(&carried));
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

/// A member of a result's `_meta`, written once for many results.
struct MetaMember {
    key: &'static str,
    value: Box<str>,
    /// The whole `_meta`, for a result that has none.
    meta: Box<str>,
}

impl MetaMember {
    fn new(key: &'static str, value: &[&str]) -> Self {
        let value: Box<str> = value.concat().into();
        Self { key, meta: format!(r#""_meta":{{"{key}":{value}}}"#).into(), value }
    }

    /// The result with the member set. This runs with every answer, so a result without `_meta` is not parsed at all.
    fn put_into(&self, result: &RawJson) -> RawJson {
        static META: LazyLock<Prefilter> = LazyLock::new(|| Prefilter::of("_meta"));
        let bytes = result.bytes();
        if !META.may_be_in(bytes)
            && let Some((front, others_follow)) = splice::front(bytes)
        {
            let comma = if others_follow { "," } else { "" };
            return splice::replace(bytes, &[(front..front, &*self.meta), (front..front, comma)]);
        }
        let set = object::set_at(object::text(result), &["_meta", self.key], &self.value);
        set.map_or_else(|| result.clone(), |text| RawJson::trusted(text.into_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_goes_into_any_result() {
        let table = [
            ("{}", r#"{"_meta":{"k":1}}"#),
            (r#"{"a":1}"#, r#"{"_meta":{"k":1},"a":1}"#),
            (r#"{"a":1,"_meta":{"x":2}}"#, r#"{"a":1,"_meta":{"x":2,"k":1}}"#),
            (r#"{"_meta":{"k":0}}"#, r#"{"_meta":{"k":1}}"#),
            (r#"{"_meta":null}"#, r#"{"_meta":{"k":1}}"#),
            (r#"{"a":{"_meta":{"x":2}}}"#, r#"{"a":{"_meta":{"x":2}},"_meta":{"k":1}}"#),
            (r#"{"\u005fmeta":{"x":2}}"#, r#"{"\u005fmeta":{"x":2,"k":1}}"#),
            (r#"{"_meta":7}"#, r#"{"_meta":7}"#),
            ("[]", "[]"),
        ];
        for (result, expected) in table {
            let with = MetaMember::new("k", &["", "1"]).put_into(&RawJson::trusted(result));
            assert_eq!(with.bytes(), expected, "{result}");
        }
    }
}
