//! Limits of clients, built from the configuration: of addresses, and of calls.
//!
//! In: the `[limits]` section. Out: [`Limiting`], which sessions and layers are given their parts of. It forgets callers and writes
//! the calls of the day in the background, as long as the node runs, and once more before the store is closed.

use std::sync::Arc;
use std::time::Duration;

use tenure_layers::limited::CallLimits;
use tenure_session::port::clock::SystemClock;
use tenure_session::port::store::Store;
use tenure_session::rate::{AddressRate, AddressRates, Quotas, Rate};
use tenure_session::supervise::Loops;
use tokio_util::sync::CancellationToken;

use crate::config::Config;

/// How often callers are forgotten and the calls of the day are written: as much as a kill can lose.
const TEND: Duration = Duration::from_secs(5);

/// The limits of clients.
#[derive(Clone, Debug)]
pub(crate) struct Limiting {
    pub(crate) addresses: AddressRates,
    pub(crate) calls: CallLimits,
}

impl Limiting {
    /// The limits that the configuration names. The layers of single servers may have been built already.
    pub(super) fn new(config: &Config, calls: Option<CallLimits>, store: &Arc<dyn Store>) -> Self {
        let rates = &config.rates;
        let calls = calls.unwrap_or_else(|| CallLimits::new(rates.calls.clone()));
        let calls = match rates.calls.calls_per_day {
            Some(most) => {
                let clock = Arc::new(SystemClock);
                calls.with_quotas(Quotas::new(most as u64, Arc::clone(store), clock))
            }
            None => calls,
        };
        let initialize = of_address(rates.initialize, AddressRate::of_initialize());
        let failures = of_address(rates.failed_credentials, AddressRate::of_failures());
        Self { addresses: AddressRates::new(initialize, failures), calls }
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

    /// Forgets callers, and writes what is counted.
    pub(crate) async fn tend(&self) {
        self.addresses.sweep();
        self.calls.tend().await;
    }
}

/// What is written holds for clients on loopback too.
fn of_address(written: Option<Option<Rate>>, otherwise: AddressRate) -> Option<AddressRate> {
    match written {
        None => Some(otherwise),
        Some(rate) => rate.map(|rate| AddressRate { rate, on_loopback: true }),
    }
}
