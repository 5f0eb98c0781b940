//! A bounded number of calls at once, with a fair queue in front of it.
//!
//! Waiting calls take turns by principal, and among those of a principal by session: the principal that waits with a thousand calls
//! and the one that waits with a single call get the same number of slots. (It is deficit round robin where every call costs one.)
//! A principal of greater weight has several turns one after the other.
//! In: the caller. Out: a [`Slot`], which is given back when it is dropped. A call that stops waiting leaves the queue. No lock is
//! held across an await.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tenure_session::Principal;
use tokio::sync::oneshot;

use super::settings::PrincipalGrants;

/// How many may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueBounds {
    /// Calls of one principal.
    pub of_principal: usize,
    /// All calls.
    pub in_all: usize,
}

impl Default for QueueBounds {
    fn default() -> Self {
        Self { of_principal: 64, in_all: 1024 }
    }
}

/// The slots and the queue. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct FairQueue(Arc<Mutex<Queue>>);

#[derive(Debug)]
struct Queue {
    slots: usize,
    free: usize,
    bounds: QueueBounds,
    /// The principals with more than one turn.
    grants: Option<PrincipalGrants>,
    line: Line<oneshot::Sender<()>>,
}

/// The slot of a call.
#[derive(Debug)]
pub(super) struct Slot(Arc<Mutex<Queue>>);

/// There is no slot, and no place in the queue, or none came free in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NoSlot;

impl FairQueue {
    pub(super) fn new(slots: usize, bounds: QueueBounds) -> Self {
        let slots = slots.max(1);
        Self(Arc::new(Mutex::new(Queue { slots, free: slots, bounds, grants: None, line: Line::default() })))
    }

    /// The same, with these turns of principals.
    #[must_use]
    pub(super) fn weighing(self, grants: &PrincipalGrants) -> Self {
        self.0.lock().grants = (!grants.weights.is_empty()).then(|| grants.clone());
        self
    }

    /// How many slots there are, how many are taken, and how many calls wait.
    pub(super) fn counts(&self) -> (usize, usize, usize) {
        let queue = self.0.lock();
        (queue.slots, queue.slots - queue.free, queue.line.waiting)
    }

    /// Takes a slot that is free now.
    pub(super) fn enter_now(&self) -> Option<Slot> {
        let mut queue = self.0.lock();
        // A free slot means that no call waits.
        queue.free = queue.free.checked_sub(1)?;
        Some(Slot(Arc::clone(&self.0)))
    }

    /// Takes a slot, or waits for one: at most `patience`, or as long as it takes.
    ///
    /// # Cancel safety
    /// Dropping it leaves the queue.
    pub(super) async fn enter(
        &self,
        principal: &Principal,
        session: u64,
        patience: Option<Duration>,
    ) -> Result<Slot, NoSlot> {
        let (turn, waiting) = {
            let mut queue = self.0.lock();
            if let Some(free) = queue.free.checked_sub(1) {
                queue.free = free;
                return Ok(Slot(Arc::clone(&self.0)));
            }
            let bounds = queue.bounds;
            let is_full = queue.line.waiting >= bounds.in_all
                || queue.line.of_principal(principal) >= bounds.of_principal;
            // Without a limit of time it is a call of our own, which was admitted once already.
            if patience.is_some_and(|patience| is_full || patience.is_zero()) {
                return Err(NoSlot);
            }
            let (sender, turn) = oneshot::channel();
            let weight = queue.grants.as_ref().map_or(1, |grants| grants.weight_of(principal));
            let ticket = queue.line.push((principal, weight), session, sender);
            let place = (principal.clone(), session, ticket);
            (turn, Waiting { queue: Arc::clone(&self.0), place, has_slot: false })
        };
        let mut waiting = waiting;
        let came = async { turn.await.is_ok() };
        let came = match patience {
            Some(patience) => tokio::time::timeout(patience, came).await.unwrap_or(false),
            None => came.await,
        };
        if !came {
            return Err(NoSlot);
        }
        waiting.has_slot = true;
        Ok(Slot(Arc::clone(&self.0)))
    }
}

impl Queue {
    /// Gives a slot to the next call, or makes it free.
    fn release(&mut self) {
        match self.line.pop() {
            // Fails if the call has just stopped waiting. It then finds that it is no longer in the queue, and passes the slot
            // on: if it were passed on here too, one slot would become two.
            Some(next) => drop(next.send(())),
            None => self.free += 1,
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.lock().release();
    }
}

/// A call in the queue.
struct Waiting {
    queue: Arc<Mutex<Queue>>,
    place: (Principal, u64, u64),
    has_slot: bool,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.has_slot {
            return;
        }
        let mut queue = self.queue.lock();
        let (principal, session, ticket) = &self.place;
        // If it is no longer in the queue, it was given a slot that it did not take.
        if !queue.line.remove(principal, *session, *ticket) {
            queue.release();
        }
    }
}

