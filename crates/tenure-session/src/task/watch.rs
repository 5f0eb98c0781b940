//! Who listens to which tasks.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use tenure_protocol::{Error, RawJson, Reason};
use tokio::sync::Notify;

use super::TaskId;
use super::tasks::{Inner, Tasks, Whose};
use crate::id::SessionKey;

/// When a task that the store could not read is looked at again, at first, and at last.
const AGAIN_FIRST: Duration = Duration::from_secs(1);
const AGAIN_LAST: Duration = Duration::from_secs(60);

/// All who listen to tasks.
#[derive(Default)]
pub(super) struct Watchers(Mutex<Seats>);

#[derive(Default)]
struct Seats {
    next: u64,
    by_task: HashMap<SessionKey, Vec<(u64, Arc<Ear>)>>,
}

/// One who listens. A task that changed several times before it was told is told once, as it is then.
#[derive(Default)]
struct Ear {
    changed: Mutex<HashSet<SessionKey>>,
    more: Notify,
}

/// A listen to tasks, as long as it lasts.
pub(crate) struct Watch {
    tasks: Arc<Inner>,
    whose: Whose,
    number: u64,
    ear: Arc<Ear>,
    /// Those that were asked for.
    seated: Vec<SessionKey>,
    /// Those of them that are the caller's.
    watched: HashMap<SessionKey, TaskId>,
}

impl Tasks {
    /// Listens to those of the tasks that are the caller's. Each is told at first, and whenever it changed.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn watch(&self, whose: Whose, ids: &[String]) -> Result<Watch, Error> {
        let keyed = |id: &String| TaskId::parse(id).map(|id| (id.key(&whose.owner, &whose.route), id));
        let named: HashMap<_, _> = ids.iter().filter_map(keyed).collect();
        // Before the tasks are looked at, so that no change is missed.
        let mut watch = self.0.watchers.seat(&self.0, whose, named);
        let keys: Vec<_> = watch.watched.iter().map(|(key, id)| (*key, *id)).collect();
        for (key, id) in keys {
            match self.0.find(&watch.whose, id).await {
                Ok(_) => drop(watch.ear.changed.lock().insert(key)),
                Err(error) if error.reason() == Reason::TaskNotFound => drop(watch.watched.remove(&key)),
                Err(error) => return Err(error),
            }
        }
        Ok(watch)
    }
}

impl Watchers {
    fn seat(&self, tasks: &Arc<Inner>, whose: Whose, watched: HashMap<SessionKey, TaskId>) -> Watch {
        let ear = Arc::<Ear>::default();
        let mut seats = self.0.lock();
        seats.next += 1;
        let number = seats.next;
        for key in watched.keys() {
            seats.by_task.entry(*key).or_default().push((number, Arc::clone(&ear)));
        }
        drop(seats);
        let seated = watched.keys().copied().collect();
        Watch { tasks: Arc::clone(tasks), whose, number, ear, seated, watched }
    }

    /// A task changed.
    pub(super) fn tell(&self, key: SessionKey) {
        let ears: Vec<_> = match self.0.lock().by_task.get(&key) {
            Some(ears) => ears.iter().map(|(_, ear)| Arc::clone(ear)).collect(),
            None => return,
        };
        for ear in ears {
            ear.changed.lock().insert(key);
            ear.more.notify_one();
        }
    }
}

impl Watch {
    /// The tasks that are listened to.
    pub(crate) fn ids(&self) -> Vec<String> {
        let mut ids: Vec<_> = self.watched.values().map(TaskId::expose).collect();
        ids.sort_unstable();
        ids
    }

    /// The next tasks that changed, as they are now.
    ///
    /// # Cancel safety
    /// Dropped early it may take changes with it.
    pub(crate) async fn next(&self) -> Vec<RawJson> {
        let mut again = AGAIN_FIRST;
        loop {
            let more = self.ear.more.notified();
            let changed = std::mem::take(&mut *self.ear.changed.lock());
            let (mut told, mut failed) = (Vec::new(), false);
            for (key, id) in changed.iter().filter_map(|key| Some((key, self.watched.get(key)?))) {
                match self.tasks.get(&self.whose, *id).await {
                    Ok(task) => told.push(task),
                    // It was forgotten since.
                    Err(error) if error.reason() == Reason::TaskNotFound => {}
                    Err(error) => {
                        tracing::debug!(%error, "a change of a task could not be told yet");
                        self.ear.changed.lock().insert(*key);
                        failed = true;
                    }
                }
            }
            if !told.is_empty() {
                return told;
            }
            if failed {
                drop(tokio::time::timeout(again, more).await);
                again = (again * 2).min(AGAIN_LAST);
            } else {
                more.await;
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut seats = self.tasks.watchers.0.lock();
        for key in &self.seated {
            if let Some(ears) = seats.by_task.get_mut(key) {
                ears.retain(|(number, _)| *number != self.number);
                if ears.is_empty() {
                    seats.by_task.remove(key);
                }
            }
        }
    }
}
