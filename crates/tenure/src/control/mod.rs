//! The control socket: how commands reach the store of a running server.
//!
//! A server with a disk store listens on a unix socket in the store's folder, which only its own user may open. A
//! server whose store is no folder has the socket in the user's runtime folder (`runtime_sockets`). The socket speaks
//! HTTP/1 with JSON, one route for each method of [`Operator`](crate::operator::Operator). A command that finds the
//! store in use asks there instead. Clients never see the socket, and a server that cannot create it serves without it.
//!
//! Read in this order: `server` (the socket), `routes` (the requests), `lines` (answers that take a while), `client`
//! (the command's side), `operations` (each request and its answer), `take_over` (both sides when a process replaces
//! another), `pass_sockets` (sockets that are passed between the two), `runtime_sockets` (servers without a disk store), `missing`
//! (nodes that did not answer).

mod server;
mod routes;
mod lines;
mod client;
mod operations;
mod take_over;
mod pass_sockets;
mod runtime_sockets;
mod missing;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub(crate) use client::ControlClient;
pub(crate) use operations::Operations;
pub(crate) use runtime_sockets::{
    RunningServer, configured_server, node_of, running_servers, runtime_socket,
};
pub(crate) use server::{Control, ControlSocket};
pub(crate) use take_over::{HandOver, KeptConnections, Predecessor};

use crate::failure::Failure;

/// Every path begins with it. It changes when an older command would misunderstand the answers.
const BASE: &str = "/v1";

/// Where the socket of a store is.
pub(crate) fn path(folder: &Path) -> PathBuf {
    folder.join("control.sock")
}

/// A request about a principal.
#[derive(Serialize, Deserialize, Debug)]
struct PrincipalOrder {
    principal: String,
    /// Whether its data sessions end too.
    #[serde(default)]
    data: bool,
}

/// The request for a backup.
#[derive(Serialize, Deserialize, Debug)]
struct BackupOrder {
    /// Absolute: the server may run in another folder than the command.
    to: PathBuf,
}

/// A line about a backup that is under way.
#[derive(Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
enum BackupLine {
    /// Bytes that are copied, of all bytes.
    Progress { done: u64, of: u64 },
    /// It is complete and contains this many of each.
    Complete {
        sessions: u64,
        #[serde(default)]
        data_sessions: u64,
    },
    /// It failed.
    Failed(Failure),
}
