//! Named sets of defaults for common ways to run.
//!
//! A profile is a layer like any other: a few keys with their texts, read by the parsers of the keys.

/// A named set of defaults.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Profile {
    /// One developer, one machine.
    Development,
    /// One process in production.
    SingleNode,
    /// Several processes that share a store.
    Cluster,
    /// Many short sessions.
    HighVolume,
    /// Agents that work for hours.
    LongRunning,
}

impl Profile {
    /// Every profile.
    pub const ALL: [Self; 5] =
        [Self::Development, Self::SingleNode, Self::Cluster, Self::HighVolume, Self::LongRunning];

    /// The profile's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Development => "development",
            Self::SingleNode => "single_node",
            Self::Cluster => "cluster",
            Self::HighVolume => "high_volume",
            Self::LongRunning => "long_running",
        }
    }

    /// What it is for, as a fragment.
    #[cfg(test)]
    pub(super) const fn purpose(self) -> &'static str {
        match self {
            Self::Development => "one developer on one machine",
            Self::SingleNode => "one process in production",
            Self::Cluster => "several processes that share a store",
            Self::HighVolume => "many short sessions",
            Self::LongRunning => "agents that work for hours",
        }
    }

    /// The keys it sets, with their texts.
    pub(super) const fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Development | Self::HighVolume => &[("session.idle_ttl", "5m")],
            Self::SingleNode => &[("session.idle_ttl", "30m")],
            Self::Cluster => &[("session.idle_ttl", "1h")],
            Self::LongRunning => &[("session.idle_ttl", "8h")],
        }
    }
}
