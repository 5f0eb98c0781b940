//! Reads many messages at once, from any replica.
//!
//! A replica may be behind: it misses the latest writes, and still has purged messages. So callers compare what they
//! get with what the leader told them.

use std::time::Duration;

use async_nats::header::{NATS_SEQUENCE, NATS_SUBJECT, NATS_TIME_STAMP};
use async_nats::{Message, StatusCode, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use tenure_session::port::clock::Time;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::{Instant, timeout_at};

use crate::names::Shard;
use crate::wire::{Fault, Wire};

/// How long one try waits for the last message of its answer.
const TRY: Duration = Duration::from_secs(3);

/// A message that a replica read.
pub(crate) struct Fetched {
    pub(crate) sequence: u64,
    pub(crate) subject: String,
    pub(crate) payload: Bytes,
    /// When the leader of the stream stored it, by the leader's clock.
    pub(crate) stored: Option<Time>,
}

/// Many messages, and where they end.
pub(crate) struct Page {
    pub(crate) messages: Vec<Fetched>,
    /// The last sequence that the replica had, where it says so.
    pub(crate) up_to: u64,
    /// Whether the replica refused because there are too many.
    pub(crate) is_too_much: bool,
    /// Whether there may be more after these: the replica stopped because they were large.
    pub(crate) is_cut: bool,
    /// Whether the answer ended with a message that was not found.
    is_broken_off: bool,
}

/// An answer ends early if it is larger than this.
const MAX_BYTES: usize = 4 << 20;

/// Reads messages of one subject in order, from this sequence on.
pub(crate) async fn next(
    wire: &Wire,
    until: Instant,
    shard: &Shard,
    subject: &str,
    from: u64,
    limit: usize,
) -> Result<Vec<Fetched>, Fault> {
    let from = from.max(1);
    let body =
        format!(r#"{{"seq":{from},"next_by_subj":"{subject}","batch":{limit},"max_bytes":{MAX_BYTES}}}"#);
    Ok(page(wire, until, shard, body).await?.messages)
}

/// Reads the last messages of all subjects that these filters match, in the order of their sequences from this one on.
pub(crate) async fn last(
    wire: &Wire,
    until: Instant,
    shard: &Shard,
    filters: &[&str],
    from: u64,
) -> Result<Page, Fault> {
    let filters: Vec<String> = filters.iter().map(|filter| format!(r#""{filter}""#)).collect();
    let (from, filters) = (from.max(1), filters.join(","));
    let body = format!(r#"{{"seq":{from},"multi_last":[{filters}],"max_bytes":{MAX_BYTES}}}"#);
    match page(wire, until, shard, body).await {
        // A message of the answer could not be read, so what came is not all.
        Ok(page) if page.is_broken_off => Err(Fault::NotNow),
        outcome => outcome,
    }
}

async fn page(wire: &Wire, until: Instant, shard: &Shard, body: String) -> Result<Page, Fault> {
    wire.health.admits().map_err(Fault::Closed)?;
    if !wire.health.is_connected() && timeout_at(until, wire.health.connected()).await.is_err() {
        return Err(Fault::NotNow);
    }
    let until = until.min(Instant::now() + TRY);
    let all = async {
        let inbox = wire.client.new_inbox();
        let mut answers = wire.client.subscribe(inbox.clone()).await.map_err(|_| Fault::NoAnswer)?;
        let sent = wire.client.publish_with_reply(shard.direct.clone(), inbox, body.into()).await;
        sent.map_err(|_| Fault::NoAnswer)?;
        collect(&mut answers).await
    };
    timeout_at(until, all).await.unwrap_or(Err(Fault::NoAnswer))
}

async fn collect(answers: &mut Subscriber) -> Result<Page, Fault> {
    let mut page =
        Page { messages: Vec::new(), up_to: 0, is_too_much: false, is_cut: false, is_broken_off: false };
    let mut bytes = 0;
    while let Some(message) = answers.next().await {
        match message.status.as_ref().map(StatusCode::as_u16) {
            None => {
                // At least as much as the replica counts: its own headers are in it too.
                bytes += message.length;
                page.messages.push(fetched(message).ok_or(Fault::NoAnswer)?);
            }
            // The end, and nothing at all.
            Some(status @ (204 | 404)) => {
                page.is_broken_off = status == 404 && (!page.messages.is_empty() || is_not_found(&message));
                page.up_to = number(&message, "Nats-UpTo-Sequence");
                // Some servers say that nothing is pending when one message is.
                page.is_cut = number(&message, "Nats-Num-Pending") > 0 || bytes >= MAX_BYTES;
                return Ok(page);
            }
            Some(413) => {
                page.is_too_much = true;
                return Ok(page);
            }
            Some(_) => return Err(Fault::NotNow),
        }
    }
    Err(Fault::NoAnswer)
}

fn is_not_found(message: &Message) -> bool {
    message.description.as_deref().is_some_and(|text| text.trim() == "Message Not Found")
}

fn number(message: &Message, name: &'static str) -> u64 {
    header(message, name).and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn header<'a>(message: &'a Message, name: &'static str) -> Option<&'a str> {
    let headers = message.headers.as_ref()?;
    headers.get(async_nats::HeaderName::from_static(name)).map(async_nats::HeaderValue::as_str)
}

fn fetched(message: Message) -> Option<Fetched> {
    let headers = message.headers.as_ref()?;
    let sequence = headers.get(NATS_SEQUENCE)?.as_str().parse().ok()?;
    let subject = headers.get(NATS_SUBJECT)?.as_str().to_owned();
    let stored = headers.get(NATS_TIME_STAMP).and_then(|text| time_of(text.as_str()));
    Some(Fetched { sequence, subject, payload: message.payload, stored })
}

fn time_of(text: &str) -> Option<Time> {
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    u64::try_from(time.unix_timestamp_nanos() / 1_000_000).ok().map(Time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_message_is_read_in_milliseconds() {
        assert_eq!(time_of("1970-01-01T00:00:01.002999999Z"), Some(Time(1002)));
        assert_eq!(time_of("2026-11-16T10:00:00Z"), Some(Time(1_794_823_200_000)));
        assert_eq!(time_of("yesterday"), None);
    }
}
