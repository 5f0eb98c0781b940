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
    /// One of several processes that share a store.
    Cluster,
    /// Many short sessions.
    HighVolume,
    /// Agents that work for hours.
    LongRunning,
}

impl Profile {
    /// Every profile.
    pub(super) const ALL: [Self; 5] =
        [Self::Development, Self::SingleNode, Self::Cluster, Self::HighVolume, Self::LongRunning];

    /// The profile's name.
    pub(super) const fn as_str(self) -> &'static str {
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
            Self::Cluster => "one of several processes that share a store",
            Self::HighVolume => "many short sessions",
            Self::LongRunning => "agents that work for hours",
        }
    }

    /// The keys it sets, with their texts.
    pub(super) const fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Development => &[("store", "memory:"), ("session.idle_ttl", "5m")],
            Self::SingleNode => &[("store", "disk:"), ("durability", "os"), ("session.idle_ttl", "30m")],
            // Each node names its own address; this one is for nodes on one machine, which then need a port each.
            Self::Cluster => &[
                ("store", "nats://127.0.0.1:4222"),
                ("cluster.listen", "127.0.0.1:8485"),
                ("session.idle_ttl", "30m"),
                ("shutdown.grace", "30s"),
            ],
            Self::HighVolume => &[
                ("store", "disk:"),
                ("durability", "os"),
                ("session.idle_ttl", "5m"),
                ("session.dormant_after", "30s"),
            ],
            // An agent that comes back after hours has to find the events that it missed.
            Self::LongRunning => &[
                ("store", "disk:"),
                ("durability", "os"),
                ("session.idle_ttl", "8h"),
                ("streams.event_ttl", "8h"),
            ],
        }
    }
}
