//! The first dialect: `session/create` and the like, cookies under `mcp/session`.

use super::{Need, dialect, model};

dialect! {
    cookie: "mcp/session", id: "id", expiry: "expiry",
    methods: "session/create", "session/resume", "session/delete", "session/list", "session/recover", "session/fork",
}

model! {
    /// A server's offer, in `capabilities.experimental.session`.
    pub struct Capability {
        /// The version, if the server names one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub version: Option<u64>,
        /// The methods that the server has, each by the last part of its name.
        pub features: Vec<String>,
        /// Which tools need a session.
        pub required: Need,
    }
}
