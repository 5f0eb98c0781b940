//! Turns a call into a task, and runs it as one.
//!
//! The server wishes it, or the call has run for [`TaskLimits::after`](crate::task::TaskLimits). The current attempt
//! then waits until the task is in the store, answers with the task, and leaves the call to a runtime task. If the
//! client disconnects before that, it never learned of the task, and the task is removed. If the call became a task
//! because of its run time, its params are kept with the task: if the process ends, the next process runs the call
//! again if that is safe.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use tenure_protocol::modern::capability::Capability;
use tenure_protocol::modern::meta::Meta;
use tenure_protocol::modern::result::ResultType;
use tenure_protocol::modern::validate::StreamSupport;
use tenure_protocol::translate::questions;
use tenure_protocol::{Error, Method, RawJson, Reason, Reply, Request, RequestId, RpcError, params};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::backend::Call;
use crate::call::{Became, CallContext, Caller, Client, TaskWish};
use crate::exchange::attempt::{AttemptStep, Run, panicked};
use crate::exchange::call::{
    self, ActiveCall, CallOrigin, ClientAttempt, ForcedEnd, OpenQuestion, Tasked, Wish,
};
use crate::exchange::exchanges::{ExchangesInner, ListGuard};
use crate::exchange::parked::CANCEL_GRACE;
use crate::exchange::resume::other_server;
use crate::port::BoxFuture;
use crate::task::{self, BegunTask, LiveTask, TaskCall, Whose};

/// How often a server may answer the call of a task with `input_required`.
const MAX_ROUNDS: usize = 10;

/// The pause before a call is sent again whose server returned `input_required` without questions.
const LATER: Duration = Duration::from_millis(250);

/// Why a call becomes a task.
#[derive(Clone, Copy)]
pub(super) enum TaskCause {
    /// Its server wishes it.
    ByServer(TaskWish),
    /// It has run for too long.
    ByTime,
}

/// A task that is being written to the store.
pub(super) type Becoming = BoxFuture<Result<BegunTask, Error>>;

