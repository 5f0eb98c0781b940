//! Requests for sessions that another node has: finds that node, sends the request there, and passes its answer on.
//!
//! In: a request of a client whose connection, body and credentials have been checked here. Out: the session, if it is
//! here or can be woken here, or the answer of the node that has it. While no node has it, because its owner was lost, the
//! request waits up to [`HOLD`] for the next one: a wait costs time, a refusal ends all calls of some clients.
//!
//! A request that may have been begun by a node that was lost is sent on as such: its next node must not carry it
//! out a second time unless that is safe. If there is no next node, its client learns that it may have been carried out.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use ring::rand::{SecureRandom, SystemRandom};
use tenure_protocol::{Error, Kind, Reason, RequestId};
use tenure_session::budget::Resource;
use tenure_session::cluster::Place;
use tenure_session::id::NodeId;
use tenure_session::{Session, SessionId};
use tokio::time::Instant;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::access::{Hop, Sender};
use super::answer::AnswerFormat;
use super::body::Body;
use super::endpoint::{Asker, Endpoint};
use super::reject::{empty, reject};
use super::relayed_events::RelayedEvents;
use crate::cluster::{
    PeerBody, Relay, RelayedFormat, RelayedHead, RelayedWish, RequestTry, SendFailure, answer_headers,
    begins_after, is_not_here, not_here, request_headers,
};
use crate::correlation::REQUEST_ID;

/// How long a request waits for a node that has its session.
const HOLD: Duration = Duration::from_secs(10);

/// How long it waits at most while the node that has its session stops: requests there may run as long as the stop.
const LONGEST_HOLD: Duration = Duration::from_secs(60);

/// The first and the longest pause between two looks.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(320);

/// How long a node that is listed but not reached still counts as the owner of a session.
const ASK_AFTER: Duration = Duration::from_secs(1);

/// How often the answers to a request may break off. A request that kills each node must not be sent for ever.
const MOST_BREAKS: u32 = 4;

/// A session, or the answer of the node that has it.
pub(super) enum Found {
    /// At this node. [`RequestTry::Again`] if another node may have begun the request.
    Here(Arc<Session>, RequestTry),
    /// At another node, which has answered.
    Elsewhere(PeerAnswer),
}

/// Where a request is served.
pub(super) enum Placed {
    /// At this node.
    Here,
    /// At another node, which has answered.
    Elsewhere(PeerAnswer),
}

/// The parts of a request that another node needs besides its head.
#[derive(Clone, Copy)]
pub(super) struct Carried<'a> {
    pub(super) body: &'a Bytes,
    pub(super) format: AnswerFormat,
    pub(super) wish: Option<&'a RelayedWish>,
}

static NO_BODY: Bytes = Bytes::new();

impl<'a> Carried<'a> {
    /// A request at the endpoint.
    pub(super) const fn of(body: &'a Bytes, format: AnswerFormat) -> Self {
        Self { body, format, wish: None }
    }
}

impl Carried<'_> {
    /// A request without a body.
    pub(super) const NOTHING: Carried<'static> = Carried::of(&NO_BODY, AnswerFormat::Streamable);
}

/// The answer of another node.
#[derive(Debug)]
pub(super) enum PeerAnswer {
    /// This node is the other one, and does not have the session either.
    NotHere,
    /// A whole answer.
    Whole(Response<Bytes>),
    /// A stream of events.
    Events(Response<PeerBody>),
}

/// How long a request has waited for a node, and whether one may have begun it.
#[derive(Debug)]
pub(super) struct Hold {
    attempt: RequestTry,
    began: Instant,
    /// The end of the wait. All delays of a request share it: lost nodes, and sessions that move between nodes.
    until: Instant,
    pause: Duration,
    breaks: u32,
    /// When the store is asked again for the owner of a session whose node is not reached.
    ask_at: Instant,
    /// A stop waits for a request that is held here, since its client can get the answer nowhere else.
    pending: Option<TaskTrackerToken>,
}

impl Hold {
    /// A request that has just come.
    pub(super) fn of(sender: &Sender<'_>) -> Self {
        Self::new(sender.attempt())
    }

    fn new(attempt: RequestTry) -> Self {
        let now = Instant::now();
        // A node that stops in order has given its sessions back, so the first look asks.
        Self {
            attempt,
            began: now,
            until: now + HOLD,
            pause: FIRST_PAUSE,
            breaks: 0,
            ask_at: now,
            pending: None,
        }
    }

