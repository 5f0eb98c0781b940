//! The counters of each caller: its rate, its calls at once, and its calls of the day and of the month.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tenure_session::Principal;
use tenure_session::rate::{Forgettable, Quotas, Rate, RateCell, RateTable, Ticks};

use super::fair::FairQueue;
use super::settings::CallLimitSettings;

/// Principals that are remembered. Each takes two hundred bytes or so.
const MOST: usize = 100_000;

/// Notifications are dropped beyond so many times the rate of requests.
const NOTIFICATIONS: u32 = 10;

/// The callers.
#[derive(Debug)]
pub(super) struct Principals {
    pub(super) table: RateTable<Principal, OfPrincipal>,
}

/// The counters of one caller.
#[derive(Debug)]
pub(super) struct OfPrincipal {
    /// Its rate, if it is limited.
    pub(super) rate: Option<Rate>,
    pub(super) requests: RateCell,
    pub(super) notifications: RateCell,
    /// Its calls at once, if they are limited.
    pub(super) queue: Option<FairQueue>,
}

impl Principals {
    pub(super) fn new() -> Self {
        Self { table: RateTable::new(MOST) }
    }

    pub(super) fn of(
        &self,
        settings: &CallLimitSettings,
        principal: &Principal,
        now: Ticks,
    ) -> Arc<OfPrincipal> {
        self.table.entry(principal, now, || OfPrincipal {
            rate: settings.rate_of(principal),
            requests: RateCell::default(),
            notifications: RateCell::default(),
            queue: settings.concurrent_of(principal).map(|most| FairQueue::new(most, settings.queue)),
        })
    }
}

impl Forgettable for OfPrincipal {
    fn is_forgotten(&self, now: Ticks) -> bool {
        let is_idle = self.queue.as_ref().is_none_or(|queue| queue.counts().1 == 0);
        is_idle && self.requests.is_forgotten(now) && self.notifications.is_forgotten(now)
    }
}

/// The rate of notifications that goes with a rate of requests.
pub(super) fn of_notifications(rate: Rate) -> Rate {
    rate.times(NOTIFICATIONS)
}

/// A limit of a principal, and how much of it is left.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct LimitLine {
    /// The kind of limit: `rate`, `at_once`, `day` or `month`.
    pub what: String,
    /// The limit as it is written in a configuration.
    pub limit: String,
    /// How many calls are left now.
    pub left: u64,
    /// How many calls wait.
    #[serde(default)]
    pub waiting: u64,
    /// When the day or the month ends, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset: Option<u64>,
}

/// The limits of a principal.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct PrincipalLimits {
    /// Its name; `None` for callers without credentials.
    pub principal: Option<String>,
    /// Its limits.
    pub limits: Vec<LimitLine>,
}

/// The remaining calls of a principal.
pub(super) async fn left(
    settings: &CallLimitSettings,
    principals: &Principals,
    quotas: Option<&Quotas>,
    (principal, now): (&Principal, Ticks),
) -> PrincipalLimits {
    let entry = principals.table.find(principal);
    let mut limits = Vec::new();
    if let Some(rate) = &settings.rate_of(principal) {
        let left = entry.as_ref().map_or(rate.burst(), |entry| entry.requests.left(rate, now));
        limits.push(line("rate", rate.to_string(), left.into()));
    }
    if let Some(most) = settings.concurrent_of(principal) {
        let counts = entry.as_ref().and_then(|entry| entry.queue.as_ref()).map(FairQueue::counts);
        let (slots, taken, waiting) = counts.unwrap_or((most, 0, 0));
        let at_once = line("at_once", most.to_string(), (slots - taken) as u64);
        limits.push(LimitLine { waiting: waiting as u64, ..at_once });
    }
    if let Some(quotas) = quotas {
        for quota in quotas.usage(principal).await {
            let limit = format!("{}/{}", quota.limit, quota.period.unit());
            let left = line(&quota.period.to_string(), limit, quota.limit.saturating_sub(quota.used));
            limits.push(LimitLine { reset: Some(quota.reset.0 / 1000), ..left });
        }
    }
    PrincipalLimits { principal: principal.name().map(str::to_owned), limits }
}

fn line(what: &str, limit: String, left: u64) -> LimitLine {
    LimitLine { what: what.to_owned(), limit, left, waiting: 0, reset: None }
}
