//! How a call becomes a task, and how it is carried out as one.
//!
//! The server wishes it, or the call has run for [`TaskLimits::after`](crate::task::TaskLimits), and the attempt of the
//! moment grants it: it waits until the task is in the store, is answered with it, and lets go of the call, which goes
//! on in a task of the runtime. If the client hangs up before, it never heard of the task, and the task is forgotten.
//! The params of a call that became a task because it ran for long are kept with it: should the process end, the next
//! one carries the call out if that is safe.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use tenure_protocol::modern::capability::Capability;
use tenure_protocol::modern::meta::Meta;
use tenure_protocol::modern::result::ResultType;
use tenure_protocol::modern::validate::Streams;
use tenure_protocol::translate::questions;
use tenure_protocol::{Error, Method, RawJson, Reason, Reply, Request, RequestId, RpcError, params};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::backend::Call;
use crate::call::{Became, CallContext, Caller, Stage, TaskWish};
use crate::exchange::attempt::{Run, Turn, panicked};
use crate::exchange::call::{self, Asked, Attempt, End, Origin, Tasked, Wish, Work};
use crate::exchange::exchanges::{Inner, Listed};
use crate::exchange::parked::LAST_WORDS;
use crate::exchange::resume::other_server;
use crate::port::BoxFuture;
use crate::task::{self, Begun, Live, TaskCall, Whose};

/// How often a server may ask for input by the result of a call that is a task.
const MAX_ROUNDS: usize = 10;

/// When a call is sent again whose server asked for nothing but that.
const LATER: Duration = Duration::from_millis(250);

/// Who wants a call to become a task.
#[derive(Clone, Copy)]
pub(super) enum Wanted {
    /// Its server.
    ByServer(TaskWish),
    /// The clock: it has run for long.
    ByTime,
}

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
        call::wake(waker);
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
    /// When a call of a client that knows tasks has run for so long that it becomes one by itself.
    pub(super) fn task_at(&self) -> Option<Instant> {
        let after = self.inner.tasks()?.limits().after?;
        let knows_tasks = self.work.state.lock().attempt.meta.capabilities.has(&Capability::TASKS);
        let may = self.work.request.method == Method::ToolsCall && knows_tasks && !self.work.is_held;
        may.then(|| self.began + after)
    }

    /// Grants the wish that the call becomes a task. `Ready` with the answer to the attempt, or with nothing if the
    /// call stays what it was.
    pub(super) fn poll_wishes(&mut self, wish: Wanted, cx: &mut Context<'_>) -> Poll<Option<Turn>> {
        let (tasks, wish, params) = match wish {
            Wanted::ByServer(wish) => (self.inner.kept_tasks(self.work.fanout.route()), wish, None),
            Wanted::ByTime => {
                // The server's time is the same as if its client waited.
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
            let call = TaskCall { tool, params, server };
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

    fn deny(&mut self, answer: &Result<Became, RpcError>) -> Option<Turn> {
        // It is not tried again.
        self.task_at = None;
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
        let reply = self.answered_by_client(&work, &live, reply);
        let mut reply = AssertUnwindSafe(Box::pin(reply)).catch_unwind();
        let failed = |reason, message: &'static str| task::End::Failed(RpcError::of(reason, message));
        let (end, is_cut_off) = tokio::select! {
            reply = &mut reply => (self.outcome(&work, &request, reply.unwrap_or_else(|_| Err(panicked(&work)))), false),
            () = live.unwanted() => (task::End::Cancelled, true),
            end = work.ended() => {
                if end == End::ComeBack {
                    // The record says that it is under way, and the next process that is asked for it goes on.
                    work.close();
                    return;
                }
                (failed(Reason::Interrupted, "The server shut down before the task ended"), true)
            }
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

    /// The reply to the call of a task. Where the server asks for input by its result, the questions wait for the client
    /// to come for them, and the call is sent again with the answers.
    async fn answered_by_client(
        self: &Arc<Self>,
        work: &Arc<Work>,
        live: &Live,
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
            let stage = Arc::clone(work) as Arc<dyn Stage>;
            let context = CallContext::staged(stage, &request, work.caller.clone());
            result = self.responder.respond(Call { request, context }).await?;
        }
        Err(RpcError::of(Reason::Internal, "The server asked for input too often"))
    }

    /// Carries on the call of a task that an earlier process left: from its beginning if that is safe, and otherwise the
    /// task has failed.
    pub(super) fn carry_on(self: &Arc<Self>, live: Arc<Live>) {
        let Whose { owner, route } = live.whose();
        let params = live.params().and_then(|params| RawJson::parse(params.to_owned()));
        let request = Request { id: RequestId::from_text("task"), method: Method::ToolsCall, params };
        let Ok(meta) = Meta::read(request.params.as_ref()) else {
            let end =
                task::End::Failed(RpcError::of(Reason::Internal, "The call of the task cannot be read"));
            let inner = Arc::clone(self);
            self.tasks.spawn(async move {
                if let Some(tasks) = inner.tasks() {
                    tasks.settle(&live, end).await;
                }
            });
            return;
        };
        let attempt = Attempt { meta, streams: Streams::No, responses: None, used: Vec::new() };
        let caller = Caller { principal: owner, ..Caller::anonymous("task") };
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let world = (self.fanout.on(route), Arc::clone(&self.limits), self.clock.now());
        let work = Work::new(number, (request.clone(), caller), attempt, world, Origin::default());
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