    /// Whether another node may have begun it.
    pub(super) fn attempt(&self) -> RequestTry {
        self.attempt
    }

    /// It was sent to a node at this time, and the answer broke off. False if that happened too often.
    pub(super) fn broke(&mut self, sent: Instant) -> bool {
        self.attempt = RequestTry::Again;
        self.breaks += 1;
        // The request itself may have run long, and that time is not a wait.
        self.until += sent.elapsed();
        self.breaks < MOST_BREAKS
    }

    /// The node that has the session stops, and gives it away when its requests there have ended.
    fn is_left(&mut self) {
        self.until = self.until.max((Instant::now() + HOLD).min(self.began + LONGEST_HOLD));
    }

    /// The error for a request that has waited long enough: one that may have been begun elsewhere must not be sent again. Why this
    /// node cannot serve it says nothing about that.
    pub(super) fn given_up(&self, error: Error, parts: &Parts) -> Error {
        let may_have_begun = self.attempt == RequestTry::Again && parts.method == Method::POST;
        let is_of_this_node = matches!(error.kind(), Kind::Unavailable | Kind::Full | Kind::Bug)
            && !matches!(error.reason(), Reason::Interrupted | Reason::EventTooLarge);
        match is_of_this_node && may_have_begun {
            true => Error::new(Reason::Interrupted, LOST).caused_by(error),
            false => error,
        }
    }

    /// Waits before the next look; false if it has waited long enough.
    pub(super) async fn wait(&mut self) -> bool {
        let pause = spread(self.pause);
        if Instant::now() + pause > self.until {
            return false;
        }
        tokio::time::sleep(pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        true
    }

    /// The node was not reached. Returns whether the store has to be asked where the session is: seldom, since all that
    /// wait for a lost node would ask at once. As soon as the node is known to be gone, its name is no longer used.
    fn missed(&mut self) -> bool {
        let now = Instant::now();
        let is_late = now >= self.ask_at;
        if is_late {
            self.ask_at = now + spread(ASK_AFTER);
        }
        is_late
    }
}

/// Between half of a pause and all of it: many requests lose their node at the same moment.
fn spread(pause: Duration) -> Duration {
    let mut byte = [0];
    // Without randomness all of them wait the same time.
    let share = SystemRandom::new().fill(&mut byte).map_or(255, |()| u32::from(byte[0]));
    pause * (256 + share) / 511
}

/// Whether a request was not begun, because its session is on its way from one node to another.
pub(super) fn is_between_nodes(error: &Error) -> bool {
    matches!(error.reason(), Reason::Draining | Reason::StoreUnavailable)
}

/// Whether a request was not begun here, and the node that has sent it holds it until another node takes the session.
pub(super) fn is_left_to_others(sender: &Sender<'_>, error: &Error) -> bool {
    sender.hop != Hop::Client && is_between_nodes(error)
}

/// Why a node has not answered.
pub(super) enum NoAnswer {
    /// It does not have the session.
    NotHere,
    /// It was not reached.
    NotSent,
    /// It may have begun the request.
    Broken,
    /// Its answer is larger than this, and would be so again.
    TooLarge(usize),
}

impl Endpoint {
    /// Finds a session that is not in memory here, or gets the answer of the node that has it.
    ///
    /// # Cancel safety
    /// As of a request that is served here: one that a node has admitted goes on.
    pub(super) async fn find_in_cluster(
        &self,
        relay: &Relay,
        id: &SessionId,
        parts: &Parts,
        sender: &Sender<'_>,
        carried: Carried<'_>,
        hold: &mut Option<Hold>,
    ) -> Result<Found, Error> {
        let hold = hold.get_or_insert_with(|| Hold::of(sender));
        loop {
            match self.placed(relay, id, parts, sender, carried, hold).await? {
                Placed::Elsewhere(answer) => return Ok(Found::Elsewhere(answer)),
                Placed::Here => {}
            }
            let share = || Some(self.share(sender.remote));
            match self.0.sessions.find_within(share, id, &sender.principal).await {
                Ok(session) => return Ok(Found::Here(session, hold.attempt)),
                // The node that has sent it waits: this one may be about to end, and a request that is cut off counts as begun.
                Err(error) if is_left_to_others(sender, &error) => return Err(error),
                // Another node may have claimed it just before.
                Err(error) if is_between_nodes(&error) && hold.wait().await => {
                    tracing::debug!(session = %id.key().label(), %error, "a session is looked for once more");
                }
                Err(error) => return Err(hold.given_up(error, parts)),
            }
        }
    }

