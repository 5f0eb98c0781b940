//! Lists of very many sessions.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tenure::Node;
use tenure_auth::UnixSeconds;
use tenure_auth::keys::{ApiKeyFile, KeySecret, NewKey};
use tenure_auth::scope::ScopeSet;
use tenure_session::SessionKey;
use tenure_session::port::store::{Expected, RecordKey, Space, Store};
use tenure_store::memory::Memory;
use tenure_testkit::faulty::Faulty;

use super::world::{AsValue, in_memory};
use crate::support::client::Ask;
use crate::support::wait::until;

/// How many dormant sessions there are: more than one search looks at. A page costs as much among a million, since it is read
/// from its cursor on, and a search ends after its share of records or of time, whichever comes first.
const DORMANT: u32 = 30_000;

/// How long a list may take.
const LONGEST: Duration = Duration::from_millis(200);

/// A store with so many dormant sessions.
async fn dormant(sessions: u32) -> Arc<Memory> {
    let store = Arc::new(Memory::new());
    let record = json!({ "format": 1, "session": {
        "owner": "corp:alice", "revision": "2025-11-25", "phase": "initialized", "created": 1, "last_used": 2,
        "initialize": { "clientInfo": { "name": "crowd", "version": "1" } }, "initialize_result": {},
    } });
    let value = bytes::Bytes::from(record.to_string());
    for number in 0..sessions {
        // Spread over all keys, as hashes are.
        let digits = u128::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
        let key = RecordKey { space: Space::Session, key: SessionKey::from_bytes(digits.to_be_bytes()) };
        store.put(key, value.clone(), Expected::Absent, None).await.unwrap();
    }
    store
}

/// A node on a store, and what one of its operators asks.
struct Crowd {
    node: Node,
    admin: SocketAddr,
    secret: KeySecret,
    folder: TempDir,
}

impl Crowd {
    async fn on(store: Arc<dyn Store>, role: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let keys = folder.path().join("operators.toml");
        let scopes = ScopeSet::parse(&format!("admin:{role}")).unwrap();
        let new = NewKey { name: "watch".to_owned(), scopes, ..NewKey::default() };
        let secret = ApiKeyFile::at(&keys).add(new, UnixSeconds(1)).unwrap();
        let (keys, log) =
            (keys.display().to_string(), folder.path().join("audit.jsonl").display().to_string());
        let settings = [("admin.listen", "127.0.0.1:0"), ("admin.keys_file", &keys), ("audit.file", &log)];
        let node = Node::builder(&in_memory(&settings)).with_store(store).start().await.unwrap();
        let admin = node.admin_address().unwrap();
        Self { node, admin, secret, folder }
    }

    fn ask(&self, ask: Ask) -> Ask {
        ask.header("Host", &self.admin.to_string())
            .header("Authorization", &format!("Bearer {}", self.secret.expose()))
    }

    /// What a path answers, and how soon. The best of a few: other work on the machine is not what is measured.
    async fn timed(&self, path: &str) -> (Value, Duration) {
        let (mut found, mut least) = (Value::Null, Duration::MAX);
        for _ in 0..5 {
            let began = Instant::now();
            let response = self.ask(Ask::new("GET", &format!("/api/v1/{path}"))).send(self.admin).await;
            assert_eq!(response.status(), 200, "{}", response.text());
            (found, least) = (response.value(), least.min(began.elapsed()));
        }
        (found, least)
    }
}

#[tokio::test]
async fn a_page_and_a_search_among_very_many_dormant_sessions_take_a_moment() {
    let crowd = Crowd::on(dormant(DORMANT).await, "viewer").await;
    let timed = async |query: &str| crowd.timed(&format!("sessions?{query}")).await;
    let (first, took) = timed("limit=50").await;
    assert_eq!(first["rows"].as_array().unwrap().len(), 50);
    assert!(took <= LONGEST, "{took:?}");
    let after = first["next"].as_str().unwrap();
    let (second, took) = timed(&format!("limit=50&after={after}")).await;
    assert!(second["rows"][0]["key"].as_str().unwrap() > after);
    assert!(took <= LONGEST, "{took:?}");
    // A search that finds nothing says how far it looked, and goes on from there.
    let (none, took) = timed("principal=corp:bob").await;
    assert_eq!(none["rows"], json!([]));
    assert!(none["looked_at"].as_u64().unwrap() >= 500 && none["of"].is_u64(), "{none}");
    assert!(none["next"].is_string(), "{none}");
    assert!(took <= 2 * LONGEST, "{took:?}");
    crowd.node.stop().await;
}

#[tokio::test]
async fn principals_among_very_many_sessions_are_counted_as_far_as_a_look_comes() {
    let crowd = Crowd::on(dormant(DORMANT).await, "viewer").await;
    let (found, took) = crowd.timed("principals").await;
    let looked_at = found["looked_at"].as_u64().unwrap_or_else(|| panic!("{found}"));
    assert!((500..=20_500).contains(&looked_at), "{found}");
    assert!(found["of"].as_u64() >= Some(looked_at), "{found}");
    assert_eq!(
        (&found["rows"][0]["principal"], &found["rows"][0]["sessions"]),
        (&json!("corp:alice"), &json!(looked_at))
    );
    assert!(took <= 2 * LONGEST, "{took:?}");
    // What one of them has is looked for in the same way.
    let show = Ask::post(json!({ "principal": "corp:bob" }).to_string()).at("/api/v1/principals/show");
    let none = crowd.ask(show).send(crowd.admin).await;
    assert_eq!((none.status(), none.value()["looked_at"].is_u64()), (200, true), "{}", none.text());
    crowd.node.stop().await;
    let few = Crowd::on(dormant(3).await, "viewer").await;
    let (found, _) = few.timed("principals").await;
    assert_eq!((found.get("looked_at"), found.get("of")), (None, None), "it has seen everything: {found}");
    few.node.stop().await;
}

#[tokio::test]
async fn ends_by_a_filter_that_fail_half_way_are_recorded_with_how_many_were_done() {
    let store = Arc::new(Faulty::new(dormant(5).await));
    let Crowd { node, admin, secret, folder } = Crowd::on(Arc::clone(&store) as _, "operator").await;
    let order = json!({ "filter": { "client": "crowd" }, "expect": 5, "reason": "a bad release" });
    let ask = super::world::order("POST", "sessions/revoke", &order)
        .header("Host", &admin.to_string())
        .header("Authorization", &format!("Bearer {}", secret.expose()));
    let puts = store.puts();
    // The first end is written; its answer comes when all later writes fail.
    store.hold_answer_of_next_put();
    let fault = async {
        until("the first end", || store.puts() > puts).await;
        store.fail_puts(true);
        store.answer_puts();
    };
    let (response, ()) = tokio::join!(ask.send(admin), fault);
    assert_eq!(response.status(), 422, "{}", response.text());
    let message = response.value()["message"].as_str().unwrap().to_owned();
    assert!(message.ends_with("; 1 of 5 sessions was ended before that"), "{message}");
    store.fail_puts(false);
    node.stop().await;
    let text = std::fs::read_to_string(folder.path().join("audit.jsonl")).unwrap();
    let mut records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let record = records.find(|record| record["method"] == "sessions.revoke").unwrap();
    assert_eq!((&record["outcome"], &record["name"]), (&json!("error"), &json!("1 of 5 sessions")));
    let change: Value = serde_json::from_str(record["change"].as_str().unwrap()).unwrap();
    assert_eq!(change, json!({ "filter": { "client": "crowd" }, "ended": 1, "left": 4 }));
}
