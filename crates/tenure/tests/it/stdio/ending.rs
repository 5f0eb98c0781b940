//! How it ends: by the client, by a signal, because its output is not read; and in which order.

use serde_json::{Value, json};

use super::process::Process;
use super::talk::fault;
use crate::operator::place::Place;

/// A process in the middle of a call that takes an hour.
async fn busy(arguments: &[&str]) -> Process {
    let mut process = Process::open(arguments).await;
    process.call(1, "long_task", &json!({ "seconds": 3600 })).await;
    assert_eq!(process.message().await["method"], "notifications/progress");
    process
}

/// The states of the sessions in a store that is not open.
async fn states(place: &Place) -> Vec<String> {
    let state = |row: &Value| format!("{} {}", row["state"], row["end"]).replace('"', "");
    place.rows(&[]).await.iter().map(state).collect()
}

#[tokio::test]
async fn without_a_word_it_ends_with_its_input() {
    assert_eq!(Process::start(&[]).close().await, [Value::Null; 0]);
}

#[tokio::test]
async fn a_call_in_flight_is_finished_after_the_input_ends() {
    let place = Place::new();
    let mut process = Process::open(&["--store", &place.url()]).await;
    process.call(1, "long_task", &json!({ "seconds": 3, "interval_ms": 20 })).await;
    process.message().await;
    let rest = process.close().await;
    let answer = rest.last().unwrap();
    assert_eq!((&answer["id"], super::talk::text(answer)), (&json!(1), "worked for 0.06 s"));
    assert_eq!(states(&place).await, ["ended deleted"]);
}

#[tokio::test]
async fn what_is_unfinished_after_the_grace_period_is_interrupted() {
    let process = busy(&["--set", "shutdown.grace=50ms"]).await;
    let rest = process.close().await;
    assert_eq!(fault(rest.last().unwrap()), (Some(&json!(1)), "interrupted"));
}

#[tokio::test]
async fn an_unanswerable_question_holds_up_nothing() {
    let mut process = Process::open(&["--set", "shutdown.grace=1h"]).await;
    process.call(1, "ask_name", &json!({})).await;
    assert_eq!(process.message().await["method"], "elicitation/create");
    let rest = process.close().await;
    assert_eq!(fault(&rest[0]), (Some(&json!(1)), "client_gone"));
}

#[tokio::test]
async fn a_question_after_the_input_ended_holds_up_nothing_either() {
    let mut process = Process::open(&["--set", "shutdown.grace=1h"]).await;
    process.call(1, "ask_name", &json!({})).await;
    let rest = process.close().await;
    assert_eq!(fault(rest.last().unwrap()), (Some(&json!(1)), "client_gone"));
}

/// What the SDKs do with a server that does not leave: close its input, then send a signal.
#[tokio::test]
async fn a_signal_after_the_end_of_the_input_ends_the_grace_period() {
    let place = Place::new();
    let mut process = busy(&["--set", "shutdown.grace=1h", "--store", &place.url()]).await;
    process.close_input();
    process.signal("TERM").await;
    let ended = process.ended().await;
    assert_eq!(fault(ended.rest.last().unwrap()), (Some(&json!(1)), "interrupted"));
    assert_eq!(ended.status.code(), Some(0), "{}", ended.logs);
    assert_eq!(states(&place).await, ["ended deleted"]);
}

#[tokio::test]
async fn a_signal_lets_calls_finish_and_takes_nothing_new() {
    for signal in ["TERM", "INT"] {
        let place = Place::new();
        let mut process = Process::open(&["--set", "shutdown.grace=1h", "--store", &place.url()]).await;
        process.call(1, "ask_name", &json!({})).await;
        let question = process.message().await["id"].clone();
        process.signal(signal).await;
        // The first refusal shows that the signal has come.
        let mut id = 2;
        loop {
            process.request(id, "tools/list", &json!({})).await;
            let answer = process.message().await;
            if answer.get("error").is_some() {
                assert_eq!(fault(&answer), (Some(&json!(id)), "draining"));
                break;
            }
            id += 1;
        }
        let result = json!({ "action": "accept", "content": { "name": "Ada" } });
        process.send(&json!({ "jsonrpc": "2.0", "id": question, "result": result })).await;
        assert_eq!(super::talk::text(&process.message().await), "Hello, Ada!");
        let ended = process.ended().await;
        assert_eq!((ended.status.code(), ended.rest.len()), (Some(0), 0), "{}", ended.logs);
        assert_eq!(states(&place).await, ["ended deleted"]);
    }
}

#[tokio::test]
async fn a_signal_without_work_ends_it_although_the_input_is_open() {
    let mut process = Process::open(&["--set", "shutdown.grace=1h"]).await;
    process.echo(1).await;
    process.signal("TERM").await;
    let ended = process.ended().await;
    assert_eq!((ended.status.code(), ended.rest.len()), (Some(0), 0), "{}", ended.logs);
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let mut process = busy(&["--set", "shutdown.grace=1h"]).await;
    process.signal("TERM").await;
    loop {
        process.request(2, "tools/list", &json!({})).await;
        let answer = loop {
            let message = process.message().await;
            if message["id"] == 2 {
                break message;
            }
        };
        if answer.get("error").is_some() {
            break;
        }
    }
    process.signal("TERM").await;
    let status = process.exited().await;
    let ended = process.ended().await;
    assert_eq!(status.code(), Some(0), "{}", ended.logs);
    assert!(ended.logs.contains("a second time"), "{}", ended.logs);
}

#[tokio::test]
async fn it_ends_well_when_its_output_is_not_read() {
    let place = Place::new();
    let mut process = Process::open(&["--store", &place.url()]).await;
    process.close_output();
    process.request(1, "ping", &json!({})).await;
    let status = process.exited().await;
    let logs = process.logs().await;
    assert_eq!(status.code(), Some(0), "{logs}");
    assert!(!logs.contains("panicked") && !logs.contains("WARN") && !logs.contains("ERROR"), "{logs}");
    assert_eq!(states(&place).await, ["ended deleted"]);
}

#[tokio::test]
async fn it_ends_well_when_its_client_is_gone_altogether() {
    let place = Place::new();
    let url = place.url();
    let mut process = busy(&["--set", "shutdown.grace=10ms", "--log-level", "trace", "--store", &url]).await;
    process.close_input();
    process.close_output();
    process.close_logs();
    assert_eq!(process.exited().await.code(), Some(0));
    assert_eq!(states(&place).await, ["ended deleted"]);
}
