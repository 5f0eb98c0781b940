//! The pipes of a child: lines in, lines out, and the notice that there are no more.
//!
//! Messages go to an [`Ear`]: the one session of a child, or all that share it. The ear hears everything that a child wrote
//! before the child counts as lost, also if it is long gone by then: its output stays in the pipe, and the ear may be slow.

use std::future::poll_fn;
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tenure_protocol::{Incoming, Message};
use tokio::io::{AsyncRead, AsyncWriteExt};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use super::lines::{Line, Lines};
use super::process::Handle;
use crate::oversize;

/// Lines to a child that may wait.
pub(super) const OUT: usize = 64;

/// Bytes that are written at once, about.
const TOGETHER: usize = 64 << 10;

/// How long a child that takes no more messages may go on answering.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// How long it may take until all is heard that a child wrote before it was over. Only a log that is stuck takes so long.
const HEARING: Duration = Duration::from_secs(30);

/// Who hears what a child says.
pub(super) trait Ear: Send + Sync + 'static {
    /// Takes a message. Nothing more is read until it is done.
    fn hear(&self, message: Message) -> impl Future<Output = ()> + Send;
    /// The answer to the request of this number cannot be taken.
    fn answer_is_too_long(&self, number: u64);
    /// The child says nothing more, or takes nothing more. All that it wrote was heard.
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
        let (output, (tell_deaf, deaf)) = (Lines::new(output, max_line_bytes), oneshot::channel());
        #[expect(clippy::disallowed_methods, reason = "held here, and aborted with this")]
        let (writer, reader) = (
            tokio::spawn(write(input, lines, tell_deaf)),
            tokio::spawn(read(output, Arc::clone(ear), over(handle.gone(), deaf), handle.hang_up())),
        );
        Self { writer: AbortOnDropHandle::new(writer), _reader: AbortOnDropHandle::new(reader) }
    }

    /// Closes the child's input, which is how it is asked to leave.
    pub(super) fn close_input(&self) {
        self.writer.abort();
    }
}

/// Writes lines until there are no more, or the child does not take them.
async fn write(mut to: ChildStdin, mut lines: mpsc::Receiver<Bytes>, tell_deaf: oneshot::Sender<()>) {
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
            // Fails only if the reader has ended, which has then said that the child is lost.
            let _ = tell_deaf.send(());
            return;
        }
    }
}

/// Why a child is not listened to any longer, though its output is open.
enum Over {
    /// It is gone. A process that it has left behind, out of its group, may keep its output open.
    Gone,
    /// It has closed its input. Mostly it is about to end, but it may also stay and be of no use.
    Deaf,
}

