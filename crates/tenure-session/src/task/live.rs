//! A task that is being carried out in this process: what it waits for, and who may end it.
//!
//! How it ended is decided once, by whoever comes first: its handler, its client, or the clock. Until that is in the
//! store the task still looks like one that is worked on, so that nobody sees an end that a crash could take back.

use std::sync::Weak;
use std::time::Duration;

use hashbrown::HashSet;
use parking_lot::Mutex;
use tenure_protocol::json::object;
use tenure_protocol::translate::questions::{self, Question};
use tenure_protocol::{RawJson, Reply};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::TaskId;
use super::record::{End, Head, Holds};
use super::tasks::{Inner, Whose};
use crate::id::SessionKey;
use crate::kept::Server;
use crate::port::clock::Time;
use crate::port::store::Version;

/// A task that is being carried out.
pub(crate) struct Live {
    pub(super) id: TaskId,
    pub(super) key: SessionKey,
    /// As it was written when it began.
    pub(super) head: Head,
    /// The record of its beginning.
    pub(super) version: Version,
    tasks: Weak<Inner>,
    state: Mutex<State>,
    /// Its client does not want it any more.
    unwanted: CancellationToken,
    /// Its end is in the store.
    pub(super) saved: CancellationToken,
}

struct State {
    updated: Time,
    questions: Vec<Pending>,
    /// Every key that it ever had; none is used twice.
    keys: HashSet<String>,
    end: Option<End>,
}

/// A question that waits for its answer.
struct Pending {
    question: Question,
    answer: oneshot::Sender<Reply>,
}

impl Live {
    pub(super) fn new(id: TaskId, key: SessionKey, head: Head, version: Version, tasks: Weak<Inner>) -> Self {
        let state =
            State { updated: Time(head.updated), questions: Vec::new(), keys: HashSet::new(), end: None };
        Self {
            id,
            key,
            head,
            version,
            tasks,
            state: Mutex::new(state),
            unwanted: CancellationToken::new(),
            saved: CancellationToken::new(),
        }
    }

    /// How long it may take.
    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_millis(self.head.ttl_ms)
    }

    /// Whose it is.
    pub(crate) fn whose(&self) -> Whose {
        Whose { owner: self.head.owner(), route: self.head.route() }
    }

    /// The server that its call was meant for.
    pub(crate) fn server(&self) -> Option<&Server> {
        self.head.server.as_ref()
    }

    /// The params of its call, if another process may carry it out.
    pub(crate) fn params(&self) -> Option<&str> {
        self.head.params.as_deref()
    }

    /// What its client is told of it first.
    pub(crate) fn created(&self) -> RawJson {
        let task = self.head.write(&self.id, Holds::Nothing);
        RawJson::trusted(object::text(&task).replacen('{', r#"{"resultType":"task","#, 1))
    }

    /// Puts a question; its client will find it when it asks for the task.
    pub(crate) fn ask(&self, mut question: Question, answer: oneshot::Sender<Reply>) {
        {
            let mut state = self.state.lock();
            if state.end.is_some() {
                // Nobody will come for it. Whoever asks is told so, since nothing is left that could answer.
                return;
            }
            let mut number = 2;
            let wanted = question.key.clone();
            while state.keys.contains(&question.key) {
                question.key = format!("{wanted}-{number}");
                number += 1;
            }
            state.keys.insert(question.key.clone());
            state.questions.push(Pending { question, answer });
        }
        self.changed();
    }

    /// Takes answers. Those that nobody asked for, or that were given before, mean nothing; what is no answer leaves
    /// its question open.
    pub(super) fn update(&self, responses: &RawJson) {
        let answered = {
            let mut state = self.state.lock();
            let before = std::mem::take(&mut state.questions);
            let count = before.len();
            for pending in before {
                match questions::answer(responses, &pending.question.key) {
                    // Whoever asked may have given up since.
                    Some(answer) => drop(pending.answer.send(Ok(answer.detached()))),
                    None => state.questions.push(pending),
                }
            }
            state.questions.len() < count
        };
        if answered {
            self.changed();
        }
    }

    /// The task as its client sees it.
    pub(super) fn view(&self) -> RawJson {
        let mut state = self.state.lock();
        // Nobody waits any more for the answers to these.
        state.questions.retain(|pending| !pending.answer.is_closed());
        let head = Head { updated: state.updated.0, ..self.head.clone() };
        if state.questions.is_empty() || state.end.is_some() {
            return head.write(&self.id, Holds::Nothing);
        }
        let asked: Vec<_> = state.questions.iter().map(|pending| pending.question.clone()).collect();
        head.write(&self.id, Holds::Questions(&questions::requests(&asked)))
    }

    /// Questions to its client that wait for their answers.
    pub(crate) fn questions(&self) -> usize {
        self.state.lock().questions.iter().filter(|pending| !pending.answer.is_closed()).count()
    }

    /// Decides how it ended. False if that is decided already.
    pub(super) fn decide(&self, end: End) -> bool {
        let questions = {
            let mut state = self.state.lock();
            if state.end.is_some() {
                return false;
            }
            state.end = Some(end);
            std::mem::take(&mut state.questions)
        };
        // Whoever still asks is told that its client is gone.
        drop(questions);
        true
    }

    /// How it ended, as decided.
    pub(super) fn end(&self) -> Option<End> {
        self.state.lock().end.clone()
    }

    /// What was decided cannot be kept; this is how it ended instead.
    pub(super) fn decide_anew(&self, end: End) {
        self.state.lock().end = Some(end);
    }

    /// Its client does not want it any more.
    pub(super) fn cancel(&self) {
        self.unwanted.cancel();
    }

    /// Resolves when its client does not want it any more.
    pub(crate) async fn unwanted(&self) {
        self.unwanted.cancelled().await;
    }

    fn changed(&self) {
        if let Some(tasks) = self.tasks.upgrade() {
            self.state.lock().updated = tasks.clock.now();
            tasks.tell(self.key);
        }
    }
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").field("key", &self.key).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_protocol::Method;
    use tenure_protocol::translate::tasks::Status;

    #[tokio::test]
    async fn a_question_after_the_end_is_answered_too() {
        let head = Head {
            owner: None,
            route: None,
            tool: "dig".to_owned(),
            created: 0,
            updated: 0,
            ttl_ms: 1000,
            poll_ms: 1000,
            status: Status::Working,
            server: None,
            params: None,
        };
        let key = SessionKey::from_bytes([0; 16]);
        let live = Live::new(TaskId::random(), key, head, Version(1), Weak::new());
        let ask = || {
            let question = Question { key: "q".to_owned(), method: Method::ElicitationCreate, params: None };
            let (answer, answered) = oneshot::channel();
            live.ask(question, answer);
            answered
        };
        let before = ask();
        assert!(live.decide(End::Cancelled));
        assert!(before.await.is_err());
        assert!(ask().await.is_err(), "nobody will ever come for it");
    }
}
