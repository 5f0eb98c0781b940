//! Clients that come back as SDKs do, while one process after another takes the gateway's place: each call is answered.
//!
//! The client here has the habits of the SDKs that make a lost resume fatal: it tries twice, and it knows only event ids
//! that it saw on its last connection.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::gateway::running::Gateway;
use crate::support::client::Ask;
use crate::support::events::{Events, SseEvent, SseItem, gist};
use crate::support::session::Session;

/// How often an SDK tries to resume a stream before it leaves the call to its timeout.
const TRIES: usize = 2;

/// What a call may take in all, with the time that its server works on it.
const BOUND: Duration = Duration::from_secs(20);

/// One right after the other.
const TAKE_OVERS: usize = 4;

/// What one connection had to say about a call.
enum Said {
    Answer(String),
    /// The stream ended before the answer; with the last id that was seen on this connection.
    Ended {
        last: Option<String>,
        retry: Duration,
    },
    Failed(String),
}

async fn ask(ask: Ask, session: &Session, id: u64) -> Said {
    let mut connection = ask.begin(session.server).await;
    let head = connection.head().await;
    if head.header("content-type") != Some("text/event-stream") {
        let mut whole = Vec::new();
        while let Some(piece) = connection.piece().await {
            whole.extend(piece);
        }
        let text = String::from_utf8_lossy(&whole).into_owned();
        return match serde_json::from_str::<Value>(&text) {
            Ok(message) if head.status == 200 => Said::Answer(gist(&message)),
            _ => Said::Failed(format!("{} {text}", head.status)),
        };
    }
    follow(Events::new(connection, head), id).await
}

async fn follow(mut stream: Events, id: u64) -> Said {
    let (mut last, mut retry) = (None, Duration::from_secs(1));
    while let Some(item) = stream.next().await {
        let SseItem::Event(SseEvent { id: event, data, retry: wait, .. }) = item else { continue };
        last = event.or(last);
        retry = wait.map_or(retry, Duration::from_millis);
        let Some(data) = data.filter(|data| !data.is_empty()) else { continue };
        let message: Value = serde_json::from_str(&data).expect("a message");
        if message["id"] == id && message.get("method").is_none() {
            return Said::Answer(gist(&message));
        }
    }
    Said::Ended { last, retry }
}

/// Calls a tool, and comes back for the answer as often as it must. What happened on the way is the error.
async fn call(session: &Session, id: u64, tool: &str, gate: &PathBuf) -> Result<String, Vec<String>> {
    let arguments = json!({ "steps": 2, "gate": gate });
    let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": id } });
    let mut story = vec![format!("{tool} {id}")];
    let mut said = ask(session.request(id, "tools/call", &params), session, id).await;
    let (mut token, mut failed) = (None, 0);
    loop {
        let wait = match said {
            Said::Answer(answer) => return Ok(answer),
            Said::Ended { last: None, .. } if story.len() == 1 => {
                story.push("cannot be resumed".to_owned());
                return Err(story);
            }
            Said::Ended { last, retry } => {
                story.push(format!("ended after {last:?}"));
                (token, failed) = (last, 0);
                retry
            }
            Said::Failed(why) => {
                story.push(why);
                failed += 1;
                Duration::from_secs(1)
            }
        };
        if failed >= TRIES {
            return Err(story);
        }
        tokio::time::sleep(wait).await;
        let resume = token.iter().fold(session.get(), |ask, token| ask.header("Last-Event-ID", token));
        said = match timeout(BOUND, ask(resume, session, id)).await {
            Ok(said) => said,
            Err(_) => {
                story.push("nothing came".to_owned());
                return Err(story);
            }
        };
    }
}

/// Makes calls of all lengths until it is told to stop; how many were answered, and what became of the others.
async fn keep_calling(
    session: Session,
    (tool, folder): (&'static str, PathBuf),
    number: u64,
    stop: Arc<AtomicBool>,
) -> (usize, Vec<Vec<String>>) {
    let (mut answered, mut lost, mut id) = (0, Vec::new(), 0);
    while !stop.load(Ordering::Relaxed) {
        id += 1;
        let gate = folder.join(format!("gate {number} {id}"));
        let opens = async {
            tokio::time::sleep(Duration::from_millis(100 + (number * 370 + id * 530) % 1200)).await;
            std::fs::write(&gate, "").unwrap();
        };
        match tokio::join!(call(&session, id, tool, &gate), opens).0 {
            Ok(answer) if answer == format!("result {id}") => answered += 1,
            Ok(answer) if tool == "slow" && answer == format!("error {id} interrupted") => answered += 1,
            Ok(answer) => lost.push(vec![answer]),
            Err(story) => lost.push(story),
        }
    }
    (answered, lost)
}

/// Take-overs in a row, under calls of sessions of both kinds: with streams that name their beginning, and without.
#[tokio::test]
async fn every_call_is_answered_through_take_overs_in_a_row() {
    let mut gateway = Gateway::start(&["streams.json_wait=50ms", "streams.retry_jitter=0%"]).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut calling = tokio::task::JoinSet::new();
    for number in 0..12 {
        let revision = ["2025-06-18", "2025-11-25"][usize::from(number % 2 == 0)];
        let session = Session::of_revision(gateway.address, revision).await;
        let tool = if number < 2 { "slow" } else { "slow_safe" };
        let what = (tool, gateway.folder.path().to_owned());
        calling.spawn(keep_calling(session, what, number, Arc::clone(&stop)));
    }
    let began = Instant::now();
    for _ in 0..TAKE_OVERS {
        assert!(gateway.hand_over().await.success());
    }
    stop.store(true, Ordering::Relaxed);
    let outcomes = timeout(3 * BOUND, calling.join_all()).await.expect("no call hangs");
    let answered: usize = outcomes.iter().map(|(answered, _)| answered).sum();
    let lost: Vec<_> = outcomes.into_iter().flat_map(|(_, lost)| lost).collect();
    eprintln!("{answered} calls answered over {TAKE_OVERS} take-overs in {:?}", began.elapsed());
    assert!(lost.is_empty(), "{} of {}: {lost:#?}", lost.len(), answered + lost.len());
}

/// A client that resumes and is sent away without having seen an id would not know where to go on.
#[tokio::test]
async fn a_resumed_stream_names_its_place_before_it_is_left() {
    for revision in ["2025-06-18", "2025-11-25"] {
        let mut gateway = Gateway::start(&["shutdown.grace=2s"]).await;
        let session = Session::of_revision(gateway.address, revision).await;
        let gate = gateway.folder.path().join("gate");
        let mut last = crate::gateway::crashing::begin(&session, 1, "slow_safe", &gate).await.last_id();
        for _ in 0..2 {
            assert!(gateway.hand_over().await.success());
            let resumed = session.resume(&last).await;
            let (status, said) = tokio::join!(gateway.hand_over(), follow(resumed, 1));
            assert!(status.success());
            match said {
                Said::Ended { last: Some(named), .. } => last = named,
                Said::Ended { last: None, .. } => panic!("{revision}: it does not know where to go on"),
                Said::Answer(answer) => panic!("{revision}: {answer}"),
                Said::Failed(why) => panic!("{revision}: {why}"),
            }
        }
        std::fs::write(&gate, "").unwrap();
        assert_eq!(session.resume(&last).await.rest().await.last().unwrap(), "result 1");
    }
}
