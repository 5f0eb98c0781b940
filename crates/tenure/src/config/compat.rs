//! The one switch for clients of earlier designs.
//!
//! It is a layer above the profile: a few keys with their texts. Behaviour that no key controls is in the leniencies of
//! the endpoint's rules.

use tenure_transport::http::Leniencies;

/// Which clients of earlier designs are served as they are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Compat {
    /// None.
    #[default]
    None,
    /// Those of the designs that Tenure began with.
    Sources,
}

impl Compat {
    /// The keys it sets, with their texts.
    pub(super) const fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::None => &[],
            Self::Sources => &[
                ("doors.rpc", "true"),
                ("doors.post_sse", "true"),
                ("doors.mcp_sse", "true"),
                ("doors.websocket", "true"),
                ("session.require_initialized", "false"),
                ("streams.unknown_event_id", "replay_all"),
                ("streams.retry_jitter", "0%"),
                ("shutdown.retry", "5s"),
            ],
        }
    }

    /// The leniencies towards these clients.
    pub(super) const fn leniencies(self) -> Leniencies {
        match self {
            Self::None => Leniencies::NONE,
            Self::Sources => Leniencies::SOURCES,
        }
    }
}