/// Waiting calls, in the order in which they get their turns. Pure: it knows neither slots nor time.
#[derive(Debug)]
struct Line<T> {
    waiting: usize,
    tickets: u64,
    /// Principals with waiting calls; the first one is next.
    turns: VecDeque<Principal>,
    principals: HashMap<Principal, OfPrincipal<T>, RandomState>,
}

/// The waiting calls of a principal.
#[derive(Debug)]
struct OfPrincipal<T> {
    waiting: usize,
    /// How many turns it has one after the other, and how many of them are left.
    weight: usize,
    turns: usize,
    /// Sessions with waiting calls; the first one is next. There are few of them, so they are searched.
    sessions: VecDeque<(u64, VecDeque<(u64, T)>)>,
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self { waiting: 0, tickets: 0, turns: VecDeque::new(), principals: HashMap::default() }
    }
}

impl<T> Line<T> {
    fn of_principal(&self, principal: &Principal) -> usize {
        self.principals.get(principal).map_or(0, |own| own.waiting)
    }

    /// Adds a call at the end of its session's calls. Returns its ticket.
    fn push(&mut self, (principal, weight): (&Principal, usize), session: u64, call: T) -> u64 {
        self.tickets += 1;
        self.waiting += 1;
        if !self.principals.contains_key(principal) {
            self.turns.push_back(principal.clone());
        }
        let own = self.principals.entry(principal.clone()).or_insert_with(|| OfPrincipal {
            waiting: 0,
            weight,
            turns: weight,
            sessions: VecDeque::new(),
        });
        own.waiting += 1;
        match own.sessions.iter_mut().find(|(known, _)| *known == session) {
            Some((_, calls)) => calls.push_back((self.tickets, call)),
            None => own.sessions.push_back((session, VecDeque::from([(self.tickets, call)]))),
        }
        self.tickets
    }

    /// Takes the call whose turn it is. Its session has its next turn after the principal's others, and the principal after all
    /// others, once it has had as many as it weighs.
    fn pop(&mut self) -> Option<T> {
        let principal = self.turns.pop_front()?;
        let own = self.principals.get_mut(&principal)?;
        let (session, mut calls) = own.sessions.pop_front()?;
        let (_, call) = calls.pop_front()?;
        if !calls.is_empty() {
            own.sessions.push_back((session, calls));
        }
        own.waiting -= 1;
        self.waiting -= 1;
        own.turns = own.turns.saturating_sub(1);
        if own.waiting == 0 {
            self.principals.remove(&principal);
        } else if own.turns > 0 {
            self.turns.push_front(principal);
        } else {
            own.turns = own.weight;
            self.turns.push_back(principal);
        }
        Some(call)
    }

