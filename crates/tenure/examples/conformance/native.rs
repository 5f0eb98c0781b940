//! The fixtures as a native handler, the same for both eras wherever these do not differ on the wire.

mod rounds;
mod tasks;
mod tools;

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tenure_backend::native::{Handler, Introduction};
use tenure_protocol::Reply;
use tenure_protocol::revision::MODERN;
use tenure_protocol::{Method, RawJson, Reason, RpcError};
use tenure_session::backend::Call;
use tenure_session::call::CallContext;
use tenure_session::call::Fanout;

use crate::catalog;

/// Every fixture; nothing is kept between calls.
pub(crate) struct Fixtures {
    fanout: Fanout,
}

impl Fixtures {
    /// Fixtures that tell their news this way.
    pub(crate) fn new(fanout: Fanout) -> Self {
        Self { fanout }
    }
}

/// The params of a call to a tool or for a prompt.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    name: String,
    #[serde(default)]
    arguments: Map<String, Value>,
    /// The answers to what an earlier call asked, whatever the client takes for that.
    #[serde(default)]
    input_responses: Value,
    request_state: Option<String>,
}

#[derive(Deserialize)]
struct Uri {
    uri: String,
}

impl Handler for Fixtures {
    fn introduction(&self) -> Introduction {
        Introduction {
            name: "tenure-conformance",
            version: env!("CARGO_PKG_VERSION"),
            capabilities: catalog::capabilities(),
            instructions: None,
        }
    }

    async fn call(self: Arc<Self>, call: Call) -> Reply {
        self.answer(&call).await.map(|result| RawJson::of(&result))
    }
}

impl Fixtures {
    async fn answer(&self, call: &Call) -> Result<Value, RpcError> {
        let (context, params) = (&call.context, call.request.params.as_ref());
        match &call.request.method {
            Method::ToolsList => Ok(catalog::tools()),
            Method::ToolsCall => {
                let named: Named = read(params)?;
                if let Some(answer) = rounds::answer(context, &named).await {
                    return answer;
                }
                match tasks::answer(context, &named).await {
                    Some(answer) => answer,
                    None => tools::call(context, &self.fanout, &named).await,
                }
            }
            Method::ResourcesList => Ok(catalog::resources()),
            Method::ResourcesTemplatesList => Ok(catalog::templates()),
            Method::ResourcesRead => {
                let uri = read::<Uri>(params)?.uri;
                catalog::read(&uri).ok_or_else(|| missing(context, &uri))
            }
            Method::ResourcesSubscribe | Method::ResourcesUnsubscribe | Method::LoggingSetLevel => {
                Ok(json!({}))
            }
            Method::PromptsList => Ok(catalog::prompts()),
            Method::PromptsGet => {
                let named: Named = read(params)?;
                match rounds::answer(context, &named).await {
                    Some(answer) => answer,
                    None => catalog::prompt(&named.name, &named.arguments)
                        .ok_or_else(|| RpcError::of(Reason::InvalidParams, "Unknown prompt")),
                }
            }
            Method::CompletionComplete => {
                Ok(json!({ "completion": { "values": [], "total": 0, "hasMore": false } }))
            }
            method => Err(RpcError::of(Reason::MethodNotFound, format!("Method not found: {method}"))),
        }
    }
}

/// The eras have a code each for a resource that is not there.
fn missing(context: &CallContext, uri: &str) -> RpcError {
    let code = if is_modern(context) { -32602 } else { -32002 };
    RpcError::with_data(code, "Resource not found", &json!({ "uri": uri }))
}

fn is_modern(context: &CallContext) -> bool {
    context.protocol() == MODERN
}

fn parse(answer: &RawJson) -> Result<Value, RpcError> {
    answer.read().map_err(|error| RpcError::of(Reason::InvalidParams, error.to_string()))
}

fn read<'a, T: Deserialize<'a>>(params: Option<&'a RawJson>) -> Result<T, RpcError> {
    let params = params.ok_or_else(|| RpcError::of(Reason::InvalidParams, "params are missing"))?;
    params.read().map_err(|error| RpcError::of(Reason::InvalidParams, error.to_string()))
}

fn text(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}
