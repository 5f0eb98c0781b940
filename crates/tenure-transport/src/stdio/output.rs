//! The writer: takes messages from a short queue and writes each on its own line.

use std::borrow::Cow;
use std::io;

use tokio::io::{AsyncWrite, AsyncWriteExt, BufWriter};
use tokio::sync::mpsc;

use crate::duplex::{MAX_WAITING, Outgoing};

/// How many bytes are collected for one write.
const BUFFER_BYTES: usize = 64 << 10;

/// Writes messages until all senders of the queue are dropped.
pub(super) async fn write(output: impl AsyncWrite, mut messages: mpsc::Receiver<Outgoing>) -> io::Result<()> {
    let mut output = std::pin::pin!(BufWriter::with_capacity(BUFFER_BYTES, output));
    let mut batch = Vec::with_capacity(MAX_WAITING);
    while messages.recv_many(&mut batch, MAX_WAITING).await > 0 {
        for outgoing in batch.drain(..) {
            // A client on stdio cannot resume, so only messages matter.
            let Outgoing::Message { body, .. } = outgoing else { continue };
            output.write_all(&one_line(&body)).await?;
            output.write_all(b"\n").await?;
        }
        output.flush().await?;
    }
    Ok(())
}

/// The same JSON without line breaks. Inside strings they are always escaped, so every raw one is white space.
fn one_line(message: &[u8]) -> Cow<'_, [u8]> {
    let breaks = |byte: &u8| matches!(byte, b'\n' | b'\r');
    if !message.iter().any(breaks) {
        return Cow::Borrowed(message);
    }
    message.iter().map(|byte| if breaks(byte) { b' ' } else { *byte }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn every_message_is_one_line() {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let (mut read, write_end) = tokio::io::duplex(8);
        let mut written = String::new();
        let sending = async move {
            for message in ["{}", "{\r\n  \"a\": \"\\n\"\n}", "[1]"] {
                sender.send(Outgoing::plain(Bytes::from_static(message.as_bytes()))).await.unwrap();
            }
        };
        let (_, done, _) =
            tokio::join!(sending, write(write_end, receiver), read.read_to_string(&mut written));
        done.unwrap();
        assert_eq!(written, "{}\n{    \"a\": \"\\n\" }\n[1]\n");
    }

    #[tokio::test]
    async fn a_client_that_is_gone_ends_the_queue() {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let (read, write_end) = tokio::io::duplex(8);
        drop(read);
        sender.send(Outgoing::plain(Bytes::from_static(b"{}"))).await.unwrap();
        assert_eq!(write(write_end, receiver).await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert!(sender.is_closed());
    }
}
