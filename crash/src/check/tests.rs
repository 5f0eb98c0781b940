//! Feeds the checker good histories, and histories with each kind of fault, to show that it can fail.

use std::ops::ControlFlow;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_testkit::sse::SseEvent;
use tokio::time::Instant;

use super::{
    CheckFault, Circumstances, CounterCheck, Ending, EventId, EventMeaning, FaultKind, Interval, LinkCheck,
    Patience, Script, SessionCheck, StreamCheck, notes,
};

const CALM: Circumstances = Circumstances { crashed: false, torn: false, moved: false };
const CRASHED: Circumstances = Circumstances { crashed: true, torn: false, moved: false };
const TORN: Circumstances = Circumstances { crashed: true, torn: true, moved: false };

/// Runs a history of one stream: each event is `id body`, with a short form of the body (see [`body`]).
fn run(script: Script, now: Circumstances, history: &[(&str, &str)]) -> Result<StreamCheck, FaultKind> {
    let mut check = StreamCheck::of_request(json!(7), script);
    for (id, short) in history {
        check.hear(&event(id, short), now).map_err(|fault: CheckFault| fault.kind)?;
    }
    Ok(check)
}

fn event(id: &str, short: &str) -> SseEvent {
    let id = (!id.is_empty()).then(|| format!("{id}-abcd"));
    SseEvent { id, data: Some(body(short)), ..SseEvent::default() }
}

fn body(short: &str) -> String {
    let mut words = short.split(' ');
    let mut word = || words.next().unwrap_or_default();
    let notification =
        |method: &str, params: Value| json!({ "jsonrpc": "2.0", "method": method, "params": params });
    let message = match word() {
        "" => return String::new(),
        "n" => {
            let (tag, n) = (word(), word().parse::<u64>().unwrap());
            notification("notifications/message", json!({ "level": "info", "data": { "tag": tag, "n": n } }))
        }
        "p" => {
            let (token, progress) = (word(), word().parse::<f64>().unwrap());
            notification("notifications/progress", json!({ "progressToken": token, "progress": progress }))
        }
        "news" => notification("notifications/resources/updated", json!({ "uri": word() })),
        "ask" => {
            json!({ "jsonrpc": "2.0", "id": word().parse::<u64>().unwrap(), "method": "elicitation/create" })
        }
        "result" => {
            let (id, text) = (word().parse::<u64>().unwrap(), short.splitn(3, ' ').nth(2).unwrap());
            json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [{ "type": "text", "text": text }] } })
        }
        "interrupted" => {
            let id = word().parse::<u64>().unwrap();
            let error = json!({ "code": -31010, "message": "…", "data": { "reason": "interrupted" } });
            json!({ "jsonrpc": "2.0", "id": id, "error": error })
        }
        other => panic!("no such message: {other}"),
    };
    message.to_string()
}

fn count(now: Circumstances, history: &[(&str, &str)]) -> Result<StreamCheck, FaultKind> {
    run(Script::count("t", 2), now, history)
}

fn work(now: Circumstances, history: &[(&str, &str)]) -> Result<StreamCheck, FaultKind> {
    run(Script::work("w", 2, "worked"), now, history)
}

const COUNTED: [(&str, &str); 6] = [
    ("1-0", ""),
    ("1-4", "n t 1"),
    ("1-5", "p t 1"),
    ("1-9", "n t 2"),
    ("1-a", "p t 2"),
    ("1-b", "result 7 t: counted to 2"),
];

#[test]
fn a_good_count_passes_with_and_without_a_crash() {
    assert_eq!(count(CALM, &COUNTED).unwrap().ending(), Some(Ending::Result));
    let resumed = [("1-0", ""), ("1-4", "n t 1"), ("1-4", ""), ("1-5", "p t 1"), ("1-6", "interrupted 7")];
    assert_eq!(count(CRASHED, &resumed).unwrap().ending(), Some(Ending::Interrupted));
}

