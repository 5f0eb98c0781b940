//! One request, followed to its answer over kills and dropped connections.
//!
//! A JSON answer that was cut off is gone, and the client may ask again under a new id. A stream that gave an event
//! id is resumed until its answer comes; if that takes too long, the request hangs.

use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use tenure_testkit::sse::{SseEvent, SseItem};
use tokio::time::Instant;

use super::contact::{broke, gone, introduce_again, is_uninitialized, pause, unexpected};
use super::replays;
use crate::check::{CheckFault, Ending, EventMeaning, FaultKind, Script, StreamCheck};
use crate::http::{HttpReply, ReplyEvents, reason};
use crate::life::Moment;
use crate::session::ClientSession;
use crate::world::{World, count};

/// How a request ended for its client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CallOutcome {
    Answered(Ending),
    /// The connection broke before there was an id to resume after.
    Unanswered,
    /// The session was deleted, or was lost with a torn journal.
    Over,
    /// A promise was broken, and the violation is recorded.
    Faulty,
}

/// Calls a method and follows it to its end.
pub(crate) async fn call(
    world: &World,
    session: &ClientSession,
    method: &str,
    params: &Value,
    script: Script,
    rng: Rng,
) -> CallOutcome {
    let id = session.next_request();
    let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    let what = params["name"].as_str().unwrap_or(method);
    let name = match &script {
        Script::Ask { name, .. } => name.clone(),
        _ => String::new(),
    };
    let mut call = FollowedCall {
        world,
        session,
        who: format!("{} request {id} ({what})", session.label),
        owner: format!("request {id}"),
        name,
        rng,
        check: StreamCheck::of_request(json!(id), script),
        began: world.moment(),
        connected: world.moment(),
        heard: Instant::now(),
    };
    let sent = call.heard;
    let outcome = tokio::select! {
        outcome = call.run(&message) => outcome,
        () = world.overdue(sent) => call.hangs(),
    };
    if let CallOutcome::Answered(_) = outcome {
        session.keep(call.check, call.began);
    }
    outcome
}

/// Calls a tool.
pub(crate) async fn call_tool(
    world: &World,
    session: &ClientSession,
    params: &Value,
    script: Script,
    rng: Rng,
) -> CallOutcome {
    call(world, session, "tools/call", params, script, rng).await
}

struct FollowedCall<'a> {
    world: &'a World,
    session: &'a ClientSession,
    who: String,
    /// The name of the request within the session.
    owner: String,
    /// The answer to questions.
    name: String,
    rng: Rng,
    check: StreamCheck,
    began: Moment,
    /// When the current connection was requested.
    connected: Moment,
    /// When the last event came.
    heard: Instant,
}

/// Why a connection is not read any further.
enum Stop {
    /// The connection ended, but the stream did not.
    Disconnected,
    Ended(CallOutcome),
}

