//! Servers in this process that panic: their caller is told, and no other caller notices.

use std::sync::Arc;

use serde_json::json;
use tenure_protocol::{Method, RawJson, Reply};
use tenure_session::backend::Call;
use tenure_session::port::BoxFuture;

use super::support::{
    Try, World, accepted, error_of, flow_of, gist, hang_up, json_of, rest, seconds, settle,
};

/// A server that panics where the tool's name says.
fn server(call: Call) -> BoxFuture<Reply> {
    let name = call.request.params.as_ref().unwrap().read::<serde_json::Value>().unwrap()["name"].clone();
    match name.as_str().unwrap() {
        "at once" => panic!("a test's own panic"),
        "first" => Box::pin(async { panic!("a test's own panic") }),
        "later" => Box::pin(async {
            tokio::time::sleep(seconds(1)).await;
            panic!("a test's own panic")
        }),
        "after a message" => Box::pin(async move {
            let params = RawJson::of(&json!({ "level": "error", "data": "hello" }));
            call.context.notify(&Method::LogMessage, Some(&params)).await.unwrap();
            panic!("a test's own panic")
        }),
        "after a question" => Box::pin(async move {
            let _ = call.context.ask(&Method::ElicitationCreate, Some(&RawJson::EMPTY_OBJECT)).await;
            panic!("a test's own panic")
        }),
        "while it waits" => Box::pin(async move {
            let params = RawJson::EMPTY_OBJECT;
            let asking = call.context.ask(&Method::ElicitationCreate, Some(&params));
            let _ = tokio::time::timeout(seconds(1), asking).await;
            panic!("a test's own panic")
        }),
        "when dropped" => Box::pin(Dropping::new(&call)),
        "when done" => Box::pin(Done(call)),
        _ => Box::pin(async { Ok(RawJson::EMPTY_OBJECT) }),
    }
}

/// Waits for ever, and panics when it is dropped. Asks something before, if it is told to.
struct Dropping(BoxFuture<Reply>);

impl Dropping {
    fn new(call: &Call) -> Self {
        let params: serde_json::Value = call.request.params.as_ref().unwrap().read().unwrap();
        let context = call.context.clone();
        Self(Box::pin(async move {
            if params["ask"] == true {
                let _ = context.ask(&Method::ElicitationCreate, Some(&RawJson::EMPTY_OBJECT)).await;
            }
            std::future::pending().await
        }))
    }
}

impl Future for Dropping {
    type Output = Reply;

    fn poll(mut self: std::pin::Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<Reply> {
        self.0.as_mut().poll(cx)
    }
}

impl Drop for Dropping {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("a test's own panic");
        }
    }
}

/// Is done at once, and looks at its context once more when it is dropped.
struct Done(Call);

impl Future for Done {
    type Output = Reply;

    fn poll(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<Reply> {
        std::task::Poll::Ready(Ok(RawJson::EMPTY_OBJECT))
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        let _ = self.0.context.capabilities();
        assert!(std::thread::panicking(), "a test's own panic");
    }
}

fn tool(name: &str) -> Try {
    Try::tool().with("name", json!(name)).level("debug")
}

async fn assert_serves(world: &World) {
    assert_eq!(gist(&world.ask(&tool("well")).await), "complete 1");
    assert_eq!((world.tallies().running, world.tallies().parked), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_an_error_in_answer_to_its_request() {
    let world = World::acting(server);
    for name in ["at once", "first", "later"] {
        assert_eq!(error_of(&world.ask(&tool(name)).await), (-32603, "internal"), "{name}");
        assert_serves(&world).await;
    }
    let mut flow = flow_of(world.send(&tool("after a message")).await.unwrap());
    assert_eq!(rest(&mut flow).await, ["hello", "error 1 internal"]);
    drop(flow);
    assert_serves(&world).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_after_a_question_is_an_error_in_answer_to_the_next_attempt() {
    let world = World::acting(server);
    for (name, wait) in [("after a question", 0), ("while it waits", 2)] {
        let asked = world.ask(&tool(name)).await;
        tokio::time::sleep(seconds(wait)).await;
        assert_eq!(world.tallies().parked, 1);
        let answer = world.ask(&tool(name).again(&asked, &json!({ "q1": accepted("Ann") }))).await;
        assert_eq!(error_of(&answer), (-32603, "internal"), "{name}");
        settle().await;
        assert_serves(&world).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_a_call_that_is_given_up_stays_with_it() {
    let world = World::acting(server);
    // The task of a connection drops it, and may carry the requests of others, so it must not panic.
    let waiting = world.send(&tool("when dropped"));
    settle().await;
    hang_up(waiting).await;
    assert_serves(&world).await;
    let flow = flow_of(world.send(&tool("when dropped")).await.unwrap());
    drop(flow);
    assert_serves(&world).await;
    let answer = world.ask(&tool("when dropped").json_only()).await;
    assert_eq!(error_of(&answer), (-31012, "timed_out"));
    assert_serves(&world).await;
    assert_eq!(gist(&world.ask(&tool("when done")).await), "complete 1");
    assert_serves(&world).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_a_call_whose_client_does_not_come_back_leaves_nothing_parked() {
    let world = World::acting(server);
    let asked = json_of(world.send(&tool("when dropped").with("ask", json!(true))).await.unwrap());
    assert_eq!(asked["result"]["resultType"], "input_required");
    assert_eq!(world.tallies().parked, 1);
    tokio::time::sleep(seconds(700)).await;
    assert_serves(&world).await;
}

#[tokio::test(start_paused = true)]
async fn others_on_the_same_runtime_go_on() {
    let world = Arc::new(World::acting(server));
    let mut all = Vec::new();
    for number in 0..100 {
        let world = Arc::clone(&world);
        let name = ["at once", "first", "later", "well"][number % 4];
        all.push(tokio::spawn(async move { (name, gist(&world.ask(&tool(name)).await)) }));
    }
    for one in all {
        let (name, answer) = one.await.unwrap();
        assert_eq!(answer, if name == "well" { "complete 1" } else { "error 1 internal" });
    }
    world.assert_idle();
}