#[test]
fn a_lost_message_is_noticed() {
    assert_eq!(
        count(CRASHED, &[COUNTED[0], COUNTED[1], COUNTED[2], COUNTED[4]]).unwrap_err(),
        FaultKind::Lost
    );
    assert_eq!(count(CRASHED, &[COUNTED[3]]).unwrap_err(), FaultKind::Lost, "the first one");
    assert_eq!(
        count(CRASHED, &[COUNTED[1], COUNTED[2], COUNTED[5]]).unwrap_err(),
        FaultKind::Lost,
        "the last one"
    );
    assert_eq!(count(CRASHED, &[COUNTED[1], ("1-8", "")]).unwrap_err(), FaultKind::Lost, "primed ahead");
    assert_eq!(work(CALM, &[("1-1", "p w 0"), ("1-2", "p w 2")]).unwrap_err(), FaultKind::Lost);
    assert_eq!(work(CRASHED, &[("1-1", "p w 0"), ("1-2", "result 7 worked")]).unwrap_err(), FaultKind::Lost);
}

#[test]
fn a_repeated_event_is_noticed() {
    assert_eq!(count(CRASHED, &[COUNTED[1], COUNTED[1]]).unwrap_err(), FaultKind::Repeated, "under its id");
    assert_eq!(
        count(CRASHED, &[COUNTED[1], ("1-8", "n t 1")]).unwrap_err(),
        FaultKind::Repeated,
        "under a new id"
    );
    assert_eq!(work(CRASHED, &[("1-1", "p w 0"), ("1-2", "p w 0")]).unwrap_err(), FaultKind::Repeated);
    assert!(work(TORN, &[("1-1", "p w 0"), ("1-2", "p w 0")]).is_ok(), "what was heard may be gone");
}

#[test]
fn an_id_for_two_events_is_noticed() {
    assert_eq!(count(TORN, &[COUNTED[1], ("1-4", "n t 2")]).unwrap_err(), FaultKind::IdReused);
    assert_eq!(count(TORN, &[COUNTED[1], ("1-4", "interrupted 7")]).unwrap_err(), FaultKind::IdReused);
}

#[test]
fn the_wrong_stream_is_noticed() {
    assert_eq!(
        count(TORN, &[COUNTED[1], ("2-5", "n t 2")]).unwrap_err(),
        FaultKind::WrongStream,
        "by its id"
    );
    assert_eq!(
        count(TORN, &[COUNTED[1], ("1-5", "n x 2")]).unwrap_err(),
        FaultKind::WrongStream,
        "by its tag"
    );
    assert_eq!(
        count(TORN, &[COUNTED[1], ("1-5", "p x 1")]).unwrap_err(),
        FaultKind::WrongStream,
        "by its token"
    );
    assert_eq!(count(TORN, &[("1-5", "ask 1")]).unwrap_err(), FaultKind::WrongStream, "by its method");
    assert_eq!(
        count(TORN, &[("1-5", "result 8 t: counted to 2")]).unwrap_err(),
        FaultKind::WrongStream,
        "by its request"
    );
    let news = || Script::News { uri: "demo://mine".to_owned() };
    assert!(run(news(), CALM, &[("0-5", "news demo://mine"), ("0-6", "news demo://mine")]).is_ok());
    assert_eq!(run(news(), TORN, &[("0-5", "news demo://other")]).unwrap_err(), FaultKind::WrongStream);
    let mut check = StreamCheck::of_request(json!(7), Script::count("t", 2));
    check.hear(&event("1-4", "n t 1"), TORN).unwrap();
    let foreign = SseEvent { id: Some("1-5-ffff".to_owned()), ..event("1-5", "n t 2") };
    assert_eq!(check.hear(&foreign, TORN).unwrap_err().kind, FaultKind::WrongStream, "by its session");
}

#[test]
fn the_wrong_order_is_noticed() {
    assert_eq!(
        count(CRASHED, &[("1-0", ""), ("1-4", "n t 1"), ("1-0", "")]).unwrap_err(),
        FaultKind::WrongOrder,
        "primed back"
    );
    let crossed = [("1-4", "n t 1"), ("1-5", "n t 2"), ("1-6", "p t 1")];
    assert_eq!(count(TORN, &crossed).unwrap_err(), FaultKind::WrongOrder);
}

