//! The errors for calls beyond a limit: one form for every level, with the time for which the caller has to wait.

use std::fmt::Display;
use std::time::Duration;

use tenure_protocol::{Error, Reason};

use super::period::Period;

/// The error for a call beyond a limit. `per` says whose limit it is: `address`, `principal`, `session`, `tool` or `backend`.
pub fn rate_limited(per: &'static str, limit: &impl Display, retry_after: Duration) -> Error {
    let limit = limit.to_string();
    let text = format!("Rate limit reached ({limit} per {per}): {}", again(retry_after));
    with_wait(Error::new(Reason::RateLimited, text), retry_after).with("limit", limit).with("per", per)
}

/// The error for a call beyond the calls of a period. `reset` is the time at which the next one begins, in seconds since 1970.
pub fn quota_exceeded((limit, period): (u64, Period), retry_after: Duration, reset: u64) -> Error {
    let text = format!("The quota of {limit} calls a {period} is used up: {}", again(retry_after));
    let error = with_wait(Error::new(Reason::QuotaExceeded, text), retry_after);
    error.with("limit", format!("{limit}/{}", period.unit())).with("per", "principal").with("reset", reset)
}

fn with_wait(error: Error, retry_after: Duration) -> Error {
    error.with("retryAfterMs", milliseconds(retry_after))
}

/// Rounded up: a caller that comes back one millisecond early would be refused again.
fn milliseconds(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX).max(1)
}

fn again(wait: Duration) -> String {
    let seconds = milliseconds(wait).div_ceil(1000);
    match seconds {
        0..=120 => format!("retry in {seconds} s"),
        121..=7200 => format!("retry in {} min", seconds.div_ceil(60)),
        7201..=172_800 => format!("retry in {} h", seconds.div_ceil(3600)),
        _ => format!("retry in {} days", seconds.div_ceil(86_400)),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn an_error_says_when_to_come_back_and_whose_limit_it_was() {
        let error = rate_limited("session", &"10/s", Duration::from_micros(1_000_001));
        expect![[r#"RpcError({"code":-31029,"data":{"limit":"10/s","per":"session","reason":"rate_limited","retryAfterMs":1001},"message":"Rate limit reached (10/s per session): retry in 2 s"})"#]]
            .assert_eq(&format!("{:?}", error.to_rpc()));
        let error = quota_exceeded((1000, Period::Day), Duration::from_secs(7201), 1_800_000_000);
        expect![[r#"RpcError({"code":-31029,"data":{"limit":"1000/d","per":"principal","reason":"quota_exceeded","reset":1800000000,"retryAfterMs":7201000},"message":"The quota of 1000 calls a day is used up: retry in 3 h"})"#]]
            .assert_eq(&format!("{:?}", error.to_rpc()));
        let error = quota_exceeded((20_000, Period::Month), Duration::from_secs(5 * 86_400), 1_800_000_000);
        expect![[r#"RpcError({"code":-31029,"data":{"limit":"20000/month","per":"principal","reason":"quota_exceeded","reset":1800000000,"retryAfterMs":432000000},"message":"The quota of 20000 calls a month is used up: retry in 5 days"})"#]]
            .assert_eq(&format!("{:?}", error.to_rpc()));
    }
}
