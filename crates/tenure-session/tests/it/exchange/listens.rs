//! Listens: acknowledged first, told what they asked for under their own id, and ended in good order.

use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};
use tenure_protocol::{RawJson, Reply};
use tenure_session::backend::{Call, Responder};
use tenure_session::call::{Fanout, News};
use tenure_session::exchange::{ExchangeAnswer, Flow, FlowItem, Listens};
use tenure_session::port::BoxFuture;

use super::support::{Making, Try, World, flow_of, gist, is_quiet, next, pass, seconds, settle};

const ID: &str = "io.modelcontextprotocol/subscriptionId";

/// A server in this process that tells what its capabilities say.
struct Telling {
    capabilities: Value,
    listens: OnceLock<Listens>,
}

impl Responder for Telling {
    fn respond(&self, call: Call) -> BoxFuture<Reply> {
        let (listens, capabilities) = (self.listens.get().unwrap().clone(), RawJson::of(&self.capabilities));
        Box::pin(async move { listens.serve(call, &capabilities).await })
    }

    fn begin(&self, fanout: Fanout) {
        self.listens.get_or_init(|| Listens::new(&fanout));
    }
}

fn world(capabilities: Value) -> World {
    let telling = Telling { capabilities, listens: OnceLock::new() };
    World::served_by(Making::default(), Arc::new(telling))
}

fn everything() -> Value {
    json!({
        "tools": { "listChanged": true },
        "prompts": { "listChanged": true },
        "resources": { "subscribe": true, "listChanged": true },
    })
}

async fn open(world: &World, listen: &Try) -> Flow {
    flow_of(world.send(listen).await.unwrap())
}

fn method(message: &Value) -> &str {
    message["method"].as_str().unwrap_or_default().trim_start_matches("notifications/")
}

#[tokio::test(start_paused = true)]
async fn a_listen_is_acknowledged_first_and_hears_what_it_asked_for() {
    let world = world(everything());
    let wanted = json!({ "toolsListChanged": true, "resourceSubscriptions": ["a:b"] });
    let mut flow = open(&world, &Try::listen(&wanted).id(7)).await;
    let acknowledged = next(&mut flow).await;
    assert_eq!(method(&acknowledged), "subscriptions/acknowledged");
    let honoured = json!({ "toolsListChanged": true, "resourceSubscriptions": ["a:b"] });
    assert_eq!(acknowledged["params"], json!({ "notifications": honoured, "_meta": { ID: 7 } }));
    assert!(is_quiet(&mut flow).await);
    world.fanout.list_changed(News::Prompts);
    world.fanout.list_changed(News::Resources);
    world.fanout.resource_updated("a:c");
    pass(seconds(3600)).await;
    assert!(is_quiet(&mut flow).await, "none of that was asked for, and a listen has all the time");
    world.fanout.list_changed(News::Tools);
    let heard = next(&mut flow).await;
    assert_eq!((method(&heard), &heard["params"]), ("tools/list_changed", &json!({ "_meta": { ID: 7 } })));
    world.fanout.resource_updated("a:b");
    let heard = next(&mut flow).await;
    assert_eq!(heard["params"], json!({ "uri": "a:b", "_meta": { ID: 7 } }));
    assert_eq!(heard.get("id"), None, "{heard}");
}

