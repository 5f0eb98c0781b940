//! The tasks that read and write a child's pipes, line by line.
//!
//! In: messages for the child. Out: its messages to a [`MessageSink`], which is the child's one session or all sessions
//! that share it. The sink gets everything that the child wrote before the child counts as lost, even if the child has
//! long ended by then: its output stays in the pipe, and the sink may be slow.

use std::future::poll_fn;
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use memchr::memchr2;
use tenure_protocol::{Incoming, Message};
use tokio::io::{AsyncRead, AsyncWriteExt};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use super::lines::{BoundedLine, BoundedLines};
use super::process::Handle;
use crate::oversize;

/// Capacity of the queue of messages to a child.
pub(super) const OUT: usize = 64;

/// About how many bytes are written at once.
const TOGETHER: usize = 64 << 10;

/// How long a child that has closed its input may go on answering.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// How long the sink may take for the rest of the output of a child that has ended. Only a stuck log takes so long.
const HEARING: Duration = Duration::from_secs(30);

/// Receives the messages of a child.
pub(super) trait MessageSink: Send + Sync + 'static {
    /// Takes a message. The reader reads no further until this is done.
    fn hear(&self, message: Message) -> impl Future<Output = ()> + Send;
    /// The answer to the request of this number was too long and is dropped.
    fn answer_is_too_long(&self, number: u64);
    /// The child has ended, or takes no more messages. The sink has had all of its output.
    fn lose(&self);
    /// The session that the child serves, for the log.
    fn label(&self) -> String;
}

/// The reader task and the writer task; dropping this ends both.
pub(super) struct Pipes {
    /// Holds the child's input, which closes when this task ends.
    writer: AbortOnDropHandle<()>,
    _reader: AbortOnDropHandle<()>,
}

impl Pipes {
    pub(super) fn start(
        input: ChildStdin,
        output: ChildStdout,
        messages: mpsc::Receiver<Bytes>,
        max_line_bytes: usize,
        handle: &Handle,
        sink: &Arc<impl MessageSink>,
    ) -> Self {
        let (output, (tell_input_closed, input_closed)) =
            (BoundedLines::new(output, max_line_bytes), oneshot::channel());
        #[expect(clippy::disallowed_methods, reason = "held here, and aborted with this")]
        let (writer, reader) = (
            tokio::spawn(write(input, messages, tell_input_closed)),
            tokio::spawn(read(
                output,
                Arc::clone(sink),
                output_end(handle.gone(), input_closed),
                handle.hang_up(),
            )),
        );
        Self { writer: AbortOnDropHandle::new(writer), _reader: AbortOnDropHandle::new(reader) }
    }

    /// Closes the child's input, which asks the child to end.
    pub(super) fn close_input(&self) {
        self.writer.abort();
    }
}

/// Writes messages until the queue is closed, or the child has closed its input. Messages that wait are written
/// together.
async fn write(
    mut to: ChildStdin,
    mut messages: mpsc::Receiver<Bytes>,
    tell_input_closed: oneshot::Sender<()>,
) {
    while let Some(first) = messages.recv().await {
        // Not kept for the next message: many children are idle.
        let mut lines = Vec::with_capacity(first.len() + 1);
        push_line(&mut lines, &first);
        // A write to a child that does not read can take long; one copy is enough for that time.
        drop(first);
        while lines.len() < TOGETHER
            && let Ok(next) = messages.try_recv()
        {
            push_line(&mut lines, &next);
        }
        if to.write_all(&lines).await.is_err() {
            // Close the queue first, so that later senders know that their message was not taken.
            drop(messages);
            // Fails only if the reader has ended, and then it has reported the child as lost.
            let _ = tell_input_closed.send(());
            return;
        }
    }
}

/// Adds a message as one line. Line breaks become spaces: in valid JSON they stand only between tokens.
fn push_line(lines: &mut Vec<u8>, mut message: &[u8]) {
    while let Some(at) = memchr2(b'\n', b'\r', message) {
        lines.extend_from_slice(&message[..at]);
        lines.push(b' ');
        message = &message[at + 1..];
    }
    lines.extend_from_slice(message);
    lines.push(b'\n');
}

/// Why the reader stops although the child's output is open.
enum OutputEnd {
    /// The child has ended. A process that it left behind, outside of its group, may keep its output open.
    Gone,
    /// The child has closed its input. Usually it is about to end, but it may also live on and be useless.
    InputClosed,
}

