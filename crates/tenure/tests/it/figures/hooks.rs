//! What embedders hear: observers of their own, beside ours.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;
use tenure_session::port::observer::{Happened, SessionEvent, SessionObserver};
use tenure_transport::observe::{RequestEnd, RequestObserver};

use super::sum;
use crate::support::node::config;
use crate::support::session::Session;
use crate::support::wait::until;

#[derive(Default)]
struct Counter {
    created: AtomicU64,
    tools: AtomicU64,
}

impl SessionObserver for Counter {
    fn happened(&self, event: &SessionEvent<'_>) {
        if matches!(event.what, Happened::Created { client: Some("it") }) {
            self.created.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl RequestObserver for Counter {
    fn ended(&self, request: &RequestEnd<'_>) {
        if request.is_call() && request.name == Some("any") {
            assert_eq!(request.protocol, Some("2025-11-25"));
            self.tools.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A9.03, A6.08: what happens to sessions, and each request, is told to observers of the embedder.
#[tokio::test]
async fn observers_of_an_embedder_hear_what_ours_hear() {
    for collect in ["true", "false"] {
        let counter = Arc::new(Counter::default());
        let config = config(&[("metrics.collect", collect)]);
        let node = tenure::Node::builder(&config)
            .with_backend(Arc::new(tenure::demo::backend()))
            .with_observer(counter.clone())
            .with_request_observer(counter.clone())
            .start()
            .await
            .unwrap();
        let session = Session::start(node.address()).await;
        session.tool(1, "any", &json!({})).await;
        until("both were told", || counter.tools.load(Ordering::Relaxed) == 1).await;
        assert_eq!(counter.created.load(Ordering::Relaxed), 1);
        let ours = sum(&node.metrics_text(), "tenure_sessions_created_total", &[]);
        assert_eq!(ours, if collect == "true" { 1.0 } else { 0.0 });
        node.stop().await;
    }
}
