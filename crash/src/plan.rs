//! The names of what can be done to a cluster, as the command line gives them.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;

/// Something that is done to a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum)]
pub(crate) enum Outage {
    /// A node is killed and started again
    Kill,
    /// A node is told to end, and another process takes its place
    Term,
    /// A node stands still for longer than its lease
    Pause,
    /// A server of the engine is killed, mostly the one that leads the leases
    EngineKill,
    /// A node is cut off from the engine, or a server of the engine from the others
    CutEngine,
    /// Two nodes cannot reach each other
    CutPeer,
    /// What one end of a link sends does not arrive at the other
    CutOneWay,
    /// A node reaches all others late
    Slow,
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().as_ref().map_or("?", |value| value.get_name()))
    }
}

/// An outage as the command line names it: `kill`, or `kill=2` for exactly two of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlannedOutage {
    pub(crate) outage: Outage,
    pub(crate) times: Option<usize>,
}

impl PlannedOutage {
    /// Whether the command line says how many of them there are.
    pub(crate) fn is_counted(&self) -> bool {
        self.times.is_some()
    }
}

impl FromStr for PlannedOutage {
    type Err = String;

    fn from_str(text: &str) -> Result<PlannedOutage, String> {
        let (name, times) = match text.split_once('=') {
            None => (text, None),
            Some((name, times)) => {
                (name, Some(times.parse().map_err(|_| format!("`{times}` is not a number"))?))
            }
        };
        let outage = Outage::from_str(name, false).map_err(|_| {
            let known = Outage::value_variants().iter().map(Outage::to_string).collect::<Vec<_>>().join(", ");
            format!("there is no fault `{name}`: it is one of {known}")
        })?;
        Ok(PlannedOutage { outage, times })
    }
}
