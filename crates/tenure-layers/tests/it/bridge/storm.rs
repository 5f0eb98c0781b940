//! Many clients on several threads that leave at random moments, in front of servers that end at random moments.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tenure_layers::bridge::{ExchangesOnSessions, PoolLimits};
use tenure_protocol::{Method, Notification, RawJson, Reply, RpcError};
use tenure_session::backend::{Backend, Call, Link, Open, Opened, Responder};
use tenure_session::call::Outlet;
use tenure_session::port::BoxFuture;
use tenure_testkit::fake_client::FakeClient;

use crate::bridge::support::{by, tool};

/// How many links there are, and how many there were at once.
#[derive(Default)]
struct Counts {
    links: AtomicUsize,
    most: AtomicUsize,
    calls: AtomicUsize,
    opened: AtomicUsize,
    closed: AtomicUsize,
}

struct Restless(Arc<Counts>);

struct RestlessLink {
    counts: Arc<Counts>,
    outlet: Outlet,
    principal: std::sync::OnceLock<String>,
}

impl Backend for Restless {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let counts = Arc::clone(&self.0);
        Box::pin(async move {
            tokio::task::yield_now().await;
            let links = counts.links.fetch_add(1, Ordering::SeqCst) + 1;
            counts.opened.fetch_add(1, Ordering::SeqCst);
            counts.most.fetch_max(links, Ordering::SeqCst);
            let result = RawJson::of(&json!({
                "protocolVersion": "2025-06-18",
                "capabilities": { "tools": { "listChanged": true }, "resources": { "subscribe": true } },
                "serverInfo": { "name": "restless", "version": "1" },
            }));
            let link = RestlessLink { counts, outlet: open.outlet, principal: Default::default() };
            Ok(Opened { link: Box::new(link), result })
        })
    }
}

impl Link for RestlessLink {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        let number = self.counts.calls.fetch_add(1, Ordering::SeqCst);
        if !call.context.is_our_own() {
            let principal = call.context.caller().principal.name().unwrap().to_owned();
            assert_eq!(
                *self.principal.get_or_init(|| principal.clone()),
                principal,
                "a session of two principals"
            );
        }
        let outlet = self.outlet.clone();
        Box::pin(async move {
            for _ in 0..number % 7 {
                tokio::task::yield_now().await;
            }
            drop(outlet.notify(&Method::ToolsListChanged, None).await);
            if number.is_multiple_of(11) {
                outlet.link_lost();
                return Err(RpcError::refused("gone"));
            }
            drop(call.context.notify(&Method::LogMessage, None).await);
            Ok(RawJson::of(&json!({ "content": [] })))
        })
    }

    fn notify(&self, _: Notification) {}

    fn close(&self) -> BoxFuture<()> {
        self.counts.closed.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::ready(()))
    }
}

impl Drop for RestlessLink {
    fn drop(&mut self) {
        self.counts.links.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_mixed_up_or_left_behind() {
    let counts = Arc::new(Counts::default());
    let limits = PoolLimits { max: 6, idle: Duration::from_millis(5), ..PoolLimits::default() };
    let bridge = ExchangesOnSessions::new(Arc::new(Restless(Arc::clone(&counts))), limits);
    let mut callers = Vec::new();
    for name in ["ann", "bob", "cleo", "dan"] {
        for number in 0..8_usize {
            let bridge = bridge.clone();
            callers.push(tokio::spawn(async move {
                let client = FakeClient::new(json!({}));
                let mut answered = 0;
                for round in 0..100_usize {
                    let call = match (number, round % 5) {
                        (0, 0) => {
                            let filter =
                                json!({ "toolsListChanged": true, "resourceSubscriptions": ["a:b"] });
                            client.call(1, "subscriptions/listen", json!({ "notifications": filter }))
                        }
                        _ => tool(&client, "t"),
                    };
                    let mut reply = tokio::spawn(bridge.respond(by(name, &client, call)));
                    let leaves = (number + round) % 3 == 0 || (number, round % 5) == (0, 0);
                    let patience = Duration::from_micros((round as u64 * 37) % 500);
                    if leaves && tokio::time::timeout(patience, &mut reply).await.is_err() {
                        reply.abort();
                    } else if !leaves {
                        answered += usize::from(reply.await.unwrap().is_ok());
                    }
                    client.heard();
                }
                answered
            }));
        }
    }
    let mut answered = 0;
    for caller in callers {
        let caller = tokio::time::timeout(Duration::from_secs(60), caller).await;
        answered += caller.expect("no caller waits for ever").unwrap();
    }
    assert!(answered > 1000, "{answered}");
    bridge.close().await;
    // A task that was aborted may still hold its lease for a moment.
    for _ in 0..1000 {
        if bridge.sessions() == 0 && counts.links.load(Ordering::SeqCst) == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!((bridge.sessions(), counts.links.load(Ordering::SeqCst)), (0, 0));
    assert_eq!(counts.opened.load(Ordering::SeqCst), counts.closed.load(Ordering::SeqCst));
    // Sessions that are being closed do not count, so there may be a few more for a moment.
    assert!(counts.most.load(Ordering::SeqCst) <= 12, "{:?}", counts.most);
}
