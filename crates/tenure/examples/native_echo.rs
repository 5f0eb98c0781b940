//! The cheapest server our stack can carry: an echo written against the port itself.
//!
//! The benchmarks use it: `public_echo` answers at once, `bench_emit` puts `count` log messages on its
//! stream before it answers. `--eras legacy|modern` lets it know one era alone; `--config FILE` puts in front of it
//! what a configuration asks for, such as credentials and limits.

#![expect(clippy::print_stdout, reason = "the first line on standard output is the endpoint")]

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use tenure::Node;
use tenure::config::{Config, Sources};
use tenure_backend::native::{Handler, Introduction, Native};
use tenure_protocol::{Method, RawJson, Reason, Reply, RpcError};
use tenure_session::backend::Call;
use tenure_session::call::ToolCall;

struct Echo;

#[derive(Deserialize)]
struct Arguments<'a> {
    /// Kept as the JSON it was, so that it goes back without being unescaped and escaped again.
    #[serde(borrow, default)]
    text: Option<&'a serde_json::value::RawValue>,
    #[serde(default)]
    count: usize,
}

impl Handler for Echo {
    fn introduction(&self) -> Introduction {
        let capabilities = json!({ "tools": {}, "logging": {} });
        Introduction { name: "native-echo", version: "1", capabilities, instructions: None }
    }

    async fn call(self: Arc<Self>, call: Call) -> Reply {
        match (&call.request.method, &call.request.params) {
            (Method::ToolsCall, params) => tool(&call, params.as_ref()).await,
            (Method::ToolsList, _) => Ok(RawJson::of(&json!({ "tools": [{
                "name": "public_echo",
                "description": "Says back what you say.",
                "inputSchema": { "type": "object", "properties": { "text": { "type": "string" } } },
            }] }))),
            (method, _) => Err(RpcError::of(Reason::MethodNotFound, format!("Method not found: {method}"))),
        }
    }
}

async fn tool(call: &Call, params: Option<&RawJson>) -> Reply {
    let tool = ToolCall::read(params)?;
    let arguments: Arguments<'_> =
        tool.arguments().map_err(|error| RpcError::of(Reason::InvalidParams, error.to_string()))?;
    match (&*tool.name, arguments.text) {
        ("public_echo", Some(text)) => {
            Ok(RawJson::trusted(format!(r#"{{"content":[{{"type":"text","text":{}}}]}}"#, text.get())))
        }
        ("bench_emit", _) => {
            let params = RawJson::of(&json!({ "level": "info", "data": "one of many events in the log" }));
            for _ in 0..arguments.count {
                call.context
                    .notify(&Method::LogMessage, Some(&params))
                    .await
                    .map_err(|error| error.to_rpc())?;
            }
            Ok(RawJson::trusted(r#"{"content":[{"type":"text","text":"done"}]}"#))
        }
        (name, _) => Err(RpcError::of(Reason::InvalidParams, format!("Unknown tool: {name}"))),
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let flag = |name: &str, default: &str| {
        std::env::args().skip_while(|arg| arg != name).nth(1).unwrap_or(default.to_owned())
    };
    // In memory unless asked otherwise: an example leaves nothing in the user's own folder.
    let (listen, store) = (flag("--listen", "127.0.0.1:0"), flag("--store", "memory:"));
    let (eras, log) = (flag("--eras", "both"), flag("--log", "warn"));
    let file = match flag("--config", "") {
        path if path.is_empty() => None,
        path => Some((path.clone().into(), std::fs::read_to_string(&path)?)),
    };
    let flags = [
        ("listen", listen.as_str()),
        ("store", store.as_str()),
        ("eras", eras.as_str()),
        ("streams.max_session_events", "20000"),
        ("log.level", log.as_str()),
        // All clients of a benchmark are on one machine.
        ("http.max_connections_per_peer", "20000"),
    ];
    let flags = flags.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
    let (config, _) = Config::load(&Sources { file, flags, ..Sources::default() })?;
    tenure::logs::start(&config.log)?;
    let node = Node::with_backend(&config, Arc::new(Native::new(|_| Echo))).await?;
    println!("{}", node.url());
    tokio::signal::ctrl_c().await?;
    node.stop().await;
    Ok(())
}
