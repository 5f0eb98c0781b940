//! The listen stream: it stays open for messages that belong to no request, and is reopened when it breaks.
//!
//! A server need not have one, and says so with any permanent refusal. Once the stream has been open, a 404 may mean
//! that the session is lost, so we ask the server with a ping. Streams without events are reopened with back-off.

use std::sync::Arc;
use std::time::Duration;

use tenure_protocol::{Message, Method};
use tokio::time::Instant;

use super::link::Remote;
use crate::backoff::{Backoff, jitter};
use crate::remote::http_client::{HttpAnswer, may_pass, resume_after};

/// The pause after a good stream, unless the server sets one, and after the first failure.
const RETRY: Duration = Duration::from_secs(1);
/// The longest pause after failures.
const LONGEST: Duration = Duration::from_secs(30);
/// A stream that stayed open this long was good, even without events.
const STEADY: Duration = Duration::from_secs(5);

/// Listens until the link ends, or the server says that it has no such stream.
pub(super) async fn listen(remote: Arc<Remote>) {
    let (mut last, mut pauses, mut has_been_open) = (None, Pauses::new(), false);
    loop {
        // If the last id cannot be a header, a new stream is opened instead.
        let after = last.as_deref().and_then(resume_after);
        let answer = remote.http.get(&remote.session, after).await;
        remote.opened();
        let pause = match answer {
            Ok(HttpAnswer::Stream(mut events)) => {
                has_been_open = true;
                let (began, mut has_come) = (Instant::now(), false);
                while let Some(event) = events.next().await {
                    has_come = true;
                    last = event.id.or(last);
                    let Some(data) = event.data else { continue };
                    for message in remote.http.messages(&data) {
                        hear(&remote, message).await;
                    }
                }
                pauses.retry = events.retry().or(pauses.retry);
                match has_come || began.elapsed() >= STEADY {
                    true => pauses.after_success(),
                    false => pauses.after_failure(),
                }
            }
            // Many servers answer 404 if they do not support GET. If the session is lost instead, the next POST will
            // show it.
            Ok(HttpAnswer::Unknown) if !has_been_open => return,
            Ok(HttpAnswer::Unknown) => {
                if remote.is_gone().await {
                    // The next request opens another session; until then there is no stream.
                    remote.forgotten();
                    return;
                }
                // The server may have forgotten the event id, so open a new stream.
                last = None;
                pauses.after_failure()
            }
            // The server has no listen stream.
            Ok(HttpAnswer::Refused(status, _)) if !may_pass(status) => return,
            Ok(HttpAnswer::Unauthorized(_)) if !remote.http.renews_credentials() => return,
            Ok(HttpAnswer::Accepted | HttpAnswer::Json(_)) => return,
            Ok(HttpAnswer::Refused(..) | HttpAnswer::Unauthorized(_)) | Err(_) => pauses.after_failure(),
        };
        tokio::time::sleep(pause).await;
    }
}

/// How long to wait before the stream is opened again.
struct Pauses {
    /// Since the stream was good.
    failures: Backoff,
    /// The pause that the server has asked for.
    retry: Option<Duration>,
}

impl Pauses {
    fn new() -> Self {
        Self { failures: Backoff::new(RETRY, LONGEST), retry: None }
    }

    fn after_success(&mut self) -> Duration {
        self.failures.reset();
        self.retry.unwrap_or_else(|| jitter(RETRY))
    }

    fn after_failure(&mut self) -> Duration {
        self.failures.failed().max(self.retry.unwrap_or_default())
    }
}

async fn hear(remote: &Arc<Remote>, message: Message) {
    match message {
        Message::Notification(told) if told.method == Method::Cancelled => {
            remote.questions.withdrawn(told.params.as_ref());
        }
        Message::Notification(told) => {
            if let Err(error) = remote.outlet.notify(&told.method, told.params.as_ref()).await {
                tracing::debug!(method = %told.method, %error, "could not pass on a message");
            }
        }
        Message::Request(asked) => {
            let outlet = remote.outlet.clone();
            remote
                .questions
                .take(asked, |method, params| async move { outlet.ask(&method, params.as_ref()).await });
        }
        Message::Response(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_says_how_long_to_wait_after_a_good_stream_and_at_least_after_a_bad_one() {
        let short = Duration::from_millis(100);
        let mut pauses = Pauses { retry: Some(short), ..Pauses::new() };
        assert_eq!(pauses.after_success(), short);
        assert!(pauses.after_failure() >= RETRY / 2);
        pauses.retry = Some(Duration::from_secs(45));
        assert_eq!(
            (pauses.after_success(), pauses.after_failure()),
            (Duration::from_secs(45), Duration::from_secs(45))
        );
    }
}
