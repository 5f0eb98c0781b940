//! Clients that hang up while a call becomes a task or a task ends: whatever the moment, the count says how many tasks
//! there are.

use std::sync::Arc;

use serde_json::json;
use tenure_protocol::modern::{self, StreamSupport};
use tenure_protocol::{Eras, RawJson, Reply, Request};
use tenure_session::backend::Call;
use tenure_session::call::TaskWish;
use tenure_session::exchange::{ExchangeAnswer, Exchanges};
use tenure_session::port::BoxFuture;
use tenure_session::port::store::{Space, Store};
use tenure_session::task::{TaskLimits, Tasks};
use tenure_store::memory::Memory;
use tenure_testkit::clock::HandClock;
use tenure_testkit::late::{Late, leave_after, let_others_run};

use crate::tasks::support::{By, ann, caller, exchanges, request};

/// More steps than anything here takes.
const MANY: usize = 60;

/// A process whose tools become tasks and never end by themselves, on a store whose writes take effect when they are
/// let go.
struct Scene {
    exchanges: Exchanges,
    tasks: Tasks,
    late: Arc<Late>,
}

impl Scene {
    fn new() -> Self {
        let (late, clock) = (Arc::new(Late::new(Arc::new(Memory::new()))), Arc::new(HandClock::start()));
        let tasks = Tasks::start(late.clone(), clock.clone(), TaskLimits::default());
        let by = By(|call: Call| -> BoxFuture<Reply> {
            Box::pin(async move {
                call.context.become_task(TaskWish::default()).await?;
                std::future::pending().await
            })
        });
        let exchanges = exchanges(Arc::new(by), &clock).with_tasks(tasks.clone());
        Self { exchanges, tasks, late }
    }

    async fn ask(&self, request: Request) -> RawJson {
        let mut checked = modern::check(request, None, Eras::Both).unwrap();
        checked.streams = StreamSupport::No;
        match self.exchanges.request(checked, caller(&ann())).await {
            ExchangeAnswer::Json { body, .. } => RawJson::trusted(body),
            _ => panic!("an answer in JSON"),
        }
    }

    async fn call(&self) -> String {
        let answer = self.ask(request("tools/call", json!({ "name": "dig" }))).await;
        crate::tasks::support::id(&answer.read().unwrap())
    }

    async fn records(&self) -> usize {
        self.late.list(Space::Task, None, 100).await.unwrap().len()
    }
}

#[tokio::test]
async fn a_task_whose_client_leaves_before_it_is_told_is_not_there_and_does_not_count() {
    for steps in 0..MANY {
        let scene = Scene::new();
        let_others_run().await;
        scene.late.hold();
        let answered = leave_after(steps, &scene.late, scene.call()).await.is_some();
        scene.late.let_go().await;
        let_others_run().await;
        let there = usize::from(answered);
        let counted = (scene.tasks.count(), scene.tasks.live());
        assert_eq!((counted, scene.records().await), ((there, there), there), "left after {steps} steps");
        if answered {
            assert!(steps > 2, "nothing was waited for, so nothing was tried");
            return;
        }
    }
    panic!("the caller is never answered");
}

#[tokio::test]
async fn a_task_that_its_client_cancels_ends_also_if_the_client_leaves() {
    for steps in 1..MANY {
        let scene = Scene::new();
        let id = scene.call().await;
        let_others_run().await;
        scene.late.hold();
        let cancel = scene.ask(request("tasks/cancel", json!({ "taskId": id })));
        let answered = leave_after(steps, &scene.late, cancel).await.is_some();
        scene.late.let_go().await;
        let_others_run().await;
        let counted = (scene.tasks.count(), scene.tasks.live());
        assert_eq!((counted, scene.records().await), ((1, 0), 1), "left after {steps} steps");
        if answered {
            assert!(steps > 2, "nothing was waited for, so nothing was tried");
            return;
        }
    }
    panic!("the caller is never answered");
}
