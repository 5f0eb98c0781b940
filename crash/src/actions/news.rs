//! The standalone stream: a listener, and notes whose updates must reach it.
//!
//! One update looks like another, so they are counted: at most one for every note sent and every wake of the session,
//! and at least one for every note whose update is known to be in the log.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use serde_json::json;
use tenure_testkit::sse::SseItem;
use tokio::time::Instant;

use super::calls::{CallOutcome, call, call_tool, is_refusal};
use super::contact::{broke, gone, pause, unexpected};
use super::work;
use crate::check::{CheckFault, Ending, EventMeaning, FaultKind, Script, StreamCheck};
use crate::http::{HttpReply, ReplyEvents};
use crate::life::Moment;
use crate::session::{ClientSession, tool};
use crate::world::{World, count};

const NOTEBOOK: &str = "demo://notebook";

/// How long a logged update may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(30);

/// Listens until the session or the run is over.
pub(crate) async fn listen(world: Arc<World>, session: Arc<ClientSession>, rng: Rng) {
    let end = world.end.clone();
    let listener = StandaloneListener {
        who: format!("{} standalone stream", session.label),
        check: fresh(),
        began: world.moment(),
        connected: world.moment(),
        heard: Instant::now(),
        world,
        session,
        rng,
    };
    tokio::select! {
        () = listener.run() => {}
        () = end.cancelled() => {}
    }
}

fn fresh() -> StreamCheck {
    StreamCheck::standalone(Script::News { uri: NOTEBOOK.to_owned() })
}

struct StandaloneListener {
    world: Arc<World>,
    session: Arc<ClientSession>,
    who: String,
    rng: Rng,
    check: StreamCheck,
    began: Moment,
    connected: Moment,
    heard: Instant,
}

impl StandaloneListener {
    async fn run(mut self) {
        while !self.session.is_over() {
            let last = self.check.last_id().map(str::to_owned);
            {
                let mut news = self.session.news.lock();
                news.opened += 1;
                news.opened_fresh += u64::from(last.is_none());
            }
            self.connected = self.world.moment();
            match self.world.get(&self.session.name, last.as_deref()).await {
                Ok(HttpReply::Stream(events)) => {
                    if last.is_some() {
                        count(&self.world.tally.resumes);
                    }
                    if let Err(fault) = self.read(events).await {
                        if !self.session.is_over() {
                            self.world.violation(&self.who, fault);
                        }
                        return;
                    }
                }
                Ok(HttpReply::Whole { status: 404, body, .. }) => {
                    gone(&self.world, &self.session, &self.who, &body);
                    return;
                }
                Ok(HttpReply::Whole { status: 400, body, .. }) if is_refusal(&body) => {
                    if !self.world.could_lose(self.heard) {
                        let detail = format!("{last:?}: {body}");
                        self.world.violation(&self.who, CheckFault::new(FaultKind::IdRefused, detail));
                        return;
                    }
                    count(&self.world.tally.vanished);
                    self.check = fresh();
                }
                Ok(reply) => {
                    unexpected(&self.world, &self.who, "GET", &reply);
                    return;
                }
                Err(broken) => broke(&self.world, &self.who, self.connected, &broken),
            }
            pause(&mut self.rng).await;
        }
    }

    /// Reads one connection; sometimes hangs up.
    async fn read(&mut self, mut events: Box<ReplyEvents>) -> Result<(), CheckFault> {
        let mut patience = (self.rng.u8(0..3) == 0).then(|| self.rng.u32(2..6));
        let mut told_to_come_back = false;
        loop {
            let item = match events.next().await {
                Ok(Some(item)) => item,
                Ok(None) => {
                    let lived = self.world.lived_since(self.connected, events.node);
                    if lived && !told_to_come_back && !self.session.is_over() {
                        let detail = "the standalone stream was closed in good order";
                        return Err(CheckFault::new(FaultKind::Unexpected, detail));
                    }
                    return Ok(());
                }
                Err(broken) => {
                    broke(&self.world, &self.who, self.connected, &broken);
                    return Ok(());
                }
            };
            told_to_come_back |= self.item(&item)? == EventMeaning::Retry;
            patience = patience.map(|left| left.saturating_sub(1));
            if patience == Some(0) && self.check.last_id().is_some() {
                count(&self.world.tally.hang_ups);
                return Ok(());
            }
        }
    }

