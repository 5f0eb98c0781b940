//! The client side: an HTTP/1.1 connection, the MCP requests it sends, and a reader of events.
//!
//! Written by hand because the client shares the machine with the server under test: what it costs
//! is taken from the server's share of the cores.

mod event_reader;
mod http1;
mod mcp;

pub(crate) use event_reader::{Event, EventReader};
pub(crate) use http1::Connection;
pub(crate) use mcp::{
    Calling, Endpoint, INITIALIZE, INITIALIZED, ToolCall, emit_request, open_data_session, open_session,
    stream_request,
};
