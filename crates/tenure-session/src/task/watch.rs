//! Listens for changes of tasks.
//!
//! In: task ids of a caller, and changes of tasks. Out: the changed tasks, as their clients see them.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use tenure_protocol::{Error, RawJson, Reason};
use tokio::sync::Notify;

use super::TaskId;
use super::tasks::{Tasks, TasksInner, Whose};
use crate::backoff::Backoff;
use crate::id::SessionKey;

/// The first and the longest pause before a task is read again after the store failed.
const AGAIN_FIRST: Duration = Duration::from_secs(1);
const AGAIN_LAST: Duration = Duration::from_secs(60);

/// All watchers of tasks.
#[derive(Default)]
pub(super) struct Watchers(Mutex<WatchTable>);

#[derive(Default)]
struct WatchTable {
    next: u64,
    by_task: HashMap<SessionKey, Vec<(u64, Arc<TaskWatcher>)>>,
}

/// One watcher. A task that changes several times before the watcher reads it is reported once, in its latest state.
#[derive(Default)]
struct TaskWatcher {
    changed: Mutex<HashSet<SessionKey>>,
    more: Notify,
}

/// A listen for tasks. Dropping it removes the watcher.
pub(crate) struct Watch {
    tasks: Arc<TasksInner>,
    whose: Whose,
    number: u64,
    watcher: Arc<TaskWatcher>,
    /// The tasks that the client named.
    registered: Vec<SessionKey>,
    /// Those of them that belong to the caller.
    watched: HashMap<SessionKey, TaskId>,
}

impl Tasks {
    /// Watches those of the tasks that belong to the caller. Each is reported once at the start, and after every
    /// change.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn watch(&self, whose: Whose, ids: &[String]) -> Result<Watch, Error> {
        let keyed = |id: &String| TaskId::parse(id).map(|id| (id.key(&whose.owner, &whose.route), id));
        let named: HashMap<_, _> = ids.iter().filter_map(keyed).collect();
        // Registered before the tasks are read, so that no change is missed.
        let mut watch = self.0.watchers.register(&self.0, whose, named);
        let keys: Vec<_> = watch.watched.iter().map(|(key, id)| (*key, *id)).collect();
        for (key, id) in keys {
            match self.0.find(&watch.whose, id).await {
                Ok(_) => drop(watch.watcher.changed.lock().insert(key)),
                Err(error) if error.reason() == Reason::TaskNotFound => drop(watch.watched.remove(&key)),
                Err(error) => return Err(error),
            }
        }
        Ok(watch)
    }
}

impl Watchers {
    fn register(&self, tasks: &Arc<TasksInner>, whose: Whose, watched: HashMap<SessionKey, TaskId>) -> Watch {
        let watcher = Arc::<TaskWatcher>::default();
        let mut table = self.0.lock();
        table.next += 1;
        let number = table.next;
        for key in watched.keys() {
            table.by_task.entry(*key).or_default().push((number, Arc::clone(&watcher)));
        }
        drop(table);
        let registered = watched.keys().copied().collect();
        Watch { tasks: Arc::clone(tasks), whose, number, watcher, registered, watched }
    }

    /// Reports a change to all watchers of a task.
    pub(super) fn tell(&self, key: SessionKey) {
        let watchers: Vec<_> = match self.0.lock().by_task.get(&key) {
            Some(watchers) => watchers.iter().map(|(_, watcher)| Arc::clone(watcher)).collect(),
            None => return,
        };
        for watcher in watchers {
            watcher.changed.lock().insert(key);
            watcher.more.notify_one();
        }
    }
}

impl Watch {
    /// The ids of the watched tasks.
    pub(crate) fn ids(&self) -> Vec<String> {
        let mut ids: Vec<_> = self.watched.values().map(TaskId::expose).collect();
        ids.sort_unstable();
        ids
    }

    /// Waits for changes, and returns the changed tasks in their current state.
    ///
    /// # Cancel safety
    /// If it is dropped early, changes may be lost.
    pub(crate) async fn next(&self) -> Vec<RawJson> {
        let mut backoff = Backoff::new(AGAIN_FIRST, AGAIN_LAST);
        loop {
            let more = self.watcher.more.notified();
            let changed = std::mem::take(&mut *self.watcher.changed.lock());
            let (mut told, mut failed) = (Vec::new(), false);
            for (key, id) in changed.iter().filter_map(|key| Some((key, self.watched.get(key)?))) {
                match self.tasks.get(&self.whose, *id).await {
                    Ok(task) => told.push(task),
                    // It was removed in the meantime.
                    Err(error) if error.reason() == Reason::TaskNotFound => {}
                    Err(error) => {
                        tracing::debug!(%error, "a change of a task could not be reported; retrying");
                        self.watcher.changed.lock().insert(*key);
                        failed = true;
                    }
                }
            }
            if !told.is_empty() {
                return told;
            }
            if failed {
                drop(tokio::time::timeout(backoff.next(), more).await);
            } else {
                more.await;
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut table = self.tasks.watchers.0.lock();
        for key in &self.registered {
            if let Some(watchers) = table.by_task.get_mut(key) {
                watchers.retain(|(number, _)| *number != self.number);
                if watchers.is_empty() {
                    table.by_task.remove(key);
                }
            }
        }
    }
}
