//! The second dialect: `sessions/create` and `sessions/delete`, cookies under `io.modelcontextprotocol/session`.

use super::{Other, Secret, method, model, or_null};

/// The member of `_meta` that the cookie is in.
pub const KEY: &str = "io.modelcontextprotocol/session";

model! {
    /// What a server offers, as `capabilities.sessions`.
    #[derive(Default)]
    pub struct Capability {
        /// There is nothing to say yet.
        #[serde(flatten)]
        pub other: Other,
    }

    /// A session, and what a client sends back of it; its id is enough.
    pub struct Cookie {
        /// The session's id.
        #[serde(rename = "sessionId")]
        pub id: Secret,
        /// Until when the client may count on it, if it is not used again (RFC 3339).
        #[serde(default, rename = "expiresAt", skip_serializing_if = "Option::is_none")]
        pub expiry: Option<String>,
        /// What the client carries for the server, sealed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub state: Option<Secret>,
        /// What else the client was told of the session.
        #[serde(flatten)]
        pub other: Other,
    }

    /// The metadata of a request or of a result.
    #[derive(Default)]
    pub struct Meta {
        /// The cookie; `null` in a result takes it back, and absence says that nothing changed.
        #[serde(
            default,
            rename = "io.modelcontextprotocol/session",
            deserialize_with = "or_null",
            skip_serializing_if = "Option::is_none"
        )]
        pub cookie: Option<Option<Cookie>>,
        /// What else stands there.
        #[serde(flatten)]
        pub other: Other,
    }

    /// What a session is made from: nothing. It must not carry a cookie.
    #[derive(Default)]
    pub struct CreateRequestParams {
        /// Metadata.
        #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
        pub meta: Option<Meta>,
    }

    /// Which session is meant: that of the cookie.
    #[derive(Default)]
    pub struct DeleteRequestParams {
        /// Metadata, with the cookie.
        #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
        pub meta: Option<Meta>,
    }

    /// A session that was made.
    pub struct CreateResult {
        /// The session.
        pub session: Cookie,
        /// What the revision adds to results.
        #[serde(flatten)]
        pub other: Other,
    }

    /// A session is deleted.
    #[derive(Default)]
    pub struct DeleteResult {
        /// What the revision adds to results.
        #[serde(flatten)]
        pub other: Other,
    }

    /// Any request for a method of data sessions.
    #[serde(untagged)]
    pub enum ClientRequest {
        /// Makes a session.
        Create(CreateRequest),
        /// Ends one.
        Delete(DeleteRequest),
    }

    /// Any answer of a method of data sessions.
    #[serde(untagged)]
    pub enum ServerResult {
        /// Of `create`.
        Create(CreateResult),
        /// Of `delete`.
        Delete(DeleteResult),
    }
}

method!("sessions/create": CreateMethod, CreateRequest(CreateRequestParams), CreateResultResponse(CreateResult));
method!("sessions/delete": DeleteMethod, DeleteRequest(DeleteRequestParams), DeleteResultResponse(DeleteResult));
