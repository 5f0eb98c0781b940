//! The keys of MCP in `_meta`, each defined once.

/// The version of a request, in its `_meta`.
pub const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// The capabilities of the client of a request, in its `_meta`.
pub const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// Who the client of a request is, in its `_meta`.
pub const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
/// The lowest level of log messages that a request wants, in its `_meta`.
pub const LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// Who the server is, in the `_meta` of a result.
pub const SERVER: &str = "io.modelcontextprotocol/serverInfo";
/// The id of the `subscriptions/listen` that a message belongs to, in its `_meta`.
pub const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
/// The task that a message belongs to, in its `_meta`; revision 2025-11-25 only.
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
/// The key that a session's server chooses for its question, in the question's `_meta`. Defined by Tenure, not by MCP.
pub const INPUT_KEY: &str = "dev.tenure/inputKey";
/// The progress token: in the `_meta` of a request, and in the progress notifications about it.
pub const TOKEN: &str = "progressToken";
