//! The methods of MCP.
//!
//! A method has its own variant if some rule depends on it, or if it is frequent: then reading a message allocates
//! nothing. All other methods are kept by name.

use std::fmt;

macro_rules! methods {
    ($($variant:ident = $name:literal),* $(,)?) => {
        /// The name of a request or notification.
        #[derive(Clone, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Method {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
            /// Any other name.
            Other(Box<str>),
        }

        impl Method {
            /// The method of that name.
            pub fn new(name: &str) -> Self {
                match name {
                    $($name => Self::$variant,)*
                    other => Self::Other(other.into()),
                }
            }

            /// The name, if it has a variant: a small fixed set, independent of the clients' input.
            pub const fn known_name(&self) -> Option<&'static str> {
                match self {
                    $(Self::$variant => Some($name),)*
                    Self::Other(_) => None,
                }
            }

            /// The name on the wire.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $name,)*
                    Self::Other(name) => name,
                }
            }
        }
    };
}

methods! {
    Initialize = "initialize",
    Ping = "ping",
    ToolsCall = "tools/call",
    ToolsList = "tools/list",
    ResourcesList = "resources/list",
    ResourcesTemplatesList = "resources/templates/list",
    ResourcesRead = "resources/read",
    ResourcesSubscribe = "resources/subscribe",
    ResourcesUnsubscribe = "resources/unsubscribe",
    PromptsList = "prompts/list",
    PromptsGet = "prompts/get",
    CompletionComplete = "completion/complete",
    LoggingSetLevel = "logging/setLevel",
    SamplingCreateMessage = "sampling/createMessage",
    ElicitationCreate = "elicitation/create",
    RootsList = "roots/list",
    Discover = "server/discover",
    Listen = "subscriptions/listen",
    TasksGet = "tasks/get",
    TasksUpdate = "tasks/update",
    TasksCancel = "tasks/cancel",
    TasksResult = "tasks/result",
    TasksList = "tasks/list",
    Initialized = "notifications/initialized",
    Cancelled = "notifications/cancelled",
    Progress = "notifications/progress",
    LogMessage = "notifications/message",
    ResourceUpdated = "notifications/resources/updated",
    ResourcesListChanged = "notifications/resources/list_changed",
    ToolsListChanged = "notifications/tools/list_changed",
    PromptsListChanged = "notifications/prompts/list_changed",
    RootsListChanged = "notifications/roots/list_changed",
    Acknowledged = "notifications/subscriptions/acknowledged",
    TaskChanged = "notifications/tasks",
    TaskStatus = "notifications/tasks/status",
    ElicitationComplete = "notifications/elicitation/complete",
}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether a complete result of the method carries `ttlMs` and `cacheScope`.
pub fn is_cacheable(method: &Method) -> bool {
    matches!(
        method,
        Method::Discover
            | Method::ToolsList
            | Method::PromptsList
            | Method::ResourcesList
            | Method::ResourcesTemplatesList
            | Method::ResourcesRead
    )
}

/// Whether a modern server may answer the method with `input_required`.
pub fn may_ask(method: &Method) -> bool {
    matches!(method, Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead)
}
