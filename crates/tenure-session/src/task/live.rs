//! A task that runs in this process: its open questions, and its end.
//!
//! The end is decided once, by the first of: its handler, its client, the clock. Until the end is in the store, clients
//! still see a working task, so that they never see an end that a crash could revert.

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
use super::record::{Holds, TaskEnd, TaskHead};
use super::tasks::{TasksInner, Whose};
use crate::call::Granted;
use crate::id::SessionKey;
use crate::kept::NotedServer;
use crate::port::clock::Time;
use crate::port::store::Version;

/// A running task.
pub(crate) struct LiveTask {
    pub(super) id: TaskId,
    pub(super) key: SessionKey,
    /// The head as it was written when the task began.
    pub(super) head: TaskHead,
    /// The version of the record that was written when the task began.
    pub(super) version: Version,
    tasks: Weak<TasksInner>,
    state: Mutex<LiveState>,
    /// Cancelled when its client cancels the task.
    unwanted: CancellationToken,
    /// Cancelled when its end is in the store.
    pub(super) saved: CancellationToken,
}

struct LiveState {
    updated: Time,
    questions: Vec<Pending>,
    /// All question keys that were ever used; no key is used twice.
    keys: HashSet<String>,
    end: Option<TaskEnd>,
}

/// A question without an answer yet.
struct Pending {
    question: Question,
    answer: oneshot::Sender<Reply>,
}

impl LiveTask {
    pub(super) fn new(
        id: TaskId,
        key: SessionKey,
        head: TaskHead,
        version: Version,
        tasks: Weak<TasksInner>,
    ) -> Self {
        let state =
            LiveState { updated: Time(head.updated), questions: Vec::new(), keys: HashSet::new(), end: None };
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

    /// Its owner and endpoint.
    pub(crate) fn whose(&self) -> Whose {
        Whose { owner: self.head.owner(), route: self.head.route() }
    }

    /// The server that its call was for.
    pub(crate) fn server(&self) -> Option<&NotedServer> {
        self.head.server.as_ref()
    }

    /// The rights with which its call was sent.
    pub(crate) fn scopes(&self) -> Granted {
        Granted::of_record(self.head.scopes.clone())
    }

    /// The params of its call, if another process may start it again.
    pub(crate) fn params(&self) -> Option<&str> {
        self.head.params.as_deref()
    }

    /// The `task` result that its client gets first.
    pub(crate) fn created(&self) -> RawJson {
        let task = self.head.write(&self.id, Holds::Nothing);
        RawJson::trusted(object::text(&task).replacen('{', r#"{"resultType":"task","#, 1))
    }

    /// Adds a question. The client finds it when it polls the task.
    pub(crate) fn ask(&self, mut question: Question, answer: oneshot::Sender<Reply>) {
        {
            let mut state = self.state.lock();
            if state.end.is_some() {
                // The client will not poll for questions any more. Dropping `answer` tells the asker.
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

    /// Takes answers. Answers without an open question are ignored; an invalid answer leaves its question open.
    pub(super) fn update(&self, responses: &RawJson) {
        let answered = {
            let mut state = self.state.lock();
            let before = std::mem::take(&mut state.questions);
            let count = before.len();
            for pending in before {
                match questions::answer(responses, &pending.question.key) {
                    // The asker may be gone.
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
        // The askers of these questions are gone.
        state.questions.retain(|pending| !pending.answer.is_closed());
        let head = TaskHead { updated: state.updated.0, ..self.head.clone() };
        if state.questions.is_empty() || state.end.is_some() {
            return head.write(&self.id, Holds::Nothing);
        }
        let asked: Vec<_> = state.questions.iter().map(|pending| pending.question.clone()).collect();
        head.write(&self.id, Holds::Questions(&questions::requests(&asked)))
    }

    /// The number of open questions.
    pub(crate) fn questions(&self) -> usize {
        self.state.lock().questions.iter().filter(|pending| !pending.answer.is_closed()).count()
    }

    /// Decides the end. False if it was decided before.
    pub(super) fn decide(&self, end: TaskEnd) -> bool {
        let questions = {
            let mut state = self.state.lock();
            if state.end.is_some() {
                return false;
            }
            state.end = Some(end);
            std::mem::take(&mut state.questions)
        };
        // Dropping the questions tells their askers that the client is gone.
        drop(questions);
        true
    }

    /// The decided end.
    pub(super) fn end(&self) -> Option<TaskEnd> {
        self.state.lock().end.clone()
    }

    /// Replaces the decided end, because it cannot be written.
    pub(super) fn decide_anew(&self, end: TaskEnd) {
        self.state.lock().end = Some(end);
    }

    /// Cancels the task for its client.
    pub(super) fn cancel(&self) {
        self.unwanted.cancel();
    }

    /// Resolves when its client cancels the task.
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

impl std::fmt::Debug for LiveTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveTask").field("key", &self.key).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_protocol::Method;
    use tenure_protocol::translate::tasks::Status;

    #[tokio::test]
    async fn a_question_after_the_end_is_answered_too() {
        let head = TaskHead {
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
            scopes: None,
            node: None,
        };
        let key = SessionKey::from_bytes([0; 16]);
        let live = LiveTask::new(TaskId::random(), key, head, Version(1), Weak::new());
        let ask = || {
            let question = Question { key: "q".to_owned(), method: Method::ElicitationCreate, params: None };
            let (answer, answered) = oneshot::channel();
            live.ask(question, answer);
            answered
        };
        let before = ask();
        assert!(live.decide(TaskEnd::Cancelled));
        assert!(before.await.is_err());
        assert!(ask().await.is_err(), "no client can ever come for it");
    }
}
