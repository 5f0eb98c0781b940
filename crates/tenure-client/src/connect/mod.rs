//! Connections with the layer in place: a ready client of rmcp, and the handle to its sessions.

mod client;
mod rounds;

#[cfg(feature = "command")]
mod command;
#[cfg(feature = "http")]
mod http;

pub use client::Client;
#[cfg(feature = "command")]
pub use command::{Child, Command, connect_command, connect_command_with};
#[cfg(feature = "http")]
pub use http::{Http, TapClient, connect_http, connect_http_with};