    /// Removes a call. False if it is not there.
    fn remove(&mut self, principal: &Principal, session: u64, ticket: u64) -> bool {
        let Some(own) = self.principals.get_mut(principal) else { return false };
        let Some(at) = own.sessions.iter().position(|(known, _)| *known == session) else { return false };
        let calls = &mut own.sessions[at].1;
        let Some(place) = calls.iter().position(|(known, _)| *known == ticket) else { return false };
        calls.remove(place);
        if calls.is_empty() {
            own.sessions.remove(at);
        }
        own.waiting -= 1;
        self.waiting -= 1;
        if own.waiting == 0 {
            self.principals.remove(principal);
            self.turns.retain(|known| known != principal);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn named(name: &str) -> Principal {
        Principal::named(name)
    }

    #[test]
    fn principals_take_turns_and_so_do_the_sessions_of_one() {
        let mut line = Line::default();
        for number in 0..4 {
            line.push((&named("flood"), 1), 1, format!("flood 1.{number}"));
        }
        line.push((&named("flood"), 1), 2, "flood 2.0".to_owned());
        line.push((&named("ann"), 1), 3, "ann".to_owned());
        let gone = line.push((&named("bob"), 1), 4, "bob".to_owned());
        assert!(line.remove(&named("bob"), 4, gone) && !line.remove(&named("bob"), 4, gone));
        let order: Vec<String> = std::iter::from_fn(|| line.pop()).collect();
        assert_eq!(order, ["flood 1.0", "ann", "flood 2.0", "flood 1.1", "flood 1.2", "flood 1.3"]);
        assert_eq!((line.waiting, line.turns.len(), line.principals.len()), (0, 0, 0));
    }

    #[test]
    fn a_principal_of_weight_three_has_three_turns_where_others_have_one() {
        let mut line = Line::default();
        for number in 0..5 {
            line.push((&named("heavy"), 3), 1, format!("heavy {number}"));
            line.push((&named("ann"), 1), 2, format!("ann {number}"));
        }
        line.push((&named("bob"), 1), 3, "bob".to_owned());
        let order: Vec<String> = std::iter::from_fn(|| line.pop()).collect();
        let expected = [
            "heavy 0", "heavy 1", "heavy 2", "ann 0", "bob", "heavy 3", "heavy 4", "ann 1", "ann 2", "ann 3",
            "ann 4",
        ];
        assert_eq!(order, expected);
    }

    proptest! {
        #[test]
        fn no_caller_is_forgotten_or_overtaken_twice_by_the_same(
            steps in prop::collection::vec((0u8..3, 0u8..4, 0u64..3), 1..200),
        ) {
            let (mut line, mut waiting) = (Line::default(), Vec::new());
            let name = |who: u8| named(&who.to_string());
            // How often each other principal got a turn since this one began to wait or had its own.
            let mut overtaken = [[0; 4]; 4];
            for (step, who, session) in steps {
                match step {
                    0 | 1 if step == 0 || waiting.is_empty() => {
                        if line.of_principal(&name(who)) == 0 {
                            overtaken[usize::from(who)] = [0; 4];
                        }
                        let ticket = line.push((&name(who), 1), session, (who, session));
                        waiting.push((who, session, ticket));
                    }
                    1 => {
                        let (who, session, ticket) = waiting.remove(usize::from(who) % waiting.len());
                        prop_assert!(line.remove(&name(who), session, ticket));
                    }
                    _ => {
                        let popped = line.pop();
                        prop_assert_eq!(popped.is_some(), !waiting.is_empty());
                        let Some((who, session)) = popped else { continue };
                        // The oldest call of its session.
                        let at = waiting.iter().position(|(other, own, _)| (*other, *own) == (who, session));
                        waiting.remove(at.unwrap());
                        overtaken[usize::from(who)] = [0; 4];
                        for (other, counts) in overtaken.iter_mut().enumerate() {
                            if other != usize::from(who) {
                                counts[usize::from(who)] += 1;
                                let waits = waiting.iter().any(|(one, ..)| usize::from(*one) == other);
                                prop_assert!(!waits || counts[usize::from(who)] <= 1);
                            }
                        }
                    }
                }
                prop_assert_eq!(line.waiting, waiting.len());
            }
        }
    }

    #[test]
    fn a_slot_that_a_leaving_call_is_given_stays_one_slot() {
        let queue = FairQueue::new(1, QueueBounds::default());
        let slot = queue.enter_now().unwrap();
        let (sender, turn) = oneshot::channel();
        let ticket = queue.0.lock().line.push((&named("ann"), 1), 1, sender);
        let leaving =
            Waiting { queue: Arc::clone(&queue.0), place: (named("ann"), 1, ticket), has_slot: false };
        // Its time is up, and the slot comes free before it has left the queue.
        drop(turn);
        drop(slot);
        drop(leaving);
        assert_eq!(queue.counts(), (1, 0, 0));
        let _slot = queue.enter_now().unwrap();
        assert!(queue.enter_now().is_none(), "there is one slot, as before");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_stops_waiting_leaves_and_its_slot_is_not_lost() {
        let queue = FairQueue::new(1, QueueBounds { of_principal: 2, in_all: 3 });
        let (ann, bob) = (named("ann"), named("bob"));
        let patience = Some(Duration::from_secs(1));
        let slot = queue.enter_now().unwrap();
        assert!(queue.enter_now().is_none());
        assert_eq!(queue.enter(&ann, 1, patience).await.unwrap_err(), NoSlot, "its time is up");
        assert_eq!(queue.counts(), (1, 1, 0));
        let mut first = Box::pin(queue.enter(&ann, 1, patience));
        let mut second = Box::pin(queue.enter(&ann, 1, patience));
        assert!(futures_util::poll!(first.as_mut()).is_pending());
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        assert!(queue.enter(&ann, 2, patience).await.is_err(), "no more of one principal may wait");
        let mut third = Box::pin(queue.enter(&bob, 1, patience));
        assert!(futures_util::poll!(third.as_mut()).is_pending());
        assert!(queue.enter(&named("carl"), 1, patience).await.is_err(), "no more may wait in all");
        drop(slot);
        // The first one has the slot and goes before it takes it.
        drop(first);
        assert!(futures_util::poll!(second.as_mut()).is_pending(), "it was bob's turn");
        let slot = third.await.unwrap();
        drop(second);
        drop(slot);
        assert_eq!(queue.counts(), (1, 0, 0));
    }
}