#[test]
fn a_torn_log_may_send_a_client_back_but_not_tell_it_anything_twice() {
    let torn = |next: (&'static str, &'static str)| [("1-4", "n t 1"), ("1-8", "p t 1"), ("1-4", ""), next];
    let resumed = count(TORN, &torn(("1-20", "interrupted 7"))).unwrap();
    assert_eq!(resumed.last_id(), Some("1-20-abcd"));
    assert_eq!(count(TORN, &torn(("1-8", "p t 1"))).unwrap_err(), FaultKind::Repeated);
    assert_eq!(count(TORN, &torn(("1-8", "interrupted 7"))).unwrap_err(), FaultKind::IdReused);
    let primed = count(TORN, &torn(("1-4", ""))).unwrap();
    assert_eq!(primed.last_id(), Some("1-4-abcd"), "it resumes from where it was sent");
}

#[test]
fn a_second_answer_and_whatever_follows_is_noticed() {
    let with = |more: (&'static str, &'static str)| [COUNTED.as_slice(), &[more]].concat();
    assert_eq!(count(CRASHED, &with(("1-c", "interrupted 7"))).unwrap_err(), FaultKind::DoubleAnswer);
    assert_eq!(count(CRASHED, &with(COUNTED[5])).unwrap_err(), FaultKind::DoubleAnswer);
    assert_eq!(count(CRASHED, &with(("1-c", "n t 3"))).unwrap_err(), FaultKind::AfterAnswer);
}

#[test]
fn a_wrong_answer_is_noticed() {
    assert_eq!(
        count(CALM, &[("1-4", "interrupted 7")]).unwrap_err(),
        FaultKind::WrongAnswer,
        "nothing crashed"
    );
    assert_eq!(
        work(TORN, &[("1-4", "interrupted 7")]).unwrap_err(),
        FaultKind::WrongAnswer,
        "safe to repeat"
    );
    let echo = || Script::Echo { text: "hello".to_owned() };
    assert_eq!(run(echo(), CALM, &[("1-4", "result 7 hullo")]).unwrap_err(), FaultKind::WrongAnswer);
    let mut check = StreamCheck::of_request(json!(7), echo());
    let json: Value = serde_json::from_str(&body("result 8 hello")).unwrap();
    assert_eq!(check.hear_json(&json, CALM).unwrap_err().kind, FaultKind::WrongAnswer, "of another request");
    let json: Value = serde_json::from_str(&body("result 7 hello")).unwrap();
    assert_eq!(check.hear_json(&json, CALM), Ok(Ending::Result));
}

#[test]
fn work_that_is_done_again_may_leave_steps_out_and_goes_back_nowhere() {
    assert!(
        work(CALM, &[("1-1", "p w 0"), ("1-2", "p w 1"), ("1-3", "p w 2"), ("1-4", "result 7 worked")])
            .is_ok()
    );
    assert!(work(CRASHED, &[("1-1", "p w 0"), ("1-3", "p w 2"), ("1-4", "result 7 worked")]).is_ok());
}

#[test]
fn a_message_that_was_not_logged_is_noticed() {
    assert_eq!(count(TORN, &[("", "n t 1")]).unwrap_err(), FaultKind::Unlogged);
}

#[test]
fn questions_are_heard_and_answered_with_the_right_name() {
    let ask = || Script::ask("Ada");
    let mut check = StreamCheck::of_request(json!(7), ask());
    assert_eq!(check.hear(&event("1-4", "ask 3"), CALM), Ok(EventMeaning::Question(json!(3))));
    assert!(
        run(ask(), CRASHED, &[("1-4", "ask 3"), ("1-8", "ask 4"), ("1-9", "result 7 Hello, Ada!")]).is_ok()
    );
    assert_eq!(run(ask(), CALM, &[("1-4", "result 7 Hello, Eve!")]).unwrap_err(), FaultKind::WrongAnswer);
}

