//! Copies between this engine and the others: what clients rely on stays as it is.

use std::sync::Arc;

use bytes::Bytes;
use tenure_session::id::{NodeId, SessionId, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{EntryPlace, Expected, Keep, NewEvent, RecordKey, Space, Store};
use tenure_store::copy::{copy, save_log};
use tenure_store::memory::Memory;
use tenure_testkit::nats_servers::NatsServers;

use crate::stores::open;

#[tokio::test]
async fn a_copy_there_and_back_keeps_records_positions_and_notes() {
    let servers = NatsServers::start(1);
    let from: Arc<dyn Store> = Arc::new(Memory::new());
    let mut sessions = Vec::new();
    for number in 0..40u32 {
        let session = SessionId::random().key();
        let epoch = from.claim(session, NodeId::random(), None).await.expect("claims");
        let event = |stream: u32, place| NewEvent {
            stream: StreamId::new(stream),
            body: Bytes::from(vec![b'x'; 100 * number as usize]),
            place,
            at: Time(u64::from(number) + 1),
        };
        for round in 0..5 {
            let batch = [
                (0, EntryPlace::Middle),
                (1, EntryPlace::Note),
                (1, EntryPlace::Middle),
                (2 + round, EntryPlace::End),
            ];
            let batch = batch.iter().map(|(stream, place)| event(*stream, *place)).collect();
            from.append(session, epoch, batch).await.expect("appends");
        }
        from.trim(session, Keep { events: 7, bytes: usize::MAX, since: Time(0) }).await.expect("trims");
        let key = RecordKey::session(session);
        let value = Bytes::from(number.to_string());
        from.put(key, value, Expected::Absent, Some(Time(9 + u64::from(number)))).await.expect("puts");
        sessions.push(session);
    }
    let (there, back) = (open(&servers, "one").await, Memory::new());
    let totals = copy(from.as_ref(), there.as_ref(), |_| {}).await.expect("copies");
    assert_eq!((totals.records, totals.events), (40, 280));
    assert_eq!(copy(there.as_ref(), &back, |_| {}).await.expect("copies back"), totals);
    for session in &sessions {
        let saved = save_log(from.as_ref(), *session).await.expect("saves");
        assert_eq!(save_log(there.as_ref(), *session).await.expect("saves"), saved);
        assert_eq!(save_log(&back, *session).await.expect("saves"), saved);
    }
    let due = there.expired(Space::Session, Time(1_000), 100).await.expect("lists");
    let due: Vec<_> = due.into_iter().map(|(key, _)| key.key).collect();
    assert_eq!(due, sessions, "by their deadlines");
}
