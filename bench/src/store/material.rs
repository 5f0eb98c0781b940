//! What is written to stores: sessions and events as real ones are, the same in every run and process.

use bytes::Bytes;
use serde_json::value::RawValue;
use tenure_session::id::{Principal, SessionId};
use tenure_session::port::clock::Time;
use tenure_session::record::SessionRecord;

/// Distinct bodies; enough that no engine can profit from seeing one twice.
const BODIES: usize = 4096;

const HEAD: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","logger":"bench","data":""#;
const TAIL: &str = r#""}}"#;

/// Sessions of one principal.
const SESSIONS_EACH: u64 = 10;

/// Bodies of events from 200 B to 4 KiB, 635 B on average: many short ones, few long ones.
#[derive(Debug, Clone)]
pub(super) struct Bodies(Vec<Bytes>);

impl Bodies {
    pub(super) fn new() -> Bodies {
        let mut random = fastrand::Rng::with_seed(1);
        Bodies((0..BODIES).map(|_| body(&mut random)).collect())
    }

    /// A body; any number will do.
    pub(super) fn get(&self, number: usize) -> Bytes {
        self.0[number % self.0.len()].clone()
    }
}

fn body(random: &mut fastrand::Rng) -> Bytes {
    let size = match random.u32(..100) {
        0..82 => random.usize(200..600),
        82..96 => random.usize(600..2000),
        _ => random.usize(2048..=4096),
    };
    // Letters at random, which no engine can compress by much: the honest case.
    let text = std::iter::repeat_with(|| random.alphanumeric()).take(size - HEAD.len() - TAIL.len());
    format!("{HEAD}{}{TAIL}", text.collect::<String>()).into()
}

/// The id of a session by its number. Its hashed name lies anywhere, so neighbours are no neighbours on disk.
pub(super) fn session(number: u64) -> SessionId {
    SessionId::parse(format!("{number:032x}").as_bytes()).expect("32 hex digits are an id")
}

/// Whom a session answers to.
pub(super) fn principal(number: u64) -> Principal {
    Principal::named(&owner(number))
}

fn owner(number: u64) -> String {
    format!("user-{:06}@example.com", number / SESSIONS_EACH)
}

/// The record of a session after its handshake, as the runtime writes it.
pub(super) fn record(number: u64, now: Time) -> Bytes {
    let raw = |json: &str| RawValue::from_string(json.to_owned()).expect("the handshake is JSON");
    let record = SessionRecord {
        owner: Some(owner(number)),
        client: None,
        revision: "2025-11-25".to_owned(),
        phase: "initialized".to_owned(),
        created: now.0.saturating_sub(1_000),
        last_used: now.0,
        initialize: raw(INITIALIZE),
        initialize_result: raw(RESULT),
        log_level: None,
        subscriptions: Vec::new(),
        delivered: 0,
        next_stream: 0,
        route: None,
        server: None,
        idle_ms: None,
        ttl_ms: None,
        metadata: serde_json::Map::new(),
        event_secret: Some("0123456789abcdef".repeat(2)),
        epoch: None,
        heard_at: None,
        figures: None,
    };
    record.encode()
}

pub(super) const INITIALIZE: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"roots":{"listChanged":true},"sampling":{},"elicitation":{}},"clientInfo":{"name":"tenure-bench","title":"Benchmarks","version":"1.0.0"}}"#;

const RESULT: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bench-echo","version":"1"}}"#;

#[cfg(test)]
mod tests {
    use tenure_protocol::Message;
    use tenure_session::port::clock::Time;
    use tenure_session::record::StoredSession;

    use super::{BODIES, Bodies, record};

    #[test]
    fn bodies_are_messages_of_the_sizes_that_the_tables_name() {
        let bodies = Bodies::new();
        let sizes: Vec<_> = (0..BODIES).map(|number| bodies.get(number).len()).collect();
        assert!(sizes.iter().all(|size| (200..=4096).contains(size)));
        let average = sizes.iter().sum::<usize>() / BODIES;
        assert!((615..=655).contains(&average), "{average}");
        assert!((0..BODIES).all(|number| Message::parse(&bodies.get(number)).is_ok()));
    }

    #[test]
    fn a_record_is_one_that_the_runtime_reads() {
        let Ok(StoredSession::Session(session)) = StoredSession::decode(&record(1_234, Time(5_000))) else {
            panic!("a session")
        };
        assert_eq!(session.owner.as_deref(), Some("user-000123@example.com"));
    }
}
