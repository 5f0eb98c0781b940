//! `tenure stdio`: serves the client that started it until the client is gone. Standard output carries only MCP.

use std::io::{self, Read};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Failure;
use super::serve::{lost, store_is_lost, to_the_end};
use super::signals::Signals;
use crate::config::Config;
use crate::node::StdioNode;
use crate::wire;

/// The most bytes of one read.
const CHUNK_BYTES: usize = 64 << 10;

/// Chunks in the queue between the thread and the reader.
const MAX_CHUNKS: usize = 2;

/// Serves until standard input ends, standard output fails, or SIGINT or SIGTERM arrives.
pub(super) fn run(config: &Config) -> Result<(), Failure> {
    to_the_end(config, async |config| serve(config).await)
}

async fn serve(config: &Config) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let node = StdioNode::start_own(config).await?;
    let input = Input::open()?;
    tracing::info!(store = wire::store_url(config)?, "serving standard input and output");
    let (stop, store) = (CancellationToken::new(), node.store().clone());
    let mut serving = std::pin::pin!(node.run(input, tokio::io::stdout(), stop.clone()));
    tokio::select! {
        () = &mut serving => tracing::info!("stopped"),
        trouble = lost(&store) => {
            let outcome = store_is_lost(&trouble);
            stop.cancel();
            serving.await;
            return Err(outcome);
        }
        signal = signals.next() => {
            tracing::info!(signal, "stopping");
            stop.cancel();
            tokio::select! {
                () = &mut serving => tracing::info!("stopped"),
                signal = signals.next() => tracing::warn!(signal, "stopped at once, as asked a second time"),
            }
        }
    }
    Ok(())
}

/// Standard input, read by a separate thread. A blocking read cannot be cancelled, so the thread ends with the process;
/// a thread of the runtime would delay the runtime's end.
struct Input {
    chunks: mpsc::Receiver<io::Result<Bytes>>,
    at_hand: Bytes,
}

impl Input {
    fn open() -> Result<Self, Failure> {
        let (sender, chunks) = mpsc::channel(MAX_CHUNKS);
        std::thread::Builder::new()
            .name("stdin".to_owned())
            .spawn(move || read(&sender))
            .map_err(|error| Failure::new("cannot start a thread").caused_by(error))?;
        Ok(Self { chunks, at_hand: Bytes::new() })
    }
}

/// Reads until the input ends or fails, or the receiver is gone.
fn read(chunks: &mpsc::Sender<io::Result<Bytes>>) {
    let mut input = io::stdin().lock();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = match input.read(&mut chunk) {
            Ok(0) => return,
            Ok(length) => Ok(Bytes::copy_from_slice(&chunk[..length])),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let failed = read.is_err();
        if chunks.blocking_send(read).is_err() || failed {
            return;
        }
    }
}

impl AsyncRead for Input {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.at_hand.is_empty() {
            match std::task::ready!(self.chunks.poll_recv(cx)) {
                Some(chunk) => self.at_hand = chunk?,
                None => return Poll::Ready(Ok(())),
            }
        }
        let length = self.at_hand.len().min(buf.remaining());
        buf.put_slice(&self.at_hand[..length]);
        self.at_hand.advance(length);
        Poll::Ready(Ok(()))
    }
}