#[tokio::test(start_paused = true)]
async fn only_what_the_server_tells_is_acknowledged() {
    let all = json!({
        "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true,
        "resourceSubscriptions": ["a:b"],
    });
    let world = world(json!({ "tools": { "listChanged": true }, "prompts": {}, "resources": {} }));
    let mut flow = open(&world, &Try::listen(&all)).await;
    assert_eq!(next(&mut flow).await["params"]["notifications"], json!({ "toolsListChanged": true }));
    for news in [News::Prompts, News::Resources] {
        world.fanout.list_changed(news);
    }
    world.fanout.resource_updated("a:b");
    assert!(is_quiet(&mut flow).await);

    let mute = self::world(json!({ "tools": {} }));
    let refused = mute.ask(&Try::listen(&all)).await;
    assert_eq!(refused["error"]["code"], -32601, "it never tells anything");
    mute.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn listens_run_side_by_side_each_under_its_own_id() {
    let world = world(everything());
    let tools = json!({ "toolsListChanged": true });
    let mut flows = Vec::new();
    for id in [json!(1), json!("1"), json!("x"), json!(-3)] {
        let mut flow = open(&world, &Try::listen(&tools).id(id.clone())).await;
        assert_eq!(next(&mut flow).await["params"]["_meta"][ID], id);
        flows.push((id, flow));
    }
    assert_eq!(world.tallies().running, 4);
    world.fanout.list_changed(News::Tools);
    for (id, flow) in &mut flows {
        let heard = next(flow).await;
        assert_eq!(heard["params"]["_meta"][ID], *id, "of the same type");
    }
    let (_, gone) = flows.remove(0);
    drop(gone);
    world.fanout.list_changed(News::Tools);
    for (_, flow) in &mut flows {
        assert_eq!(method(&next(flow).await), "tools/list_changed");
    }
    drop(flows);
    world.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn a_listen_that_does_not_read_is_told_once_what_happened_often() {
    let world = world(everything());
    let wanted = json!({ "toolsListChanged": true, "resourceSubscriptions": ["a:b", "a:c"] });
    let mut flow = open(&world, &Try::listen(&wanted)).await;
    next(&mut flow).await;
    for _ in 0..10_000 {
        world.fanout.list_changed(News::Tools);
        world.fanout.resource_updated("a:b");
    }
    let mut heard = Vec::new();
    while let std::task::Poll::Ready(Some(FlowItem::Message(body))) =
        std::future::poll_fn(|cx| std::task::Poll::Ready(flow.poll_next(cx))).await
    {
        heard.push(method(&serde_json::from_slice(&body).unwrap()).to_owned());
    }
    assert_eq!(heard, ["tools/list_changed", "resources/updated"]);
    // Parts of what it watches are many, and still no more than it named is kept.
    for part in 0..5000 {
        world.fanout.resource_updated(&format!("a:c/{part}"));
    }
    let mut told = Vec::new();
    while let std::task::Poll::Ready(Some(FlowItem::Message(body))) =
        std::future::poll_fn(|cx| std::task::Poll::Ready(flow.poll_next(cx))).await
    {
        let heard: Value = serde_json::from_slice(&body).unwrap();
        told.push(heard["params"]["uri"].as_str().unwrap_or_default().to_owned());
    }
    assert!((1000..=1002).contains(&told.len()), "{}", told.len());
    // Not all parts fit, so everything that it watches may have changed.
    for uri in ["a:b", "a:c"] {
        assert!(told.iter().any(|told| told == uri), "{uri}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_no_streams_cannot_listen() {
    let world = world(everything());
    let refused = world.send(&Try::listen(&json!({ "toolsListChanged": true })).json_only());
    let refused = tokio::time::timeout(seconds(1), refused).await.expect("an answer at once").unwrap();
    assert!(
        matches!(refused, ExchangeAnswer::Refused(error) if error.reason() == tenure_protocol::Reason::NotAcceptable)
    );
    world.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn draining_ends_listens_with_a_result() {
    let world = world(everything());
    let mut flow = open(&world, &Try::listen(&json!({ "toolsListChanged": true })).id("l")).await;
    next(&mut flow).await;
    world.fanout.list_changed(News::Tools);
    assert_eq!(method(&next(&mut flow).await), "tools/list_changed");
    assert!(is_quiet(&mut flow).await);
    world.exchanges.drain();
    world.fanout.list_changed(News::Tools);
    let last = next(&mut flow).await;
    assert_eq!(
        last,
        json!({ "jsonrpc": "2.0", "id": "l", "result": { "resultType": "complete", "_meta": { ID: "l" } } })
    );
    assert!(flow.next().await.is_none());
    drop(flow);
    settle().await;
    world.assert_idle();
    assert_eq!(world.ask(&Try::listen(&json!({}))).await["refused"], "draining");
}

#[tokio::test(start_paused = true)]
async fn news_of_a_call_goes_to_those_who_listen() {
    let listens = Arc::new(OnceLock::<Listens>::new());
    struct Both(Arc<OnceLock<Listens>>);
    impl Responder for Both {
        fn respond(&self, call: Call) -> BoxFuture<Reply> {
            let listens = self.0.get().unwrap().clone();
            Box::pin(async move {
                if call.request.method == tenure_protocol::Method::Listen {
                    return listens.serve(call, &RawJson::of(&everything())).await;
                }
                call.context.notify(&tenure_protocol::Method::ToolsListChanged, None).await.unwrap();
                let params = RawJson::of(&json!({ "uri": "a:b" }));
                call.context.notify(&tenure_protocol::Method::ResourceUpdated, Some(&params)).await.unwrap();
                Ok(RawJson::EMPTY_OBJECT)
            })
        }

        fn begin(&self, fanout: Fanout) {
            self.0.get_or_init(|| Listens::new(&fanout));
        }
    }
    let world = World::served_by(Making::default(), Arc::new(Both(listens)));
    let wanted = json!({ "toolsListChanged": true, "resourceSubscriptions": ["a:b"] });
    let mut flow = open(&world, &Try::listen(&wanted).id("l")).await;
    next(&mut flow).await;
    assert_eq!(world.ask(&Try::tool()).await["result"]["resultType"], "complete");
    assert_eq!(method(&next(&mut flow).await), "tools/list_changed");
    assert_eq!(next(&mut flow).await["params"]["uri"], "a:b");
}

#[tokio::test(start_paused = true)]
async fn an_unacknowledged_listen_ends_and_an_acknowledged_one_goes_on() {
    let mut world = World::new();
    let listen = Try::listen(&json!({ "toolsListChanged": true }));
    let (waiting, asked) = world.begin(&listen).await;
    // It becomes a stream meanwhile, of which nothing else would ever come.
    let mut flow = flow_of(waiting.await.unwrap());
    let ended = tokio::time::timeout(seconds(1000), next(&mut flow)).await.expect("it ends in time");
    assert_eq!(gist(&ended), "error 1 timed_out");
    asked.dropped().await;
    drop(flow);
    world.assert_idle();

    let (waiting, asked) = world.begin(&listen).await;
    asked.acknowledge(&[]).await;
    let mut flow = flow_of(waiting.await.unwrap());
    assert_eq!(method(&next(&mut flow).await), "subscriptions/acknowledged");
    assert!(tokio::time::timeout(seconds(100_000), flow.next()).await.is_err(), "it has all the time");
    assert!(!asked.is_dropped());
}
