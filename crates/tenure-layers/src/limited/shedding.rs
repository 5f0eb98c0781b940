//! Gives up some work when the process itself cannot keep up: requests and new sessions of the principals that ask for most.
//!
//! In: [`Signs`] of trouble several times a second, and every request. Out: the request passes, or its principal is told to come back.
//! As long as there are no signs a request costs one atomic load here. With the first sign requests are counted for each
//! principal; when it has lasted for a second, principals that ask for much more than the others are refused, until a second has
//! passed without a sign. The work of a principal goes on: its streams, its running calls, and sessions that wake.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use tenure_protocol::{Error, Notification, Reason, Reply, RpcError};
use tenure_session::backend::{Backend, Call, Link, Open, Opened, Opening, Responder};
use tenure_session::port::BoxFuture;
use tenure_session::{Principal, forward_link, forward_responder};

use super::OverLimit;
use super::layer::{Whose, whose};
use super::verdict::refused;

/// How often the signs are looked at.
pub const LOOK: Duration = Duration::from_millis(250);

/// So many looks in a row have to agree: a second.
const LOOKS: u32 = 4;

/// A sign: so much of the memory for messages is taken.
const MEMORY_PERCENT: usize = 90;

/// A principal that asks for less than this within a second is never refused, whatever its share.
const FEW: u64 = 100;

/// How many principals are counted. Those that come later pass.
const MOST: usize = 10_000;

/// When a client that is refused may try again.
const RETRY: Duration = Duration::from_secs(2);

/// The signs of an overloaded process.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Signs {
    /// How much later than it was due a task ran.
    pub lag: Duration,
    /// The memory for messages that is taken, in percent of what there is.
    pub memory_percent: usize,
}

/// Gives up work of the principals that ask for most while the process cannot keep up. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Shedding(Arc<State>);

#[derive(Debug)]
struct State {
    max_lag: Duration,
    over_limit: OverLimit,
    /// Whether requests are counted, and perhaps refused.
    is_alert: AtomicBool,
    counted: Mutex<Counted>,
}

#[derive(Default, Debug)]
struct Counted {
    /// Looks in a row with a sign, and without one.
    bad: u32,
    good: u32,
    /// Looks since the requests were counted anew.
    looks: u32,
    requests: HashMap<Principal, u64, RandomState>,
    /// The principals that are refused.
    heavy: HashSet<Principal, RandomState>,
    shed: u64,
}

impl Shedding {
    /// Begins when a task is late by so much.
    pub fn new(max_lag: Duration, over_limit: OverLimit) -> Self {
        let (is_alert, counted) = (AtomicBool::new(false), Mutex::default());
        Self(Arc::new(State { max_lag, over_limit, is_alert, counted }))
    }

    /// Looks at the signs. To be called every [`LOOK`].
    pub fn look(&self, signs: Signs) {
        let is_bad = signs.lag >= self.0.max_lag || signs.memory_percent >= MEMORY_PERCENT;
        let mut counted = self.0.counted.lock();
        (counted.bad, counted.good) = if is_bad { (counted.bad + 1, 0) } else { (0, counted.good + 1) };
        if !self.0.is_alert.load(Ordering::Relaxed) {
            self.0.is_alert.store(is_bad, Ordering::Relaxed);
            return;
        }
        counted.looks += 1;
        if counted.good >= LOOKS {
            if !counted.heavy.is_empty() {
                tracing::info!(shed = counted.shed, "the server keeps up again; all principals are served");
            }
            *counted = Counted::default();
            self.0.is_alert.store(false, Ordering::Relaxed);
        } else if counted.looks >= LOOKS && (counted.bad >= LOOKS || !counted.heavy.is_empty()) {
            counted.weigh(signs);
        }
    }

    /// Puts this in front of a server.
    pub fn in_front(&self, backend: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Shed { inner: backend, shedding: self.clone() })
    }

    /// Counts a request, and says whether it is refused.
    fn refusal(&self, principal: &Principal) -> Option<Error> {
        if !self.0.is_alert.load(Ordering::Relaxed) {
            return None;
        }
        let mut counted = self.0.counted.lock();
        if let Some(count) = counted.requests.get_mut(principal) {
            *count += 1;
        } else if counted.requests.len() < MOST {
            counted.requests.insert(principal.clone(), 1);
        }
        if !counted.heavy.contains(principal) {
            return None;
        }
        counted.shed += 1;
        let wait = u64::try_from(RETRY.as_millis()).unwrap_or(u64::MAX);
        let text = "The server cannot keep up, and most of its work is this caller's: retry in 2 s";
        Some(Error::new(Reason::RateLimited, text).with("retryAfterMs", wait).with("per", "server"))
    }
}

impl Counted {
    /// Finds the principals that asked for much more than the others within the last second: more than 1.5 times the
    /// average. A principal that is alone takes nothing from others.
    fn weigh(&mut self, signs: Signs) {
        let (total, count) = (self.requests.values().sum::<u64>(), self.requests.len() as u64);
        let is_heavy = |requests: u64| requests >= FEW && 2 * count * requests > 3 * total;
        let heavy: HashSet<_, _> =
            self.requests.drain().filter(|(_, requests)| is_heavy(*requests)).map(|(one, _)| one).collect();
        if self.heavy.is_empty() && !heavy.is_empty() {
            let (lag_ms, memory_percent, principals) =
                (signs.lag.as_millis(), signs.memory_percent, heavy.len());
            tracing::warn!(
                lag_ms,
                memory_percent,
                principals,
                "the server cannot keep up; refusing requests of the principals that ask for most"
            );
        }
        (self.heavy, self.looks) = (heavy, 0);
    }
}

