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
    /// Many short sessions.
    HighVolume,
    /// Agents that work for hours.
    LongRunning,
}

impl Profile {
    /// Every profile.
    pub(super) const ALL: [Self; 4] =
        [Self::Development, Self::SingleNode, Self::HighVolume, Self::LongRunning];

    /// The profile's name.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Development => "development",
            Self::SingleNode => "single_node",
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
            Self::HighVolume => "many short sessions",
            Self::LongRunning => "agents that work for hours",
        }
    }

    /// The keys it sets, with their texts.
    pub(super) const fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Development => &[("store", "memory:"), ("session.idle_ttl", "5m")],
            Self::SingleNode => &[("store", "disk:"), ("durability", "os"), ("session.idle_ttl", "30m")],
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
