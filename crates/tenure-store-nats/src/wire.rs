//! One request to the engine and its answer, with a deadline; no meaning beyond that.
//!
//! Owns the parts of the engine's interface that more than one file needs: acknowledgements, refusals, messages that
//! the leader reads. Nothing is sent while there is no connection: the client would keep it and send it later, when
//! the caller has long given up.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use async_nats::client::RequestErrorKind;
use async_nats::{Client, HeaderMap, Message, Request, Subject};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use tenure_session::port::store::StoreError;
use tokio::time::{Instant, timeout, timeout_at};

use crate::health::Health;
use crate::names::Shard;

/// How long one try waits for its answer.
const TRY: Duration = Duration::from_secs(2);
/// The pauses between tries, which grow from the first to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(15), Duration::from_millis(250));

/// The engine's codes that this crate acts on.
pub(crate) mod code {
    pub(crate) const NO_SYSTEM: u64 = 10008;
    pub(crate) const NOT_ENABLED: u64 = 10076;
    pub(crate) const NOT_ENABLED_FOR_ACCOUNT: u64 = 10039;
    pub(crate) const NO_MESSAGE: u64 = 10037;
    pub(crate) const NO_STREAM: u64 = 10059;
    pub(crate) const WRONG_SEQUENCE: u64 = 10071;
    pub(crate) const WRONG_SEQUENCE_CONSTANT: u64 = 10164;
    pub(crate) const NOT_CLUSTERED: u64 = 10074;
    pub(crate) const NO_PEERS: u64 = 10005;
    pub(crate) const NO_RESOURCES: u64 = 10023;
    pub(crate) const NO_STORAGE: u64 = 10047;
    pub(crate) const TOO_LARGE: u64 = 10054;
    pub(crate) const STORE_FAILED: u64 = 10077;
    pub(crate) const ID_IN_PROCESS: u64 = 10158;
}

/// Why one try failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// Nothing happened, and another try may work: no connection, no leader, too much to do.
    NotNow,
    /// No answer came; the request may have been executed, or may still be.
    NoAnswer,
    /// The engine refused; nothing happened.
    Refused(Refusal),
    /// Larger than the engine takes; nothing happened.
    TooLarge,
    /// The store must not be used.
    Closed(StoreError),
}

/// A refusal of the engine.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub(crate) struct Refusal {
    #[serde(default)]
    pub(crate) code: u16,
    #[serde(default)]
    pub(crate) err_code: u64,
    #[serde(default)]
    pub(crate) description: String,
}

impl Refusal {
    fn fault(self) -> Fault {
        match self.err_code {
            // The subject is in the middle of another write, or there is too much to do.
            code::WRONG_SEQUENCE_CONSTANT | code::NO_SYSTEM => Fault::NotNow,
            // An earlier try of the same write is under way: its outcome is not known yet.
            code::ID_IN_PROCESS => Fault::NoAnswer,
            code::TOO_LARGE => Fault::TooLarge,
            _ if self.code == 429 => Fault::NotNow,
            _ => Fault::Refused(self),
        }
    }
}

/// The answer to a message that was published.
#[derive(Deserialize)]
struct PublishAnswer {
    error: Option<Refusal>,
    #[serde(default)]
    seq: u64,
}

/// A message that the leader read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Kept {
    pub(crate) sequence: u64,
    /// The id that its writer gave it, if any.
    pub(crate) id: Option<String>,
    pub(crate) payload: Bytes,
}

#[derive(Deserialize)]
struct GetAnswer<'a> {
    error: Option<Refusal>,
    #[serde(borrow)]
    message: Option<GetMessage<'a>>,
}

#[derive(Deserialize)]
struct GetMessage<'a> {
    seq: u64,
    #[serde(borrow, default)]
    hdrs: Cow<'a, str>,
    #[serde(borrow, default)]
    data: Cow<'a, str>,
}

/// Any other answer of the engine's interface.
#[derive(Deserialize)]
struct Answer<T> {
    error: Option<Refusal>,
    #[serde(flatten)]
    body: Option<T>,
}

