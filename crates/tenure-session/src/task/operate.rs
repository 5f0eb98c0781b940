//! Operators' commands on tasks: list them, and cancel those that an earlier process left.

use bytes::Bytes;

use super::record::{TaskEnd, TaskRecord};
use super::tasks::{Tasks, label};
use crate::id::{Principal, SessionKey};
use crate::port::clock::Time;
use crate::port::store::{Expected, RecordKey, Space, Store, StoreError};

/// Records that are read at once.
const PAGE: usize = 256;

/// A task as operators see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskInfo {
    /// Its name in logs.
    pub label: String,
    /// Its owner; `None` for anonymous.
    pub owner: Option<String>,
    /// The endpoint it was begun at, if that has a name.
    pub route: Option<String>,
    /// The tool that it calls.
    pub tool: String,
    /// When it began.
    pub created: Time,
    /// When it last changed, as far as the store knows.
    pub updated: Time,
    /// Its status, as clients see it.
    pub status: &'static str,
    /// Whether it has ended.
    pub is_over: bool,
}

/// Looks at the tasks of a store, in the order of their keys. Those that have expired and those that cannot be read are left
/// out. `goes_on` hears how many records were read, and says whether to read more.
///
/// # Errors
/// When the store fails.
pub async fn each(
    store: &dyn Store,
    now: Time,
    mut look: impl FnMut(TaskInfo),
    goes_on: impl FnMut(usize) -> bool,
) -> Result<(), StoreError> {
    let look = |key: SessionKey, record: TaskRecord, _| {
        let head = &record.head;
        if head.expires() > now {
            look(TaskInfo {
                label: label(key),
                owner: head.owner.clone(),
                route: head.route.clone(),
                tool: head.tool.clone(),
                created: Time(head.created),
                updated: Time(head.updated),
                status: head.status.as_json().trim_matches('"'),
                is_over: head.status.is_terminal(),
            });
        }
    };
    each_record(store, look, goes_on).await
}

/// Cancels the tasks of an owner that no process works on, so that none is started again when its owner comes back. Returns
/// how many there were. `is_running` tells those that this process works on.
///
/// # Errors
/// When the store fails; then some of them may be left.
///
/// # Cancel safety
/// Those that were reached are cancelled.
pub async fn cancel_left(
    store: &dyn Store,
    owner: &Principal,
    is_running: impl Fn(&SessionKey) -> bool,
    now: Time,
) -> Result<usize, StoreError> {
    let mut left = Vec::new();
    let look = |key: SessionKey, record: TaskRecord, version| {
        if record.head.owner() == *owner && !record.head.status.is_terminal() && !is_running(&key) {
            left.push((key, record, version));
        }
    };
    each_record(store, look, |_| true).await?;
    let mut cancelled = 0;
    for (key, record, version) in left {
        let ended = TaskRecord::ended(record.head, &TaskEnd::Cancelled, now);
        let (value, deadline): (Bytes, _) = (ended.encode(), Some(ended.head.expires()));
        let key = RecordKey { space: Space::Task, key };
        match store.put(key, value, Expected::Version(version), deadline).await {
            Ok(_) => cancelled += 1,
            // It has ended by itself in this moment.
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(cancelled)
}

async fn each_record(
    store: &dyn Store,
    mut look: impl FnMut(SessionKey, TaskRecord, crate::port::store::Version),
    mut goes_on: impl FnMut(usize) -> bool,
) -> Result<(), StoreError> {
    let mut after = None;
    loop {
        let page = store.list(Space::Task, after, PAGE).await?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = Some(*last);
        let read = page.len();
        for (key, record) in page {
            if let Ok(task) = TaskRecord::decode(&record.value) {
                look(key, task, record.version);
            }
        }
        if !goes_on(read) {
            return Ok(());
        }
    }
}

impl Tasks {
    /// The same for the tasks of a running server, whose own tasks end with their calls.
    ///
    /// # Errors
    /// When the store fails.
    ///
    /// # Cancel safety
    /// As for [`cancel_left`].
    pub(crate) async fn cancel_left(&self, owner: &Principal) -> Result<usize, StoreError> {
        let is_running = |key: &SessionKey| self.0.live.lock().contains_key(key);
        cancel_left(self.0.store.as_ref(), owner, is_running, self.0.clock.now()).await
    }
}
