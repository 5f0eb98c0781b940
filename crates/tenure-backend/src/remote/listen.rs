//! What belongs to no request: a stream that stays open, and is opened again when it breaks.
//!
//! A server need not have one, and says so with any refusal that does not pass. Once there was a stream, 404 may mean that
//! the session is gone; then the server is asked.

use std::sync::Arc;
use std::time::Duration;

use tenure_session::message::Message;
use tenure_session::{Method, RawJson};

use super::door::{Answer, may_pass, resume_after};
use super::link::Remote;

const RETRY: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// Listens until the link ends, or the server says that it has no such stream.
pub(super) async fn listen(remote: Arc<Remote>) {
    let (mut last, mut retry, mut pause, mut has_been_open) = (None, RETRY, RETRY, false);
    loop {
        // After an id that cannot be sent, the stream is opened anew.
        let after = last.as_deref().and_then(resume_after);
        let answer = remote.door.get(&remote.visit, after).await;
        remote.opened();
        match answer {
            Ok(Answer::Stream(mut events)) => {
                has_been_open = true;
                while let Some(event) = events.next().await {
                    pause = RETRY;
                    last = event.id.or(last);
                    let Some(data) = event.data else { continue };
                    for message in remote.door.messages(&data) {
                        hear(&remote, message).await;
                    }
                }
                retry = events.retry().unwrap_or(retry);
                tokio::time::sleep(retry).await;
            }
            // Many servers say 404 where they have nothing that answers GET. Should it be the session that is gone, the
            // next POST is told so.
            Ok(Answer::Unknown) if !has_been_open => return,
            Ok(Answer::Unknown) => {
                if remote.is_gone().await {
                    // The next request gets another session; until then there is nothing to hear.
                    remote.forgotten();
                    return;
                }
                // Then it may be the event that is not known any more.
                last = None;
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST);
            }
            // No such stream here.
            Ok(Answer::Refused(status, _)) if !may_pass(status) => return,
            Ok(Answer::Accepted | Answer::Json(_)) => return,
            Ok(Answer::Refused(..)) | Err(_) => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST);
            }
        }
    }
}

async fn hear(remote: &Arc<Remote>, message: Message) {
    match message {
        Message::Notification(told) if told.method == Method::Cancelled => {
            remote.questions.withdrawn(told.params.as_ref());
        }
        Message::Notification(told) => {
            if let Err(error) = remote.outlet.notify(&told.method, told.params.as_ref()).await {
                tracing::debug!(method = %told.method, %error, "could not pass a message on");
            }
        }
        Message::Request(asked) => {
            let outlet = remote.outlet.clone();
            remote.questions.take(asked.id, async move {
                match asked.method {
                    Method::Ping => Ok(RawJson::EMPTY_OBJECT),
                    method => outlet.ask(&method, asked.params.as_ref()).await,
                }
            });
        }
        Message::Response(_) => {}
    }
}