impl ActiveCall {
    /// Passes a wish to the current attempt. `Err` if its outcome is known at once.
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
        call::wake(waker);
        Ok(answered)
    }

    /// The task that the call became.
    pub(super) fn task(&self) -> Option<Tasked> {
        self.state.lock().task.clone()
    }

    /// Turns the call into a task, together with its open questions. `None` if the attempt is no longer the current
    /// one, or the call has a reply.
    pub(super) fn adopt(
        &self,
        generation: u64,
        begun: BegunTask,
        request: &Request,
        listed: ListGuard,
    ) -> Option<(Arc<LiveTask>, Vec<Wish>)> {
        let (live, asked, wishes) = {
            let mut state = self.state.lock();
            if state.generation != generation || state.is_over || state.outcome.is_some() {
                return None;
            }
            let live = begun.keep();
            state.task = Some(Tasked { live: Arc::clone(&live), request: request.clone() });
            state.listed = Some(listed);
            state.asked_at = None;
            (live, std::mem::take(&mut state.asked), std::mem::take(&mut state.wishes))
        };
        for OpenQuestion { question, answer } in asked {
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
            // Registered before the check, so that no change is missed.
            more.as_mut().enable();
            if let Some(task) = self.task() {
                return task;
            }
            more.await;
        }
    }

    /// The owner and the endpoint of the call, and of the tasks that it may use.
    pub(super) fn whose(&self) -> Whose {
        Whose { owner: self.caller.principal.clone(), route: self.fanout.route().clone() }
    }

    /// Resolves when a drain or stop ends the call.
    pub(super) async fn ended(&self) -> ForcedEnd {
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
    /// When the call becomes a task because of its run time. `None` if its client does not support tasks.
    pub(super) fn task_at(&self) -> Option<Instant> {
        let after = self.inner.tasks()?.limits().after?;
        let knows_tasks = self.work.state.lock().attempt.meta.capabilities.has(&Capability::TASKS);
        let may = self.work.request.method == Method::ToolsCall && knows_tasks && !self.work.is_held;
        may.then(|| self.began + after)
    }

    /// Turns the call into a task. `Ready` with the answer to the attempt, or with `None` if the call does not become a
    /// task.
    pub(super) fn poll_wishes(&mut self, wish: TaskCause, cx: &mut Context<'_>) -> Poll<Option<AttemptStep>> {
        let (tasks, wish, params) = match wish {
            TaskCause::ByServer(wish) => (self.inner.kept_tasks(self.work.fanout.route()), wish, None),
            TaskCause::ByTime => {
                // The server gets as much time as if the client waited.
                let ttl = Some(self.work.limits.max_request_time);
                (self.inner.tasks(), TaskWish { ttl, poll: None }, self.work.request.params.clone())
            }
        };
        let Some(tasks) = tasks else {
            return Poll::Ready(self.deny(&Ok(Became::No)));
        };
        let becoming = self.becoming.get_or_insert_with(|| {
            let (tasks, whose) = (tasks.clone(), self.work.whose());
            let tool = params::tool_name(self.request.params.as_ref()).unwrap_or_default();
            let server = params.is_some().then(|| self.inner.server_at(self.work.fanout.route())).flatten();
            let call = TaskCall { tool, params, scopes: self.work.caller.scopes.clone(), server };
            Box::pin(async move { tasks.begin(whose, call, wish).await })
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

    fn deny(&mut self, answer: &Result<Became, RpcError>) -> Option<AttemptStep> {
        // Do not try again because of the run time.
        self.task_at = None;
        let wishes = std::mem::take(&mut self.work.state.lock().wishes);
        for wish in wishes {
            drop(wish.answer.send(answer.clone()));
        }
        None
    }

    fn become_task(&mut self, begun: BegunTask) -> Option<AttemptStep> {
        // Added to the list before this attempt ends, so that a shutdown always finds the call.
        let listed = self.inner.list_task(&self.work, self.generation);
        let (live, wishes) = self.work.adopt(self.generation, begun, &self.request, listed)?;
        self.inner.unpark(&self.work);
        // If a runtime task already runs the call, `adopt` has woken it.
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

impl ExchangesInner {
    /// Spawns the rest of a call that has become a task.
    pub(super) fn carry_out(self: &Arc<Self>, work: &Arc<ActiveCall>, task: Tasked, reply: BoxFuture<Reply>) {
        self.tasks.spawn(Arc::clone(self).carried_out(Arc::clone(work), task, reply));
    }

    /// Runs a call that has become a task, until its end is in the store.
    pub(super) async fn carried_out(
        self: Arc<Self>,
        work: Arc<ActiveCall>,
        task: Tasked,
        reply: BoxFuture<Reply>,
    ) {
        let Tasked { live, request } = task;
        // While it is in the list, a shutdown waits for it, and then ends it.
        let listed = work.state.lock().listed.take();
        self.ends(&work);
        let reply = self.answered_by_client(&work, &live, reply);
        let mut reply = AssertUnwindSafe(Box::pin(reply)).catch_unwind();
        let failed = |reason, message: &'static str| task::TaskEnd::Failed(RpcError::of(reason, message));
        let (end, is_cut_off) = tokio::select! {
            reply = &mut reply => (self.outcome(&work, &request, reply.unwrap_or_else(|_| Err(panicked(&work)))), false),
            () = live.unwanted() => (task::TaskEnd::Cancelled, true),
            end = work.ended() => {
                if end == ForcedEnd::ComeBack {
                    // The record in the store has no end, so the next process starts the call when a client polls.
                    work.close();
                    return;
                }
                match end {
                    ForcedEnd::Revoke | ForcedEnd::Cancel => (task::TaskEnd::Cancelled, true),
                    _ => (failed(Reason::Interrupted, "The server shut down before the task ended"), true),
                }
            }
            () = tokio::time::sleep(live.ttl()) => (failed(Reason::TimedOut, "The task took too long"), true),
        };
        work.close();
        let last_words = async {
            if is_cut_off {
                // The server should notice the cancellation before its future is dropped.
                drop(tokio::time::timeout(CANCEL_GRACE, &mut reply).await);
            }
            // Dropped now, so that its memory is free while the store writes. The end is written even if this panics.
            if std::panic::catch_unwind(AssertUnwindSafe(|| drop(reply))).is_err() {
                panicked(&work);
            }
        };
        // This task is kept here, even if the server keeps its own tasks by now.
        if let Some(tasks) = self.tasks() {
            tokio::join!(tasks.settle(&live, end), last_words);
        }
        drop(listed);
    }

    /// The reply to the call of a task. If the server returns `input_required`, the task shows the questions until the
    /// client answers them, and the call is sent again with the answers.
    async fn answered_by_client(
        self: &Arc<Self>,
        work: &Arc<ActiveCall>,
        live: &LiveTask,
        reply: BoxFuture<Reply>,
    ) -> Reply {
        let mut result = reply.await?;
        for _ in 0..MAX_ROUNDS {
            if ResultType::of(&result) != ResultType::InputRequired {
                return Ok(result);
            }
            let wanted = questions::wanted(&result)?;
            if wanted.questions.is_empty() {
                tokio::time::sleep(LATER).await;
            }
            work.can_be_asked(&wanted.questions)?;
            let mut answers = Vec::new();
            let asked = wanted.questions.into_iter().map(|question| {
                let (answer, answered) = oneshot::channel();
                let key = question.key.clone();
                live.ask(question, answer);
                (key, answered)
            });
            for (key, answered) in asked.collect::<Vec<_>>() {
                answers.push((key, answered.await.map_err(|_| call::client_gone())??));
            }
            let params = work.request.params.clone().unwrap_or(RawJson::EMPTY_OBJECT);
            let params = questions::retry(&params, &answers, wanted.state.as_ref())?;
            let request = Request { params: Some(params), ..work.request.clone() };
            let client = Arc::clone(work) as Arc<dyn Client>;
            let context = CallContext::new(client, &request, work.caller.clone());
            result = self.responder.respond(Call { request, context }).await?;
        }
        Err(RpcError::of(Reason::Internal, "The server asked for input too often"))
    }

    /// Runs the call of a task again that an earlier process left, if that is safe. Otherwise the task fails.
    pub(super) fn carry_on(self: &Arc<Self>, live: Arc<LiveTask>) {
        let Whose { owner, route } = live.whose();
        let params = live.params().and_then(|params| RawJson::parse(params.to_owned()));
        let request = Request { id: RequestId::from_text("task"), method: Method::ToolsCall, params };
        let Ok(meta) = Meta::read(request.params.as_ref()) else {
            let end =
                task::TaskEnd::Failed(RpcError::of(Reason::Internal, "The call of the task cannot be read"));
            let inner = Arc::clone(self);
            self.tasks.spawn(async move {
                if let Some(tasks) = inner.tasks() {
                    tasks.settle(&live, end).await;
                }
            });
            return;
        };
        let attempt = ClientAttempt { meta, streams: StreamSupport::No, responses: None, used: Vec::new() };
        let caller = Caller { principal: owner, scopes: live.scopes(), ..Caller::anonymous("task") };
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let world = (self.fanout.on(route), Arc::clone(&self.limits), self.clock.now());
        let work = ActiveCall::new(number, (request.clone(), caller), attempt, world, CallOrigin::default());
        let task = Tasked { live, request };
        {
            let listed = self.list_task(&work, 1);
            let mut state = work.state.lock();
            state.task = Some(task.clone());
            state.listed = Some(listed);
        }
        let (inner, of_task, live) = (Arc::clone(self), Arc::clone(&work), Arc::clone(&task.live));
        let reply = Box::pin(async move {
            match inner.is_same_server(&of_task, live.server()).await {
                true => inner.recover(of_task).await,
                false => Err(other_server()),
            }
        });
        self.carry_out(&work, task, reply);
    }

    /// The end of a task, from the reply to its call.
    fn outcome(&self, work: &ActiveCall, request: &Request, reply: Reply) -> task::TaskEnd {
        let wrong = |message: &'static str| task::TaskEnd::Failed(RpcError::of(Reason::Internal, message));
        match self.judge(work, request, reply) {
            Ok(result) => match ResultType::of(&result) {
                ResultType::Complete => task::TaskEnd::Completed(result.detached()),
                ResultType::InputRequired => wrong("The server asked for input where a task cannot"),
                ResultType::Task | ResultType::Unknown => wrong("The server made a task of a task"),
            },
            Err(error) => task::TaskEnd::Failed(error),
        }
    }
}