/// Resolves when the reader should read only what is in the pipe by then.
async fn output_end(gone: impl Future<Output = ()>, input_closed: oneshot::Receiver<()>) -> OutputEnd {
    let last_words = async {
        match input_closed.await {
            Ok(()) => tokio::time::sleep(LAST_WORDS).await,
            // We closed the input.
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = gone => OutputEnd::Gone,
        () = last_words => OutputEnd::InputClosed,
    }
}

/// Reads the child's output to its end, and then reports the child as lost.
async fn read<R: AsyncRead + AsFd + Unpin>(
    mut lines: BoundedLines<R>,
    sink: Arc<impl MessageSink>,
    end: impl Future<Output = OutputEnd>,
    hang_up: impl FnOnce(),
) {
    let is_over = OnceLock::new();
    let too_late = async {
        let _ = is_over.set(end.await);
        tokio::time::sleep(HEARING).await;
    };
    tokio::select! {
        // In this order, so that `hear_all` sees `is_over` in the same poll.
        biased;
        () = too_late => tracing::error!(
            session = sink.label(),
            "the session took too long to take the server's last messages; the rest is dropped"
        ),
        () = hear_all(&mut lines, &*sink, &is_over) => {}
    }
    // Before `lose` closes the link: otherwise the child would count as told to end.
    hang_up();
    sink.lose();
}

async fn hear_all<R: AsyncRead + AsFd + Unpin>(
    lines: &mut BoundedLines<R>,
    sink: &impl MessageSink,
    is_over: &OnceLock<OutputEnd>,
) {
    let why = loop {
        // Check before each line: a process that was left behind may write for ever.
        if let Some(why) = is_over.get() {
            break why;
        }
        let mut next = std::pin::pin!(lines.next());
        let line = poll_fn(|context| match next.as_mut().poll(context) {
            Poll::Pending if is_over.get().is_some() => Poll::Ready(None),
            line => line.map(Some),
        });
        match line.await {
            Some(Ok(Some(line))) => hear_line(&line, sink).await,
            Some(Ok(None) | Err(_)) => return,
            None => {}
        }
    };
    lines.end_with_pipe_content();
    while let Ok(Some(line)) = lines.next().await {
        hear_line(&line, sink).await;
    }
    match why {
        OutputEnd::InputClosed => tracing::warn!(session = sink.label(), "the server takes no more messages"),
        OutputEnd::Gone if lines.is_at_end() => {}
        OutputEnd::Gone => {
            tracing::warn!(
                session = sink.label(),
                "the server has ended, but another process keeps its output open"
            );
        }
    }
}

async fn hear_line(line: &BoundedLine, sink: &impl MessageSink) {
    match line {
        BoundedLine::Whole(text) if text.iter().all(u8::is_ascii_whitespace) => {}
        BoundedLine::Whole(text) => hear(text, sink).await,
        BoundedLine::TooLong(start, end) => {
            tracing::error!(
                session = sink.label(), start = %String::from_utf8_lossy(start),
                "the server wrote a line that is too long; dropped"
            );
            if let Some(number) = oversize::answers(start, end) {
                sink.answer_is_too_long(number);
            }
        }
    }
}

async fn hear(text: &Bytes, sink: &impl MessageSink) {
    match Incoming::parse(text) {
        Ok(Incoming::One(message)) => sink.hear(message).await,
        Ok(Incoming::Batch(messages)) => {
            for message in messages {
                match Message::parse(message.bytes()) {
                    Ok(message) => sink.hear(message).await,
                    Err(_) => garbage(sink, message.bytes()),
                }
            }
        }
        Err(_) => garbage(sink, text),
    }
}

/// Many servers print to stdout what they should write to stderr.
fn garbage(sink: &impl MessageSink, text: &[u8]) {
    let start = String::from_utf8_lossy(&text[..text.len().min(256)]).into_owned();
    tracing::warn!(session = sink.label(), start, "the server wrote something that is not a message");
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, PipeWriter, Write, pipe};
    use std::sync::atomic::{AtomicBool, Ordering};

    use parking_lot::Mutex;
    use tokio::net::unix::pipe::Receiver;

    use super::*;

    /// Records the messages that it gets.
    struct Heard {
        methods: Mutex<Vec<String>>,
        too_long: Mutex<Vec<u64>>,
        is_lost: AtomicBool,
        /// Simulates a process that was left behind: writes to the same pipe after each message.
        left_behind: Option<PipeWriter>,
        /// `hear` never returns.
        is_stuck: bool,
    }

    impl MessageSink for Heard {
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

    /// A pipe that contains these bytes. They have to fit into its buffer.
    fn written(said: &[u8]) -> (PipeReader, PipeWriter) {
        let (from, mut to) = pipe().unwrap();
        to.write_all(said).unwrap();
        (from, to)
    }

    fn quiet() -> Heard {
        let (methods, too_long, is_lost) = Default::default();
        Heard { methods, too_long, is_lost, left_behind: None, is_stuck: false }
    }

    /// Reads the output of a child that has ended.
    async fn hear(from: PipeReader, heard: Heard) -> Heard {
        hear_until(from, heard, |_| true).await
    }

    /// Reads the output of a child that ends as soon as this holds.
    async fn hear_until(from: PipeReader, heard: Heard, is_gone: impl Fn(&Heard) -> bool) -> Heard {
        let (from, heard) = (Receiver::from_owned_fd(from.into()).unwrap(), Arc::new(heard));
        let gone = poll_fn(|_| if is_gone(&heard) { Poll::Ready(OutputEnd::Gone) } else { Poll::Pending });
        let reading = read(BoundedLines::new(from, 100), Arc::clone(&heard), gone, || {});
        tokio::time::timeout(2 * HEARING, reading).await.expect("it ends");
        let heard = Arc::into_inner(heard).unwrap();
        assert!(heard.is_lost.load(Ordering::Relaxed));
        heard
    }

    #[test]
    fn a_message_is_one_line() {
        let mut lines = Vec::new();
        for message in [&b"{}"[..], b"{\r\n\"a\":\n1}\n", b""] {
            push_line(&mut lines, message);
        }
        assert_eq!(lines, b"{}\n{  \"a\": 1} \n\n");
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

    /// Both live on: one process only holds the pipe, the other writes to it.
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

        // The pipe is never empty when the child ends.
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
