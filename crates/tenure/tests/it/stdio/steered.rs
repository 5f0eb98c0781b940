//! A connection in this process, with a server behind it whose every move the test makes.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure::StdioNode;
use tenure_protocol::{Method, RawJson};
use tenure_testkit::fake_backend::{FakeBackend, FakeCall, NewLink, Opens, Script};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::talk::{Talk, fault};
use crate::support::node::{announce, config, say};
use crate::support::session::{initialize_params, request};
use crate::support::wait::{until, within};

/// What fits between the two ends before the other one has to read.
const PIPE_BYTES: usize = 256;

struct Steered {
    talk: Talk,
    backend: Arc<FakeBackend>,
    script: Script,
    stop: CancellationToken,
    running: AbortOnDropHandle<()>,
}

impl Steered {
    async fn start(settings: &[(&str, &str)]) -> Self {
        let (backend, script) = FakeBackend::new();
        let node = StdioNode::with_backend(&config(settings), backend.clone()).await.expect("a node");
        let (input, theirs) = tokio::io::duplex(PIPE_BYTES);
        let (ours, output) = tokio::io::duplex(PIPE_BYTES);
        let stop = CancellationToken::new();
        let running = AbortOnDropHandle::new(tokio::spawn(node.run(theirs, output, stop.clone())));
        Self { talk: Talk::new(input, ours), backend, script, stop, running }
    }

    /// With a session, and the backend's side of it.
    async fn open(settings: &[(&str, &str)]) -> (Self, NewLink) {
        let mut steered = Self::start(settings).await;
        steered.talk.shake_hands().await;
        let link = steered.script.opened().await;
        (steered, link)
    }

    async fn call(&mut self, id: u64) -> FakeCall {
        self.talk.request(id, "tools/call", &json!({ "name": "any" })).await;
        self.script.call().await
    }

    /// Closes the input and reads the rest.
    async fn close(mut self) -> Vec<String> {
        self.talk.close_input();
        let rest = self.talk.rest().await;
        within("it ends", self.running).await.expect("no panic");
        rest.iter().map(gist).collect()
    }
}

fn gist(message: &Value) -> String {
    crate::support::events::gist(message)
}

#[tokio::test]
async fn the_server_behind_knows_how_its_client_came() {
    let (mut steered, _link) = Steered::open(&[]).await;
    let call = steered.call(1).await;
    assert_eq!(call.context.caller().transport, "stdio");
    assert_eq!(call.context.caller().principal.name(), None);
    call.answer(&json!({}));
    assert_eq!(steered.close().await, ["result 1"]);
}

/// The one who carries the news may be between two readers when it is time to leave.
#[tokio::test]
async fn a_pause_in_the_news_does_not_hold_up_the_end() {
    // When it ends, the news are taken up again at once the first time, the second time after a pause.
    let (steered, _link) = Steered::open(&[("shutdown.retry", "60s"), ("shutdown.grace", "60s")]).await;
    assert_eq!(steered.close().await, Vec::<String>::new());
}

#[tokio::test]
async fn news_that_belong_to_no_request_are_passed_on() {
    let (mut steered, link) = Steered::open(&[]).await;
    announce(&link, "one").await;
    announce(&link, "two").await;
    assert_eq!(steered.talk.message().await["params"]["data"], "one");
    assert_eq!(steered.talk.message().await["params"]["data"], "two");
    let roots = tokio::spawn({
        let outlet = link.outlet.clone();
        async move { outlet.ask(&Method::RootsList, None).await }
    });
    let question = steered.talk.message().await;
    assert_eq!(question["method"], "roots/list");
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "roots": [] } });
    steered.talk.send(&answer).await;
    assert!(within("the answer", roots).await.unwrap().is_ok());
    // A message that comes while it ends is delivered all the same.
    let call = steered.call(1).await;
    steered.talk.close_input();
    announce(&link, "three").await;
    call.answer(&json!({}));
    let mut rest: Vec<_> = steered.talk.rest().await.iter().map(gist).collect();
    rest.sort();
    assert_eq!(rest, ["result 1", "three"]);
}

#[tokio::test]
async fn pings_are_answered_while_the_server_behind_takes_its_time() {
    let mut steered = Steered::start(&[("timeouts.initialize", "100ms")]).await;
    steered.backend.set_opens(Opens::Hangs);
    steered.talk.request(1, "initialize", &initialize_params("2025-11-25")).await;
    steered.talk.request(2, "ping", &json!({})).await;
    steered.talk.request(3, "tools/list", &json!({})).await;
    let answers = [steered.talk.message().await, steered.talk.message().await, steered.talk.message().await];
    assert_eq!(answers.each_ref().map(|answer| answer["id"].clone()), [2, 1, 3]);
    assert!(answers[1]["error"].is_object(), "{}", answers[1]);
    assert_eq!(fault(&answers[2]), (Some(&json!(3)), "not_initialized"));
    // It may be tried again.
    steered.backend.set_opens(Opens::Well);
    steered.talk.shake_hands().await;
    assert_eq!(steered.close().await, [""; 0]);
}

#[tokio::test]
async fn stopping_does_not_wait_for_a_handshake() {
    let mut steered = Steered::start(&[("shutdown.grace", "0s")]).await;
    steered.backend.set_opens(Opens::Hangs);
    steered.talk.request(1, "initialize", &initialize_params("2025-11-25")).await;
    steered.talk.request(2, "ping", &json!({})).await;
    steered.talk.message().await;
    steered.stop.cancel();
    assert_eq!(fault(&steered.talk.message().await), (Some(&json!(1)), "draining"));
    assert_eq!(steered.talk.next().await, None);
    within("it ends", steered.running).await.unwrap();
}

