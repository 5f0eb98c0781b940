//! The answers of the floors: byte for byte what a real server answers, without the work.

use bytes::Bytes;

/// The header that only requests without a session have.
pub(super) const MODERN: &str = "mcp-method";

const ECHO: &str = r#","result":{"content":[{"type":"text","text":"hello"}],"isError":false}}"#;
const MODERN_ECHO: &str = r#","result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"floor","version":"0.1.0"}},"content":[{"type":"text","text":"hello"}],"isError":false}}"#;
const INITIALIZE: &str = r#","result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"floor","version":"0.1.0"}}}"#;

/// The result of an echo call.
pub(super) fn echo(id: &[u8]) -> Bytes {
    response(id, ECHO)
}

/// The result of one without a session.
pub(super) fn modern_echo(id: &[u8]) -> Bytes {
    response(id, MODERN_ECHO)
}

/// The result of `initialize`.
pub(super) fn initialize(id: &[u8]) -> Bytes {
    response(id, INITIALIZE)
}

fn response(id: &[u8], rest: &str) -> Bytes {
    let mut text = Vec::with_capacity(rest.len() + 32);
    text.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    text.extend_from_slice(id);
    text.extend_from_slice(rest.as_bytes());
    text.into()
}
