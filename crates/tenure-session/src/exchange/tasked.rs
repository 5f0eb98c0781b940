//! How a call becomes a task, and how it is carried out as one.
//!
//! The server wishes it, and the attempt of the moment grants it: it waits until the task is in the store, is answered
//! with it, and lets go of the call, which goes on in a task of the runtime. If the client hangs up before, it never
//! heard of the task, and the task is forgotten.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use tokio::sync::oneshot;

use super::capability::Capability;
use super::exchanges::{Inner, Listed};
use super::parks::LAST_WORDS;
use super::results::ResultType;
use super::run::{Run, Turn, panicked};
use super::work::{self, Asked, End, Tasked, Wish, Work};
use crate::call::{Became, Stage, TaskWish};
use crate::error::{Error, Reason, RpcError};
use crate::message::Request;
use crate::method::Method;
use crate::port::BoxFuture;
use crate::port::backend::Reply;
use crate::rules;
use crate::task::{self, Begun, Live, Whose};

/// A task on its way into the store.
pub(super) type Becoming = BoxFuture<Result<Begun, Error>>;

impl Work {
    /// Puts a wish before the attempt of the moment; `Err` if it is clear what comes of it.
    pub(super) fn wish(&self, wish: TaskWish) -> Result<oneshot::Receiver<Result<Became, RpcError>>, Became> {
        let mut state = self.state.lock();
        if state.task.is_some() {
            return Err(Became::Task);
        }
        if self.request.method != Method::ToolsCall
            || !state.attempt.meta.capabilities.has(&Capability::TASKS)
        {
            return Err(Became::No);
        }
        let (answer, answered) = oneshot::channel();
        if !state.is_over {
            state.wishes.push(Wish { wish, answer });
        }
        let waker = state.waker.take();
        drop(state);
        work::wake(waker);
        Ok(answered)
    }

    /// The task that the call became.
    pub(super) fn task(&self) -> Option<Tasked> {
        self.state.lock().task.clone()
    }

    /// Makes a task of the call, with the questions that no attempt was given yet. `None` if the attempt is not the
    /// one of the moment any more, or there is an answer already.
    pub(super) fn adopt(
        &self,
        turn: u64,
        begun: Begun,
        request: &Request,
        listed: Listed,
    ) -> Option<(Arc<Live>, Vec<Wish>)> {
        let (live, asked, wishes) = {
            let mut state = self.state.lock();
            if state.turn != turn || state.is_over || state.outcome.is_some() {
                return None;
            }
            let live = begun.keep();
            state.task = Some(Tasked { live: Arc::clone(&live), request: request.clone() });
            state.listed = Some(listed);
            state.asked_at = None;
            (live, std::mem::take(&mut state.asked), std::mem::take(&mut state.wishes))
        };
        for Asked { question, answer } in asked {
            live.ask(question, answer);
        }
        self.room.notify_waiters();
        Some((live, wishes))
    }

    /// Resolves when the call has become a task.
    pub(super) async fn became(&self) -> Tasked {
        loop {
            let more = self.room.notified();
            tokio::pin!(more);
            // Before it is looked at, so that it is not missed.
            more.as_mut().enable();
            if let Some(task) = self.task() {
                return task;
            }
            more.await;
        }
    }

    /// Whose tasks the call can be about.
    pub(super) fn whose(&self) -> Whose {
        Whose { owner: self.caller.principal.clone(), route: self.fanout.route().clone() }
    }

