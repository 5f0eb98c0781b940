//! The names of metrics: those that are scraped, those in the docs, those in the rules and the dashboard.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::json;

use super::{samples, scraped, sum};
use crate::support::node::{Steered, config, say};
use crate::support::session::Session;
use crate::support::wait::until;

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace");
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The rows of a table in the docs: what stands in backticks in the first cell, and the second cell.
fn rows(text: &str) -> Vec<(String, String)> {
    let row = |line: &str| {
        let rest = line.strip_prefix("| `")?;
        let (name, rest) = rest.split_once("` |")?;
        Some((name.to_owned(), rest.split('|').next()?.trim().to_owned()))
    };
    text.lines().filter_map(row).collect()
}

fn documented() -> BTreeSet<(String, String)> {
    let docs = read("docs/metrics.md");
    let table =
        docs.split("## Names").nth(1).and_then(|rest| rest.split("## Labels").next()).expect("the table");
    rows(table).into_iter().collect()
}

/// OB1: every name in the docs is scraped, and every name that is scraped is in the docs, with its type.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn ob1_the_names_in_the_docs_are_those_that_are_scraped() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("disk:{}", folder.path().join("store").display());
    let mut steered = Steered::with(&[("metrics.listen", "127.0.0.1:0"), ("store", &store)]).await;
    let metrics = steered.node.metrics_address().expect("an address");
    let (session, _link) = steered.session().await;
    // A call, on a stream that breaks and is resumed.
    let (call, mut events) = steered.streaming_call(&session, 1).await;
    let (id, _) = events.message().await.expect("an event");
    drop(events);
    say(&call, "missed").await;
    let mut events = session.resume(&id).await;
    call.answer(&json!({ "content": [] }));
    while events.message().await.is_some() {}
    let ask = session.request(2, "tools/call", &json!({ "name": "any" }));
    tokio::join!(ask.send(steered.address()), async {
        steered.script.call().await.answer(&json!({ "content": [] }));
    });
    // Something that is refused.
    let refused = session.request(3, "tools/call", &json!("no object")).send(steered.address()).await;
    assert_ne!(refused.status(), 202);
    let node = &steered.node;
    let operations = "mcp_server_operation_duration_seconds_count";
    until("the call was counted", || sum(&node.metrics_text(), operations, &["tools/call"]) > 0.0).await;
    let text = scraped(metrics).await;
    let found: BTreeSet<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
        .collect();
    let documented = documented();
    // There is no issuer here, and no server that is another process.
    let is_here =
        |name: &str| !name.starts_with("tenure_jwks_") && name != "mcp_client_operation_duration_seconds";
    let missing: Vec<_> = documented.difference(&found).filter(|(name, _)| is_here(name)).collect();
    let unknown: Vec<_> = found.difference(&documented).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "not scraped: {missing:?}; not in the docs: {unknown:?}"
    );
    for (name, kind) in &found {
        let sample = if kind == "histogram" { format!("{name}_count") } else { name.clone() };
        assert!(!samples(&text, &sample).is_empty(), "{name} has no sample");
    }
    assert!(text.contains("# HELP tenure_sessions_created_total "), "the comments name the samples");
    steered.node.stop().await;
}

/// Rules and dashboard use names that there are, and each alert has a line in the docs.
#[test]
fn rules_and_dashboard_use_names_of_the_docs_and_each_alert_has_a_line() {
    let known: BTreeSet<String> = documented().into_iter().map(|(name, _)| name).collect();
    let (rules, dashboard) = (read("docs/metrics/alerts.yml"), read("docs/metrics/dashboard.json"));
    let is_name = |word: &&str| {
        ["tenure_", "mcp_", "process_"].iter().any(|start| word.starts_with(start))
            && !["mcp_method_name", "tenure_backend", "mcp_protocol_version"].contains(word)
    };
    let mut used = 0;
    for text in [&rules, &dashboard] {
        let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
        for word in words.filter(is_name) {
            let family =
                ["_count", "_bucket", "_sum"].iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word);
            assert!(known.contains(word) || known.contains(family), "{word} is not in docs/metrics.md");
            used += 1;
        }
    }
    assert!(used > 30, "{used}");
    let alerts: BTreeSet<_> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    let docs = read("docs/metrics.md");
    let lines = rows(docs.split("## Alerts").nth(1).expect("the alerts"));
    let lines: BTreeSet<_> = lines.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(alerts, lines);
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).expect("JSON");
    assert!(dashboard["panels"].as_array().is_some_and(|panels| panels.len() > 10));
}

#[tokio::test]
async fn metrics_are_served_apart_from_clients_and_in_the_form_that_is_asked_for() {
    use crate::support::client::Ask;
    let node = tenure::Node::start(&config(&[("metrics.listen", "127.0.0.1:0")])).await.unwrap();
    let metrics = node.metrics_address().expect("an address");
    let plain = Ask::get().at("/metrics").send(metrics).await;
    assert_eq!(plain.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let open = Ask::get()
        .at("/metrics")
        .header("Accept", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
        .send(metrics)
        .await;
    assert!(open.header("content-type").is_some_and(|kind| kind.starts_with("application/openmetrics-text")));
    assert!(open.body.ends_with(b"# EOF\n"));
    assert_eq!(Ask::get().at("/mcp").send(metrics).await.status(), 404);
    assert_eq!(Ask::new("DELETE", "/metrics").send(metrics).await.status(), 405);
    assert_eq!(Ask::get().at("/metrics").send(node.address()).await.status(), 404, "clients do not get them");
    node.stop().await;
}

#[tokio::test]
async fn nothing_is_counted_if_that_is_not_wanted() {
    let node = tenure::Node::start(&config(&[("metrics.collect", "false")])).await.unwrap();
    let session = Session::start(node.address()).await;
    session.tool(1, "echo", &json!({ "text": "hi" })).await;
    let text = node.metrics_text();
    assert_eq!(sum(&text, "tenure_sessions_created_total", &[]), 0.0);
    assert!(samples(&text, "mcp_server_operation_duration_seconds_count").is_empty());
    node.stop().await;
}
