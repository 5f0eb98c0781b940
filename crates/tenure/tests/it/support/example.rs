//! Examples in processes of their own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::wait::within;

/// Starts an example that says its endpoint on its first line.
pub(crate) async fn run(name: &str, listen: &str, store: &Path) -> (Child, SocketAddr) {
    let mut command = Command::new(path(name));
    command.arg("--listen").arg(listen).arg("--store").arg(store);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().expect("it starts");
    let mut out = BufReader::new(child.stdout.take().expect("piped")).lines();
    let url = within("the address", out.next_line()).await.expect("a line").expect("an address");
    let address = url.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/mcp"));
    (child, address.expect("an endpoint").parse().expect("an address"))
}

/// Cargo builds examples with a package's tests, unless it is told to build one of the tests alone.
fn path(name: &str) -> PathBuf {
    let binary = Path::new(env!("CARGO_BIN_EXE_tenure"));
    let example = binary.parent().expect("a folder").join("examples").join(name);
    assert!(example.exists(), "run `cargo build -p tenure --example {name}` first");
    example
}
