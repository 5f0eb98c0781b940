//! Listens of modern clients, fed by a server that knows only sessions.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_layers::bridge::{ExchangesOnSessions, PoolLimits, Reuse, SessionsOnExchanges};
use tenure_protocol::{Method, RawJson, Reply};
use tenure_session::backend::{Call, Responder};
use tenure_session::call::{News, Outlet};
use tenure_session::{Principal, Route};
use tenure_testkit::clock::TurnableClock;
use tenure_testkit::fake_backend::{BackendEvent, FakeCall, Opens};
use tenure_testkit::fake_client::FakeClient;
use tenure_testkit::fake_responder::{self, FakeResponder};
use tokio::task::JoinHandle;

use crate::bridge::support::{World, by, params, tool, value};

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// A server that offers every notification.
fn telling() -> World {
    let world = World::new();
    tells_all(&world);
    world
}

fn tells_all(world: &World) {
    let list = json!({ "listChanged": true });
    world.backend.set_capabilities(json!({
        "tools": list, "prompts": list, "resources": { "listChanged": true, "subscribe": true },
    }));
}

fn listen(client: &Arc<FakeClient>, id: u64, filter: &Value) -> Call {
    client.call(id, "subscriptions/listen", json!({ "notifications": filter }))
}

impl World {
    /// Starts a listen for lists, and waits for its acknowledgement.
    async fn listening(&self, client: &Arc<FakeClient>, call: Call) -> JoinHandle<Reply> {
        let listening = self.start(call);
        let (method, _) = client.hear().await;
        assert_eq!(method, Method::Acknowledged);
        listening
    }

    /// The next subscribe or unsubscribe request.
    async fn subscribed(&mut self) -> (FakeCall, Option<Outlet>) {
        let (call, opened) = self.asked().await;
        assert!(call.context.is_our_own(), "{:?}", call.request.method);
        (call, opened.map(|opened| opened.outlet))
    }
}

fn uri(call: &FakeCall) -> (Method, String) {
    (call.request.method.clone(), params(call)["uri"].as_str().unwrap().to_owned())
}

async fn updated(outlet: &Outlet, uri: &str) {
    let params = RawJson::of(&json!({ "uri": uri }));
    outlet.notify(&Method::ResourceUpdated, Some(&params)).await.unwrap();
}

#[tokio::test]
async fn a_listen_is_acknowledged_with_what_the_server_tells_and_hears_only_that() {
    let mut world = World::new();
    world.backend.set_capabilities(json!({ "tools": { "listChanged": true }, "prompts": {} }));
    let client = FakeClient::new(json!({}));
    let filter = json!({
        "toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": ["a:b"], "taskIds": ["t"],
    });
    let listening = world.start(listen(&client, 7, &filter));
    let outlet = world.script.opened().await.outlet;
    let expected = json!({ "notifications": { "toolsListChanged": true }, "_meta": { SUBSCRIPTION: 7 } });
    assert_eq!(client.hear().await, (Method::Acknowledged, expected));
    for method in [Method::PromptsListChanged, Method::ResourcesListChanged, Method::ToolsListChanged] {
        outlet.notify(&method, None).await.unwrap();
    }
    updated(&outlet, "a:b").await;
    outlet.notify(&Method::LogMessage, Some(&RawJson::of(&json!({ "level": "error" })))).await.unwrap();
    let expected = (Method::ToolsListChanged, json!({ "_meta": { SUBSCRIPTION: 7 } }));
    assert_eq!(client.hear().await, expected);
    outlet.notify(&Method::ToolsListChanged, None).await.unwrap();
    assert_eq!(client.hear().await, expected, "nothing else came in between");
    listening.abort();
}

#[tokio::test]
async fn resources_are_subscribed_before_the_acknowledgement_and_those_that_cannot_be_are_left_out() {
    let mut world = telling();
    let client = FakeClient::new(json!({}));
    let listening = world.start(listen(&client, 1, &json!({ "resourceSubscriptions": ["a:1", "a:2"] })));
    let (first, outlet) = world.subscribed().await;
    assert_eq!(uri(&first), (Method::ResourcesSubscribe, "a:1".to_owned()));
    // Notifications from before the acknowledgement are delivered after it.
    let outlet = outlet.unwrap();
    updated(&outlet, "a:1").await;
    first.answer(&json!({}));
    let (second, _) = world.subscribed().await;
    updated(&outlet, "a:2").await;
    second.fail(-32602, "no such resource");
    let acknowledged = client.hear().await;
    assert_eq!(acknowledged.0, Method::Acknowledged);
    assert_eq!(acknowledged.1["notifications"], json!({ "resourceSubscriptions": ["a:1"] }));
    let expected = json!({ "uri": "a:1", "_meta": { SUBSCRIPTION: 1 } });
    assert_eq!(client.hear().await, (Method::ResourceUpdated, expected));
    assert_eq!(client.heard(), []);
    listening.abort();
}

