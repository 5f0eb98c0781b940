//! The fixtures as an rmcp `ServerHandler`, to show that any such handler runs on our stack.

#![expect(deprecated, reason = "logging and sampling belong to the revisions that sessions speak")]

mod news;
mod rounds;
mod tasks;
mod tools;

use std::borrow::Cow;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams, CompleteResult,
    ErrorCode, GetPromptRequestParams, GetPromptResponse, GetPromptResult, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ServerCapabilities,
    ServerConfig, SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter, Tool,
    UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, ServiceError, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::catalog;
pub(crate) use news::Newsroom;

/// Every fixture; nothing is kept between calls.
#[derive(Clone)]
pub(crate) struct Fixtures {
    /// Who listens, where rmcp serves alone. On our stack, that is the stack's to know.
    newsroom: Option<Newsroom>,
    versions: Cow<'static, [ProtocolVersion]>,
}

type Context = RequestContext<RoleServer>;

impl Fixtures {
    /// Fixtures on our stack, which says what is served.
    pub(crate) fn new() -> Self {
        Self { newsroom: None, versions: Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS) }
    }

    /// Fixtures on rmcp's own service, which serve this much.
    pub(crate) fn alone(newsroom: Newsroom, versions: Vec<ProtocolVersion>) -> Self {
        Self { newsroom: Some(newsroom), versions: versions.into() }
    }
}

impl ServerHandler for Fixtures {
    fn get_info(&self) -> ServerConfig {
        let capabilities: ServerCapabilities =
            serde_json::from_value(catalog::capabilities()).expect("these are capabilities");
        ServerConfig::new(capabilities)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        result(&context, catalog::tools())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let asked = rounds::Retry { answers: request.input_responses, state: request.request_state };
        // On our stack a tool may ask in either era. rmcp alone allows it in sessions only.
        let must_ask_first = self.newsroom.is_some() && is_modern(&context);
        let instead = must_ask_first.then(|| rounds::instead(&request.name, &arguments, &asked)).flatten();
        let answer = match instead {
            Some(answer) => Some(answer),
            None => rounds::answer(&context, &request.name, asked).await,
        };
        if let Some(answer) = answer {
            return answer?.into_tool(&context);
        }
        let answer = match tasks::answer(&context, &request.name, &arguments).await {
            Some(answer) => answer?,
            None => tools::call(&request.name, &arguments, &context, self.newsroom.as_ref()).await?,
        };
        Ok(result::<CallToolResult>(&context, answer)?.into())
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let tools: ListToolsResult = typed(catalog::tools()).ok()?;
        tools.tools.into_iter().find(|tool| tool.name == name)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.versions.clone()
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        self.newsroom.as_ref().map(|_| requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        match &self.newsroom {
            Some(newsroom) => newsroom.tell(&context).await,
            None => Ok(()),
        }
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        result(&context, catalog::resources())
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        result(&context, catalog::templates())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let code = if is_modern(&context) { ErrorCode(-32602) } else { ErrorCode(-32002) };
        let missing = || ErrorData::new(code, "Resource not found", Some(json!({ "uri": request.uri })));
        let contents = catalog::read(&request.uri).ok_or_else(missing)?;
        Ok(result::<ReadResourceResult>(&context, contents)?.into())
    }

    async fn subscribe(&self, _: SubscribeRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(&self, _: UnsubscribeRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn set_level(&self, _: SetLevelRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListPromptsResult, ErrorData> {
        result(&context, catalog::prompts())
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        let asked = rounds::Retry { answers: request.input_responses, state: request.request_state };
        if let Some(answer) = rounds::answer(&context, &request.name, asked).await {
            return answer?.into_prompt(&context);
        }
        let arguments: Map<_, _> = request.arguments.unwrap_or_default();
        let prompt = catalog::prompt(&request.name, &arguments);
        let prompt = prompt.ok_or_else(|| ErrorData::invalid_params("Unknown prompt", None))?;
        Ok(result::<GetPromptResult>(&context, prompt)?.into())
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        context: Context,
    ) -> Result<CompleteResult, ErrorData> {
        result(&context, json!({ "completion": { "values": [], "total": 0, "hasMore": false } }))
    }
}

fn is_modern(context: &Context) -> bool {
    context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}

/// A result, which in the modern era says that it is whole. rmcp says so itself of the results that are made with its
/// own constructors.
fn result<T: DeserializeOwned>(context: &Context, mut value: Value) -> Result<T, ErrorData> {
    if is_modern(context) {
        value["resultType"] = "complete".into();
    }
    typed(value)
}

fn typed<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
fn failed(error: ServiceError) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

fn text(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}