    /// Finds out where a session is, and gets the answer of that node if it is another one.
    ///
    /// # Cancel safety
    /// As of a request that is served here: one that a node has admitted goes on.
    pub(super) async fn placed(
        &self,
        relay: &Relay,
        id: &SessionId,
        parts: &Parts,
        sender: &Sender<'_>,
        carried: Carried<'_>,
        hold: &mut Hold,
    ) -> Result<Placed, Error> {
        let is_of_client = sender.hop == Hop::Client;
        if parts.method != Method::GET {
            // Also between two tries.
            hold.pending.get_or_insert_with(|| relay.pending());
        }
        let mut is_remembered = true;
        loop {
            let node = match self.0.sessions.place(id, &sender.principal).await {
                Ok(Place::Here) => return Ok(Placed::Here),
                // The node that has sent it may have just given the session away, and this node remembers the old place.
                Ok(Place::There(_)) if !is_of_client && is_remembered => {
                    is_remembered = false;
                    self.0.sessions.forget_place(id);
                    continue;
                }
                // Two nodes that each believe that the other one has it would send the request back and forth for ever.
                Ok(Place::There(_)) if !is_of_client => return Ok(Placed::Elsewhere(PeerAnswer::NotHere)),
                Ok(Place::There(node)) => node,
                Err(error) if error.reason() == Reason::StoreUnavailable && hold.wait().await => continue,
                Err(error) => return Err(hold.given_up(error, parts)),
            };
            let sent = Instant::now();
            match self.ask(relay, node, parts, sender, carried, hold.attempt).await {
                Ok(answer) => {
                    if let Some(notes) = sender.notes {
                        notes.label(&id.key().label());
                    }
                    return Ok(Placed::Elsewhere(answer));
                }
                Err(NoAnswer::TooLarge(most)) => return Err(too_large(most)),
                Err(NoAnswer::Broken) if !hold.broke(sent) => return Err(hold.given_up(no_node(), parts)),
                Err(NoAnswer::NotSent) if !hold.missed() => {
                    if !hold.wait().await {
                        return Err(hold.given_up(no_node(), parts));
                    }
                    continue;
                }
                Err(NoAnswer::NotHere) if relay.is_draining(node) => hold.is_left(),
                Err(NoAnswer::Broken | NoAnswer::NotHere | NoAnswer::NotSent) => {}
            }
            self.0.sessions.forget_place(id);
            if !hold.wait().await {
                return Err(hold.given_up(no_node(), parts));
            }
        }
    }

    /// Whether a request that was refused with this error may be served by the next owner of its session.
    pub(super) fn may_go_on_elsewhere(&self, error: &Error) -> bool {
        self.0.relay.is_some() && is_between_nodes(error)
    }

    /// Waits before a request that was not begun is tried once more. False if it is refused with this error: it has waited long
    /// enough, or waiting is of no use.
    pub(super) async fn waits(&self, sender: &Sender<'_>, hold: &mut Option<Hold>, error: &Error) -> bool {
        let Some(relay) = &self.0.relay else { return false };
        if sender.hop != Hop::Client || !is_between_nodes(error) {
            return false;
        }
        let hold = hold.get_or_insert_with(|| Hold::of(sender));
        hold.pending.get_or_insert_with(|| relay.pending());
        if error.reason() == Reason::Draining {
            if relay.roster().takers().is_empty() {
                return false;
            }
            hold.is_left();
        }
        hold.wait().await
    }

