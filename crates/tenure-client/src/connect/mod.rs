//! Connects to a server through the layer. Out: rmcp's client, ready for use, and the handle to its sessions.

mod client;
mod rounds;

#[cfg(feature = "command")]
mod command;
#[cfg(feature = "http")]
mod http;

pub use client::ConnectedClient;
#[cfg(feature = "command")]
pub use command::{ServerCommand, ServerProcess, connect_command, connect_command_with};
#[cfg(feature = "http")]
pub use http::{HttpOptions, TapClient, connect_http, connect_http_with};
