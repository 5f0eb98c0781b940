//! The counters of tools and of one server: rates and calls at once, of each principal and in all.

use std::sync::Arc;

use tenure_protocol::Error;
use tenure_session::Principal;
use tenure_session::rate::{Forgettable, Rate, RateCell, RateTable, Ticks};

use super::fair::FairQueue;
use super::settings::CallLimitSettings;
use super::verdict::Reserved;

/// Pairs of a pattern and a principal that are remembered.
const MOST: usize = 100_000;

/// The tools of all servers, and the limits of their patterns.
#[derive(Debug)]
pub(super) struct ToolLimits {
    /// By the number of the pattern among those of a principal.
    pairs: RateTable<(usize, Principal), OfPair>,
    /// For each pattern of all principals together.
    in_all: Vec<RateCell>,
    queues_in_all: Vec<FairQueue>,
}

/// The counters of a principal and a pattern.
#[derive(Debug)]
pub(super) struct OfPair {
    calls: RateCell,
    queue: Option<FairQueue>,
}

impl Forgettable for OfPair {
    fn is_forgotten(&self, now: Ticks) -> bool {
        self.queue.as_ref().is_none_or(|queue| queue.counts().1 == 0) && self.calls.is_forgotten(now)
    }
}

/// The limits that a call of a tool has to pass.
pub(super) struct ToolPath {
    own: Vec<(Arc<OfPair>, Rate)>,
    in_all: Vec<(usize, Rate)>,
    /// The queues, each with the owner of its limit.
    pub(super) queues: Vec<(FairQueue, &'static str)>,
}

impl ToolLimits {
    pub(super) fn new(settings: &CallLimitSettings) -> Self {
        let queues = settings.tools_in_all_concurrent.iter();
        Self {
            pairs: RateTable::new(MOST),
            in_all: settings.tools_in_all.iter().map(|_| RateCell::default()).collect(),
            queues_in_all: queues
                .map(|limit| FairQueue::new(limit.limit, settings.queue).weighing(&settings.grants))
                .collect(),
        }
    }

    /// The limits for a tool of a server.
    pub(super) fn path(
        &self,
        settings: &CallLimitSettings,
        (server, tool): (Option<&str>, Option<&str>),
        principal: &Principal,
        now: Ticks,
    ) -> ToolPath {
        let rates = settings.tools.iter().enumerate();
        let own = rates.filter(|(_, limit)| limit.pattern.names(server, tool)).map(|(number, limit)| {
            let make = || OfPair { calls: RateCell::default(), queue: None };
            (self.pairs.entry(&(number, principal.clone()), now, make), limit.limit)
        });
        let own = own.collect();
        let in_all = settings.tools_in_all.iter().enumerate();
        let in_all = in_all.filter(|(_, limit)| limit.pattern.names(server, tool));
        let in_all = in_all.map(|(number, limit)| (number, limit.limit)).collect();
        let mut queues = Vec::new();
        for (number, limit) in settings.tools_concurrent.iter().enumerate() {
            if limit.pattern.names(server, tool) {
                let queue = || FairQueue::new(limit.limit, settings.queue);
                let make = || OfPair { calls: RateCell::default(), queue: Some(queue()) };
                // Numbered behind the patterns with rates.
                let number = settings.tools.len() + number;
                let pair = self.pairs.entry(&(number, principal.clone()), now, make);
                queues.extend(pair.queue.clone().map(|queue| (queue, "tool")));
            }
        }
        for (queue, limit) in self.queues_in_all.iter().zip(&settings.tools_in_all_concurrent) {
            if limit.pattern.names(server, tool) {
                queues.push((queue.clone(), "tool"));
            }
        }
        ToolPath { own, in_all, queues }
    }

    /// Takes room in every cell of a path, or in none.
    pub(super) fn reserve<'a>(
        &'a self,
        path: &'a ToolPath,
        (now, nodes): (Ticks, u32),
        settings: &CallLimitSettings,
    ) -> Result<Reserved<'a>, Error> {
        let mut reserved = Reserved::default();
        for (pair, rate) in &path.own {
            reserved.take(&pair.calls, (*rate, nodes), now, settings.max_wait, "tool")?;
        }
        for (number, rate) in &path.in_all {
            reserved.take(&self.in_all[*number], (*rate, nodes), now, settings.max_wait, "tool")?;
        }
        Ok(reserved)
    }

    pub(super) fn sweep(&self, now: Ticks) {
        self.pairs.sweep(now);
    }
}
