//! Clients that come back for the rest of a stream: from a broken connection, after a kill, and over a stop.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_session::Route;
use tenure_session::exchange::{Flow, FlowItem};
use tenure_session::fingerprint::{Fingerprint, Fingerprints};
use tenure_session::port::store::{Space, Store, StoreError};
use tenure_store::memory::Memory;
use tenure_testkit::clock::TurnableClock;
use tenure_testkit::crash::Last;
use tenure_testkit::fake_responder::FakeRequest;
use tenure_testkit::faulty::Faulty;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::support::{
    Making, Try, World, flow_of, gist, is_quiet, json_of, next, question, rest, say, seconds, settle,
};

/// Processes that follow one another on one store.
struct Place {
    store: Arc<Faulty>,
    clock: Arc<TurnableClock>,
    server: Fingerprint,
    max_kept: usize,
}

impl Place {
    fn new() -> Self {
        let store = Arc::new(Faulty::new(Arc::new(Memory::new())));
        store.set_lasting();
        let server = Fingerprint::of("foo", [b"foo".as_slice()]);
        Self { store, clock: Arc::new(TurnableClock::start()), server, max_kept: 100 }
    }

    /// Another process.
    fn process(&self) -> World {
        let mut making = Making { clock: Arc::clone(&self.clock), ..Making::default() };
        making.limits.max_kept = self.max_kept;
        let servers: Fingerprints = [(Route::MAIN, self.server.clone())].into_iter().collect();
        making.store = Some((Arc::clone(&self.store) as Arc<dyn Store>, servers));
        World::of(making)
    }

    /// How many calls are noted.
    async fn notes(&self) -> usize {
        self.store.list(Space::Call, None, 100).await.unwrap().len()
    }
}

/// A call whose client has heard of it: its stream, the id to come back with, and the server's side.
async fn streaming(world: &mut World, attempt: &Try) -> (Flow, String, FakeRequest) {
    let (waiting, call) = world.begin(attempt).await;
    say(&call, "hello").await;
    let mut flow = flow_of(waiting.await.unwrap());
    let (id, retry) = primed(&mut flow).await;
    assert!(retry >= seconds(4) && retry <= seconds(5), "{retry:?}");
    assert_eq!(gist(&next(&mut flow).await), "hello");
    (flow, id, call)
}

async fn item(flow: &mut Flow) -> Option<FlowItem> {
    std::future::poll_fn(|cx| flow.poll_next(cx)).await
}

/// The id that a stream begins with.
async fn primed(flow: &mut Flow) -> (String, Duration) {
    match item(flow).await {
        Some(FlowItem::Resumable { id, retry }) => (id, retry),
        other => panic!("an id, not {other:?}"),
    }
}

/// The time after which the client of a stream is told to come back, which is the end of the stream.
async fn sent_away(flow: &mut Flow) -> Duration {
    let Some(FlowItem::ComeBack(retry)) = item(flow).await else { panic!("the client is sent away") };
    assert_eq!(item(flow).await, None);
    retry
}

/// Comes back as the client of an attempt.
async fn come_back(world: &World, attempt: &Try, id: &str) -> Flow {
    let resumed = world.exchanges.resume(id.as_bytes(), attempt.caller()).await;
    let mut flow = resumed.expect("the id of a call").expect("a stream");
    assert_eq!(primed(&mut flow).await.0, id, "it can come back once more");
    flow
}

/// Comes back in a task of its own, which reads to the end.
fn coming_back(world: &World, attempt: &Try, id: &str) -> JoinHandle<Vec<String>> {
    let (exchanges, caller, id) = (world.exchanges.clone(), attempt.caller(), id.to_owned());
    tokio::spawn(async move {
        let mut flow = exchanges.resume(id.as_bytes(), caller).await.unwrap().unwrap();
        rest(&mut flow).await
    })
}

async fn hint(world: &mut World, annotations: &Value) {
    let listed = json!({ "tools": [{ "name": "t", "annotations": annotations }] });
    world.server.expect("tools/list").await.answer(&listed);
}

