//! Limits of clients, built from the configuration: of addresses, and of calls.
//!
//! In: the `[limits]` section. Out: [`Limiting`], which sessions and layers are given their parts of. It forgets callers and writes
//! what is counted of quotas in the background, as long as the node runs, and once more before the store is closed.

use std::sync::Arc;
use std::time::Duration;

use tenure_layers::limited::{CallLimits, LOOK, Shedding, Signs};
use tenure_session::Principal;
use tenure_session::budget::{Budget, Resource};
use tenure_session::cluster::Roster;
use tenure_session::port::clock::SystemClock;
use tenure_session::port::store::Store;
use tenure_session::rate::{AddressRate, AddressRates, Quotas, Rate};
use tenure_session::supervise::Loops;
use tokio_util::sync::CancellationToken;

use crate::config::Config;

/// How often callers are forgotten and quotas are written: as much as a kill can lose.
const TEND: Duration = Duration::from_secs(5);

/// How often nodes are counted.
const DIVIDE: Duration = Duration::from_secs(1);

/// The limits of clients.
#[derive(Clone, Debug)]
pub(crate) struct Limiting {
    pub(crate) addresses: AddressRates,
    pub(crate) calls: CallLimits,
    /// Gives up work while the process cannot keep up.
    pub(crate) shedding: Option<Shedding>,
}

impl Limiting {
    /// The limits that the configuration names. The layers of single servers may have been built already.
    pub(super) fn new(config: &Config, calls: Option<CallLimits>, store: &Arc<dyn Store>) -> Self {
        let rates = &config.rates;
        let calls = calls.unwrap_or_else(|| CallLimits::new(rates.calls.clone()));
        let calls = match rates.calls.has_quotas() {
            true => {
                let (settings, clock) = (rates.calls.clone(), Arc::new(SystemClock));
                let limits_of = move |principal: &Principal| settings.quotas_of(principal);
                calls.with_quotas(Quotas::of_each(limits_of, Arc::clone(store), clock))
            }
            false => calls,
        };
        let initialize = of_address(rates.initialize, AddressRate::of_initialize());
        let failures = of_address(rates.failed_credentials, AddressRate::of_failures());
        let shedding = rates.max_lag.map(|lag| Shedding::new(lag, rates.calls.over_limit));
        let addresses = AddressRates::among(initialize, failures, calls.nodes().clone());
        Self { addresses, calls, shedding }
    }

    /// Looks after them until it is stopped.
    pub(crate) fn run(
        &self,
        loops: &Loops,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (limiting, stopped) = (self.clone(), stop.clone());
        loops.keep("limits of clients", stop, move || {
            let (limiting, stop) = (limiting.clone(), stopped.clone());
            async move {
                while stop.run_until_cancelled(tokio::time::sleep(TEND)).await.is_some() {
                    limiting.tend().await;
                }
            }
        })
    }

    /// Divides rates among the nodes that act, until it is stopped.
    pub(crate) fn divide(
        &self,
        loops: &Loops,
        roster: Roster,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (nodes, stopped) = (self.calls.nodes().clone(), stop.clone());
        loops.keep("share of limits", stop, move || {
            let (nodes, roster, stop) = (nodes.clone(), roster.clone(), stopped.clone());
            async move {
                loop {
                    nodes.set(roster.share().1);
                    if stop.run_until_cancelled(tokio::time::sleep(DIVIDE)).await.is_none() {
                        return;
                    }
                }
            }
        })
    }

    /// Looks whether the process keeps up until it is stopped. The time by which its own sleep is too long is that by which other
    /// tasks are late.
    pub(crate) fn watch(
        &self,
        loops: &Loops,
        budget: Budget,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (shedding, stopped) = (self.shedding.clone(), stop.clone());
        loops.keep("load of the process", stop, move || {
            let (shedding, budget, stop) = (shedding.clone(), budget.clone(), stopped.clone());
            async move {
                let Some(shedding) = shedding else { return stop.cancelled().await };
                loop {
                    let due = tokio::time::Instant::now() + LOOK;
                    if stop.run_until_cancelled(tokio::time::sleep_until(due)).await.is_none() {
                        return;
                    }
                    let memory_percent = budget.percent(Resource::Memory);
                    shedding.look(Signs { lag: due.elapsed(), memory_percent });
                }
            }
        })
    }

    /// Forgets callers, and writes what is counted.
    pub(crate) async fn tend(&self) {
        self.addresses.sweep();
        self.calls.tend().await;
    }
}

/// A configured limit holds for clients on loopback too.
fn of_address(written: Option<Option<Rate>>, otherwise: AddressRate) -> Option<AddressRate> {
    match written {
        None => Some(otherwise),
        Some(rate) => rate.map(|rate| AddressRate { rate, on_loopback: true }),
    }
}
