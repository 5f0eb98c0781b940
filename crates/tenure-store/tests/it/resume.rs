//! A client that resumes after events which are no longer kept gets the right error, on every engine.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use tenure_protocol::{Method, RawJson, Reason};
use tenure_session::Limits;
use tenure_session::port::store::Store;
use tenure_store::disk::{Disk, Sync};
use tenure_store::memory::Memory;
use tenure_testkit::fake_backend::FakeBackend;
use tenure_testkit::runtime;

/// A client does not read the answer to its request, and resumes after the answer was trimmed. Its old connection is
/// still open, so the session knows the stream.
async fn come_back_too_late(store: Arc<dyn Store>) -> Result<(), Reason> {
    let (backend, mut script) = FakeBackend::new();
    let limits = Limits { max_session_events: 4, json_wait: Duration::from_millis(1), ..Limits::default() };
    let sessions = runtime::start(Arc::clone(&store), backend, limits);
    let session = runtime::session(&sessions, "2025-11-25").await;
    let outlet = script.opened().await.outlet;
    let answer = runtime::send(&session, runtime::request(1, "tools/call", &json!({ "name": "slow" })));
    let call = script.call().await;
    let hangs = runtime::reader_of(answer.await.unwrap());
    let id = hangs.after();
    call.answer(&json!({ "content": [] }));
    let news = RawJson::of(&json!({ "level": "info", "data": "news" }));
    let is_kept = async || {
        let streams = store.survey(session.info().key).await.unwrap().streams;
        streams.iter().any(|known| known.stream == id.stream)
    };
    while !is_kept().await {
        tokio::task::yield_now().await;
    }
    while is_kept().await {
        outlet.notify(&Method::LogMessage, Some(&news)).await.unwrap();
        tokio::task::yield_now().await;
    }
    let resumed = session.listen(Some(id.to_string().as_bytes())).await;
    drop(hangs);
    sessions.shut_down(Duration::ZERO).await;
    resumed.map(drop).map_err(|error| error.reason())
}

#[tokio::test]
async fn a_client_that_comes_back_after_its_answer_was_trimmed_away_is_told_so() {
    assert_eq!(come_back_too_late(Arc::new(Memory::new())).await, Err(Reason::StreamForgotten), "memory");
    let folder = TempDir::new().unwrap();
    let disk = Disk::open(folder.path(), Sync::Os).unwrap();
    assert_eq!(come_back_too_late(Arc::new(disk)).await, Err(Reason::StreamForgotten), "disk");
}