impl FollowedCall<'_> {
    async fn run(&mut self, message: &Value) -> CallOutcome {
        match self.world.post(Some(&self.session.name), message).await {
            Ok(HttpReply::Stream(events)) => {
                count(&self.world.tally.streamed);
                self.follow(events).await
            }
            Ok(reply) => self.whole(&reply).await,
            Err(broken) => {
                broke(self.world, &self.who, self.connected, &broken);
                count(&self.world.tally.unanswered);
                pause(&mut self.rng).await;
                CallOutcome::Unanswered
            }
        }
    }

    /// Handles an answer that is not a stream.
    async fn whole(&mut self, reply: &HttpReply) -> CallOutcome {
        match reply {
            HttpReply::Whole { status: 404, body, .. } => self.gone(body),
            HttpReply::Whole { body, .. } if is_uninitialized(body) => {
                introduce_again(self.world, self.session, &self.who, &mut self.rng).await;
                CallOutcome::Unanswered
            }
            HttpReply::Whole { status: 200, body, .. } => {
                match self.check.hear_json(body, self.world.circumstances(self.began)) {
                    Ok(ending) => {
                        count(&self.world.tally.calls);
                        CallOutcome::Answered(ending)
                    }
                    Err(fault) => self.fault(fault),
                }
            }
            reply if !self.session.is_over() => {
                unexpected(self.world, &self.who, "the request", reply);
                CallOutcome::Faulty
            }
            _ => CallOutcome::Over,
        }
    }

    /// Reads a stream to its answer, over as many connections as it takes.
    async fn follow(&mut self, mut events: Box<ReplyEvents>) -> CallOutcome {
        loop {
            let stop = self.read(events).await;
            match stop {
                Stop::Ended(outcome) => return outcome,
                Stop::Disconnected => match self.resume().await {
                    Ok(resumed) => events = resumed,
                    Err(outcome) => return outcome,
                },
            }
        }
    }

    /// Reads one connection until it ends; sometimes the client itself hangs up.
    async fn read(&mut self, mut events: Box<ReplyEvents>) -> Stop {
        let mut patience = (self.rng.u8(0..4) == 0).then(|| self.rng.u32(1..8));
        let mut told_to_come_back = false;
        loop {
            let item = match events.next().await {
                Ok(Some(item)) => item,
                Ok(None) => return self.ended(events.node, told_to_come_back),
                Err(broken) => {
                    broke(self.world, &self.who, self.connected, &broken);
                    return self.ended(events.node, true);
                }
            };
            let since = self.heard.max(self.connected.at);
            self.world.silence(&self.who, events.node, self.connected, since);
            match self.item(&item) {
                Err(fault) => return Stop::Ended(self.fault(fault)),
                Ok(EventMeaning::Question(question)) => {
                    self.reply(&question).await;
                    // The time until the answer was accepted is no silence of the stream.
                    self.heard = Instant::now();
                }
                Ok(EventMeaning::Retry) => told_to_come_back = true,
                Ok(EventMeaning::Prime | EventMeaning::Message | EventMeaning::Answer(_)) => {}
            }
            patience = patience.map(|left| left.saturating_sub(1));
            if patience == Some(0) && self.check.ending().is_none() && self.check.last_id().is_some() {
                count(&self.world.tally.hang_ups);
                return Stop::Disconnected;
            }
        }
    }

    /// Handles the end of a connection. Without an answer it needs a reason.
    fn ended(&self, node: usize, accounted_for: bool) -> Stop {
        if let Some(ending) = self.check.ending() {
            let crashed = self.world.circumstances(self.began).crashed;
            match ending {
                Ending::Interrupted => count(&self.world.tally.interrupted),
                Ending::Result if crashed => count(&self.world.tally.rerun),
                Ending::Result | Ending::StateGone => {}
            }
            return Stop::Ended(CallOutcome::Answered(ending));
        }
        if self.session.is_over() {
            return Stop::Ended(CallOutcome::Over);
        }
        if !accounted_for && self.world.lived_since(self.connected, node) {
            let detail =
                format!("closed in good order without an answer, last id {:?}", self.check.last_id());
            return Stop::Ended(self.fault(CheckFault::new(FaultKind::Lost, detail)));
        }
        Stop::Disconnected
    }

    fn item(&mut self, item: &SseItem) -> Result<EventMeaning, CheckFault> {
        match item {
            SseItem::Event(event) => self.event(event),
            SseItem::Comment(text) => {
                let torn = self.world.circumstances(self.began).torn;
                if text.starts_with("gap") && !torn {
                    return Err(CheckFault::new(FaultKind::Gap, text.clone()));
                }
                Ok(EventMeaning::Message)
            }
        }
    }

    fn event(&mut self, event: &SseEvent) -> Result<EventMeaning, CheckFault> {
        let now = self.world.circumstances(self.began);
        let heard = self.check.hear(event, now)?;
        self.session.claim(&self.check, &self.owner)?;
        if let EventMeaning::Question(question) = &heard {
            count(&self.world.tally.questions);
            let asked = self.session.asked(question, &self.check);
            if !now.torn {
                asked?;
            }
        }
        self.world.heard();
        self.session.count_event();
        self.heard = Instant::now();
        Ok(heard)
    }

    /// Answers a question, sometimes late, and sometimes after the server that asked was killed.
    async fn reply(&mut self, question: &Value) {
        if self.rng.bool() {
            tokio::time::sleep(Duration::from_millis(self.rng.u64(0..400))).await;
        }
        let result = json!({ "action": "accept", "content": { "name": self.name } });
        let message = json!({ "jsonrpc": "2.0", "id": question, "result": result });
        loop {
            let connected = self.world.moment();
            match self.world.post(Some(&self.session.name), &message).await {
                Ok(HttpReply::Whole { status: 202, .. }) => return,
                Ok(HttpReply::Whole { status: 404, body, .. }) => {
                    gone(self.world, self.session, &self.who, &body);
                    return;
                }
                Ok(reply) => {
                    unexpected(self.world, &self.who, "an answer to a question", &reply);
                    return;
                }
                Err(broken) => broke(self.world, &self.who, connected, &broken),
            }
            // The new process asks again, and a late answer to the old question must do no harm. Try both.
            if self.world.troubles() != connected.troubles && self.rng.bool() {
                return;
            }
            pause(&mut self.rng).await;
        }
    }

    /// Resumes the stream, and tries until the server answers.
    async fn resume(&mut self) -> Result<Box<ReplyEvents>, CallOutcome> {
        let Some(last) = self.check.last_id().map(str::to_owned) else {
            count(&self.world.tally.unanswered);
            return Err(CallOutcome::Unanswered);
        };
        if self.rng.u8(0..10) == 0 {
            // A client may resume late, after many other events in its session.
            tokio::time::sleep(Duration::from_millis(self.rng.u64(0..2000))).await;
        }
        loop {
            pause(&mut self.rng).await;
            if self.session.is_over() {
                return Err(CallOutcome::Over);
            }
            self.connected = self.world.moment();
            match self.world.get(&self.session.name, Some(&last)).await {
                Ok(HttpReply::Stream(events)) => {
                    count(&self.world.tally.resumes);
                    return Ok(events);
                }
                Ok(HttpReply::Whole { status: 404, body, .. }) => return Err(self.gone(&body)),
                Ok(HttpReply::Whole { status: 400, body, .. }) if is_refusal(&body) => {
                    return Err(self.refused(&last, &body).await);
                }
                Ok(reply) => {
                    unexpected(self.world, &self.who, "resuming", &reply);
                    return Err(CallOutcome::Faulty);
                }
                Err(broken) => broke(self.world, &self.who, self.connected, &broken),
            }
        }
    }

    /// The server refused the client's last id. After a torn journal that may happen, but the rest of the stream must
    /// be as the client received it.
    async fn refused(&mut self, last: &str, body: &Value) -> CallOutcome {
        if self.session.is_over() {
            return CallOutcome::Over;
        }
        if !self.world.could_lose(self.heard) {
            let detail = format!("{last} after {} events: {body}", self.check.count());
            return self.fault(CheckFault::new(FaultKind::IdRefused, detail));
        }
        count(&self.world.tally.vanished);
        let compared =
            replays::compare(self.world, self.session, &self.check, self.began, &mut self.rng).await;
        compared.map_or_else(|fault| self.fault(fault), |()| CallOutcome::Over)
    }

    fn gone(&self, body: &Value) -> CallOutcome {
        if gone(self.world, self.session, &self.who, body) { CallOutcome::Over } else { CallOutcome::Faulty }
    }

    fn fault(&self, fault: CheckFault) -> CallOutcome {
        // Requests of a session that is being deleted may end in any way.
        if self.session.is_ending() {
            return CallOutcome::Over;
        }
        self.world.violation(&self.who, fault);
        CallOutcome::Faulty
    }

    fn hangs(&self) -> CallOutcome {
        let last = self.check.last_id().unwrap_or("none");
        let detail = match self.check.ending() {
            Some(_) => format!("the stream stays open after its answer, last id {last}"),
            None => format!("no answer; {} events came, last id {last}", self.check.count()),
        };
        self.fault(CheckFault::new(FaultKind::Hangs, detail))
    }
}

/// Whether a body says that the id to resume after is unknown or no longer kept.
pub(super) fn is_refusal(body: &Value) -> bool {
    matches!(reason(body), "unknown_event_id" | "stream_forgotten")
}