#[tokio::test]
async fn a_resource_is_subscribed_once_for_all_listens_and_until_the_last_of_them_ends() {
    let mut world = telling();
    let (one, two) = (FakeClient::new(json!({})), FakeClient::new(json!({})));
    let first = world.start(listen(&one, 1, &json!({ "resourceSubscriptions": ["a:1"] })));
    let (subscribed, outlet) = world.subscribed().await;
    subscribed.answer(&json!({}));
    let outlet = outlet.unwrap();
    one.hear().await;
    let second = world.start(listen(&two, 2, &json!({ "resourceSubscriptions": ["a:1", "a:2"] })));
    let (subscribed, opened) = world.subscribed().await;
    assert!(opened.is_none(), "one session feeds both");
    assert_eq!(uri(&subscribed), (Method::ResourcesSubscribe, "a:2".to_owned()));
    subscribed.answer(&json!({}));
    assert_eq!(two.hear().await.0, Method::Acknowledged);
    updated(&outlet, "a:1").await;
    assert_eq!(one.hear().await.1["_meta"][SUBSCRIPTION], 1);
    assert_eq!(two.hear().await.1["_meta"][SUBSCRIPTION], 2);
    second.abort();
    let (unsubscribed, _) = world.subscribed().await;
    assert_eq!(uri(&unsubscribed), (Method::ResourcesUnsubscribe, "a:2".to_owned()));
    unsubscribed.answer(&json!({}));
    first.abort();
    let (unsubscribed, _) = world.subscribed().await;
    assert_eq!(uri(&unsubscribed), (Method::ResourcesUnsubscribe, "a:1".to_owned()));
    unsubscribed.answer(&json!({}));
    world.bridge.close().await;
    assert_eq!(world.bridge.sessions(), 0);
}

#[tokio::test]
async fn news_of_any_session_reach_the_listens_of_the_same_principal_and_no_other() {
    let mut world = telling();
    let (ann, bob) = (FakeClient::new(json!({})), FakeClient::new(json!({})));
    let filter = json!({ "toolsListChanged": true, "promptsListChanged": true });
    let of_ann = world.listening(&ann, by("ann", &ann, listen(&ann, 1, &filter))).await;
    let of_bob = world.listening(&bob, by("bob", &bob, listen(&bob, 2, &filter))).await;
    let able = FakeClient::new(json!({ "roots": {} }));
    let call = world.start(by("ann", &able, tool(&able, "t")));
    let held = world.script.call().await;
    // On the stream of a call, where a modern client must not see it.
    held.context.notify(&Method::ToolsListChanged, None).await.unwrap();
    assert_eq!(ann.hear().await.0, Method::ToolsListChanged);
    held.answer(&json!({}));
    call.await.unwrap().unwrap();
    assert_eq!(able.heard(), []);
    // A notification for everybody reaches both.
    world.fanout.list_changed(News::Prompts);
    assert_eq!(ann.hear().await.0, Method::PromptsListChanged);
    assert_eq!(bob.hear().await.0, Method::PromptsListChanged, "and nothing before it");
    of_ann.abort();
    of_bob.abort();
}

#[tokio::test]
async fn a_session_that_a_call_uses_watches_what_its_principal_listens_for() {
    let mut world = telling();
    let ann = FakeClient::new(json!({}));
    let listening =
        world.start(by("ann", &ann, listen(&ann, 1, &json!({ "resourceSubscriptions": ["a:1"] }))));
    world.subscribed().await.0.answer(&json!({}));
    ann.hear().await;
    let call = world.start(by("ann", &ann, tool(&ann, "t")));
    let (subscribed, outlet) = world.subscribed().await;
    assert_eq!((subscribed.link, uri(&subscribed).0), (2, Method::ResourcesSubscribe));
    subscribed.answer(&json!({}));
    let (held, _) = world.asked().await;
    updated(&outlet.unwrap(), "a:1").await;
    assert_eq!(ann.hear().await.0, Method::ResourceUpdated);
    held.answer(&json!({}));
    call.await.unwrap().unwrap();
    // Others have nothing to watch.
    let call = world.start(by("bob", &ann, tool(&ann, "t")));
    let (held, _) = world.asked().await;
    assert_eq!(held.request.method, Method::ToolsCall);
    held.answer(&json!({}));
    call.await.unwrap().unwrap();
    listening.abort();
}

