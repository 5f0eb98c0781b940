//! Everything that can happen to the streams of a session, in any order, held against a model.
//!
//! A server speaks, answers and is asked again; clients read, hang up, come back and withdraw; the store is slow, fails
//! and trims; the session sleeps and wakes; the process is killed; the time of day is set. The same seed gives the
//! same steps. What has to hold, whatever happens:
//!
//! 1. A client gets the messages of its stream in their order, none twice.
//! 2. It misses none without being told of a gap, but for those that a killed process took with it.
//! 3. A request that was answered or withdrawn is not carried out again, and one that was not is not forgotten.
//! 4. A client that comes back gets the answer, or learns that it is no longer kept.
//! 5. An id stands for one message.

use std::collections::{BTreeSet, HashMap};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use serde_json::json;
use tenure_protocol::{Error, Message, Method, Notification, RawJson, Reason};
use tenure_session::call::{Caller, Outlet};
use tenure_session::id::{Position, SessionKey, StreamId};
use tenure_session::port::store::{Event, ReadLimit, Store};
use tenure_session::session::{Item, Reader};
use tenure_session::{Limits, Principal, Session};
use tenure_store::disk::{Disk, Sync};
use tenure_store::memory::Memory;
use tenure_testkit::fake_backend::{BackendEvent, FakeCall};
use tenure_testkit::runtime::{self, parse, reader_of, send};
use tokio::runtime::Builder;

use crate::runtime::support::{World, resume, say, settle, short};
use crate::runtime::torture::Dice;

/// Runs in the ordinary test; `TENURE_CHAOS_RUNS` asks for more, and `TENURE_CHAOS_SEED` for one.
const RUNS_IN_MEMORY: u64 = 200;
const RUNS_ON_DISK: u64 = 20;
const STEPS: usize = 150;
const DORMANT_AFTER: Duration = Duration::from_millis(20);
const ALL: ReadLimit = ReadLimit { events: usize::MAX, bytes: usize::MAX };

/// A request as the model knows it.
struct Asked {
    id: u64,
    fate: Fate,
}

enum Fate {
    /// The server works on it.
    Open(FakeCall),
    /// It was answered or withdrawn.
    Over {
        /// The log worked since, so it must know.
        is_sure: bool,
    },
    /// The process ended before the log knew of it.
    Lost,
}

/// A stream, from both of its sides.
struct Flow {
    stream: StreamId,
    asked: Vec<Asked>,
    /// What the server has said on it, in order.
    said: Vec<String>,
    /// What was not in the log when a process was killed.
    forgiven: BTreeSet<usize>,
    reader: Option<Reader>,
    /// The reader has told of a gap.
    gap: bool,
    is_first: bool,
    ended: bool,
    forgotten: bool,
    /// What the client has, each with the id after which it could resume.
    seen: Vec<(Option<String>, usize)>,
    prime: Option<String>,
    /// The id that its last connection began with, as long as no other came after it.
    came_back_at: Option<String>,
}

struct Chaos {
    seed: u64,
    dice: Dice,
    limits: Limits,
    world: World,
    session: Option<Arc<Session>>,
    outlet: Outlet,
    flows: Vec<Flow>,
    next_request: u64,
    texts: u64,
    ids: HashMap<String, String>,
    /// Events may have been trimmed.
    is_trimmed: bool,
    is_broken: bool,
    is_held: bool,
    /// What happened, for when something is wrong.
    story: Vec<String>,
}

impl Flow {
    /// The id after which the client resumes.
    fn last_id(&self) -> Option<&str> {
        let seen = || self.seen.iter().rev().find_map(|(id, _)| id.as_deref());
        self.came_back_at.as_deref().or_else(seen).or(self.prime.as_deref())
    }

    fn open(&self) -> impl Iterator<Item = &FakeCall> {
        self.asked.iter().filter_map(|asked| match &asked.fate {
            Fate::Open(call) => Some(call),
            Fate::Over { .. } | Fate::Lost => None,
        })
    }

    fn is_lost(&self) -> bool {
        self.asked.iter().any(|asked| matches!(asked.fate, Fate::Lost))
    }
}

