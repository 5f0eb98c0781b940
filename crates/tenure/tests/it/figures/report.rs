//! The line with the totals, for those who have nothing that scrapes metrics.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::cli::process::tenure;
use crate::support::session::Session;
use crate::support::wait::within;

/// A11.09: the eight totals are written to the log, every so often.
#[tokio::test]
async fn a11_09_the_totals_are_written_to_the_log_now_and_then() {
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--log", "json", "--set", "metrics.report=100ms"];
    let mut command = tenure(&arguments);
    command.env("TENURE_STORE", "memory:").stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut server = command.spawn().expect("it starts");
    let mut out = BufReader::new(server.stdout.take().expect("piped")).lines();
    let url = within("the address", out.next_line()).await.expect("a line").expect("an address");
    let address = url.trim_start_matches("http://").trim_end_matches("/mcp").parse().expect("an address");
    let session = Session::start(address).await;
    session.tool(1, "no-such-tool", &json!({})).await;
    session.request(2, "resources/read", &json!({ "uri": "no:such" })).send(address).await;
    let mut lines = BufReader::new(server.stderr.take().expect("piped")).lines();
    let complete = async {
        loop {
            let line = lines.next_line().await.expect("UTF-8").expect("it runs");
            let Ok(line) = serde_json::from_str::<Value>(&line) else { continue };
            let has = |name: &str, value: u64| {
                let found = line.get(name).or_else(|| line.get("fields")?.get(name));
                found.and_then(Value::as_u64) == Some(value)
            };
            // The handshake, the call and the read.
            let counts = has("total_sessions", 1) && has("active_sessions", 1) && has("total_requests", 3);
            if counts && has("total_tool_calls", 1) && has("total_resource_reads", 1) {
                break line.to_string();
            }
        }
    };
    let line = within("the line", complete).await;
    for name in ["total_errors", "avg_latency_ms", "requests_per_session"] {
        assert!(line.contains(name), "{line}");
    }
}