#[tokio::test]
async fn what_a_server_in_our_process_tells_everybody_reaches_those_who_watch() {
    let mut world = telling();
    let client = FakeClient::new(json!({}));
    let listening = world.start(listen(&client, 1, &json!({ "resourceSubscriptions": ["a:1"] })));
    world.subscribed().await.0.answer(&json!({}));
    client.hear().await;
    world.fanout.resource_updated("a:2");
    world.fanout.resource_updated("a:1");
    assert_eq!(client.hear().await.1["uri"], "a:1");
    world.fanout.on(Route::named("other")).resource_updated("a:1");
    world.fanout.list_changed(News::Tools);
    assert_eq!(client.heard(), []);
    listening.abort();
}

#[tokio::test(start_paused = true)]
async fn a_lost_session_is_replaced_and_everything_may_have_changed() {
    let mut world = telling();
    let client = FakeClient::new(json!({}));
    let filter = json!({ "toolsListChanged": true, "resourceSubscriptions": ["a:1"] });
    let listening = world.start(listen(&client, 1, &filter));
    let (subscribed, outlet) = world.subscribed().await;
    subscribed.answer(&json!({}));
    client.hear().await;
    outlet.unwrap().link_lost();
    let subscribed = world.script.call().await;
    assert_eq!((subscribed.link, uri(&subscribed).1), (2, "a:1".to_owned()));
    subscribed.answer(&json!({}));
    assert_eq!(client.hear().await.0, Method::ToolsListChanged);
    assert_eq!(client.hear().await.0, Method::ResourceUpdated);
    assert!(!listening.is_finished());
    assert_eq!(world.bridge.sessions(), 1);
    listening.abort();
}

#[tokio::test(start_paused = true)]
async fn a_listen_ends_when_no_server_comes_back() {
    let mut world = telling();
    let client = FakeClient::new(json!({}));
    let listening = world.start(listen(&client, 1, &json!({ "toolsListChanged": true })));
    let outlet = world.script.opened().await.outlet;
    client.hear().await;
    world.backend.set_opens(Opens::Refuses);
    outlet.link_lost();
    assert_eq!(value(listening.await.unwrap()), json!({ "_meta": { SUBSCRIPTION: 1 } }));
    assert_eq!(world.bridge.sessions(), 0);
}

#[tokio::test]
async fn a_listen_ends_when_it_is_told_so() {
    for end in ["withdrawn", "closed"] {
        let world = telling();
        let client = FakeClient::new(json!({}));
        let listening =
            world.listening(&client, listen(&client, 1, &json!({ "toolsListChanged": true }))).await;
        match end {
            "withdrawn" => client.cancel(),
            _ => world.bridge.close().await,
        }
        let answer = tokio::time::timeout(Duration::from_secs(10), listening).await.unwrap();
        assert_eq!(value(answer.unwrap()), json!({ "_meta": { SUBSCRIPTION: 1 } }), "{end}");
    }
}

#[tokio::test]
async fn what_cannot_be_listened_to_is_refused() {
    let world = World::new();
    let client = FakeClient::new(json!({}));
    let answer = world.start(client.call(1, "subscriptions/listen", json!({})));
    assert_eq!(value(answer.await.unwrap())["error"]["code"], -32602);
    world.backend.set_capabilities(json!({ "tools": {}, "resources": {} }));
    let answer = world.start(listen(&client, 1, &json!({ "toolsListChanged": true })));
    assert_eq!(
        value(answer.await.unwrap())["error"]["code"],
        -32601,
        "a server that tells nothing by itself"
    );
    world.backend.set_opens(Opens::Refuses);
    let answer = world.start(by("ann", &client, listen(&client, 1, &json!({ "toolsListChanged": true }))));
    assert_eq!(value(answer.await.unwrap())["error"]["code"], -31011);
    assert_eq!(client.heard(), []);
}

#[tokio::test]
async fn listens_leave_room_for_calls() {
    let mut world = World::with(PoolLimits { max: 2, ..PoolLimits::default() });
    tells_all(&world);
    let client = FakeClient::new(json!({}));
    let filter = json!({ "toolsListChanged": true });
    let first = world.listening(&client, by("ann", &client, listen(&client, 1, &filter))).await;
    let refused = world.start(by("bob", &client, listen(&client, 2, &filter)));
    assert_eq!(value(refused.await.unwrap())["error"]["code"], -31029);
    world.done(by("bob", &client, tool(&client, "t"))).await;
    // A second listen of the same principal needs no session of its own.
    let second = world.listening(&client, by("ann", &client, listen(&client, 3, &filter))).await;
    assert_eq!(world.bridge.sessions(), 2);
    first.abort();
    second.abort();
}