/// What the log has of a stream, as the model calls it.
async fn logged(store: &dyn Store, session: SessionKey, stream: StreamId) -> Vec<String> {
    names(&store.read(session, stream, Position::START, ALL).await.unwrap().events)
}

fn names(events: &[Event]) -> Vec<String> {
    let messages = events.iter().filter(|event| !event.body.is_empty());
    messages.map(|event| name(&parse(&event.body))).collect()
}

/// What a message is called in the model.
fn name(message: &serde_json::Value) -> String {
    match message["params"]["data"].as_str() {
        Some(text) => text.to_owned(),
        None => format!("answer {} {}", message["id"], message["result"]["try"]),
    }
}

impl Chaos {
    async fn new(seed: u64, store: Arc<dyn Store>) -> Self {
        let mut dice = Dice::new(seed);
        let is_trimmed = dice.roll(2) == 0;
        let limits = Limits {
            max_tail_events: 3,
            max_session_events: if is_trimmed { 12 } else { 1_000_000 },
            json_wait: Duration::from_millis(1),
            dormant_after: Some(DORMANT_AFTER),
            idle_ttl: None,
            max_lifetime: None,
            ..Limits::default()
        };
        let mut world = World::on(store, limits.clone());
        // Only the oldest of these revisions knows batches.
        let revision = if dice.roll(2) == 0 { "2025-11-25" } else { "2025-03-26" };
        let session = Some(runtime::session(&world.sessions, revision).await);
        let outlet = world.script.opened().await.outlet;
        Self {
            seed,
            dice,
            limits,
            world,
            session,
            outlet,
            flows: Vec::new(),
            next_request: 1,
            texts: 0,
            ids: HashMap::new(),
            is_trimmed,
            is_broken: false,
            is_held: false,
            story: Vec::new(),
        }
    }

    fn session(&self) -> Arc<Session> {
        Arc::clone(self.session.as_ref().expect("the session is awake"))
    }

    async fn call(&mut self) -> FakeCall {
        self.world.script.call().await
    }

    async fn step(&mut self) {
        let step = self.dice.roll(42);
        self.story.push(format!("step {step}, after {} trims", self.world.store.trims()));
        match step {
            0..=3 => self.begin().await,
            4..=13 => self.speak().await,
            14..=20 => self.read_some().await,
            21..=22 => self.hang_up(),
            23..=26 => self.come_back_anywhere().await,
            27..=28 => self.come_back_while_the_server_speaks().await,
            29..=31 => self.answer().await,
            32 => self.withdraw().await,
            33 => self.hold(),
            34 => self.hold_answers().await,
            35 => self.break_store(),
            36 => self.heal().await,
            37 => self.nap().await,
            38 => self.kill().await,
            39 => self.set_clock(),
            40 => self.come_back_when_it_is_too_old().await,
            _ => self.read_beside_trims().await,
        }
    }

    /// The client asks something.
    async fn begin(&mut self) {
        let open = self.flows.iter().filter(|flow| flow.open().next().is_some()).count();
        if open >= 4 {
            return;
        }
        let session = self.session();
        let count = if session.revision().as_str() == "2025-03-26" { 1 + self.dice.roll(3) } else { 1 };
        let first = self.next_request;
        self.next_request += count as u64;
        let read = |id| runtime::request(id, "resources/read", &json!({ "uri": "test://a" }));
        let (mut calls, reader) = if count > 1 {
            let batch = (first..self.next_request).map(|id| Message::Request(read(id))).collect();
            let answer = session.batch(batch, &Caller::anonymous("test")).unwrap().unwrap();
            let mut calls = Vec::new();
            for _ in 0..count {
                calls.push(self.call().await);
            }
            (calls, reader_of(answer))
        } else {
            let waiting = send(&session, read(first));
            let call = self.call().await;
            // It becomes a stream by itself, because its answer is late.
            (vec![call], reader_of(waiting.await.unwrap()))
        };
        calls.sort_by_key(id_of);
        let asked = calls.into_iter().map(|call| Asked { id: id_of(&call), fate: Fate::Open(call) });
        self.story.push(format!("stream {} begins with request {first}", self.flows.len()));
        self.flows.push(Flow {
            stream: reader.after().stream,
            asked: asked.collect(),
            said: Vec::new(),
            forgiven: BTreeSet::new(),
            reader: Some(reader),
            gap: false,
            is_first: true,
            ended: false,
            forgotten: false,
            seen: Vec::new(),
            prime: None,
            came_back_at: None,
        });
    }