    /// Resolves when the call is ended from outside.
    pub(super) async fn ended(&self) -> End {
        std::future::poll_fn(|cx| {
            let mut state = self.state.lock();
            match state.end {
                Some(end) => Poll::Ready(end),
                None => {
                    state.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl Run {
    /// Grants the wish that the call becomes a task. `Ready` with the answer to the attempt, or with nothing if the
    /// call stays what it was.
    pub(super) fn poll_wishes(&mut self, wish: TaskWish, cx: &mut Context<'_>) -> Poll<Option<Turn>> {
        let Some(tasks) = self.inner.kept_tasks(self.work.fanout.route()) else {
            return Poll::Ready(self.deny(&Ok(Became::No)));
        };
        let becoming = self.becoming.get_or_insert_with(|| {
            let (tasks, whose) = (tasks.clone(), self.work.whose());
            let tool = rules::tool_name(self.request.params.as_ref()).unwrap_or_default();
            Box::pin(async move { tasks.begin(whose, tool, wish).await })
        });
        let Poll::Ready(begun) = becoming.as_mut().poll(cx) else { return Poll::Pending };
        self.becoming = None;
        Poll::Ready(match begun {
            Ok(begun) => self.become_task(begun),
            Err(error) => {
                tracing::warn!(exchange = %self.work.label(), %error, "a call could not become a task");
                self.deny(&Err(error.to_rpc()))
            }
        })
    }

    fn deny(&self, answer: &Result<Became, RpcError>) -> Option<Turn> {
        let wishes = std::mem::take(&mut self.work.state.lock().wishes);
        for wish in wishes {
            drop(wish.answer.send(answer.clone()));
        }
        None
    }

    fn become_task(&mut self, begun: Begun) -> Option<Turn> {
        // Before this attempt ends, or a shutdown could find nothing to wait for.
        let listed = self.inner.list_task(&self.work, self.turn);
        let (live, wishes) = self.work.adopt(self.turn, begun, &self.request, listed)?;
        self.inner.unpark(&self.work);
        // If a task goes on with it already, that was woken.
        if let Some(reply) = self.hand_over() {
            let task = Tasked { live: Arc::clone(&live), request: self.request.clone() };
            self.inner.carry_out(&self.work, task, reply);
        }
        for wish in wishes {
            drop(wish.answer.send(Ok(Became::Task)));
        }
        self.is_over = true;
        Some(self.respond(Ok(live.created())))
    }
}

impl Inner {
    /// Carries out a call that has become a task.
    pub(super) fn carry_out(self: &Arc<Self>, work: &Arc<Work>, task: Tasked, reply: BoxFuture<Reply>) {
        self.tasks.spawn(Arc::clone(self).carried_out(Arc::clone(work), task, reply));
    }

    /// Carries out a call that has become a task, until its end is in the store.
    pub(super) async fn carried_out(self: Arc<Self>, work: Arc<Work>, task: Tasked, reply: BoxFuture<Reply>) {
        let Tasked { live, request } = task;
        // A shutdown waits for it, and then ends it.
        let listed = work.state.lock().listed.take();
        self.ends(&work);
        let mut reply = AssertUnwindSafe(reply).catch_unwind();
        let failed = |reason, message: &'static str| task::End::Failed(RpcError::of(reason, message));
        let (end, is_cut_off) = tokio::select! {
            reply = &mut reply => (self.outcome(&work, &request, reply.unwrap_or_else(|_| Err(panicked(&work)))), false),
            () = live.unwanted() => (task::End::Cancelled, true),
            _ = work.ended() => (failed(Reason::Interrupted, "The server shut down before the task ended"), true),
            () = tokio::time::sleep(live.ttl()) => (failed(Reason::TimedOut, "The task took too long"), true),
        };
        work.close();
        let last_words = async {
            if is_cut_off {
                // The server should hear it before it is cut off.
                drop(tokio::time::timeout(LAST_WORDS, &mut reply).await);
            }
            // What it holds is not kept while the store takes its time. Should it panic, its end is kept all the same.
            if std::panic::catch_unwind(AssertUnwindSafe(|| drop(reply))).is_err() {
                panicked(&work);
            }
        };
        // Whatever the server's own affair is by now: this one is kept here.
        if let Some(tasks) = self.tasks() {
            tokio::join!(tasks.settle(&live, end), last_words);
        }
        drop(listed);
    }

    /// What a task has come to.
    fn outcome(&self, work: &Work, request: &Request, reply: Reply) -> task::End {
        let wrong = |message: &'static str| task::End::Failed(RpcError::of(Reason::Internal, message));
        match self.judge(work, request, reply) {
            Ok(result) => match ResultType::of(&result) {
                ResultType::Complete => task::End::Completed(result.detached()),
                ResultType::InputRequired => wrong("The server asked for input where a task cannot"),
                ResultType::Task | ResultType::Unknown => wrong("The server made a task of a task"),
            },
            Err(error) => task::End::Failed(error),
        }
    }
}
