//! Names that stand on the wire: members of `_meta`, and methods that the eras treat apart.

use crate::method::Method;

/// The version of a request, in its `_meta`.
pub(super) const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// What the client of a request can do, in its `_meta`.
pub(super) const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// Who the client of a request is, in its `_meta`.
pub(super) const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
/// From which level on a request wants log messages, in its `_meta`.
pub(super) const LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// Who the server is, in the `_meta` of a result.
pub(super) const SERVER: &str = "io.modelcontextprotocol/serverInfo";
/// Which listen a message belongs to, in its `_meta`.
pub(super) const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
/// Which task a message belongs to, in its `_meta`; revision 2025-11-25 only.
pub(super) const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
/// Which key a session's server wants for a question, in the question's `_meta`; ours.
pub(super) const INPUT_KEY: &str = "dev.tenure/inputKey";
/// The token of a request that wants to hear of its progress, in its `_meta` and in the news of it.
pub(super) const TOKEN: &str = "progressToken";

/// The methods whose results a modern client may keep, and which therefore say for how long.
pub(super) fn is_cacheable(method: &Method) -> bool {
    match method {
        Method::ToolsList
        | Method::PromptsList
        | Method::ResourcesList
        | Method::ResourcesTemplatesList
        | Method::ResourcesRead => true,
        other => other.as_str() == "server/discover",
    }
}

/// The methods during which a modern server may ask for more input.
pub(super) fn may_ask(method: &Method) -> bool {
    matches!(method, Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead)
}
