//! What looks wrong with a session, in words for the operator on call.
//!
//! Each text states an observation and no advice, because the remedy depends on which side is at fault. A session
//! without problems may still be slow, but none of its requests has been without progress for long.

use std::time::Duration;

use tenure_session::port::clock::Time;
use tenure_session::record::EndCause;
use tenure_session::session::Phase;

use super::view::{CallView, Detail, ShownState};
use crate::time_text::span;

/// A request without progress for this long looks stuck.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// With fewer requests than this, errors say nothing about the session.
const FEW_REQUESTS: u64 = 10;

/// Everything that looks wrong. `unreadable` says why the record cannot be decoded, `trouble` what is wrong with the
/// store and the server.
pub(super) fn problems(
    detail: &Detail,
    unreadable: Option<String>,
    trouble: Vec<String>,
    now: Time,
) -> Vec<String> {
    let mut problems = trouble;
    problems.extend(unreadable.map(|why| format!("the record cannot be read: {why}")));
    match detail.row.state {
        ShownState::Awake => awake(detail, now, &mut problems),
        ShownState::Dormant => dormant(detail, &mut problems),
        ShownState::Ended if is_overdue(detail) => {
            problems.push("its time is over; the next sweep of a running server removes it".to_owned());
        }
        ShownState::Ended | ShownState::Unreadable => {}
    }
    problems
}

/// Ended by time, but its record is still the one of a session.
fn is_overdue(detail: &Detail) -> bool {
    detail.row.end == Some(EndCause::Expired) && detail.row.phase.is_some()
}

fn awake(detail: &Detail, now: Time, problems: &mut Vec<String>) {
    let age = now.since(Time(detail.row.created.unwrap_or(now.0)));
    if detail.row.phase.as_deref() == Some(Phase::Initializing.as_str()) && age >= LONG {
        problems.push(
            "the client never said `notifications/initialized`, so its requests are refused".to_owned(),
        );
    }
    problems.extend(detail.in_flight.iter().filter_map(|call| stuck(call, now)));
    if let (Some(requests), Some(errors)) = (detail.requests, detail.errors)
        && requests >= FEW_REQUESTS
        && errors * 2 > requests
    {
        problems.push(format!("{errors} of its {requests} requests ended in an error"));
    }
}

fn stuck(call: &CallView, now: Time) -> Option<String> {
    let age = |since: u64| now.since(Time(since));
    let started = call.started?;
    let quiet = age(call.progressed.unwrap_or(started));
    if quiet < LONG {
        return None;
    }
    let name = format!("`{}` (id {})", call.title(), call.id);
    let mut problem = if call.asking > 0 {
        format!("{name} has waited {} for the client to answer a question", span(quiet))
    } else if call.progressed.is_some() {
        format!("{name} runs for {} and reported nothing for {}", span(age(started)), span(quiet))
    } else {
        format!("{name} runs for {} and reported nothing", span(age(started)))
    };
    if call.stream.is_some() && !call.is_read {
        problem.push_str("; the client does not read its stream");
    }
    Some(problem)
}

fn dormant(detail: &Detail, problems: &mut Vec<String>) {
    let open = detail.streams.iter().flat_map(|stream| &stream.requests);
    for call in open {
        problems.push(format!(
            "`{}` (id {}) was interrupted; it is dealt with when the client comes back",
            call.title(),
            call.id
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const NOW: Time = Time(1_000_000_000);

    fn of(changes: &Value) -> Vec<String> {
        let mut detail = json!({
            "key": "", "label": "s-1", "state": "awake", "phase": "initialized", "created": 0,
            "signs": [], "kept": { "events": 0, "bytes": 0 }, "version": 1, "record": {},
        });
        detail.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        problems(&serde_json::from_value(detail).unwrap(), None, Vec::new(), NOW)
    }

    fn call(changes: &Value) -> Vec<String> {
        let mut call = json!({ "id": 7, "method": "tools/call", "tool": "dig", "started": NOW.0 - 252_000 });
        call.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        of(&json!({ "in_flight": [call] }))
    }

    #[test]
    fn a_request_looks_stuck_when_nothing_moves() {
        let none: [&str; 0] = [];
        assert_eq!(call(&json!({})), ["`tools/call dig` (id 7) runs for 4m 12s and reported nothing"]);
        assert_eq!(
            call(&json!({ "tool": null })),
            ["`tools/call` (id 7) runs for 4m 12s and reported nothing"]
        );
        assert_eq!(call(&json!({ "started": NOW.0 - 59_000 })), none, "not yet");
        assert_eq!(call(&json!({ "progressed": NOW.0 - 59_000 })), none, "it moves");
        assert_eq!(
            call(&json!({ "progressed": NOW.0 - 60_000, "stream": 3, "is_read": true })),
            ["`tools/call dig` (id 7) runs for 4m 12s and reported nothing for 1m"]
        );
        assert_eq!(
            call(&json!({ "asking": 1, "stream": 3 })),
            ["`tools/call dig` (id 7) has waited 4m 12s for the client to answer a question; \
              the client does not read its stream"]
        );
    }

    #[test]
    fn a_session_looks_wrong_when_its_client_never_finished_the_handshake() {
        let problem = ["the client never said `notifications/initialized`, so its requests are refused"];
        assert_eq!(of(&json!({ "phase": "initializing" })), problem);
        let none: [&str; 0] = [];
        assert_eq!(
            of(&json!({ "phase": "initializing", "created": NOW.0 - 1000 })),
            none,
            "it has just begun"
        );
    }

    #[test]
    fn many_errors_are_a_sign_and_few_are_not() {
        assert_eq!(of(&json!({ "requests": 10, "errors": 6 })), ["6 of its 10 requests ended in an error"]);
        let none: [&str; 0] = [];
        assert_eq!(of(&json!({ "requests": 10, "errors": 5 })), none);
        assert_eq!(of(&json!({ "requests": 9, "errors": 9 })), none);
    }

    #[test]
    fn what_a_dormant_session_left_open_is_told() {
        let request = json!({ "id": "a", "method": "prompts/get", "stream": 3 });
        let streams = json!([{ "number": 3, "open": true, "last": 9, "requests": [request] }]);
        let problems = of(&json!({ "state": "dormant", "streams": streams }));
        assert_eq!(
            problems,
            ["`prompts/get` (id \"a\") was interrupted; it is dealt with when the client comes back"]
        );
    }

    #[test]
    fn one_whose_time_is_over_waits_to_be_removed_and_a_tombstone_does_not() {
        let problem = ["its time is over; the next sweep of a running server removes it"];
        assert_eq!(of(&json!({ "state": "ended", "end": "expired" })), problem);
        let none: [&str; 0] = [];
        assert_eq!(of(&json!({ "state": "ended", "end": "expired", "phase": null })), none);
        assert_eq!(of(&json!({ "state": "ended", "end": "revoked", "phase": null })), none);
    }
}