async fn safe(world: &mut World) {
    hint(world, &json!({ "readOnlyHint": true })).await;
}

async fn not_safe(world: &mut World) {
    hint(world, &json!({})).await;
}

/// Another process after a kill: the first one has no time for anything.
fn killed(place: &Place, world: World, flow: Flow) -> World {
    // Dropping them would say goodbye.
    std::mem::forget((world, flow));
    place.process()
}

fn tool() -> Try {
    Try::tool().level("info").resumable()
}

fn leave(world: &World, within: u64) -> JoinHandle<usize> {
    let (exchanges, until) = (world.exchanges.clone(), Instant::now() + seconds(within));
    tokio::spawn(async move {
        exchanges.finish(until).await;
        exchanges.leave(until).await
    })
}

#[tokio::test(start_paused = true)]
async fn a_call_that_may_be_repeated_is_run_again_after_a_kill() {
    let place = Place::new();
    let mut old = place.process();
    let (flow, id, call) = streaming(&mut old, &tool()).await;
    let params = call.params();
    let mut new = killed(&place, old, flow);
    let back = coming_back(&new, &tool(), &id);
    safe(&mut new).await;
    let again = new.server.next().await;
    assert_eq!(again.params(), params, "as it was");
    say(&again, "hello again").await;
    again.answer(&json!({ "content": [] }));
    assert_eq!(back.await.unwrap(), ["hello again", "complete 1"]);
    new.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_may_not_be_repeated_says_interrupted_after_a_kill() {
    let place = Place::new();
    let mut old = place.process();
    let (flow, id, _call) = streaming(&mut old, &tool()).await;
    let mut new = killed(&place, old, flow);
    let back = coming_back(&new, &tool(), &id);
    not_safe(&mut new).await;
    assert_eq!(back.await.unwrap(), ["error 1 interrupted"]);
    assert!(new.server.is_quiet(), "no server sees it twice");
    // It is known now how it ended, and stays so.
    assert_eq!(rest(&mut come_back(&new, &tool(), &id).await).await, ["error 1 interrupted"]);
    assert!(new.server.is_quiet());
}

#[tokio::test(start_paused = true)]
async fn a_call_is_run_again_after_a_second_kill() {
    let place = Place::new();
    let mut first = place.process();
    let (flow, id, _call) = streaming(&mut first, &tool()).await;
    let mut second = killed(&place, first, flow);
    let flow = come_back(&second, &tool(), &id).await;
    let reading = tokio::spawn(async move {
        let mut flow = flow;
        flow.next().await
    });
    safe(&mut second).await;
    let _begun = second.server.next().await;
    reading.abort();
    std::mem::forget(second);
    let mut third = place.process();
    let back = coming_back(&third, &tool(), &id);
    safe(&mut third).await;
    third.server.next().await.answer(&json!({}));
    assert_eq!(back.await.unwrap(), ["complete 1"]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_noted_before_its_client_gets_it() {
    let place = Place::new();
    let mut old = place.process();
    let (mut flow, id, call) = streaming(&mut old, &tool()).await;
    place.store.hold_answers_of_puts();
    call.answer(&json!({ "content": ["once"] }));
    settle().await;
    assert!(is_quiet(&mut flow).await, "the store has not answered");
    place.store.answer_puts();
    let given = next(&mut flow).await;
    assert_eq!(given["result"]["content"], json!(["once"]));
    let new = killed(&place, old, flow);
    let mut flow = come_back(&new, &tool(), &id).await;
    assert_eq!(next(&mut flow).await, given, "to the letter");
    assert_eq!(item(&mut flow).await, None);
    assert!(new.server.is_quiet());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_holds_up_no_answer_for_long() {
    let place = Place::new();
    let mut world = place.process();
    let (mut flow, _, call) = streaming(&mut world, &tool()).await;
    place.store.hold_answers_of_puts();
    call.answer(&json!({}));
    assert_eq!(rest(&mut flow).await, ["complete 1"]);
    // Nor the beginning of a stream: that goes on without an id.
    let (waiting, call) = world.begin(&tool().id(2)).await;
    say(&call, "hello").await;
    let mut flow = flow_of(waiting.await.unwrap());
    assert!(matches!(item(&mut flow).await, Some(FlowItem::Message(_))));
    place.store.answer_puts();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_comes_back_while_its_call_runs_gets_the_rest() {
    let place = Place::new();
    let mut world = place.process();
    let (mut flow, id, call) = streaming(&mut world, &tool()).await;
    // The connection is broken, which has not been noticed here.
    let old = tokio::spawn(async move { rest(&mut flow).await });
    settle().await;
    let mut back = come_back(&world, &tool(), &id).await;
    say(&call, "still here").await;
    assert_eq!(gist(&next(&mut back).await), "still here");
    assert_eq!(old.await.unwrap(), [""; 0], "nothing more comes there");
    call.answer(&json!({}));
    assert_eq!(rest(&mut back).await, ["complete 1"]);
    assert!(world.server.is_quiet(), "it is the same call");
    drop(back);
    world.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_comes_back_twice_while_its_call_runs_gets_the_rest() {
    let place = Place::new();
    let mut world = place.process();
    let (flow, id, call) = streaming(&mut world, &tool()).await;
    let back = come_back(&world, &tool(), &id).await;
    let mut again = come_back(&world, &tool(), &id).await;
    // Connections that were not polled since.
    drop((flow, back));
    settle().await;
    assert!(!call.is_dropped());
    call.answer(&json!({}));
    assert_eq!(rest(&mut again).await, ["complete 1"]);
    drop(again);
    world.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn hanging_up_withdraws_a_call_and_its_client_may_still_come_back() {
    let place = Place::new();
    let mut world = place.process();
    let (flow, id, call) = streaming(&mut world, &tool()).await;
    drop(flow);
    call.dropped().await;
    let back = coming_back(&world, &tool(), &id);
    safe(&mut world).await;
    world.server.next().await.answer(&json!({}));
    assert_eq!(back.await.unwrap(), ["complete 1"]);
    let (flow, id, call) = streaming(&mut world, &tool().id(2)).await;
    drop(flow);
    call.dropped().await;
    let back = coming_back(&world, &tool(), &id);
    not_safe(&mut world).await;
    assert_eq!(back.await.unwrap(), ["error 2 interrupted"]);
    world.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn a_call_belongs_to_its_caller_and_endpoint() {
    let place = Place::new();
    let mut world = place.process();
    let (_flow, id, call) = streaming(&mut world, &tool().by("ann")).await;
    let unknown = id.replacen(&id[5..37], &"0".repeat(32), 1);
    let strange = rest(&mut come_back(&world, &tool().by("ann"), &unknown).await).await;
    for stranger in [tool(), tool().by("bob")] {
        assert_eq!(rest(&mut come_back(&world, &stranger, &id).await).await, strange);
    }
    let elsewhere = world.exchanges.on(Route::named("b"));
    let mut flow = elsewhere.resume(id.as_bytes(), tool().by("ann").caller()).await.unwrap().unwrap();
    assert_eq!(rest(&mut flow).await, strange);
    assert!(!call.is_dropped() && world.server.is_quiet());
    assert_eq!(strange, ["error 1 interrupted"], "its client is told that it is lost, and need not wait");
    assert!(world.exchanges.resume(b"2-a-01010101", tool().caller()).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn questions_end_a_stream_and_can_be_asked_for_again() {
    let place = Place::new();
    let mut world = place.process();
    let (mut flow, id, call) = streaming(&mut world, &tool()).await;
    let _asked = question(&call, "elicitation/create", json!({ "message": "who?" }));
    let asked = next(&mut flow).await;
    assert_eq!(asked["result"]["resultType"], "input_required");
    let mut back = come_back(&world, &tool(), &id).await;
    assert_eq!(next(&mut back).await, asked);
    // The next attempt has a stream of its own.
    let answers = json!({ "q1": { "action": "accept", "content": {} } });
    let waiting = world.send(&tool().again(&asked, &answers).resumable());
    settle().await;
    say(&call, "thanks").await;
    let mut flow = flow_of(waiting.await.unwrap());
    let (other, _) = primed(&mut flow).await;
    assert_ne!(other, id);
    call.answer(&json!({}));
    assert_eq!(rest(&mut flow).await, ["thanks", "complete 2"]);
    assert_eq!(rest(&mut come_back(&world, &tool(), &other).await).await, ["complete 2"]);
}

#[tokio::test(start_paused = true)]
async fn clients_that_cannot_come_back_are_given_no_id() {
    let place = Place::new();
    let mut world = place.process();
    let (waiting, call) = world.begin(&Try::tool()).await;
    say(&call, "hello").await;
    let mut flow = flow_of(waiting.await.unwrap());
    assert!(matches!(item(&mut flow).await, Some(FlowItem::Message(_))));
    assert_eq!(place.notes().await, 0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_at_once_is_not_noted() {
    let place = Place::new();
    let mut world = place.process();
    let (waiting, call) = world.begin(&tool()).await;
    call.answer(&json!({}));
    assert_eq!(gist(&json_of(waiting.await.unwrap())), "complete 1");
    assert_eq!(place.store.puts(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_costs_the_id_and_nothing_else() {
    let place = Place::new();
    let mut world = place.process();
    place.store.fail_puts_with(StoreError::Full);
    let (waiting, call) = world.begin(&tool()).await;
    say(&call, "hello").await;
    let mut flow = flow_of(waiting.await.unwrap());
    assert!(matches!(item(&mut flow).await, Some(FlowItem::Message(_))));
    call.answer(&json!({}));
    assert_eq!(rest(&mut flow).await, ["complete 1"]);
}

#[tokio::test(start_paused = true)]
async fn there_are_no_more_notes_than_there_may_be_and_they_go_by_themselves() {
    let place = Place { max_kept: 2, ..Place::new() };
    let mut world = place.process();
    let mut calls = Vec::new();
    for id in 1..=2 {
        calls.push(streaming(&mut world, &tool().id(id)).await);
    }
    let (waiting, third) = world.begin(&tool().id(3)).await;
    say(&third, "hello").await;
    let mut unnoted = flow_of(waiting.await.unwrap());
    assert!(matches!(item(&mut unnoted).await, Some(FlowItem::Message(_))));
    for (mut flow, _, call) in calls {
        call.answer(&json!({}));
        assert_eq!(rest(&mut flow).await.len(), 1);
    }
    assert_eq!(place.notes().await, 2, "their clients may come back");
    place.clock.set_ahead(seconds(61));
    tokio::time::sleep(seconds(21)).await;
    assert_eq!(place.notes().await, 0);
    streaming(&mut world, &tool().id(4)).await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_sends_clients_of_repeatable_calls_away_to_come_back() {
    let place = Place::new();
    let mut old = place.process();
    let (mut flow, id, call) = streaming(&mut old, &tool()).await;
    // One that waits for JSON, too.
    let (waiting, quiet) = old.begin(&tool().id(2)).await;
    let leaving = leave(&old, 30);
    safe(&mut old).await;
    let mut late = flow_of(waiting.await.unwrap());
    let (late_id, _) = primed(&mut late).await;
    for flow in [&mut flow, &mut late] {
        let retry = sent_away(flow).await;
        assert!(retry >= seconds(10) && retry <= Duration::from_millis(12_500), "{retry:?}");
    }
    drop((flow, late));
    assert_eq!(leaving.await.unwrap(), 0);
    assert!(call.is_dropped() && quiet.is_dropped());
    let mut new = place.process();
    for (id, answer) in [(id, "complete 1"), (late_id, "complete 2")] {
        let back = coming_back(&new, &tool(), &id);
        safe(&mut new).await;
        new.server.next().await.answer(&json!({}));
        assert_eq!(back.await.unwrap(), [answer]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_calls_that_may_not_be_repeated() {
    let place = Place::new();
    let mut old = place.process();
    let (mut flow, _, call) = streaming(&mut old, &tool()).await;
    let (mut cut, id, _stuck) = streaming(&mut old, &tool().id(2)).await;
    let leaving = leave(&old, 30);
    not_safe(&mut old).await;
    call.answer(&json!({}));
    assert_eq!(rest(&mut flow).await, ["complete 1"]);
    drop(flow);
    assert_eq!(rest(&mut cut).await, ["error 2 interrupted"]);
    drop(cut);
    assert_eq!(leaving.await.unwrap(), 1);
    let new = place.process();
    assert_eq!(rest(&mut come_back(&new, &tool(), &id).await).await, ["error 2 interrupted"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_comes_during_a_stop_and_may_not_be_repeated_is_begun_by_the_next_process() {
    let place = Place::new();
    let mut old = place.process();
    let (mut flow, _, long) = streaming(&mut old, &tool()).await;
    let leaving = leave(&old, 30);
    not_safe(&mut old).await;
    let waiting = old.send(&tool().id(2));
    settle().await;
    assert!(old.server.is_quiet(), "it is not begun: it could be cut off");
    long.answer(&json!({}));
    assert_eq!(rest(&mut flow).await, ["complete 1"]);
    drop(flow);
    let mut held = flow_of(waiting.await.unwrap());
    let (id, _) = primed(&mut held).await;
    sent_away(&mut held).await;
    drop(held);
    assert_eq!(leaving.await.unwrap(), 0);
    let mut new = place.process();
    let back = coming_back(&new, &tool(), &id);
    // No hint is asked for: no server has seen the call.
    let begun = new.server.expect("tools/call").await;
    // From now on one may have.
    std::mem::forget(new);
    drop(begun);
    back.abort();
    let mut third = place.process();
    let back = coming_back(&third, &tool(), &id);
    not_safe(&mut third).await;
    assert_eq!(back.await.unwrap(), ["error 2 interrupted"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_held_begins_though_the_answer_of_the_store_is_lost() {
    let place = Place::new();
    let mut old = place.process();
    let (mut flow, _, long) = streaming(&mut old, &tool()).await;
    let leaving = leave(&old, 30);
    not_safe(&mut old).await;
    let waiting = old.send(&tool().id(2));
    settle().await;
    long.answer(&json!({}));
    assert_eq!(rest(&mut flow).await, ["complete 1"]);
    drop(flow);
    let mut held = flow_of(waiting.await.unwrap());
    let (id, _) = primed(&mut held).await;
    sent_away(&mut held).await;
    drop(held);
    assert_eq!(leaving.await.unwrap(), 0);
    let mut new = place.process();
    place.store.lose_answer_of_next_put(Last::Done);
    let back = coming_back(&new, &tool(), &id);
    // The note says that the call has begun, so it is begun, and its end is noted over that version.
    new.server.expect("tools/call").await.answer(&json!({}));
    assert_eq!(back.await.unwrap(), ["complete 2"]);
    assert_eq!(rest(&mut come_back(&new, &tool(), &id).await).await, ["complete 2"]);
    assert!(new.server.is_quiet(), "its answer is noted");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_comes_during_a_stop_and_may_be_repeated_is_served() {
    let place = Place::new();
    let mut old = place.process();
    let (_flow, _, _long) =
        streaming(&mut old, &Try::of("tools/call", json!({ "name": "pay" })).level("info").resumable()).await;
    let _leaving = leave(&old, 30);
    safe(&mut old).await;
    let (waiting, call) = old.begin(&tool().id(2)).await;
    call.answer(&json!({}));
    assert_eq!(gist(&json_of(waiting.await.unwrap())), "complete 2");
    let (waiting, list) = old.begin(&Try::of("tools/list", json!({})).id(3).resumable()).await;
    list.answer(&json!({ "tools": [] }));
    assert_eq!(gist(&json_of(waiting.await.unwrap())), "complete 3");
}

#[tokio::test(start_paused = true)]
async fn a_call_does_not_go_on_with_another_server_in_silence() {
    let place = Place::new();
    let mut old = place.process();
    let (flow, id, _call) = streaming(&mut old, &tool()).await;
    let other = Place { server: Fingerprint::of("bar", [b"bar".as_slice()]), ..place };
    let mut new = killed(&other, old, flow);
    let back = coming_back(&new, &tool(), &id);
    safe(&mut new).await;
    let named =
        json!({ "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "bar", "version": "1" } } });
    new.server.expect("server/discover").await.answer(&named);
    assert_eq!(back.await.unwrap(), ["error 1 interrupted"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_goes_on_with_a_newer_version_of_its_server() {
    let place = Place::new();
    let mut old = place.process();
    let (flow, id, _call) = streaming(&mut old, &tool()).await;
    let newer = Place { server: Fingerprint::of("foo", [b"foo@2".as_slice()]), ..place };
    let mut new = killed(&newer, old, flow);
    let back = coming_back(&new, &tool(), &id);
    safe(&mut new).await;
    let named =
        json!({ "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "steered", "version": "2" } } });
    new.server.expect("server/discover").await.answer(&named);
    new.server.expect("tools/call").await.answer(&json!({}));
    assert_eq!(back.await.unwrap(), ["complete 1"]);
}

/// A listen whose client has heard of it.
async fn listening(world: &mut World) -> (Flow, String, FakeRequest) {
    let filter = json!({ "toolsListChanged": true, "resourceSubscriptions": ["a:b"] });
    let (waiting, listen) = world.begin(&Try::listen(&filter).resumable()).await;
    listen.acknowledge(&[]).await;
    let mut flow = flow_of(waiting.await.unwrap());
    let (id, _) = primed(&mut flow).await;
    assert_eq!(next(&mut flow).await["method"], "notifications/subscriptions/acknowledged");
    (flow, id, listen)
}

#[tokio::test(start_paused = true)]
async fn a_listen_goes_on_after_a_kill_and_says_that_all_may_have_changed() {
    let place = Place::new();
    let mut old = place.process();
    let (flow, id, _listen) = listening(&mut old).await;
    let mut new = killed(&place, old, flow);
    place.clock.set_ahead(Duration::from_secs(6 * 24 * 60 * 60));
    let mut back = come_back(&new, &tool(), &id).await;
    let reading = tokio::spawn(async move {
        let mut heard = Vec::new();
        for _ in 0..4 {
            let message = next(&mut back).await;
            assert_eq!(message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 1, "{message}");
            heard.push(message["method"].as_str().unwrap().trim_start_matches("notifications/").to_owned());
        }
        heard
    });
    let listen = new.server.expect("subscriptions/listen").await;
    listen.acknowledge(&[]).await;
    let subscription = listen.subscription();
    listen.say(&tenure_protocol::Method::ToolsListChanged, &json!({ "_meta": subscription })).await;
    let all = ["subscriptions/acknowledged", "tools/list_changed", "resources/updated", "tools/list_changed"];
    assert_eq!(reading.await.unwrap(), all);
}

#[tokio::test(start_paused = true)]
async fn a_stop_without_a_next_process_sends_listens_away_to_come_back() {
    let place = Place::new();
    let mut old = place.process();
    let (mut flow, id, listen) = listening(&mut old).await;
    let leaving = leave(&old, 30);
    assert!(sent_away(&mut flow).await >= seconds(10));
    drop(flow);
    assert_eq!(leaving.await.unwrap(), 0);
    assert!(listen.is_dropped());
    let mut new = place.process();
    let mut back = come_back(&new, &tool(), &id).await;
    let reading = tokio::spawn(async move { next(&mut back).await });
    new.server.expect("subscriptions/listen").await.acknowledge(&[]).await;
    assert_eq!(reading.await.unwrap()["method"], "notifications/subscriptions/acknowledged");
}
