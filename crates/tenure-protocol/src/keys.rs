//! The names of members that MCP puts into `_meta`, each written down once.

/// The version of a request, in its `_meta`.
pub const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// What the client of a request can do, in its `_meta`.
pub const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// Who the client of a request is, in its `_meta`.
pub const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
/// From which level on a request wants log messages, in its `_meta`.
pub const LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// Who the server is, in the `_meta` of a result.
pub const SERVER: &str = "io.modelcontextprotocol/serverInfo";
/// Which listen a message belongs to, in its `_meta`.
pub const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
/// Which task a message belongs to, in its `_meta`; revision 2025-11-25 only.
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
/// Which key a session's server wants for a question, in the question's `_meta`; ours.
pub const INPUT_KEY: &str = "dev.tenure/inputKey";
/// The token of a request that wants to hear of its progress, in its `_meta` and in the news of it.
pub const TOKEN: &str = "progressToken";