    fn pick(&mut self) -> Option<usize> {
        (!self.flows.is_empty()).then(|| {
            // The last ones more often: there is more to come on them.
            let recent = self.flows.len().min(4);
            self.flows.len() - 1 - self.dice.roll(recent)
        })
    }

    async fn speak(&mut self) {
        let Some(n) = self.pick() else { return };
        for _ in 0..=self.dice.roll(6) {
            self.speak_on(n).await;
        }
    }

    async fn speak_on(&mut self, n: usize) {
        let open: Vec<&FakeCall> = self.flows[n].open().collect();
        if open.is_empty() {
            return;
        }
        self.texts += 1;
        let text = format!("text {}", self.texts);
        say(open[self.dice.roll(open.len())], &text).await;
        self.story.push(format!("stream {n}: says {text}"));
        self.flows[n].said.push(text);
    }

    async fn read_some(&mut self) {
        let Some(n) = self.pick() else { return };
        for _ in 0..self.dice.roll(12) {
            self.read(n).await;
        }
    }

    /// Takes one item if there is one now. Returns whether there was.
    async fn read(&mut self, n: usize) -> bool {
        let Some(reader) = &mut self.flows[n].reader else { return false };
        let item = poll_fn(|cx| match reader.poll_next(cx) {
            Poll::Ready(item) => Poll::Ready(Some(item)),
            Poll::Pending => Poll::Ready(None),
        });
        let Some(item) = item.await else {
            tokio::task::yield_now().await;
            return false;
        };
        self.take(n, item).await;
        true
    }

    async fn take(&mut self, n: usize, item: Option<Item>) {
        let id = match &item {
            Some(Item::Prime(id) | Item::Event { id: Some(id), .. }) => format!(" as {id}"),
            _ => String::new(),
        };
        self.story.push(format!("stream {n}: gives {:?}{id}", item.as_ref().map(short)));
        let (seed, flow) = (self.seed, &mut self.flows[n]);
        match item {
            None => {
                flow.ended = true;
                flow.reader = None;
            }
            // Of the first connection it stands in front of everything, of later ones where the client stopped. A client
            // that gets nothing else comes back from there, and has not been told of a gap.
            Some(Item::Prime(id)) if flow.is_first => flow.prime = Some(id.to_string()),
            Some(Item::Prime(id)) => flow.came_back_at = Some(id.to_string()),
            Some(Item::Gap) => flow.gap = true,
            Some(Item::Close(_)) => flow.reader = None,
            Some(Item::Event { id, body }) => {
                let (text, id) = (name(&parse(&body)), id.map(|id| id.to_string()));
                let found = flow.said.iter().position(|said| *said == text);
                let index = found.unwrap_or_else(|| panic!("seed {seed}, stream {n}: {text} was never said"));
                let next = flow.seen.last().map_or(0, |(_, index)| index + 1);
                let seen = &flow.seen;
                assert!(index >= next, "seed {seed}, stream {n}: {text} again or too late, after {seen:?}");
                let missed = (next..index).filter(|index| !flow.forgiven.contains(index)).count();
                assert!(missed == 0 || flow.gap, "seed {seed}, stream {n}: {missed} lost in front of {text}");
                // Also behind a gap nothing is left out that is kept.
                if next < index && !self.is_broken {
                    let key = self.session.as_ref().expect("the session is awake").info().key;
                    let store = self.world.store.inner();
                    let log = store.read(key, flow.stream, Position::START, ALL).await.unwrap();
                    let kept = names(&log.events);
                    let left_out = flow.said[next..index].iter().find(|said| kept.contains(said));
                    let (first, trimmed) = (log.events.first().map(|event| event.position), log.trimmed);
                    assert_eq!(
                        left_out, None,
                        "seed {seed}, stream {n}: left out in front of {text}; \
                         the log has {kept:?} from {first:x?}, trimmed up to {trimmed:x?}"
                    );
                }
                if let Some(id) = &id {
                    let before = self.ids.insert(id.clone(), text.clone()).unwrap_or_else(|| text.clone());
                    assert_eq!(before, text, "seed {seed}, stream {n}: one id for two messages");
                    flow.came_back_at = None;
                }
                flow.seen.push((id, index));
            }
        }
    }

