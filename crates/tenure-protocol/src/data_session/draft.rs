//! The second dialect: `sessions/create` and `sessions/delete`, cookies under `io.modelcontextprotocol/session`.

use super::{Other, Secret, method, model, or_null};

/// The member of `_meta` that the cookie is in.
pub const KEY: &str = "io.modelcontextprotocol/session";

model! {
    /// A server's offer, in `capabilities.sessions`.
    #[derive(Default)]
    pub struct Capability {
        /// No members are defined yet.
        #[serde(flatten)]
        pub other: Other,
    }

    /// A session, which the client sends back as its cookie; the id alone is enough.
    pub struct Cookie {
        /// The session's id.
        #[serde(rename = "sessionId")]
        pub id: Secret,
        /// When the session ends if it is not used again (RFC 3339).
        #[serde(default, rename = "expiresAt", skip_serializing_if = "Option::is_none")]
        pub expiry: Option<String>,
        /// Sealed state that the client keeps for the server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub state: Option<Secret>,
        /// Other members of the cookie.
        #[serde(flatten)]
        pub other: Other,
    }

    /// The metadata of a request or of a result.
    #[derive(Default)]
    pub struct Meta {
        /// The cookie; `null` in a result withdraws it, and absence means that nothing changed.
        #[serde(
            default,
            rename = "io.modelcontextprotocol/session",
            deserialize_with = "or_null",
            skip_serializing_if = "Option::is_none"
        )]
        pub cookie: Option<Option<Cookie>>,
        /// Other members.
        #[serde(flatten)]
        pub other: Other,
    }

    /// The params of `create`, which must not carry a cookie.
    #[derive(Default)]
    pub struct CreateRequestParams {
        /// Metadata.
        #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
        pub meta: Option<Meta>,
    }

    /// The params of `delete`, which names the session by its cookie.
    #[derive(Default)]
    pub struct DeleteRequestParams {
        /// Metadata, with the cookie.
        #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
        pub meta: Option<Meta>,
    }

    /// A session that was created.
    pub struct CreateResult {
        /// The session.
        pub session: Cookie,
        /// Other members, which the revision adds to results.
        #[serde(flatten)]
        pub other: Other,
    }

    /// A session is deleted.
    #[derive(Default)]
    pub struct DeleteResult {
        /// Other members, which the revision adds to results.
        #[serde(flatten)]
        pub other: Other,
    }

    /// Any request for a method of data sessions.
    #[serde(untagged)]
    pub enum ClientRequest {
        /// Creates a session.
        Create(CreateRequest),
        /// Ends a session.
        Delete(DeleteRequest),
    }

    /// The result of any method of data sessions.
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