struct Shed<S: ?Sized> {
    inner: Arc<S>,
    shedding: Shedding,
}

impl Backend for Shed<dyn Backend> {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let refusal = match open.opening {
            Opening::Fresh => self.shedding.refusal(&open.outlet.principal()),
            Opening::Wake => None,
        };
        if let Some(error) = refusal {
            return Box::pin(std::future::ready(Err(error.to_rpc())));
        }
        let (opening, shedding) = (self.inner.open(open), self.shedding.clone());
        Box::pin(async move {
            let Opened { link, result } = opening.await?;
            Ok(Opened { link: Box::new(ShedLink { inner: link, shedding }), result })
        })
    }

    fn responder(self: Arc<Self>) -> Option<Arc<dyn Responder>> {
        let inner = Arc::clone(&self.inner).responder()?;
        Some(Arc::new(Shed { inner, shedding: self.shedding.clone() }))
    }
}

struct ShedLink {
    inner: Box<dyn Link>,
    shedding: Shedding,
}

impl Link for ShedLink {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        match self.shedding.reply(&call) {
            Some(reply) => Box::pin(std::future::ready(reply)),
            None => self.inner.call(call),
        }
    }

    fn notify(&self, notification: Notification) {
        self.inner.notify(notification);
    }

    forward_link!(inner);
}

impl Responder for Shed<dyn Responder> {
    fn respond(&self, call: Call) -> BoxFuture<Reply> {
        match self.shedding.reply(&call) {
            Some(reply) => Box::pin(std::future::ready(reply)),
            None => self.inner.respond(call),
        }
    }

    forward_responder!(inner);
}

impl Shedding {
    /// The reply for a request that is refused.
    fn reply(&self, call: &Call) -> Option<Reply> {
        if !self.0.is_alert.load(Ordering::Relaxed) || whose(call) != Whose::Clients {
            return None;
        }
        let error = self.refusal(&call.context.caller().principal)?;
        Some(refused(&error, call, self.0.over_limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATE: Signs = Signs { lag: Duration::from_millis(100), memory_percent: 0 };
    const FULL: Signs = Signs { lag: Duration::ZERO, memory_percent: 90 };
    const WELL: Signs = Signs { lag: Duration::from_millis(99), memory_percent: 89 };

    fn shedding() -> Shedding {
        Shedding::new(Duration::from_millis(100), OverLimit::Error)
    }

    /// So many requests of each within one look; whether the last one of each was refused.
    fn asked(shedding: &Shedding, requests: &[(&str, u64)], signs: Signs) -> Vec<bool> {
        let of = |(name, count): &(&str, u64)| {
            let principal = Principal::named(name);
            (0..*count).fold(false, |_, _| shedding.refusal(&principal).is_some())
        };
        let refused = requests.iter().map(of).collect();
        shedding.look(signs);
        refused
    }

    #[test]
    fn a_second_of_trouble_ends_the_requests_of_the_heaviest_and_a_second_of_peace_brings_them_back() {
        for signs in [LATE, FULL] {
            let shedding = shedding();
            let load = [("flood", 1000), ("ann", 30), ("bob", 120)];
            for look in 0..5 {
                assert_eq!(asked(&shedding, &load, signs), [false; 3], "look {look}");
            }
            for _ in 0..20 {
                assert_eq!(asked(&shedding, &load, signs), [true, false, false]);
            }
            for _ in 0..4 {
                assert_eq!(asked(&shedding, &load, WELL), [true, false, false]);
            }
            assert_eq!(asked(&shedding, &load, WELL), [false; 3]);
            assert!(shedding.0.counted.lock().requests.is_empty(), "nothing is counted in peace");
        }
    }

    #[test]
    fn a_moment_of_trouble_is_none() {
        let shedding = shedding();
        for _ in 0..20 {
            for signs in [LATE, LATE, LATE, WELL] {
                assert_eq!(asked(&shedding, &[("flood", 1000), ("ann", 1)], signs), [false; 2]);
            }
        }
    }

    #[test]
    fn equals_and_those_who_are_alone_and_those_who_ask_little_are_served() {
        for load in [&[("flood", 1000)][..], &[("ann", 300), ("bob", 300)], &[("ann", 20), ("bob", 1)]] {
            let shedding = shedding();
            for _ in 0..30 {
                assert!(!asked(&shedding, load, LATE).contains(&true), "{load:?}");
            }
        }
    }

    #[test]
    fn who_slows_down_is_served_again_while_the_trouble_lasts() {
        let shedding = shedding();
        for _ in 0..10 {
            asked(&shedding, &[("flood", 1000), ("ann", 30)], LATE);
        }
        for _ in 0..8 {
            asked(&shedding, &[("flood", 10), ("ann", 30)], LATE);
        }
        assert_eq!(asked(&shedding, &[("flood", 10), ("ann", 30)], LATE), [false; 2]);
    }

    #[test]
    fn what_is_counted_is_bounded() {
        let shedding = shedding();
        shedding.look(LATE);
        for number in 0..MOST + 1000 {
            shedding.refusal(&Principal::named(&format!("corp:{number}")));
        }
        assert_eq!(shedding.0.counted.lock().requests.len(), MOST);
    }
}