    fn hang_up(&mut self) {
        if let Some(n) = self.pick() {
            self.story.push(format!("stream {n}: its client hangs up"));
            self.flows[n].reader = None;
        }
    }

    async fn come_back_anywhere(&mut self) {
        if let Some(n) = self.pick() {
            self.forget_some(n);
            self.come_back(n).await;
        }
    }

    /// The client did not get the last of what was sent to it, but for the first id.
    fn forget_some(&mut self, n: usize) {
        let flow = &mut self.flows[n];
        if flow.last_id().is_none() {
            return;
        }
        let first_id = flow.seen.iter().position(|(id, _)| id.is_some()).map_or(0, |at| at + 1);
        let needed = if flow.prime.is_some() { 0 } else { first_id };
        let keep = flow.seen.len() - self.dice.roll(flow.seen.len().min(6) + 1);
        if keep.max(needed) < flow.seen.len() {
            flow.came_back_at = None;
        }
        flow.seen.truncate(keep.max(needed));
        // Sometimes the old connection is still there, and the new one replaces it.
        if self.dice.roll(2) == 0 {
            flow.reader = None;
        }
    }

    async fn come_back(&mut self, n: usize) {
        let Some(after) = self.flows[n].last_id().map(str::to_owned) else { return };
        let resumed = resume(&self.session(), &after).await;
        self.came_back(n, resumed);
    }

    fn came_back(&mut self, n: usize, resumed: Result<Reader, Error>) {
        let (seen, last) = (self.flows[n].seen.len(), self.flows[n].last_id());
        self.story.push(format!("stream {n}: {resumed:?} after {last:?}, its client has {seen} messages"));
        let (seed, flow) = (self.seed, &mut self.flows[n]);
        match resumed {
            Ok(reader) => {
                assert_eq!(reader.after().stream, flow.stream, "seed {seed}, stream {n}: another one");
                (flow.reader, flow.gap, flow.ended, flow.is_first) = (Some(reader), false, false, false);
            }
            Err(error) => {
                assert_eq!(error.reason(), Reason::StreamForgotten, "seed {seed}, stream {n}: {error}");
                assert!(self.is_trimmed, "seed {seed}, stream {n}: forgotten, though nothing was trimmed");
                assert!(flow.open().next().is_none(), "seed {seed}, stream {n}: forgotten while it was open");
                (flow.reader, flow.forgotten) = (None, true);
            }
        }
    }

    /// The store has looked for what the client missed, and has not answered yet, while more comes. Sometimes it learns
    /// only then what was trimmed.
    async fn come_back_while_the_server_speaks(&mut self) {
        let Some(n) = self.pick() else { return };
        self.forget_some(n);
        let Some(after) = self.flows[n].last_id().map(str::to_owned) else { return };
        if self.dice.roll(2) == 0 {
            self.world.store.hold_answers_of_reads();
        } else {
            self.world.store.hold_looks_at_marks();
        }
        let session = self.session();
        let resuming = tokio::spawn(async move { resume(&session, &after).await });
        settle().await;
        for _ in 0..self.dice.roll(12) {
            self.speak_on(n).await;
        }
        settle().await;
        self.world.store.look_at_marks();
        self.world.store.answer_reads();
        let resumed = resuming.await.unwrap();
        self.came_back(n, resumed);
    }