#[test]
fn streams_and_questions_of_a_session_share_no_ids() {
    let id = |text: &str| EventId::parse(text).unwrap();
    let mut session = SessionCheck::default();
    assert_eq!(session.claim(id("1-0-a"), "request 1"), Ok(()));
    assert_eq!(session.claim(id("1-5-a"), "request 1"), Ok(()));
    assert_eq!(session.claim(id("2-0-a"), "request 2"), Ok(()));
    assert_eq!(session.claim(id("1-0-a"), "request 3").unwrap_err().kind, FaultKind::IdReused);
    assert_eq!(session.claim(id("3-0-b"), "request 3").unwrap_err().kind, FaultKind::WrongStream);
    assert_eq!(session.asked("1", 1), Ok(()));
    assert_eq!(session.asked("1", 1).unwrap_err().kind, FaultKind::IdReused);
}

#[test]
fn a_replay_must_be_what_was_received() {
    let stream = count(CALM, &COUNTED).unwrap();
    let replay = |now: Circumstances, history: &[(&str, &str)]| {
        let mut replay = stream.replay();
        history.iter().try_for_each(|(id, short)| replay.hear(&event(id, short), now).map(|_| ()))?;
        replay.finish(now)
    };
    let kind = |outcome: Result<(), CheckFault>| outcome.unwrap_err().kind;
    assert_eq!(replay(CALM, &COUNTED), Ok(()));
    assert_eq!(kind(replay(CALM, &COUNTED[..3])), FaultKind::Lost, "its end");
    assert_eq!(kind(replay(CALM, &[COUNTED[1], COUNTED[3]])), FaultKind::Lost, "its middle");
    assert_eq!(kind(replay(CALM, &[COUNTED[1], COUNTED[1]])), FaultKind::Repeated);
    assert_eq!(kind(replay(CALM, &[COUNTED[1], ("1-7", "n t 9")])), FaultKind::WrongOrder, "a new event");
    assert_eq!(kind(replay(TORN, &[COUNTED[1], ("1-5", "interrupted 7")])), FaultKind::IdReused);
    assert_eq!(replay(TORN, &[COUNTED[1], ("1-20", "interrupted 7")]), Ok(()), "the rest was torn off");
    let asked_again = stream.replay().hear(&event("1-20", "ask 9"), TORN);
    assert_eq!(asked_again, Ok(ControlFlow::Break(())), "who compares gives no answers");
}

#[test]
fn a_replay_of_a_stream_that_was_not_primed_begins_after_its_first_event() {
    let stream = count(CALM, &COUNTED[1..]).unwrap();
    let mut replay = stream.replay();
    assert!(COUNTED[2..].iter().all(|(id, short)| replay.hear(&event(id, short), CALM).is_ok()));
    assert_eq!(replay.finish(CALM), Ok(()));
}

/// Two moments, in milliseconds after a beginning.
fn at(begin: Instant, sent: u64, answered: u64) -> Interval {
    let after = |ms| begin + Duration::from_millis(ms);
    Interval { sent: after(sent), answered: after(answered) }
}

