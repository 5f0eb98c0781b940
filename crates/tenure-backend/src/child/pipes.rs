//! The pipes of a child: lines in, lines out, and the notice that there are no more.
//!
//! What is heard goes to an [`Ear`]: the one session of a child, or all that share it.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tenure_session::message::{Incoming, Message};
use tokio::io::AsyncWriteExt;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::lines::{Line, Lines};
use super::process::Handle;
use crate::overlong;

/// Lines to a child that may wait.
pub(super) const OUT: usize = 64;

/// Bytes that are written at once, about.
const TOGETHER: usize = 64 << 10;

/// How long a child that is gone is listened to, should its output not end with it.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Who hears what a child says.
pub(super) trait Ear: Send + Sync + 'static {
    /// Takes a message. Nothing more is read until it is done.
    fn hear(&self, message: Message) -> impl Future<Output = ()> + Send;
    /// The answer to the request of this number cannot be taken.
    fn answer_is_too_long(&self, number: u64);
    /// The child says nothing more, or takes nothing more. May come twice.
    fn lose(&self);
    /// Whom the child serves, for the log.
    fn label(&self) -> String;
}

/// The tasks that read and write; they end when this is dropped.
pub(super) struct Pipes {
    /// Holds the child's input, which closes when this ends.
    writer: AbortOnDropHandle<()>,
    _reader: AbortOnDropHandle<()>,
}

impl Pipes {
    pub(super) fn start(
        input: ChildStdin,
        output: ChildStdout,
        lines: mpsc::Receiver<Bytes>,
        max_line_bytes: usize,
        handle: &Handle,
        ear: &Arc<impl Ear>,
    ) -> Self {
        let output = Lines::new(output, max_line_bytes);
        #[expect(clippy::disallowed_methods, reason = "held here, and aborted with this")]
        let (writer, reader) = (
            tokio::spawn(write(input, lines, Arc::clone(ear), handle.hang_up())),
            tokio::spawn(read(output, Arc::clone(ear), handle.gone(), handle.hang_up())),
        );
        Self { writer: AbortOnDropHandle::new(writer), _reader: AbortOnDropHandle::new(reader) }
    }

    /// Closes the child's input, which is how it is asked to leave.
    pub(super) fn close_input(&self) {
        self.writer.abort();
    }
}

/// Writes lines until there are no more, or the child does not take them.
async fn write(
    mut to: ChildStdin,
    mut lines: mpsc::Receiver<Bytes>,
    ear: Arc<impl Ear>,
    hang_up: impl FnOnce(),
) {
    loop {
        let Some(first) = lines.recv().await else { return };
        let written = match lines.is_empty() {
            true => to.write_all(&first).await,
            false => {
                let mut together = BytesMut::from(first);
                while together.len() < TOGETHER
                    && let Ok(next) = lines.try_recv()
                {
                    together.extend_from_slice(&next);
                }
                to.write_all(&together).await
            }
        };
        if written.is_err() {
            // Whoever sends from here on knows that it was not taken.
            drop(lines);
            break take_leave(&*ear, hang_up).await;
        }
    }
}

/// The child has closed its input. Mostly it is about to end, which is seen elsewhere when its last answers are read.
async fn take_leave(ear: &impl Ear, hang_up: impl FnOnce()) {
    tokio::time::sleep(LAST_WORDS).await;
    tracing::warn!(session = ear.label(), "the server takes no more messages");
    lose(ear, hang_up);
}

fn lose(ear: &impl Ear, hang_up: impl FnOnce()) {
    // Before the link is closed, so that it does not pass for one that was told to go.
    hang_up();
    ear.lose();
}

/// Reads what the child says until it says no more.
async fn read(
    mut lines: Lines<ChildStdout>,
    ear: Arc<impl Ear>,
    gone_for_good: impl Future<Output = ()>,
    hang_up: impl FnOnce(),
) {
    // A process that it has left behind, out of its group, may keep its output open.
    let last_words = async {
        gone_for_good.await;
        tokio::time::sleep(LAST_WORDS).await;
    };
    tokio::select! {
        () = hear_all(&mut lines, &*ear) => {}
        () = last_words => tracing::warn!(session = ear.label(), "the server has ended, but somebody keeps its output open"),
    }
    lose(&*ear, hang_up);
}

async fn hear_all(lines: &mut Lines<ChildStdout>, ear: &impl Ear) {
    loop {
        match lines.next().await {
            Ok(Some(Line::Whole(text))) if text.iter().all(u8::is_ascii_whitespace) => {}
            Ok(Some(Line::Whole(text))) => hear(&text, ear).await,
            Ok(Some(Line::TooLong(start, end))) => {
                tracing::error!(session = ear.label(), start = %String::from_utf8_lossy(&start), "the server wrote a line that is too long; dropped");
                if let Some(number) = overlong::answers(&start, &end) {
                    ear.answer_is_too_long(number);
                }
            }
            Ok(None) | Err(_) => return,
        }
    }
}

async fn hear(text: &Bytes, ear: &impl Ear) {
    match Incoming::parse(text) {
        Ok(Incoming::One(message)) => ear.hear(message).await,
        Ok(Incoming::Batch(messages)) => {
            for message in messages {
                match Message::parse(message.bytes()) {
                    Ok(message) => ear.hear(message).await,
                    Err(_) => garbage(ear, message.bytes()),
                }
            }
        }
        Err(_) => garbage(ear, text),
    }
}

/// Many servers print what they should log.
fn garbage(ear: &impl Ear, text: &[u8]) {
    let start = String::from_utf8_lossy(&text[..text.len().min(256)]).into_owned();
    tracing::warn!(session = ear.label(), start, "the server wrote something that is not a message");
}
