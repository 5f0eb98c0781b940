//! The standalone stream: a listener that stays, and notes whose updates have to reach it.
//!
//! One update looks like another, so they are counted: no more than notes were sent and the session was
//! woken, and no fewer than notes whose update is known to be in the log.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use serde_json::json;
use tenure_testkit::sse::Item;
use tokio::time::Instant;

use super::calls::{Outcome, call, call_tool, is_refusal};
use super::contact::{broke, gone, pause, unexpected};
use super::work;
use crate::check::{Ending, Fault, Heard, Kind, Script, StreamCheck};
use crate::http::{Events, Reply};
use crate::session::{Session, tool};
use crate::world::{Moment, World, count};

const NOTEBOOK: &str = "demo://notebook";

/// How long updates may take that are known to be in the log.
const ARRIVAL: Duration = Duration::from_secs(30);

/// Listens until the session or the run is over.
pub(crate) async fn listen(world: Arc<World>, session: Arc<Session>, rng: Rng) {
    let end = world.end.clone();
    let listener = Listener {
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

struct Listener {
    world: Arc<World>,
    session: Arc<Session>,
    who: String,
    rng: Rng,
    check: StreamCheck,
    began: Moment,
    connected: Moment,
    heard: Instant,
}

impl Listener {
    async fn run(mut self) {
        while !self.session.is_over() {
            let last = self.check.last_id().map(str::to_owned);
            {
                let mut news = self.session.news.lock();
                news.opened += 1;
                news.opened_fresh += u64::from(last.is_none());
            }
            self.connected = self.world.moment();
            match self.world.http.get(&self.session.name, last.as_deref()).await {
                Ok(Reply::Stream(events)) => {
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
                Ok(Reply::Whole { status: 404, body, .. }) => {
                    gone(&self.world, &self.session, &self.who, &body);
                    return;
                }
                Ok(Reply::Whole { status: 400, body, .. }) if is_refusal(&body) => {
                    if !self.world.could_lose(self.heard) {
                        let detail = format!("{last:?}: {body}");
                        self.world.violation(&self.who, Fault::new(Kind::IdRefused, detail));
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
    async fn read(&mut self, mut events: Box<Events>) -> Result<(), Fault> {
        let mut patience = (self.rng.u8(0..3) == 0).then(|| self.rng.u32(2..6));
        let mut told_to_come_back = false;
        loop {
            let item = match events.next().await {
                Ok(Some(item)) => item,
                Ok(None) => {
                    let lived = self.world.lived_since(self.connected);
                    if lived && !told_to_come_back && !self.session.is_over() {
                        let detail = "the standalone stream was closed in good order";
                        return Err(Fault::new(Kind::Unexpected, detail));
                    }
                    return Ok(());
                }
                Err(broken) => {
                    broke(&self.world, &self.who, self.connected, &broken);
                    return Ok(());
                }
            };
            told_to_come_back |= self.item(&item)? == Heard::Retry;
            patience = patience.map(|left| left.saturating_sub(1));
            if patience == Some(0) && self.check.last_id().is_some() {
                count(&self.world.tally.hang_ups);
                return Ok(());
            }
        }
    }

    fn item(&mut self, item: &Item) -> Result<Heard, Fault> {
        let now = self.world.circumstances(self.began);
        let event = match item {
            Item::Event(event) => event,
            Item::Comment(text) if text.starts_with("gap") && !now.torn => {
                return Err(Fault::new(Kind::Gap, text.clone()));
            }
            Item::Comment(_) => return Ok(Heard::Message),
        };
        let heard = self.check.hear(event, now)?;
        self.session.claim(&self.check, "the standalone stream")?;
        if heard == Heard::Message {
            self.world.heard();
            count(&self.world.tally.news);
            self.session.count_event();
            self.heard = Instant::now();
            let mut news = self.session.news.lock();
            news.received += 1;
            // A session that is woken is told of an update, since nobody watched while it slept. It
            // sleeps after a kill, or when its listener was away; otherwise the listener keeps it awake.
            let (sent, wakes) = (news.sent, self.world.kills() + news.opened);
            if news.received > sent + wakes {
                let detail = format!("{} updates for {sent} notes and {wakes} wakes", news.received);
                return Err(Fault::new(Kind::Repeated, detail));
            }
        }
        Ok(heard)
    }
}

/// Writes some notes in a session that watches its notebook.
pub(crate) async fn write_notes(world: &World, session: &Session, rng: &mut Rng) {
    let then = world.moment();
    // What a torn journal may have taken is asked for again.
    if !session.news.lock().subscribed || world.was_torn() {
        let params = json!({ "uri": NOTEBOOK });
        match call(world, session, "resources/subscribe", &params, Script::Once, rng.fork()).await {
            Outcome::Answered(Ending::Result) => session.news.lock().subscribed = true,
            _ => return,
        }
    }
    let Some(cookie) = work::open(world, session, rng).await else { return };
    let mut answered = 0;
    for note in 0..rng.u32(1..5) {
        // Before it is sent, since the update may come before the answer.
        session.news.lock().sent += 1;
        work::sending(session);
        let mut params = tool("notebook_append", &json!({ "text": format!("note {note}") }));
        params["_meta"] = cookie.clone();
        match call_tool(world, session, &params, Script::Note, rng.fork()).await {
            Outcome::Answered(Ending::Result) => {
                work::acknowledged(session);
                answered += 1;
            }
            Outcome::Answered(Ending::Interrupted) | Outcome::Unanswered => {}
            Outcome::Answered(Ending::StateGone) => return work::lost(world, session),
            Outcome::Over | Outcome::Faulty => return,
        }
    }
    work::check(world, session, rng).await;
    // An answer to a note does not say that its update is logged. But a session logs in order, so an
    // event that is said later and seen by us comes after it in the log.
    let tag = format!("{} after the notes", session.label);
    let arguments = json!({ "to": 1, "interval_ms": 1, "tag": tag });
    let mut params = tool("count_slowly", &arguments);
    params["_meta"] = json!({ "progressToken": tag });
    let said = call_tool(world, session, &params, Script::count(&tag, 1), rng.fork()).await;
    if said == Outcome::Answered(Ending::Result) && world.lived_since(then) {
        session.news.lock().sure += answered;
    }
}

/// Waits for the updates that must arrive.
pub(crate) async fn await_news(world: &World, session: &Session) {
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
            world.violation(&format!("{} standalone stream", session.label), Fault::new(Kind::Lost, detail));
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