#[tokio::test]
async fn listens_of_strangers_share_no_session_if_requests_do_not() {
    let mut world = World::with(PoolLimits { reuse: Reuse::Request, ..PoolLimits::default() });
    tells_all(&world);
    let client = FakeClient::new(json!({}));
    let filter = json!({ "toolsListChanged": true });
    let first = world.listening(&client, listen(&client, 1, &filter)).await;
    let second = world.listening(&client, listen(&client, 2, &filter)).await;
    assert_eq!(world.bridge.sessions(), 2);
    first.abort();
    second.abort();
    let mut closed = 0;
    while closed < 2 {
        closed += usize::from(matches!(world.script.next().await, BackendEvent::Closed));
    }
    assert_eq!(world.bridge.sessions(), 0);
}

#[tokio::test]
async fn a_listener_that_falls_behind_is_told_that_everything_changed() {
    let mut world = telling();
    let client = FakeClient::new(json!({}));
    let listening = world.start(listen(
        &client,
        1,
        &json!({ "resourceSubscriptions": ["a:"], "toolsListChanged": true }),
    ));
    let (subscribed, outlet) = world.subscribed().await;
    // Before the acknowledgement nothing is passed on, so all of this is queued.
    let outlet = outlet.unwrap();
    for number in 0..1000 {
        updated(&outlet, &format!("a:/{number}")).await;
    }
    subscribed.answer(&json!({}));
    client.hear().await;
    let mut told = Vec::new();
    while !matches!(told.last(), Some((Method::ToolsListChanged, _))) {
        told.push(client.hear().await);
    }
    let (_, whole) = client.hear().await;
    assert_eq!(whole["uri"], "a:");
    assert!(told.len() < 300, "{}", told.len());
    listening.abort();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_subscriptions_holds_up_no_calls_and_a_listen_only_once() {
    let mut world = telling();
    let client = FakeClient::new(json!({}));
    let uris: Vec<_> = (0..5).map(|number| format!("a:{number}")).collect();
    let filter = json!({ "toolsListChanged": true, "resourceSubscriptions": uris });
    let listening = world.start(listen(&client, 1, &filter));
    let (held, _) = world.subscribed().await;
    let answer = world.call("t");
    let (call, _) = world.asked().await;
    assert_eq!(call.request.method, Method::ToolsCall, "a call does not wait for a listen");
    call.answer(&json!({ "content": [] }));
    answer.await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_secs(11)).await;
    let (method, params) = client.hear().await;
    assert_eq!(method, Method::Acknowledged);
    assert_eq!(params["notifications"], json!({ "toolsListChanged": true }));
    // Nor does the next call wait, in the same session or another.
    let answer = world.call("t");
    let (call, _) = world.asked().await;
    assert_eq!(call.request.method, Method::ToolsCall);
    call.answer(&json!({ "content": [] }));
    answer.await.unwrap().unwrap();
    drop(held);
    listening.abort();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_slow_with_each_subscription_holds_up_a_listen_only_once() {
    let mut world = telling();
    let client = FakeClient::new(json!({}));
    let uris: Vec<_> = (0..20).map(|number| format!("a:{number}")).collect();
    let listening = world.start(listen(&client, 1, &json!({ "resourceSubscriptions": uris })));
    let server = tokio::spawn(async move {
        loop {
            let (slow, _) = world.subscribed().await;
            tokio::time::sleep(Duration::from_secs(6)).await;
            slow.answer(&json!({}));
        }
    });
    tokio::time::sleep(Duration::from_secs(11)).await;
    let (method, params) = client.hear().await;
    assert_eq!(method, Method::Acknowledged);
    assert_eq!(params["notifications"], json!({ "resourceSubscriptions": ["a:0"] }));
    listening.abort();
    server.abort();
}

#[tokio::test]
async fn our_own_requests_are_sent_on_behalf_of_the_principal_that_the_session_serves() {
    let (responder, mut server) = FakeResponder::new();
    let sessions = SessionsOnExchanges::new(responder, Arc::new(TurnableClock::start()));
    let bridge = ExchangesOnSessions::new(Arc::new(sessions), PoolLimits::default());
    let client = FakeClient::new(json!({}));
    let call = by("ann", &client, listen(&client, 1, &json!({ "toolsListChanged": true })));
    let listening = tokio::spawn(bridge.respond(call));
    let ann = Principal::named("ann");
    let discovery = server.expect("server/discover").await;
    assert_eq!(discovery.context.caller().principal, ann);
    discovery.answer(&fake_responder::discovery());
    // A program has one process per caller, and sends that caller's news there.
    assert_eq!(server.expect("subscriptions/listen").await.context.caller().principal, ann);
    listening.abort();
}
