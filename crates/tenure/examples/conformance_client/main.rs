//! The client that the official MCP conformance suite asks for, made of a gateway: what the suite sees of it is how a
//! gateway of ours talks to the server behind it.
//!
//! The suite starts it as `conformance_client URL`, with the scenario in its environment. It starts a gateway in front of
//! that URL, in this process, and drives it as the scenario wants, with a client that does no more than it has to.
//! `--client legacy|modern` says which era that client speaks; by default it is that of the scenario. `--direct` leaves
//! the gateway out, to see what the client does by itself. `./dev conformance` runs all of it.

mod client;
mod credentials;
mod scenarios;

use anyhow::Context;
use serde_json::Value;
use tenure::Node;
use tenure::config::{Config, Sources};
use tenure_protocol::revision::MODERN;

use client::{Client, Era};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1).peekable();
    let chosen = args.next_if_eq("--client").and_then(|_| args.next());
    let is_direct = args.next_if_eq("--direct").is_some();
    let upstream = args.next().context("use [--client legacy|modern] [--direct] URL")?;
    let scenario =
        std::env::var("MCP_CONFORMANCE_SCENARIO").context("MCP_CONFORMANCE_SCENARIO is not set")?;
    let version = std::env::var("MCP_CONFORMANCE_PROTOCOL_VERSION").unwrap_or_default();
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_else(|_| "{}".to_owned());
    let context = serde_json::from_str(&context).context("MCP_CONFORMANCE_CONTEXT is no JSON")?;

    let is_modern = version == MODERN;
    let era = match chosen.as_deref() {
        Some("legacy") => Era::Legacy,
        Some("modern") => Era::Modern,
        _ if is_modern => Era::Modern,
        _ => Era::Legacy,
    };
    if is_direct {
        return play(&upstream, era, &scenario, &context).await;
    }
    let flag = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mut flags =
        vec![flag("listen", "127.0.0.1:0"), flag("store", "memory:"), flag("upstream.url", &upstream)];
    // The suite's servers of the modern era take a session as well, though they would have it fail.
    if is_modern && era == Era::Legacy {
        flags.push(flag("upstream.era", "modern"));
    }
    // Holds a file until the gateway has read it.
    let (of_gateway, _key_file) = credentials::settings(&scenario, &context)?;
    flags.extend(of_gateway);
    let (config, _) = Config::load(&Sources { flags, ..Sources::default() })?;
    tenure::logs::start(&config.log)?;
    let node = Node::start(&config).await?;
    let played = play(&node.url(), era, &scenario, &context).await;
    node.stop().await;
    played.with_context(|| format!("scenario {scenario}"))
}

async fn play(url: &str, era: Era, scenario: &str, context: &Value) -> anyhow::Result<()> {
    let client = Client::open(url, era).await?;
    let stream = client.stream().await?;
    tokio::select! {
        played = scenarios::play(&client, scenario, context) => played,
        ended = client.listen(stream) => ended,
    }
}