/// Resolves when all is written that will be heard.
async fn over(gone: impl Future<Output = ()>, deaf: oneshot::Receiver<()>) -> Over {
    let last_words = async {
        match deaf.await {
            Ok(()) => tokio::time::sleep(LAST_WORDS).await,
            // Its input was closed by us.
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = gone => Over::Gone,
        () = last_words => Over::Deaf,
    }
}

/// Reads what the child says until it says no more.
async fn read<R: AsyncRead + AsFd + Unpin>(
    mut lines: Lines<R>,
    ear: Arc<impl Ear>,
    over: impl Future<Output = Over>,
    hang_up: impl FnOnce(),
) {
    let is_over = OnceLock::new();
    let too_late = async {
        let _ = is_over.set(over.await);
        tokio::time::sleep(HEARING).await;
    };
    tokio::select! {
        // In this order, so that `hear_all` sees in the same poll that it is over.
        biased;
        () = too_late => tracing::error!(
            session = ear.label(),
            "the session took too long to hear the server's last messages; the rest is dropped"
        ),
        () = hear_all(&mut lines, &*ear, &is_over) => {}
    }
    // Before the link is closed, so that it does not pass for one that was told to go.
    hang_up();
    ear.lose();
}

async fn hear_all<R: AsyncRead + AsFd + Unpin>(
    lines: &mut Lines<R>,
    ear: &impl Ear,
    is_over: &OnceLock<Over>,
) {
    let why = loop {
        // Looked at before each line: a process that was left behind may go on writing for ever.
        if let Some(why) = is_over.get() {
            break why;
        }
        let mut next = std::pin::pin!(lines.next());
        let line = poll_fn(|context| match next.as_mut().poll(context) {
            Poll::Pending if is_over.get().is_some() => Poll::Ready(None),
            line => line.map(Some),
        });
        match line.await {
            Some(Ok(Some(line))) => hear_line(&line, ear).await,
            Some(Ok(None) | Err(_)) => return,
            None => {}
        }
    };
    lines.end_with_pipe_content();
    while let Ok(Some(line)) = lines.next().await {
        hear_line(&line, ear).await;
    }
    match why {
        Over::Deaf => tracing::warn!(session = ear.label(), "the server takes no more messages"),
        Over::Gone if lines.is_at_end() => {}
        Over::Gone => {
            tracing::warn!(
                session = ear.label(),
                "the server has ended, but another process keeps its output open"
            );
        }
    }
}

async fn hear_line(line: &Line, ear: &impl Ear) {
    match line {
        Line::Whole(text) if text.iter().all(u8::is_ascii_whitespace) => {}
        Line::Whole(text) => hear(text, ear).await,
        Line::TooLong(start, end) => {
            tracing::error!(session = ear.label(), start = %String::from_utf8_lossy(start), "the server wrote a line that is too long; dropped");
            if let Some(number) = oversize::answers(start, end) {
                ear.answer_is_too_long(number);
            }
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

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, PipeWriter, Write, pipe};
    use std::sync::atomic::{AtomicBool, Ordering};

    use parking_lot::Mutex;
    use tokio::net::unix::pipe::Receiver;

    use super::*;

    /// Takes down what it hears.
    struct Heard {
        methods: Mutex<Vec<String>>,
        too_long: Mutex<Vec<u64>>,
        is_lost: AtomicBool,
        /// A process that was left behind writes this to the same pipe whenever something is heard.
        left_behind: Option<PipeWriter>,
        /// Never done with anything.
        is_stuck: bool,
    }

    impl Ear for Heard {
        async fn hear(&self, message: Message) {
            let Message::Notification(told) = message else { panic!("{message:?}") };
            assert!(!self.is_lost.load(Ordering::Relaxed));
            self.methods.lock().push(told.method.to_string());
            if let Some(mut pipe) = self.left_behind.as_ref() {
                pipe.write_all(&line("left_behind")).unwrap();
            }
            if self.is_stuck {
                std::future::pending::<()>().await;
            }
        }

        fn answer_is_too_long(&self, number: u64) {
            self.too_long.lock().push(number);
        }

        fn lose(&self) {
            self.is_lost.store(true, Ordering::Relaxed);
        }

        fn label(&self) -> String {
            String::new()
        }
    }

    fn line(method: &str) -> Vec<u8> {
        format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\"}}\n").into_bytes()
    }

    /// A pipe with this in it, which has to fit.
    fn written(said: &[u8]) -> (PipeReader, PipeWriter) {
        let (from, mut to) = pipe().unwrap();
        to.write_all(said).unwrap();
        (from, to)
    }

    fn quiet() -> Heard {
        let (methods, too_long, is_lost) = Default::default();
        Heard { methods, too_long, is_lost, left_behind: None, is_stuck: false }
    }

    /// Hears a child that is gone.
    async fn hear(from: PipeReader, heard: Heard) -> Heard {
        hear_until(from, heard, |_| true).await
    }

    /// Hears a child that is gone as soon as this holds.
    async fn hear_until(from: PipeReader, heard: Heard, is_gone: impl Fn(&Heard) -> bool) -> Heard {
        let (from, heard) = (Receiver::from_owned_fd(from.into()).unwrap(), Arc::new(heard));
        let gone = poll_fn(|_| if is_gone(&heard) { Poll::Ready(Over::Gone) } else { Poll::Pending });
        let reading = read(Lines::new(from, 100), Arc::clone(&heard), gone, || {});
        tokio::time::timeout(2 * HEARING, reading).await.expect("it ends");
        let heard = Arc::into_inner(heard).unwrap();
        assert!(heard.is_lost.load(Ordering::Relaxed));
        heard
    }

    #[tokio::test]
    async fn all_that_a_child_wrote_is_heard_when_it_is_gone() {
        let said =
            [line("one"), line("two"), b"{\"jsonrpc\":\"2.0\",\"method\":\"three\"}".to_vec()].concat();
        let heard = hear(written(&said).0, quiet()).await;
        assert_eq!(*heard.methods.lock(), ["one", "two", "three"]);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_told_of_when_the_child_is_gone() {
        let long = format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":\"{}\"}}\n", "x".repeat(20_000));
        for cut in [0, 1, 1000] {
            let said = [&line("one")[..], &long.as_bytes()[..long.len() - cut]].concat();
            let heard = hear(written(&said).0, quiet()).await;
            assert_eq!(
                (&heard.methods.lock()[..], &heard.too_long.lock()[..]),
                (&["one".to_owned()][..], &[7][..])
            );
        }
    }

    /// Both go on without end: one that holds the pipe, and one that writes to it.
    #[tokio::test]
    async fn a_process_that_was_left_behind_is_not_listened_to() {
        let (from, to) = written(&[line("one"), line("two")].concat());
        let began = tokio::time::Instant::now();
        let silent = hear(from, quiet()).await;
        assert_eq!(*silent.methods.lock(), ["one", "two"]);
        assert!(began.elapsed() < HEARING, "it is not waited for");
        drop(to);

        let (from, to) = written(&[line("one"), line("two")].concat());
        let chatty = hear(from, Heard { left_behind: Some(to), ..quiet() }).await;
        assert_eq!(*chatty.methods.lock(), ["one", "two"]);

        // There is always something to read when the child goes.
        let (from, to) = written(&line("one"));
        let chatty = Heard { left_behind: Some(to), ..quiet() };
        let heard = hear_until(from, chatty, |heard| heard.methods.lock().len() >= 10).await;
        assert!(heard.methods.lock().len() < 1000, "{}", heard.methods.lock().len());
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_hears_nothing_more_is_not_waited_for_without_end() {
        let (from, _to) = written(&[line("one"), line("two")].concat());
        let stuck = hear(from, Heard { is_stuck: true, ..quiet() }).await;
        assert_eq!(*stuck.methods.lock(), ["one"]);
    }
}
