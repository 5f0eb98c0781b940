//! Work that goes on when its caller is dropped: a write, and the change of a count that has to follow it.
//!
//! The work is polled in its caller's own task. If the caller is dropped after the work has begun, the rest of the work
//! moves to a tracked task. A caller that waits until the end costs no task.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use crate::port::BoxFuture;

/// Runs `work`, and once it has begun, always to its end. Work that was never polled is dropped.
///
/// If the caller is gone, the output is dropped. An output that must then be undone does that in its `Drop`.
pub(crate) fn finish<T: Send + 'static>(
    tasks: &TaskTracker,
    work: impl Future<Output = T> + Send + 'static,
) -> Finish<'_, T> {
    Finish { tasks, work: Some(Box::pin(work)), has_begun: false }
}

/// See [`finish`].
pub(crate) struct Finish<'a, T: Send + 'static> {
    tasks: &'a TaskTracker,
    work: Option<BoxFuture<T>>,
    has_begun: bool,
}

impl<T: Send + 'static> Future for Finish<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.has_begun = true;
        // Taken out of the field, so that work that panicked is not polled again by `drop`.
        let mut work = self.work.take().expect("it is polled until it is done, and no longer");
        let done = work.as_mut().poll(cx);
        if done.is_pending() {
            self.work = Some(work);
        }
        done
    }
}

impl<T: Send + 'static> Drop for Finish<'_, T> {
    fn drop(&mut self) {
        let Some(work) = self.work.take().filter(|_| self.has_begun) else { return };
        // Without a runtime the process is ending, and the counts end with it.
        if let Ok(runtime) = Handle::try_current() {
            self.tasks.spawn_on(async move { drop(work.await) }, &runtime);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;

    use super::*;

    /// Work that takes two permits, one after the other.
    async fn two_steps(gate: Arc<Semaphore>, done: Arc<Semaphore>) {
        for _ in 0..2 {
            gate.acquire().await.unwrap().forget();
        }
        done.add_permits(1);
    }

    fn poll_once<T: Send + 'static>(finish: &mut Finish<'_, T>) -> Poll<T> {
        Pin::new(finish).poll(&mut Context::from_waker(std::task::Waker::noop()))
    }

    #[tokio::test]
    async fn work_goes_on_when_its_caller_leaves() {
        let (tasks, gate, done) =
            (TaskTracker::new(), Arc::new(Semaphore::new(1)), Arc::new(Semaphore::new(0)));
        let mut work = finish(&tasks, two_steps(Arc::clone(&gate), Arc::clone(&done)));
        assert!(poll_once(&mut work).is_pending());
        assert!(tasks.is_empty(), "its caller does the work");
        drop(work);
        assert_eq!(tasks.len(), 1);
        gate.add_permits(1);
        tasks.close();
        tasks.wait().await;
        assert_eq!(done.available_permits(), 1);
    }

    #[tokio::test]
    async fn work_that_never_began_is_not_done() {
        let (tasks, gate, done) =
            (TaskTracker::new(), Arc::new(Semaphore::new(9)), Arc::new(Semaphore::new(0)));
        drop(finish(&tasks, two_steps(gate, Arc::clone(&done))));
        assert!(tasks.is_empty());
        assert_eq!(done.available_permits(), 0);
    }

    #[tokio::test]
    async fn work_that_panics_is_not_repeated() {
        let tasks = TaskTracker::new();
        let panics = std::panic::AssertUnwindSafe(async {
            finish(&tasks, async { panic!("a panic for testing") }).await
        });
        assert!(futures_util::FutureExt::catch_unwind(panics).await.is_err());
        assert!(tasks.is_empty());
    }

    #[test]
    fn work_that_is_left_without_a_runtime_is_dropped() {
        let (tasks, gate, done) =
            (TaskTracker::new(), Arc::new(Semaphore::new(1)), Arc::new(Semaphore::new(0)));
        let mut work = finish(&tasks, two_steps(gate, Arc::clone(&done)));
        assert!(poll_once(&mut work).is_pending());
        drop(work);
        assert_eq!(Arc::strong_count(&done), 1);
    }
}
