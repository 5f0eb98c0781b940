//! One request, followed to its answer over kills and dropped connections.
//!
//! An answer as JSON that was cut off is gone, and the caller may ask again under a new id. A stream
//! that gave an id is resumed until its answer is there; if that takes too long, the request hangs.

use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use tenure_testkit::sse::{Event, Item};
use tokio::time::Instant;

use super::contact::{broke, gone, introduce_again, is_uninitialized, pause, unexpected};
use super::replays;
use crate::check::{Ending, Fault, Heard, Kind, Script, StreamCheck};
use crate::http::{Events, Reply, reason};
use crate::session::Session;
use crate::world::{Moment, World, count};

/// How a request ended for its client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Answered(Ending),
    /// The connection broke before there was an id to resume after.
    Unanswered,
    /// The session was deleted, or what it was is rightly gone.
    Over,
    /// A promise was broken; it is on record.
    Faulty,
}

/// Calls a method and follows it to its end.
pub(crate) async fn call(
    world: &World,
    session: &Session,
    method: &str,
    params: &Value,
    script: Script,
    rng: Rng,
) -> Outcome {
    let id = session.next_request();
    let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    let what = params["name"].as_str().unwrap_or(method);
    let name = match &script {
        Script::Ask { name, .. } => name.clone(),
        _ => String::new(),
    };
    let mut call = Call {
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
    if let Outcome::Answered(_) = outcome {
        session.keep(call.check, call.began);
    }
    outcome
}

/// Calls a tool.
pub(crate) async fn call_tool(
    world: &World,
    session: &Session,
    params: &Value,
    script: Script,
    rng: Rng,
) -> Outcome {
    call(world, session, "tools/call", params, script, rng).await
}

struct Call<'a> {
    world: &'a World,
    session: &'a Session,
    who: String,
    /// The same within the session.
    owner: String,
    /// What is answered to questions.
    name: String,
    rng: Rng,
    check: StreamCheck,
    began: Moment,
    /// When the connection that is being read was asked for.
    connected: Moment,
    /// When the last event came.
    heard: Instant,
}

/// Why a connection is not read any further.
enum Stop {
    /// The connection is over, the stream is not.
    Disconnected,
    Ended(Outcome),
}