    fn item(&mut self, item: &SseItem) -> Result<EventMeaning, CheckFault> {
        let now = self.world.circumstances(self.began);
        let event = match item {
            SseItem::Event(event) => event,
            SseItem::Comment(text) if text.starts_with("gap") && !now.torn => {
                return Err(CheckFault::new(FaultKind::Gap, text.clone()));
            }
            SseItem::Comment(_) => return Ok(EventMeaning::Message),
        };
        let heard = self.check.hear(event, now)?;
        self.session.claim(&self.check, "the standalone stream")?;
        if heard == EventMeaning::Message {
            self.world.heard();
            count(&self.world.tally.news);
            self.session.count_event();
            self.heard = Instant::now();
            let mut news = self.session.news.lock();
            news.received += 1;
            // A woken session gets an update, because the server did not watch the resource while the session slept. A
            // session sleeps after a kill, or without its listener; a connected listener keeps it awake. In a cluster a
            // trouble may move it away and back.
            let moves = if self.world.is_cluster() { 2 } else { 1 };
            let (sent, wakes) = (news.sent, self.world.troubles() * moves + news.opened);
            if news.received > sent + wakes {
                let detail = format!("{} updates for {sent} notes and {wakes} wakes", news.received);
                return Err(CheckFault::new(FaultKind::Repeated, detail));
            }
        }
        Ok(heard)
    }
}

/// Writes some notes in a session that watches its notebook.
pub(crate) async fn write_notes(world: &World, session: &ClientSession, rng: &mut Rng) {
    let then = world.moment();
    // A torn journal may have lost the subscription, so subscribe again.
    if !session.news.lock().subscribed || world.was_torn() {
        let params = json!({ "uri": NOTEBOOK });
        match call(world, session, "resources/subscribe", &params, Script::Once, rng.fork()).await {
            CallOutcome::Answered(Ending::Result) => session.news.lock().subscribed = true,
            _ => return,
        }
    }
    let Some(cookie) = work::open(world, session, rng).await else { return };
    let mut answered = 0;
    for _ in 0..rng.u32(1..5) {
        // Counted before it is sent, because the update may come before the answer.
        session.news.lock().sent += 1;
        let note = work::sending(session);
        let mut params = tool("notebook_append", &json!({ "text": note }));
        params["_meta"] = cookie.clone();
        match call_tool(world, session, &params, Script::Note, rng.fork()).await {
            CallOutcome::Answered(Ending::Result) => {
                work::acknowledged(session, note);
                answered += 1;
            }
            CallOutcome::Answered(Ending::Interrupted) | CallOutcome::Unanswered => {}
            CallOutcome::Answered(Ending::StateGone) => return work::lost(world, session),
            CallOutcome::Over | CallOutcome::Faulty => return,
        }
    }
    work::check(world, session, rng).await;
    // The answer to a note does not prove that its update is logged. But a session logs in order, so the updates are
    // logged before a later event that this client receives.
    let tag = format!("{} after the notes", session.label);
    let arguments = json!({ "to": 1, "interval_ms": 1, "tag": tag });
    let mut params = tool("count_slowly", &arguments);
    params["_meta"] = json!({ "progressToken": tag });
    let said = call_tool(world, session, &params, Script::count(&tag, 1), rng.fork()).await;
    if said == CallOutcome::Answered(Ending::Result) && world.was_calm_since(then) {
        session.news.lock().sure += answered;
    }
}

/// Waits for the updates that must arrive.
pub(crate) async fn await_news(world: &World, session: &ClientSession) {
    let deadline = Instant::now() + ARRIVAL;
    loop {
        let (received, sure, opened_fresh) = {
            let news = session.news.lock();
            (news.received, news.sure, news.opened_fresh)
        };
        if received >= sure || opened_fresh != 1 || session.is_over() || world.was_torn() {
            return;
        }
        if Instant::now() >= deadline {
            let detail = format!("{received} updates arrived, but {sure} were logged");
            world.violation(
                &format!("{} standalone stream", session.label),
                CheckFault::new(FaultKind::Lost, detail),
            );
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