#[test]
fn a_stale_counter_is_noticed() {
    let begin = Instant::now();
    let at = |sent, answered| at(begin, sent, answered);
    let kind = |outcome: Result<(), CheckFault>| outcome.unwrap_err().kind;
    let mut check = CounterCheck::default();
    (0..4).for_each(|_| check.sending());
    assert_eq!(check.incremented(at(0, 10), 1), Ok(()));
    assert_eq!(check.incremented(at(20, 60), 3), Ok(()), "one without an answer was counted");
    assert_eq!(check.incremented(at(20, 50), 2), Ok(()), "at the same time");
    assert_eq!(check.read(at(55, 80), 2), Ok(()), "at the same time as the increment to 3");
    assert_eq!(kind(check.read(at(61, 80), 2)), FaultKind::Stale, "after the increment to 3");
    assert_eq!(kind(check.incremented(at(70, 80), 3)), FaultKind::Stale, "3 for two increments");
    assert_eq!(kind(check.read(at(70, 80), 5)), FaultKind::TwoRuns, "only four were sent");
    assert_eq!(kind(check.incremented(at(70, 80), 5)), FaultKind::TwoRuns, "only four were sent");
    assert_eq!(check.incremented(at(70, 80), 4), Ok(()));

    let mut check = CounterCheck::default();
    (0..4).for_each(|_| check.sending());
    assert_eq!(check.incremented(at(20, 30), 2), Ok(()));
    assert_eq!(kind(check.incremented(at(40, 50), 1)), FaultKind::Stale, "a lower number for a later call");
    assert_eq!(
        kind(check.incremented(at(0, 10), 3)),
        FaultKind::Stale,
        "a higher number for an earlier call"
    );
}

#[test]
fn answers_of_two_links_in_turns_are_noticed() {
    let begin = Instant::now();
    let at = |sent, answered| at(begin, sent, answered);
    let kind = |outcome: Result<(), CheckFault>| outcome.unwrap_err().kind;
    let mut check = LinkCheck::default();
    assert_eq!(check.answered(at(0, 10), "a", 1), Ok(()));
    assert_eq!(check.answered(at(20, 40), "b", 1), Ok(()), "it woke at another node");
    assert_eq!(check.answered(at(15, 35), "a", 2), Ok(()), "sent before the answer of b");
    assert_eq!(check.answered(at(50, 60), "b", 2), Ok(()));
    assert_eq!(kind(check.answered(at(70, 80), "a", 3)), FaultKind::Stale, "the old node answers again");

    let mut check = LinkCheck::default();
    assert_eq!(check.answered(at(0, 10), "a", 1), Ok(()));
    assert_eq!(kind(check.answered(at(20, 30), "a", 1)), FaultKind::Stale, "the same number again");
    assert_eq!(check.answered(at(40, 50), "a", 3), Ok(()));
    assert_eq!(kind(check.answered(at(60, 70), "a", 2)), FaultKind::Stale, "it goes back");
}

#[test]
fn a_note_that_was_written_twice_or_is_missing_is_noticed() {
    let check = |found: &[&str], acknowledged: &[&str]| {
        notes(found, acknowledged.iter().copied(), |note| note.starts_with("a "))
    };
    assert_eq!(check(&["a 1", "a 2", "a 3"], &["a 1", "a 3"]), Ok(()), "one was written and not answered");
    assert_eq!(check(&["a 1", "a 2", "a 1"], &["a 1"]).unwrap_err().kind, FaultKind::TwoRuns);
    assert_eq!(check(&["a 1"], &["a 1", "a 2"]).unwrap_err().kind, FaultKind::StateLost);
    assert_eq!(check(&["a 1", "b 1"], &["a 1"]).unwrap_err().kind, FaultKind::WrongStream);
}

#[test]
fn a_late_answer_is_noticed() {
    let judge = |troubles, seconds| Patience { troubles }.judge(Duration::from_secs(seconds));
    assert_eq!(judge(0, 10), Ok(()), "a hold");
    assert_eq!(judge(0, 12).unwrap_err().kind, FaultKind::Late);
    assert_eq!(judge(1, 12).unwrap_err().kind, FaultKind::Late);
    assert_eq!(judge(2, 12), Ok(()), "two troubles, two holds");
    assert_eq!(judge(9, 32).unwrap_err().kind, FaultKind::Late, "however many there are");
}

#[test]
fn a_safe_request_may_be_given_up_only_where_sessions_move() {
    let moved = Circumstances { crashed: true, torn: false, moved: true };
    assert_eq!(work(moved, &[("1-4", "interrupted 7")]).unwrap().ending(), Some(Ending::Interrupted));
    let calm = Circumstances { crashed: false, ..moved };
    assert_eq!(work(calm, &[("1-4", "interrupted 7")]).unwrap_err(), FaultKind::WrongAnswer);
}