impl Call<'_> {
    async fn run(&mut self, message: &Value) -> Outcome {
        match self.world.http.post(Some(&self.session.name), message).await {
            Ok(Reply::Stream(events)) => {
                count(&self.world.tally.streamed);
                self.follow(events).await
            }
            Ok(reply) => self.whole(&reply).await,
            Err(broken) => {
                broke(self.world, &self.who, self.connected, &broken);
                count(&self.world.tally.unanswered);
                pause(&mut self.rng).await;
                Outcome::Unanswered
            }
        }
    }

    /// Takes an answer that is not a stream.
    async fn whole(&mut self, reply: &Reply) -> Outcome {
        match reply {
            Reply::Whole { status: 404, body, .. } => self.gone(body),
            Reply::Whole { body, .. } if is_uninitialized(body) => {
                introduce_again(self.world, self.session, &self.who, &mut self.rng).await;
                Outcome::Unanswered
            }
            Reply::Whole { status: 200, body, .. } => {
                match self.check.hear_json(body, self.world.circumstances(self.began)) {
                    Ok(ending) => {
                        count(&self.world.tally.calls);
                        Outcome::Answered(ending)
                    }
                    Err(fault) => self.fault(fault),
                }
            }
            reply if !self.session.is_over() => {
                unexpected(self.world, &self.who, "the request", reply);
                Outcome::Faulty
            }
            _ => Outcome::Over,
        }
    }

    /// Reads a stream to its answer, over as many connections as it takes.
    async fn follow(&mut self, mut events: Box<Events>) -> Outcome {
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

    /// Reads one connection until it is over, which is sometimes our own doing.
    async fn read(&mut self, mut events: Box<Events>) -> Stop {
        let mut patience = (self.rng.u8(0..4) == 0).then(|| self.rng.u32(1..8));
        let mut told_to_come_back = false;
        loop {
            let item = match events.next().await {
                Ok(Some(item)) => item,
                Ok(None) => return self.ended(told_to_come_back),
                Err(broken) => {
                    broke(self.world, &self.who, self.connected, &broken);
                    return self.ended(true);
                }
            };
            match self.item(&item) {
                Err(fault) => return Stop::Ended(self.fault(fault)),
                Ok(Heard::Question(question)) => self.reply(&question).await,
                Ok(Heard::Retry) => told_to_come_back = true,
                Ok(Heard::Prime | Heard::Message | Heard::Answer(_)) => {}
            }
            patience = patience.map(|left| left.saturating_sub(1));
            if patience == Some(0) && self.check.ending().is_none() && self.check.last_id().is_some() {
                count(&self.world.tally.hang_ups);
                return Stop::Disconnected;
            }
        }
    }

    /// The connection is over: well, if the answer came on it.
    fn ended(&self, accounted_for: bool) -> Stop {
        if let Some(ending) = self.check.ending() {
            let crashed = self.world.circumstances(self.began).crashed;
            match ending {
                Ending::Interrupted => count(&self.world.tally.interrupted),
                Ending::Result if crashed => count(&self.world.tally.rerun),
                Ending::Result | Ending::StateGone => {}
            }
            return Stop::Ended(Outcome::Answered(ending));
        }
        if self.session.is_over() {
            return Stop::Ended(Outcome::Over);
        }
        if !accounted_for && self.world.lived_since(self.connected) {
            let detail =
                format!("closed in good order without an answer, last id {:?}", self.check.last_id());
            return Stop::Ended(self.fault(Fault::new(Kind::Lost, detail)));
        }
        Stop::Disconnected
    }

    fn item(&mut self, item: &Item) -> Result<Heard, Fault> {
        match item {
            Item::Event(event) => self.event(event),
            Item::Comment(text) => {
                let torn = self.world.circumstances(self.began).torn;
                if text.starts_with("gap") && !torn {
                    return Err(Fault::new(Kind::Gap, text.clone()));
                }
                Ok(Heard::Message)
            }
        }
    }

    fn event(&mut self, event: &Event) -> Result<Heard, Fault> {
        let now = self.world.circumstances(self.began);
        let heard = self.check.hear(event, now)?;
        self.session.claim(&self.check, &self.owner)?;
        if let Heard::Question(question) = &heard {
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

    /// Answers a question, sometimes late, and sometimes one that died with its server.
    async fn reply(&mut self, question: &Value) {
        if self.rng.bool() {
            tokio::time::sleep(Duration::from_millis(self.rng.u64(0..400))).await;
        }
        let result = json!({ "action": "accept", "content": { "name": self.name } });
        let message = json!({ "jsonrpc": "2.0", "id": question, "result": result });
        loop {
            let connected = self.world.moment();
            match self.world.http.post(Some(&self.session.name), &message).await {
                Ok(Reply::Whole { status: 202, .. }) => return,
                Ok(Reply::Whole { status: 404, body, .. }) => {
                    gone(self.world, self.session, &self.who, &body);
                    return;
                }
                Ok(reply) => {
                    unexpected(self.world, &self.who, "an answer to a question", &reply);
                    return;
                }
                Err(broken) => broke(self.world, &self.who, connected, &broken),
            }
            // It will be asked again; an answer to the old question must do no harm.
            if self.world.kills() != connected.kills() && self.rng.bool() {
                return;
            }
            pause(&mut self.rng).await;
        }
    }

    /// Comes back to the stream, as often as it takes to find the server.
    async fn resume(&mut self) -> Result<Box<Events>, Outcome> {
        let Some(last) = self.check.last_id().map(str::to_owned) else {
            count(&self.world.tally.unanswered);
            return Err(Outcome::Unanswered);
        };
        if self.rng.u8(0..10) == 0 {
            // A client may come back late, when much else has happened in its session.
            tokio::time::sleep(Duration::from_millis(self.rng.u64(0..2000))).await;
        }
        loop {
            pause(&mut self.rng).await;
            if self.session.is_over() {
                return Err(Outcome::Over);
            }
            self.connected = self.world.moment();
            match self.world.http.get(&self.session.name, Some(&last)).await {
                Ok(Reply::Stream(events)) => {
                    count(&self.world.tally.resumes);
                    return Ok(events);
                }
                Ok(Reply::Whole { status: 404, body, .. }) => return Err(self.gone(&body)),
                Ok(Reply::Whole { status: 400, body, .. }) if is_refusal(&body) => {
                    return Err(self.refused(&last, &body).await);
                }
                Ok(reply) => {
                    unexpected(self.world, &self.who, "resuming", &reply);
                    return Err(Outcome::Faulty);
                }
                Err(broken) => broke(self.world, &self.who, self.connected, &broken),
            }
        }
    }

    /// The id we hold is unknown. After a torn journal that may be so, but what is left of the stream
    /// has to be what we received of it.
    async fn refused(&mut self, last: &str, body: &Value) -> Outcome {
        if self.session.is_over() {
            return Outcome::Over;
        }
        if !self.world.could_lose(self.heard) {
            let detail = format!("{last} after {} events: {body}", self.check.count());
            return self.fault(Fault::new(Kind::IdRefused, detail));
        }
        count(&self.world.tally.vanished);
        let compared =
            replays::compare(self.world, self.session, &self.check, self.began, &mut self.rng).await;
        compared.map_or_else(|fault| self.fault(fault), |()| Outcome::Over)
    }

    fn gone(&self, body: &Value) -> Outcome {
        if gone(self.world, self.session, &self.who, body) { Outcome::Over } else { Outcome::Faulty }
    }

    fn fault(&self, fault: Fault) -> Outcome {
        // A session that is being deleted may end its requests in any way.
        if self.session.is_ending() {
            return Outcome::Over;
        }
        self.world.violation(&self.who, fault);
        Outcome::Faulty
    }

    fn hangs(&self) -> Outcome {
        let last = self.check.last_id().unwrap_or("none");
        let detail = match self.check.ending() {
            Some(_) => format!("the stream stays open after its answer, last id {last}"),
            None => format!("no answer; {} events came, last id {last}", self.check.count()),
        };
        self.fault(Fault::new(Kind::Hangs, detail))
    }
}

/// Whether a body says that the id to resume after is not, or no longer, known.
pub(super) fn is_refusal(body: &Value) -> bool {
    matches!(reason(body), "unknown_event_id" | "stream_forgotten")
}
