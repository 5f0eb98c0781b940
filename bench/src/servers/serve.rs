//! Starts one of the built-in servers: runtime, listener, endpoint line, accept loop.

use std::io::{Read, Write};

use anyhow::{Context, Result};
use axum::serve::ListenerExt;
use tokio::net::TcpListener;

use crate::cli::{ServerArgs, ServerName};
use crate::servers::{floor_axum, floor_hyper, rival_rmcp};

/// Runs a server until the process is killed.
pub(crate) fn run(args: &ServerArgs) -> Result<()> {
    if args.until_stdin_closes {
        exit_with_stdin();
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(serve(args))
}

async fn serve(args: &ServerArgs) -> Result<()> {
    let listener =
        TcpListener::bind(args.listen).await.with_context(|| format!("listen on `{}`", args.listen))?;
    let address = listener.local_addr().context("read the address")?;
    writeln!(std::io::stdout(), "http://{address}/mcp").context("print the endpoint")?;
    let router = match args.name {
        ServerName::Hyper => return floor_hyper::serve(listener).await,
        ServerName::Axum => floor_axum::router(),
        ServerName::Rmcp => rival_rmcp::router(args.keep_events),
    };
    // Without this, Nagle's algorithm holds back the second part of a streamed answer.
    let listener = listener.tap_io(|stream| {
        stream.set_nodelay(true).expect("a fresh socket takes options");
    });
    axum::serve(listener, router).await.context("serve")
}

/// Ends this process when the other end of stdin is gone: even a harness that is killed outright
/// leaves no server behind.
pub(crate) fn exit_with_stdin() {
    std::thread::spawn(|| {
        let mut bytes = [0; 64];
        while std::io::stdin().read(&mut bytes).is_ok_and(|count| count > 0) {}
        std::process::exit(0);
    });
}
