//! The one who writes to a socket: a text frame for each message, and pings that say how far the client has read.
//!
//! Every client answers a ping, in its turn. So the ping that comes back tells which messages have arrived, and a
//! client that comes back after its connection broke gets the others again.

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
use crate::http::doors::connection::{End, Farewell};

/// How long the last frame may take.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What the one who writes has to do with.
pub(super) struct Writing {
    pub(super) messages: mpsc::Receiver<Outgoing>,
    /// The pings that came back.
    pub(super) pongs: mpsc::Receiver<u64>,
    /// How far the client got before.
    pub(super) cursor: Cursor,
    pub(super) farewell: Farewell,
    pub(super) fault: Arc<OnceLock<CloseCode>>,
    pub(super) keep_alive: Duration,
}

/// The ping that is on its way.
struct Ping {
    number: u64,
    /// How far the client has got when it comes back.
    cursor: Cursor,
    sent: Instant,
}

struct Writer {
    sink: SplitSink<Socket, Message>,
    /// How far was written, and how far is known to have arrived.
    written: Cursor,
    arrived: Cursor,
    number: u64,
    ping: Option<Ping>,
}

/// Writes until all who could send something are gone, or nobody reads. Returns how far the client got.
pub(super) async fn write(sink: SplitSink<Socket, Message>, writing: Writing) -> Cursor {
    let Writing { mut messages, mut pongs, cursor, farewell, fault, keep_alive } = writing;
    let mut writer = Writer { sink, written: cursor.clone(), arrived: cursor, number: 0, ping: None };
    let mut batch = Vec::with_capacity(MAX_WAITING);
    let mut quiet_since = Instant::now();
    let broken = loop {
        let outcome = tokio::select! {
            count = messages.recv_many(&mut batch, MAX_WAITING) => match count {
                0 => break false,
                _ => writer.send(&mut batch).await,
            },
            Some(number) = pongs.recv() => writer.came_back(number).await,
            () = sleep_until(quiet_since + keep_alive) => writer.send_ping().await,
        };
        // Also while it keeps talking: what is not known to have arrived has to be kept in mind.
        if writer.ping.as_ref().is_some_and(|ping| ping.sent.elapsed() >= 2 * keep_alive) {
            tracing::debug!("the client does not answer pings");
            break true;
        }
        quiet_since = Instant::now();
        if let Err(error) = outcome {
            tracing::debug!(%error, "a socket cannot be written");
            break true;
        }
    };
    // Nobody shall wait for room in a queue that nobody empties.
    drop(messages);
    if !broken {
        let close = writer.close(farewell.get(), fault.get().copied());
        drop(tokio::time::timeout(LAST_WORDS, close).await);
    }
    // What came back while we were busy with something else.
    while let Ok(number) = pongs.try_recv() {
        writer.note(number);
    }
    writer.arrived
}

impl Writer {
    async fn send(&mut self, batch: &mut Vec<Outgoing>) -> Result<(), tungstenite::Error> {
        for outgoing in batch.drain(..) {
            self.written.pass(&outgoing);
            if let Outgoing::Begun(_) = outgoing {
                // Where a stream begins for this client is known, whatever arrives.
                self.arrived.pass(&outgoing);
                if let Some(ping) = &mut self.ping {
                    ping.cursor.pass(&outgoing);
                }
            }
            let Outgoing::Message { body, .. } = outgoing else { continue };
            match Utf8Bytes::try_from(body) {
                Ok(text) => self.sink.feed(Message::Text(text)).await?,
                Err(error) => tracing::error!(%error, "a message of ours is no text"),
            }
        }
        self.ask().await
    }

    /// Asks how far the client has read, unless it is being asked.
    async fn ask(&mut self) -> Result<(), tungstenite::Error> {
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

    async fn came_back(&mut self, number: u64) -> Result<(), tungstenite::Error> {
        self.note(number);
        self.ask().await
    }

    fn note(&mut self, number: u64) {
        if let Some(ping) = self.ping.take_if(|ping| ping.number == number) {
            self.arrived = ping.cursor;
        }
    }

    async fn close(&mut self, end: End, fault: Option<CloseCode>) -> Result<(), tungstenite::Error> {
        let (code, reason) = match (end, fault) {
            (_, Some(CloseCode::Size)) => (CloseCode::Size, "the message is too large"),
            (_, Some(fault)) => (fault, "the frame cannot be read"),
            (End::Goodbye | End::Broken, None) => (CloseCode::Normal, ""),
            (End::SessionOver, None) => (CloseCode::Library(4404), "the session is over"),
            (End::Replaced, None) => {
                (CloseCode::Library(4409), "the session goes on over another connection")
            }
            (End::Silent, None) => (CloseCode::Policy, "no session was opened in time"),
            (End::Stopped, None) => (CloseCode::Restart, "the server stops; come back"),
        };
        let frame = CloseFrame { code, reason: Utf8Bytes::from_static(reason) };
        self.sink.send(Message::Close(Some(frame))).await
    }
}
