//! What `/readyz` and `/healthz` say while something in the background is wrong.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use tenure_session::Limits;
use tenure_session::port::store::Space;
use tenure_session::state::{StateLimits, States};
use tenure_store::memory::Memory;
use tenure_testkit::clock::TurnableClock;
use tenure_testkit::fake_backend::FakeBackend;
use tenure_testkit::faulty::Faulty;
use tenure_testkit::runtime;
use tenure_transport::http::{Endpoint, Router, Rules};

async fn said(router: &Router, path: &str) -> String {
    let request = Request::get(path).body(Empty::<Bytes>::new()).unwrap();
    let response = router.handle(request, None).await;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    format!("{status} {}", String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn readiness_names_a_loop_that_panicked_while_it_is_down_and_for_a_while_after() {
    let (store, states_store) = (Memory::new(), Memory::new());
    let (store, other) =
        (Arc::new(Faulty::new(Arc::new(store))), Arc::new(Faulty::new(Arc::new(states_store))));
    let sessions = runtime::start(store.clone(), FakeBackend::new().0, Limits::default());
    let states = States::start(other.clone(), Arc::new(TurnableClock::start()), StateLimits::default());
    sessions.loops().include(states.loops());
    let router = Router::new(Endpoint::new(sessions.clone(), Rules::default()));
    store.swept().await;
    assert_eq!(said(&router, "/readyz").await, "200 ready\n");

    other.panic_at_next_look(Space::State);
    let noticed = async {
        while sessions.loops().list().iter().all(|known| !known.is_down) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(600), noticed).await.expect("it looks and panics");
    let down = "the loop `sweep of data sessions` panicked once and waits to be started again";
    assert_eq!(said(&router, "/readyz").await, format!("503 degraded: {down}\n"));
    assert_eq!(said(&router, "/healthz").await, format!("200 degraded: {down}\n"), "a restart is no help");

    tokio::time::sleep(Duration::from_secs(10)).await;
    let ready = said(&router, "/readyz").await;
    let begins = "200 ready, but degraded: the loop `sweep of data sessions` panicked once, last ";
    assert!(ready.starts_with(begins), "{ready}");
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(said(&router, "/readyz").await, "200 ready\n");
    assert_eq!(said(&router, "/healthz").await, "200 ok\n");
}