    /// Sends a request to a node, and waits for its answer.
    pub(super) async fn ask(
        &self,
        relay: &Relay,
        node: NodeId,
        parts: &Parts,
        sender: &Sender<'_>,
        carried: Carried<'_>,
        attempt: RequestTry,
    ) -> Result<PeerAnswer, NoAnswer> {
        let _pending = (parts.method != Method::GET).then(|| relay.pending());
        let head = RelayedHead {
            endpoint: self.0.sessions.route().name().map(str::to_owned),
            is_https: sender.remote.is_some_and(|remote| remote.scheme == "https"),
            address: sender.remote.map(|remote| remote.address),
            identity: sender.vouched(),
            token: self.vouched_token(sender),
            format: carried.format.into(),
            attempt,
            wish: carried.wish.cloned(),
        };
        let mut headers = request_headers(&parts.headers);
        if let Some(notes) = sender.notes
            && let Ok(correlation) = HeaderValue::from_str(&notes.correlation())
        {
            headers.insert(REQUEST_ID, correlation);
        }
        let sent = relay.send(node, &head, (parts.method.clone(), headers, carried.body.clone())).await;
        let response = sent.map_err(|failure| match failure {
            SendFailure::NotSent(why) => {
                tracing::debug!(?node, why, "a request could not be sent to the node that has its session");
                NoAnswer::NotSent
            }
            SendFailure::Broken => NoAnswer::Broken,
        })?;
        if is_not_here(&response) {
            return Err(NoAnswer::NotHere);
        }
        if is_stream(response.headers()) {
            return Ok(PeerAnswer::Events(response));
        }
        let (head, body) = response.into_parts();
        let body = self.collected(body, sender).await?;
        Ok(PeerAnswer::Whole(Response::from_parts(head, body)))
    }

    /// Reads a whole answer. It counts as memory of its client.
    async fn collected(&self, mut body: PeerBody, sender: &Sender<'_>) -> Result<Bytes, NoAnswer> {
        let mut first = Bytes::new();
        let mut all = BytesMut::new();
        let mut held = self.share(sender.remote).take_anyway(Resource::Memory, 0);
        // An answer of many requests may be as large as several events.
        let most = self.0.sessions.limits().max_event_bytes.saturating_mul(4).saturating_add(1 << 20);
        while let Some(data) = body.data().await {
            let data = data.map_err(|_| NoAnswer::Broken)?;
            let length = first.len() + all.len() + data.len();
            if length > most {
                tracing::warn!(most, "a peer's answer is larger than any answer may be");
                return Err(NoAnswer::TooLarge(most));
            }
            held.resize_anyway(length);
            if first.is_empty() && all.is_empty() {
                first = data;
            } else {
                if all.is_empty() {
                    all.extend_from_slice(&std::mem::take(&mut first));
                }
                all.extend_from_slice(&data);
            }
        }
        Ok(if all.is_empty() { first } else { all.freeze() })
    }

    /// The response with the answer of another node to a POST.
    pub(super) fn passed_on(
        &self,
        answer: PeerAnswer,
        parts: &Parts,
        asker: &Asker<'_>,
        format: AnswerFormat,
        requests: &[RequestId],
    ) -> Response<Body> {
        match answer {
            PeerAnswer::NotHere => not_here(empty(StatusCode::MISDIRECTED_REQUEST)),
            PeerAnswer::Whole(answer) => whole(answer),
            PeerAnswer::Events(answer) => {
                let events = RelayedEvents::of_post(self, parts, asker, format, requests);
                self.relayed_stream(events, answer)
            }
        }
    }

    /// The response with the answer of another node to a GET or DELETE.
    pub(super) fn passed_on_stream(
        &self,
        answer: PeerAnswer,
        parts: &Parts,
        sender: &Sender<'_>,
    ) -> Response<Body> {
        match answer {
            PeerAnswer::NotHere => not_here(empty(StatusCode::MISDIRECTED_REQUEST)),
            PeerAnswer::Whole(answer) => whole(answer),
            PeerAnswer::Events(answer) => {
                self.relayed_stream(RelayedEvents::of_get(self, parts, sender), answer)
            }
        }
    }

    fn relayed_stream(&self, events: Option<RelayedEvents>, answer: Response<PeerBody>) -> Response<Body> {
        // Without a relay no answer of a peer could have come.
        let Some(events) = events else { return reject(&no_node(), None) };
        let (head, body) = answer.into_parts();
        let events = events.reading(body, begins_after(&head.headers));
        let mut response = Response::new(Body::events(events, self.rules().keep_alive));
        *response.status_mut() = head.status;
        *response.headers_mut() = answer_headers(head.headers);
        response
    }
}

/// The response with a whole answer of another node.
fn whole(answer: Response<Bytes>) -> Response<Body> {
    let (head, body) = answer.into_parts();
    let mut response = Response::new(if body.is_empty() { Body::EMPTY } else { Body::full(body) });
    *response.status_mut() = head.status;
    *response.headers_mut() = answer_headers(head.headers);
    response
}

pub(super) fn is_stream(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|media| media.as_bytes().starts_with(b"text/event-stream"))
}

