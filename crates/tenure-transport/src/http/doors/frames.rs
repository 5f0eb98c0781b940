//! The writer of a WebSocket: sends a text frame for each message, and pings to find out how far the client has read.
//!
//! A client answers frames in order, so a pong shows that all messages before its ping have arrived. A client that
//! comes back after its connection broke gets the other messages again.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::SinkExt;
use futures_util::stream::SplitSink;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{self, Message, Utf8Bytes};

use super::socket::Socket;
use crate::duplex::{Cursor, MAX_WAITING, Outgoing};
use crate::http::doors::connection::{DoorEnd, EndSignal};

/// How long the last frame may take.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What the writer needs.
pub(super) struct FrameWriterParts {
    pub(super) messages: mpsc::Receiver<Outgoing>,
    /// The numbers of the pongs that came.
    pub(super) pongs: mpsc::Receiver<u64>,
    /// How far the client had got before this connection.
    pub(super) cursor: Cursor,
    pub(super) end_signal: EndSignal,
    pub(super) fault: Arc<OnceLock<CloseCode>>,
    pub(super) keep_alive: Duration,
}

/// The ping that has no pong yet.
struct Ping {
    number: u64,
    /// How far the client has got when the pong comes.
    cursor: Cursor,
    sent: Instant,
}

struct FrameWriter {
    sink: SplitSink<Socket, Message>,
    /// How far messages were written.
    written: Cursor,
    /// How far messages are known to have arrived.
    arrived: Cursor,
    number: u64,
    ping: Option<Ping>,
}

/// Writes until all senders of the queue are dropped, or the client does not read. Returns how far the client got.
pub(super) async fn write(sink: SplitSink<Socket, Message>, parts: FrameWriterParts) -> Cursor {
    let FrameWriterParts { mut messages, mut pongs, cursor, end_signal, fault, keep_alive } = parts;
    let mut writer = FrameWriter { sink, written: cursor.clone(), arrived: cursor, number: 0, ping: None };
    let mut batch = Vec::with_capacity(MAX_WAITING);
    let mut quiet_since = Instant::now();
    let broken = loop {
        let outcome = tokio::select! {
            count = messages.recv_many(&mut batch, MAX_WAITING) => match count {
                0 => break false,
                _ => writer.send(&mut batch).await,
            },
            Some(number) = pongs.recv() => writer.on_pong(number).await,
            () = sleep_until(quiet_since + keep_alive) => writer.send_ping().await,
        };
        // Checked even while the client sends messages, because messages without a pong would all have to be resent.
        if writer.ping.as_ref().is_some_and(|ping| ping.sent.elapsed() >= 2 * keep_alive) {
            tracing::debug!("the client does not answer pings");
            break true;
        }
        quiet_since = Instant::now();
        if let Err(error) = outcome {
            tracing::debug!(%error, "a WebSocket cannot be written");
            break true;
        }
    };
    // The queue is not emptied any more, so its senders must not wait for room.
    drop(messages);
    if !broken {
        let close = writer.close(end_signal.get(), fault.get().copied());
        drop(tokio::time::timeout(LAST_WORDS, close).await);
    }
    // Notes the pongs that came while the loop was busy.
    while let Ok(number) = pongs.try_recv() {
        writer.note(number);
    }
    writer.arrived
}

impl FrameWriter {
    async fn send(&mut self, batch: &mut Vec<Outgoing>) -> Result<(), tungstenite::Error> {
        for outgoing in batch.drain(..) {
            self.written.pass(&outgoing);
            if let Outgoing::Begun(_) = outgoing {
                // The beginning of a stream needs no pong, because it sends nothing to the client.
                self.arrived.pass(&outgoing);
                if let Some(ping) = &mut self.ping {
                    ping.cursor.pass(&outgoing);
                }
            }
            let Outgoing::Message { body, .. } = outgoing else { continue };
            match Utf8Bytes::try_from(body) {
                Ok(text) => self.sink.feed(Message::Text(text)).await?,
                Err(error) => tracing::error!(%error, "a message is not UTF-8; dropped"),
            }
        }
        self.ping_if_behind().await
    }

    /// Sends a ping to find out how far the client has read, unless one is already on its way.
    async fn ping_if_behind(&mut self) -> Result<(), tungstenite::Error> {
        if self.ping.is_none() && self.written != self.arrived {
            return self.send_ping().await;
        }
        self.sink.flush().await
    }

    async fn send_ping(&mut self) -> Result<(), tungstenite::Error> {
        if self.ping.is_none() {
            self.number += 1;
            let (number, cursor) = (self.number, self.written.clone());
            self.ping = Some(Ping { number, cursor, sent: Instant::now() });
            self.sink.feed(Message::Ping(Bytes::copy_from_slice(&number.to_be_bytes()))).await?;
        }
        self.sink.flush().await
    }

    async fn on_pong(&mut self, number: u64) -> Result<(), tungstenite::Error> {
        self.note(number);
        self.ping_if_behind().await
    }

    fn note(&mut self, number: u64) {
        if let Some(ping) = self.ping.take_if(|ping| ping.number == number) {
            self.arrived = ping.cursor;
        }
    }

    async fn close(&mut self, end: DoorEnd, fault: Option<CloseCode>) -> Result<(), tungstenite::Error> {
        let (code, reason) = match (end, fault) {
            (_, Some(CloseCode::Size)) => (CloseCode::Size, "the message is too large"),
            (_, Some(fault)) => (fault, "the frame cannot be read"),
            (DoorEnd::Closed | DoorEnd::Broken, None) => (CloseCode::Normal, ""),
            (DoorEnd::SessionOver, None) => (CloseCode::Library(4404), "the session is over"),
            (DoorEnd::Replaced, None) => {
                (CloseCode::Library(4409), "the session goes on over another connection")
            }
            (DoorEnd::Silent, None) => (CloseCode::Policy, "no session was opened in time"),
            (DoorEnd::Expired, None) => (CloseCode::Library(4401), "the credentials have expired"),
            (DoorEnd::Stopped, None) => (CloseCode::Restart, "the server stops; come back"),
        };
        let frame = CloseFrame { code, reason: Utf8Bytes::from_static(reason) };
        self.sink.send(Message::Close(Some(frame))).await
    }
}
