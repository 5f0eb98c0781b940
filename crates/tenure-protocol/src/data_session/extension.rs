//! The dialect of revision 2026-07-28, which has no sessions: `dev.tenure/session/create` and the like, cookies under
//! `dev.tenure/session`. It is an extension, [`EXTENSION`], which servers advertise and clients declare.

use super::{Need, dialect, model};

/// The name of the extension.
pub const EXTENSION: &str = "dev.tenure/sessions";

dialect! {
    cookie: "dev.tenure/session", id: "sessionId", expiry: "expiresAt",
    methods: "dev.tenure/session/create", "dev.tenure/session/resume", "dev.tenure/session/delete",
        "dev.tenure/session/list", "dev.tenure/session/recover", "dev.tenure/session/fork",
}

model! {
    /// A server's offer, in `capabilities.extensions["dev.tenure/sessions"]`. A client declares an empty object.
    pub struct Capability {
        /// The methods that the server has, each by the last part of its name.
        pub features: Vec<String>,
        /// Which tools need a session.
        pub required: Need,
    }
}
