//! Reads from the wire what rmcp's types leave out: the capabilities as the server wrote them.
//!
//! rmcp parses an `initialize` result into types without a `sessions` capability. So the code that reads the bytes
//! passes them to a tap, and the layer asks the tap.

use std::{
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use serde_json::Value;
use tokio::io::{AsyncRead, ReadBuf};

use crate::dialect::Offers;

/// A longer line is not an `initialize` result; the tap stops there.
const MAX_LINE_BYTES: usize = 1024 * 1024;

/// Keeps the offers of the first `initialize` result. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Tap(Arc<OnceLock<Offers>>);

impl Tap {
    /// Reads one JSON-RPC message.
    pub fn look(&self, message: &[u8]) {
        if self.has_seen() {
            return;
        }
        let Ok(message) = serde_json::from_slice::<Value>(message) else { return };
        let Some(result) = message.get("result") else { return };
        if let (Some(_), Some(capabilities)) = (result.get("protocolVersion"), result.get("capabilities")) {
            // Only the first result counts. If another clone was faster, it has read the same one.
            let _ = self.0.set(Offers::read(capabilities));
        }
    }

    /// Stops reading: there will be no `initialize` result.
    pub(super) fn close(&self) {
        // Offers that were read earlier stay.
        let _ = self.0.set(Offers::default());
    }

    /// Whether an `initialize` result was read, or the tap is closed.
    pub fn has_seen(&self) -> bool {
        self.0.get().is_some()
    }

    pub(super) fn seen(&self) -> Option<Offers> {
        self.0.get().cloned()
    }
}

pin_project! {
    /// Reads lines of JSON and passes them to a tap, until the tap has read an `initialize` result.
    #[derive(Debug)]
    pub struct TapReader<R> {
        #[pin]
        inner: R,
        tap: Tap,
        line: Vec<u8>,
        closed: bool,
    }
}

impl<R> TapReader<R> {
    /// Passes the lines that `inner` reads to `tap`.
    pub fn new(inner: R, tap: Tap) -> Self {
        Self { inner, tap, line: Vec::new(), closed: false }
    }
}

impl<R: AsyncRead> AsyncRead for TapReader<R> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = self.project();
        let before = buffer.filled().len();
        ready!(this.inner.poll_read(context, buffer))?;
        if !*this.closed {
            for piece in buffer.filled()[before..].split_inclusive(|byte| *byte == b'\n') {
                this.line.extend_from_slice(piece);
                if piece.ends_with(b"\n") {
                    this.tap.look(this.line);
                    this.line.clear();
                }
            }
            if this.tap.has_seen() || this.line.len() > MAX_LINE_BYTES {
                *this.closed = true;
                *this.line = Vec::new();
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::{Tap, TapReader};
    use crate::dialect::Dialect;

    const ANSWER: &str = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"sessions":{}},"serverInfo":{"name":"n","version":"1"}}}"#;

    #[tokio::test]
    async fn the_tap_sees_the_handshake_in_whatever_pieces_it_comes() {
        let text = format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}}\nnonsense\n{ANSWER}\nmore\n"
        );
        for size in [1, 7, 64, 4096] {
            let tap = Tap::default();
            let mut reader = TapReader::new(text.as_bytes(), tap.clone());
            let mut read = Vec::new();
            let mut piece = vec![0; size];
            loop {
                let count = reader.read(&mut piece).await.unwrap();
                if count == 0 {
                    break;
                }
                read.extend_from_slice(&piece[..count]);
            }
            assert_eq!(read, text.as_bytes(), "nothing is kept back");
            let offer = tap.seen().unwrap().choose(Dialect::Strawman).unwrap();
            assert_eq!(offer.dialect, Dialect::Draft);
        }
    }

    #[test]
    fn only_an_initialize_result_counts() {
        let tap = Tap::default();
        for other in ["", "{", "[]", r#"{"result":{"capabilities":{"sessions":{}}}}"#, r#"{"result":{}}"#] {
            tap.look(other.as_bytes());
            assert!(!tap.has_seen(), "{other}");
        }
        tap.look(ANSWER.as_bytes());
        assert!(tap.has_seen());
    }
}