#[tokio::test]
async fn a_message_with_line_breaks_is_one_line() {
    let (mut steered, _link) = Steered::open(&[]).await;
    let call = steered.call(1).await;
    let params = RawJson::trusted("{\r\n  \"level\": \"info\",\n  \"data\": \"a\\nb\"\n}");
    call.context.notify(&Method::LogMessage, Some(&params)).await.unwrap();
    assert_eq!(steered.talk.message().await["params"]["data"], "a\nb");
    call.answer(&json!({}));
    assert_eq!(steered.close().await, ["result 1"]);
}

#[tokio::test]
async fn a_stream_that_closes_early_is_read_to_its_end() {
    let (mut steered, _link) = Steered::open(&[]).await;
    let call = steered.call(1).await;
    say(&call, "before").await;
    call.context.close_connection();
    say(&call, "after").await;
    call.context.close_connection();
    assert_eq!(steered.talk.message().await["params"]["data"], "before");
    assert_eq!(steered.talk.message().await["params"]["data"], "after");
    call.answer(&json!({}));
    assert_eq!(steered.close().await, ["result 1"]);
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_up_no_call_and_loses_nothing() {
    let (mut steered, _link) = Steered::open(&[]).await;
    let (one, two) = (steered.call(1).await, steered.call(2).await);
    let mut expected = Vec::new();
    for number in 0..2000 {
        within("the server behind goes on", say(&one, &number.to_string())).await;
        expected.push(number.to_string());
    }
    one.answer(&json!({}));
    two.answer(&json!({}));
    expected.push("result 1".to_owned());
    let mut rest = steered.close().await;
    rest.retain(|message| message != "result 2");
    assert_eq!(rest, expected, "all of it, in order");
}

/// Time is paused, so that a wait is over as soon as nothing can happen any more.
#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_cannot_ask_for_ever() {
    const PINGS: u64 = 1000;
    let (mut steered, _link) = Steered::open(&[]).await;
    let mut sent = 0;
    loop {
        let ping = request(sent, "ping", &json!({}));
        let ping = steered.talk.send(&ping);
        if tokio::time::timeout(Duration::from_secs(1), ping).await.is_err() {
            break;
        }
        sent += 1;
        assert!(sent < PINGS, "the answers to {sent} requests wait in memory");
    }
    // A line was cut off in the middle; it is refused, and everything before it is answered.
    steered.talk.close_input();
    let rest = steered.talk.rest().await;
    let answered: Vec<_> = rest.iter().filter_map(|message| message["id"].as_u64()).collect();
    assert!(answered.iter().copied().take(sent as usize).eq(0..sent), "{answered:?}");
}

/// More is said than is kept, to a client that does not read.
const FORGETFUL: [(&str, &str); 2] = [("streams.max_session_events", "5"), ("streams.max_tail", "1")];

#[tokio::test]
async fn an_answer_outlives_what_was_said_before_it() {
    let (mut steered, _link) = Steered::open(&FORGETFUL).await;
    let (one, two) = (steered.call(1).await, steered.call(2).await);
    for call in [one, two] {
        for number in 0..100 {
            say(&call, &number.to_string()).await;
        }
        call.answer(&json!({}));
    }
    let rest = steered.close().await;
    assert!(rest.len() < 150, "something was dropped: {rest:?}");
    assert_eq!(answers(&rest), ["result 1", "result 2"], "{rest:?}");
}

#[tokio::test]
async fn an_answer_that_was_dropped_is_owned_up_to() {
    let mut steered = Steered::start(&FORGETFUL).await;
    steered.talk.shake_hands_as("2025-03-26").await;
    let call = |id| request(id, "tools/call", &json!({ "name": "any" }));
    steered.talk.send(&json!([call(1), call(2)])).await;
    let (one, two) = (steered.script.call().await, steered.script.call().await);
    for number in 0..100 {
        say(&one, &number.to_string()).await;
        // Until nothing more fits on the way to the client.
        tokio::task::yield_now().await;
    }
    let (first, second) = (one.request.id.clone(), two.request.id.clone());
    let over = Arc::clone(&one.context);
    one.answer(&json!({}));
    until("the answer has arrived", || over.is_cancelled()).await;
    for number in 0..100 {
        say(&two, &number.to_string()).await;
    }
    two.answer(&json!({}));
    let rest = steered.close().await;
    let number = |id: &tenure_protocol::RequestId| id.as_number().unwrap();
    let expected =
        [format!("result {}", number(&second)), format!("error {} stream_forgotten", number(&first))];
    assert_eq!(answers(&rest), expected, "{rest:?}");
}

fn answers(said: &[String]) -> Vec<&str> {
    said.iter().filter(|message| message.contains(' ')).map(String::as_str).collect()
}

#[tokio::test]
async fn stopping_writes_what_is_left_and_deletes_the_session() {
    let (mut steered, _link) = Steered::open(&[("shutdown.grace", "20ms")]).await;
    let _quiet = steered.call(1).await;
    let streaming = steered.call(2).await;
    say(&streaming, "hello").await;
    steered.stop.cancel();
    let mut rest: Vec<_> = steered.talk.rest().await.iter().map(gist).collect();
    rest.sort();
    assert_eq!(rest, ["error 1 interrupted", "error 2 interrupted", "hello"]);
    within("it ends", steered.running).await.unwrap();
}

#[tokio::test]
async fn a_request_with_an_id_in_flight_is_refused_and_the_first_goes_on() {
    let (mut steered, _link) = Steered::open(&[]).await;
    let call = steered.call(1).await;
    steered.talk.send(&request(1, "tools/list", &json!({}))).await;
    assert_eq!(fault(&steered.talk.message().await), (Some(&json!(1)), "duplicate_request_id"));
    call.answer(&json!({}));
    assert_eq!(steered.close().await, ["result 1"]);
}