    /// Most of what the client missed has become too old to be kept: the trim that its return sets off runs beside the
    /// replay.
    async fn come_back_when_it_is_too_old(&mut self) {
        let Some(n) = self.pick() else { return };
        if self.is_broken || self.is_held || self.flows[n].last_id().is_none() {
            return;
        }
        self.forget_some(n);
        for _ in 0..20 {
            self.speak_on(n).await;
        }
        self.append_twice().await;
        self.is_trimmed = true;
        self.world.clock.set_ahead(self.limits.event_ttl);
        for _ in 0..2 {
            self.speak_on(n).await;
        }
        self.append_twice().await;
        self.come_back(n).await;
        for _ in 0..self.dice.roll(12) {
            self.read(n).await;
        }
    }

    /// The server says more than is kept while the client reads, so that reads meet trims. The client comes back each
    /// time, since a reader that has told of one gap may miss more.
    async fn read_beside_trims(&mut self) {
        let Some(n) = self.pick() else { return };
        if self.is_broken || self.is_held {
            return;
        }
        for _ in 0..40 {
            for _ in 0..=self.dice.roll(12) {
                self.speak_on(n).await;
            }
            self.come_back(n).await;
            for _ in 0..=self.dice.roll(6) {
                self.read(n).await;
            }
        }
    }

    async fn answer(&mut self) {
        let Some(n) = self.pick() else { return };
        self.answer_one(n).await;
    }

    async fn answer_one(&mut self, n: usize) {
        let is_sure = !self.is_broken && !self.is_held;
        self.texts += 1;
        let (count, flow) = (self.texts, &mut self.flows[n]);
        let open: Vec<_> =
            flow.asked.iter_mut().filter(|asked| matches!(asked.fate, Fate::Open(_))).collect();
        if open.is_empty() {
            return;
        }
        let which = self.dice.roll(open.len());
        let asked = open.into_iter().nth(which).expect("there are so many");
        let over = Fate::Over { is_sure: false };
        let Fate::Open(call) = std::mem::replace(&mut asked.fate, over) else { return };
        flow.said.push(format!("answer {} {count}", asked.id));
        let id = asked.id;
        call.answer(&json!({ "try": count }));
        self.story.push(format!("stream {n}: answers {id}"));
        settle().await;
        if is_sure {
            self.append_twice().await;
        }
    }

    async fn withdraw(&mut self) {
        let Some(n) = self.pick() else { return };
        let is_sure = !self.is_broken && !self.is_held;
        let session = self.session();
        let Some(asked) = self.flows[n].asked.iter_mut().find(|asked| matches!(asked.fate, Fate::Open(_)))
        else {
            return;
        };
        let params = Some(RawJson::of(&json!({ "requestId": asked.id })));
        asked.fate = Fate::Over { is_sure: false };
        self.story.push(format!("stream {n}: its client withdraws {}", asked.id));
        session.notification(Notification { method: Method::Cancelled, params }).unwrap();
        settle().await;
        if is_sure {
            self.append_twice().await;
        }
    }

    /// A slow disk.
    fn hold(&mut self) {
        self.is_held = !self.is_held;
        self.story.push(format!("appends are held: {}", self.is_held));
        if self.is_held {
            self.world.store.hold_appends();
        } else {
            self.world.store.release_appends();
        }
    }

    /// Appends are in the log, and the session does not know yet, while clients read and come back.
    async fn hold_answers(&mut self) {
        if self.is_broken || self.is_held {
            return;
        }
        self.world.store.hold_answers_of_appends();
        for _ in 0..=self.dice.roll(3) {
            self.speak().await;
            settle().await;
            self.come_back_anywhere().await;
            for _ in 0..2 {
                self.read_some().await;
                settle().await;
            }
            self.come_back_anywhere().await;
        }
        self.world.store.answer_appends();
    }

    fn break_store(&mut self) {
        self.is_broken = true;
        self.story.push("the store fails".to_owned());
        self.world.store.set_broken(true);
    }

    async fn heal(&mut self) {
        (self.is_broken, self.is_held) = (false, false);
        self.story.push("the store works".to_owned());
        self.world.store.set_broken(false);
        self.world.store.release_appends();
        self.append_twice().await;
    }