/// Which message of a stream.
pub(crate) enum Which<'a> {
    /// The last one of a subject.
    Last(&'a str),
    /// The first one of a subject, at this sequence or later.
    Next(&'a str, u64),
}

/// The connection, as operations use it.
pub(crate) struct Wire {
    pub(crate) client: Client,
    pub(crate) health: Arc<Health>,
    /// How long an operation takes at most, with all its tries.
    operation: Duration,
}

impl Wire {
    pub(crate) fn new(client: Client, health: Arc<Health>, operation: Duration) -> Self {
        Self { client, health, operation }
    }

    /// The tries of one operation.
    pub(crate) fn tries(&self) -> Tries {
        Tries::until(Instant::now() + self.operation)
    }

    /// The tries of an operation that must not take longer than this.
    pub(crate) fn tries_within(&self, within: Duration) -> Tries {
        Tries::until(Instant::now() + within.min(self.operation))
    }

    /// One try: sends a request and waits for its answer. Also while the store must not be used: the watch asks too.
    async fn request(
        &self,
        until: Instant,
        subject: Subject,
        headers: Option<HeaderMap>,
        payload: Bytes,
    ) -> Result<Message, Fault> {
        if !self.health.is_connected() && timeout_at(until, self.health.connected()).await.is_err() {
            return Err(Fault::NotNow);
        }
        let request = Request { payload: Some(payload), headers, timeout: Some(None), inbox: None };
        let wait = TRY.min(until.saturating_duration_since(Instant::now()));
        match timeout(wait, self.client.send_request(subject, request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(match error.kind() {
                RequestErrorKind::NoResponders => Fault::NotNow,
                RequestErrorKind::MaxPayloadExceeded => Fault::TooLarge,
                RequestErrorKind::TimedOut | RequestErrorKind::InvalidSubject | RequestErrorKind::Other => {
                    Fault::NoAnswer
                }
            }),
            Err(_) => Err(Fault::NoAnswer),
        }
    }

    /// One try to publish a message. Returns its sequence.
    pub(crate) async fn publish(
        &self,
        until: Instant,
        subject: Subject,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<u64, Fault> {
        self.health.admits().map_err(Fault::Closed)?;
        let answer = self.request(until, subject, Some(headers), payload).await?;
        let answer: PublishAnswer = serde_json::from_slice(&answer.payload).map_err(|_| Fault::NoAnswer)?;
        match answer.error {
            Some(refusal) => Err(refusal.fault()),
            None => Ok(answer.seq),
        }
    }

    /// One request to the engine's own interface.
    pub(crate) async fn ask<T: for<'de> Deserialize<'de>>(
        &self,
        until: Instant,
        subject: Subject,
        body: String,
    ) -> Result<T, Fault> {
        self.health.admits().map_err(Fault::Closed)?;
        let answer = self.request(until, subject, None, body.into()).await?;
        let answer: Answer<T> = serde_json::from_slice(&answer.payload).map_err(|_| Fault::NoAnswer)?;
        match (answer.error, answer.body) {
            (Some(refusal), _) => Err(refusal.fault()),
            (None, Some(body)) => Ok(body),
            (None, None) => Err(Fault::NoAnswer),
        }
    }

    /// One try to read a message from the leader of a stream, also while the store must not be used.
    pub(crate) async fn get_once(
        &self,
        until: Instant,
        shard: &Shard,
        which: &Which<'_>,
    ) -> Result<Option<Kept>, Fault> {
        let body = match which {
            Which::Last(subject) => format!(r#"{{"last_by_subj":"{subject}"}}"#),
            Which::Next(subject, from) => format!(r#"{{"seq":{from},"next_by_subj":"{subject}"}}"#),
        };
        let answer = self.request(until, shard.get.clone(), None, body.into()).await?;
        let answer: GetAnswer<'_> = serde_json::from_slice(&answer.payload).map_err(|_| Fault::NoAnswer)?;
        match (answer.error, answer.message) {
            (Some(refusal), _) if refusal.err_code == code::NO_MESSAGE => Ok(None),
            (Some(refusal), _) => Err(refusal.fault()),
            (None, Some(message)) => message.decode().map(Some),
            (None, None) => Err(Fault::NoAnswer),
        }
    }

    /// Reads a message from the leader of a stream. A replica may miss a write that was acknowledged before.
    pub(crate) async fn get(
        &self,
        tries: &mut Tries,
        shard: &Shard,
        which: Which<'_>,
    ) -> Result<Option<Kept>, StoreError> {
        loop {
            self.health.admits()?;
            match self.get_once(tries.until, shard, &which).await {
                Ok(found) => return Ok(found),
                Err(fault) => tries.again(fault, Doubt::None).await?,
            }
        }
    }

    /// [`Wire::get`] for the last message of a subject. A message without content means that there is nothing.
    pub(crate) async fn last(
        &self,
        tries: &mut Tries,
        shard: &Shard,
        subject: &str,
    ) -> Result<Option<Kept>, StoreError> {
        self.get(tries, shard, Which::Last(subject)).await
    }
}

impl GetMessage<'_> {
    fn decode(self) -> Result<Kept, Fault> {
        let decode = |text: &str| STANDARD.decode(text).map_err(|_| Fault::NoAnswer);
        let headers = decode(&self.hdrs)?;
        Ok(Kept { sequence: self.seq, id: message_id(&headers), payload: decode(&self.data)?.into() })
    }
}

/// The id among the headers of a message as it was written.
fn message_id(headers: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(headers).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Nats-Msg-Id:"))?;
    Some(line.trim().to_owned())
}

/// Whether an earlier try of the same write may have been executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Doubt {
    None,
    MayHaveHappened,
}

/// The tries of one operation: a deadline, and pauses that grow.
pub(crate) struct Tries {
    pub(crate) until: Instant,
    pause: Duration,
}

impl Tries {
    fn until(until: Instant) -> Self {
        Self { until, pause: PAUSES.0 }
    }

    /// Waits for the next try, or says how the operation ends. An answer to this try does not tell the outcome of an earlier one that
    /// may have happened.
    pub(crate) async fn again(&mut self, fault: Fault, doubt: Doubt) -> Result<(), StoreError> {
        let (outcome, is_final) = match fault {
            Fault::Closed(error) => (error, true),
            Fault::TooLarge => (StoreError::TooLarge, true),
            Fault::Refused(refusal) => (refused(&refusal), true),
            Fault::NotNow | Fault::NoAnswer => (StoreError::Busy, false),
        };
        let outcome = match doubt {
            Doubt::None => outcome,
            Doubt::MayHaveHappened => StoreError::Unknown,
        };
        if is_final {
            return Err(outcome);
        }
        // Between half of the pause and all of it, so that writers that met do not meet again.
        let share = 500 + getrandom::u32().unwrap_or_default() % 501;
        let next = Instant::now() + self.pause * share / 1000;
        if next >= self.until {
            return Err(outcome);
        }
        tokio::time::sleep_until(next).await;
        self.pause = (self.pause * 2).min(PAUSES.1);
        Ok(())
    }
}

/// The error for a stream that the engine does not know.
pub(crate) fn missing_stream() -> StoreError {
    StoreError::Unavailable("a stream of this cluster is missing".to_owned())
}

/// A refusal as an error of the store.
pub(crate) fn refused(refusal: &Refusal) -> StoreError {
    match refusal.err_code {
        code::NO_RESOURCES | code::NO_STORAGE => StoreError::Full,
        code::STORE_FAILED if refusal.description.contains("maximum") => StoreError::Full,
        code::NO_STREAM => missing_stream(),
        _ => StoreError::Unavailable(format!("the engine said: {}", refusal.description)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_session::port::store::StoreError;
    use tokio::time::Instant;

    use super::{Doubt, Fault, Refusal, Tries, code};

    fn refusal(err_code: u64) -> Refusal {
        Refusal { code: 400, err_code, description: "no".to_owned() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_after_a_try_without_an_answer_leaves_the_outcome_unknown() {
        let faults = [
            (Fault::Refused(refusal(code::NO_RESOURCES)), StoreError::Full),
            (Fault::Refused(refusal(1)), StoreError::Unavailable("the engine said: no".to_owned())),
            (Fault::TooLarge, StoreError::TooLarge),
            (
                Fault::Closed(StoreError::Unavailable("gone".to_owned())),
                StoreError::Unavailable("gone".to_owned()),
            ),
            (Fault::NotNow, StoreError::Busy),
            (Fault::NoAnswer, StoreError::Busy),
        ];
        for (fault, alone) in faults {
            let outcomes = [(Doubt::None, alone), (Doubt::MayHaveHappened, StoreError::Unknown)];
            for (doubt, expected) in outcomes {
                let mut tries = Tries::until(Instant::now() + Duration::from_millis(1));
                assert_eq!(tries.again(fault.clone(), doubt).await, Err(expected), "{fault:?} {doubt:?}");
            }
        }
    }

    #[test]
    fn a_write_that_is_still_under_way_has_no_answer_yet() {
        assert_eq!(refusal(code::ID_IN_PROCESS).fault(), Fault::NoAnswer);
    }
}
