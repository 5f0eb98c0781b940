//! The control socket: how commands reach the store of a running server.
//!
//! A server on a disk store listens on a unix socket in the store's folder, which only its own user may open; one that
//! keeps its sessions in memory has it in the user's folder for what runs (`memory`). It speaks HTTP/1 with JSON: what [`Operator`](crate::operator::Operator) does, one route each. A command that finds
//! the store in use asks there instead. The socket is no part of what clients see, and a server that cannot make
//! it serves all the same.
//!
//! Read in this order: `server` (the socket), `routes` (what can be asked), `lines` (answers that take a while),
//! `client` (who asks), `data` (both ends of what is about data sessions), `take_over` (both ends of how a process
//! follows another), `passing` (sockets on their way from one to the other).

mod client;
mod data;
mod lines;
mod memory;
mod passing;
mod routes;
mod server;
mod take_over;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub(crate) use client::Client;
pub(crate) use memory::{memory_servers, memory_socket};
pub(crate) use server::Control;
pub(crate) use take_over::{HandOver, KeptConnections, Predecessor};

use crate::failure::Failure;

/// Every path begins with it. It changes when an older command would misunderstand the answers.
const BASE: &str = "/v1";

/// Where the socket of a store is.
pub(crate) fn path(folder: &Path) -> PathBuf {
    folder.join("control.sock")
}

/// What a backup is asked for.
#[derive(Serialize, Deserialize, Debug)]
struct BackupOrder {
    /// Absolute: the server may run in another folder than the command.
    to: PathBuf,
}

/// A line about a backup that is under way.
#[derive(Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
enum BackupLine {
    /// So many bytes of so many.
    Progress { done: u64, of: u64 },
    /// It is complete, with so many of each.
    Complete {
        sessions: u64,
        #[serde(default)]
        data_sessions: u64,
    },
    /// It failed.
    Failed(Failure),
}