    /// Has two events logged, one after the other: with the first the log works, behind the second it has everything
    /// that it lacked.
    async fn append_twice(&mut self) {
        let session = self.session();
        for _ in 0..2 {
            self.texts += 1;
            let text = format!("news {}", self.texts);
            let mut news = session.listen(None).await.unwrap();
            let params = RawJson::of(&json!({ "level": "info", "data": text }));
            self.outlet.notify(&Method::LogMessage, Some(&params)).await.unwrap();
            loop {
                if let Item::Event { id: Some(_), body } = news.next().await.expect("news")
                    && name(&parse(&body)) == text
                {
                    break;
                }
            }
        }
        for asked in self.flows.iter_mut().flat_map(|flow| &mut flow.asked) {
            if let Fate::Over { is_sure } = &mut asked.fate {
                *is_sure = true;
            }
        }
    }

    /// The clients go away, and the session sleeps until one comes back.
    async fn nap(&mut self) {
        if self.flows.iter().any(|flow| flow.open().next().is_some()) {
            return;
        }
        self.heal().await;
        for flow in &mut self.flows {
            flow.reader = None;
        }
        let session = self.session.take().expect("the session is awake");
        let (id, key) = (*session.id(), session.info().key);
        self.story.push("the session sleeps".to_owned());
        drop(session);
        let asleep = async {
            while self.world.sessions.info(&key).is_some() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), asleep).await.expect("it falls asleep");
        let session = self.world.sessions.find(&id, &Principal::ANONYMOUS).await.unwrap();
        self.outlet = self.world.script.opened().await.outlet;
        let again = session.info().calls;
        assert!(again.is_empty(), "seed {}: run again after sleep: {again:?}", self.seed);
        self.session = Some(session);
    }

    /// The process ends at once, and another takes its place.
    async fn kill(&mut self) {
        for flow in &mut self.flows {
            flow.reader = None;
        }
        let old = self.session.take().expect("the session is awake");
        self.story.push("the process is killed".to_owned());
        // A write of the record that the old process has begun must not land while the next one wakes the session.
        self.world.store.set_broken(true);
        self.world.store.puts_are_done().await;
        self.world.kill(self.limits.clone());
        (self.is_broken, self.is_held) = (false, false);
        let session = self.world.find(&old).await.unwrap();
        self.outlet = self.world.script.opened().await.outlet;
        drop(old);
        let again: Vec<u64> = session.info().calls.iter().map(|call| call.id.raw().parse_number()).collect();
        let (key, inner) = (session.info().key, self.world.store.inner());
        self.session = Some(session);
        let mut calls: HashMap<u64, FakeCall> = HashMap::new();
        while calls.len() < again.len() {
            if let BackendEvent::Call(call) = self.world.script.next().await {
                calls.insert(id_of(&call), call);
            }
        }
        let survey = inner.survey(key).await.unwrap();
        for (n, flow) in self.flows.iter_mut().enumerate() {
            let seed = self.seed;
            let logged = logged(inner.as_ref(), key, flow.stream).await;
            // Events in front of the first kept one were trimmed, and their loss is told.
            let first = flow.said.iter().position(|said| logged.contains(said)).unwrap_or(0);
            let unlogged =
                flow.said.iter().enumerate().skip(first).filter(|(_, said)| !logged.contains(said));
            flow.forgiven.extend(unlogged.map(|(index, _)| index));
            let is_known = survey.streams.iter().any(|stream| stream.stream == flow.stream);
            for asked in &mut flow.asked {
                let call = calls.remove(&asked.id);
                match (&asked.fate, call) {
                    (Fate::Open(_), Some(call)) => asked.fate = Fate::Open(call),
                    (Fate::Open(_), None) => {
                        assert!(!is_known, "seed {seed}, stream {n}: request {} is forgotten", asked.id);
                        asked.fate = Fate::Lost;
                    }
                    (Fate::Over { is_sure: true }, Some(_)) => {
                        panic!("seed {seed}, stream {n}: request {} is over, and is run again", asked.id)
                    }
                    (Fate::Over { .. }, Some(call)) => asked.fate = Fate::Open(call),
                    (Fate::Over { .. } | Fate::Lost, None) => {}
                    (Fate::Lost, Some(_)) => panic!("seed {seed}, stream {n}: a lost request is back"),
                }
            }
        }
        assert!(calls.is_empty(), "seed {}: requests of no stream: {:?}", self.seed, calls.keys());
        // A request that was lost has no stream to come back to.
        for flow in &self.flows {
            let lost = flow.is_lost() && flow.asked.iter().all(|asked| matches!(asked.fate, Fate::Lost));
            assert!(!lost || flow.last_id().is_none(), "seed {}: a lost stream had an id", self.seed);
        }
    }

    fn set_clock(&mut self) {
        let hours = Duration::from_secs(60 * 60 * (1 + self.dice.roll(48) as u64));
        let is_back = self.dice.roll(2) == 0;
        self.story.push(format!("the clock is set {} by {hours:?}", if is_back { "back" } else { "ahead" }));
        if is_back {
            self.world.clock.set_back(hours);
        } else {
            // The kept events look old.
            self.is_trimmed = true;
            self.world.clock.set_ahead(hours);
        }
    }

    /// Everything ends well, and every client comes back once more.
    async fn finish(&mut self) {
        self.heal().await;
        for n in 0..self.flows.len() {
            while self.flows[n].open().next().is_some() {
                self.answer_one(n).await;
            }
        }
        for n in 0..self.flows.len() {
            if self.flows[n].is_lost() {
                continue;
            }
            self.forget_some(n);
            if self.flows[n].last_id().is_none() && self.flows[n].reader.is_none() {
                continue;
            }
            let seed = self.seed;
            self.come_back(n).await;
            let reading = async {
                while !self.flows[n].ended && self.flows[n].reader.is_some() {
                    self.read(n).await;
                }
            };
            let read = tokio::time::timeout(Duration::from_secs(60), reading).await;
            assert!(read.is_ok(), "seed {seed}, stream {n}: it does not end");
            let flow = &self.flows[n];
            let next = flow.seen.last().map_or(0, |(_, index)| index + 1);
            let missed = (next..flow.said.len()).filter(|index| !flow.forgiven.contains(index)).count();
            let is_told = flow.gap || flow.forgotten;
            assert!(missed == 0 || is_told, "seed {seed}, stream {n}: the last {missed} are lost");
        }
    }
}