/// No node has the session, and this one could not wake it in time.
pub(super) fn no_node() -> Error {
    Error::new(Reason::StoreUnavailable, "The node that has the session does not answer; try again")
}

/// The error for a request that may have been begun, and has no answer.
pub(super) const LOST: &str =
    "The node that had begun the request was lost; the request may or may not have been carried out";

/// The requests were carried out, and would have the same answer again.
pub(super) fn too_large(most: usize) -> Error {
    let what = "The answer is too large to come from the node that has the session; ask for less at once";
    Error::new(Reason::EventTooLarge, what).with("limit", most)
}

impl From<AnswerFormat> for RelayedFormat {
    fn from(format: AnswerFormat) -> Self {
        match format {
            AnswerFormat::Streamable => Self::Streamable,
            AnswerFormat::Json => Self::Json,
            AnswerFormat::Done => Self::Done,
        }
    }
}

impl From<RelayedFormat> for AnswerFormat {
    fn from(format: RelayedFormat) -> Self {
        match format {
            RelayedFormat::Streamable => Self::Streamable,
            RelayedFormat::Json => Self::Json,
            RelayedFormat::Done => Self::Done,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{Method, Request};
    use tenure_protocol::Reason;
    use tokio::time::Instant;

    use super::{
        ASK_AFTER, HOLD, Hold, LONGEST_HOLD, LONGEST_PAUSE, MOST_BREAKS, RequestTry, no_node, spread,
    };

    #[tokio::test(start_paused = true)]
    async fn a_request_whose_answers_always_break_off_is_given_up() {
        let (mut hold, began, mut sent) = (Hold::new(RequestTry::First), Instant::now(), 1);
        while hold.broke(Instant::now()) && hold.wait().await {
            sent += 1;
        }
        assert_eq!(sent, MOST_BREAKS);
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn all_waits_of_a_request_share_one_deadline_and_its_runs_do_not_count() {
        let (mut hold, mut waited) = (Hold::new(RequestTry::First), Duration::ZERO);
        for _ in 1..MOST_BREAKS {
            let sent = Instant::now();
            tokio::time::sleep(HOLD * 2).await;
            assert!(hold.broke(sent));
            let lost = Instant::now();
            // A next node is found after some looks.
            for _ in 0..9 {
                assert!(hold.wait().await, "{waited:?}");
            }
            waited += lost.elapsed();
        }
        let lost = Instant::now();
        while hold.wait().await {}
        waited += lost.elapsed();
        assert!(waited <= HOLD && waited > HOLD - LONGEST_PAUSE, "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_as_long_as_its_node_stops_and_not_for_ever() {
        let (mut hold, began) = (Hold::new(RequestTry::First), Instant::now());
        while hold.wait().await {
            hold.is_left();
        }
        let waited = began.elapsed();
        assert!(waited <= LONGEST_HOLD && waited > LONGEST_HOLD - LONGEST_PAUSE, "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_may_have_been_begun_is_not_asked_to_be_sent_again() {
        let mut hold = Hold::new(RequestTry::First);
        let parts = |method| Request::builder().method(method).body(()).unwrap().into_parts().0;
        let (post, get) = (parts(Method::POST), parts(Method::GET));
        assert_eq!(hold.given_up(no_node(), &post).reason(), Reason::StoreUnavailable);
        hold.broke(Instant::now());
        assert_eq!(hold.given_up(no_node(), &post).reason(), Reason::Interrupted);
        assert_eq!(hold.given_up(no_node(), &get).reason(), Reason::StoreUnavailable);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_asks_seldom_where_a_session_is_whose_node_is_not_reached() {
        let (mut hold, mut looks, mut asked) = (Hold::new(RequestTry::First), 0, 0);
        while hold.wait().await {
            looks += 1;
            asked += u32::from(hold.missed());
        }
        assert!(looks >= 30, "{looks}");
        assert!((8..=21).contains(&asked), "{asked}");
        assert!(ASK_AFTER > LONGEST_PAUSE);
    }

    #[test]
    fn a_pause_is_between_half_of_itself_and_all_of_it() {
        let pauses: Vec<Duration> = (0..200).map(|_| spread(LONGEST_PAUSE)).collect();
        assert!(pauses.iter().all(|pause| (LONGEST_PAUSE / 2..=LONGEST_PAUSE).contains(pause)));
        assert!(pauses.iter().any(|pause| *pause != pauses[0]));
    }
}
