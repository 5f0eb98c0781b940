//! What `/healthz` and `/readyz` say of the store.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use tenure_session::Limits;
use tenure_session::port::store::{Grade, Trouble};
use tenure_store::memory::Memory;
use tenure_testkit::fake_backend::FakeBackend;
use tenure_testkit::faulty::Faulty;
use tenure_testkit::runtime;
use tenure_transport::http::{Endpoint, Router, Rules};

#[tokio::test]
async fn the_process_should_be_started_anew_only_if_its_store_does_not_come_back() {
    let store = Arc::new(Faulty::new(Arc::new(Memory::default())));
    let (backend, _script) = FakeBackend::new();
    let sessions = runtime::start(store.clone(), backend, Limits::default());
    let router = Router::new(Endpoint::new(sessions, Rules::default()));
    let mut said = String::new();
    for grade in [None, Some(Grade::Degraded), Some(Grade::Down), Some(Grade::Lost)] {
        store.set_trouble(grade.map(|grade| Trouble { what: "what is wrong".to_owned(), grade }));
        for path in ["/healthz", "/readyz"] {
            let request = Request::get(path).body(Empty::<Bytes>::new()).unwrap();
            let response = router.handle(request, None).await;
            let status = response.status().as_u16();
            let text = response.into_body().collect().await.unwrap().to_bytes();
            said.push_str(&format!("{grade:?} {path}: {status} {}", String::from_utf8_lossy(&text)));
        }
    }
    expect_test::expect![[r"
        None /healthz: 200 ok
        None /readyz: 200 ready
        Some(Degraded) /healthz: 200 degraded: what is wrong
        Some(Degraded) /readyz: 503 store: what is wrong
        Some(Down) /healthz: 503 failed: what is wrong
        Some(Down) /readyz: 503 store: what is wrong
        Some(Lost) /healthz: 503 failed: what is wrong
        Some(Lost) /readyz: 503 store: what is wrong
    "]]
    .assert_eq(&said);
}