impl Drop for Chaos {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.story.join("\n"));
        }
    }
}

fn id_of(call: &FakeCall) -> u64 {
    call.request.id.raw().parse_number()
}

trait ParseNumber {
    fn parse_number(&self) -> u64;
}

impl ParseNumber for bytes::Bytes {
    fn parse_number(&self) -> u64 {
        std::str::from_utf8(self).unwrap().parse().unwrap()
    }
}

async fn run(seed: u64, store: Arc<dyn Store>) {
    let mut chaos = Chaos::new(seed, store).await;
    for _ in 0..STEPS {
        chaos.step().await;
    }
    chaos.finish().await;
}

/// The seeds to run: all below a number, or the one that is asked for.
fn seeds(ordinary: u64) -> std::ops::Range<u64> {
    let asked = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    match asked("TENURE_CHAOS_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..asked("TENURE_CHAOS_RUNS").unwrap_or(ordinary),
    }
}

/// Every run has a runtime of its own, which takes with it what killed processes left behind: a store that one of their
/// tasks closes later would hold up the next run.
fn new_runtime() -> Builder {
    let mut builder = Builder::new_current_thread();
    builder.enable_all();
    builder
}

#[test]
fn streams_hold_through_everything_in_memory() {
    for seed in seeds(RUNS_IN_MEMORY) {
        let runtime = new_runtime().start_paused(true).build().unwrap();
        runtime.block_on(run(seed, Arc::new(Memory::new())));
    }
}

#[test]
fn streams_hold_through_everything_on_disk() {
    for seed in seeds(RUNS_ON_DISK) {
        let folder = tempfile::TempDir::new().unwrap();
        let runtime = new_runtime().build().unwrap();
        let open = || Arc::new(Disk::open(&folder.path().join("store"), Sync::Os).unwrap());
        runtime.block_on(async { run(seed, open()).await });
    }
}
