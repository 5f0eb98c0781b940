//! The operations of operators on principals: what each of them has, and taking back all that it can use.
//!
//! A principal has no record of its own until it is revoked, so lists are made from the records of what belongs to it. In: the
//! store, and inside a server the runtimes and the authenticator. Out: rows, and the end of what a principal has.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_session::Principal;
use tenure_session::port::clock::Time;
use tenure_session::port::store::StoreError;
use tenure_session::revocation::{self, Revocation};
use tenure_session::task::{self, TaskInfo};
use tokio::time::Instant;

use super::calls::CallRow;
use super::commands::{Operator, PAGE, Revoked, cannot_read, now};
use super::data::{DataRow, DataState};
use super::key::parse_key;
use super::view::{SessionRow, ShownState};
use crate::failure::Failure;

/// Rows of each kind that one answer shows of a principal, at most.
const MOST: usize = 1000;

/// How long the ends of what a revoked principal has at other nodes are tried, all together.
const REVOKE_PATIENCE: Duration = Duration::from_secs(20);

/// What a principal has, in numbers. Times are milliseconds since 1970.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct PrincipalRow {
    /// Left out for anonymous callers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) principal: Option<String>,
    /// Sessions that have not ended.
    pub(crate) sessions: usize,
    /// Those of them that are in the memory of a server.
    pub(crate) awake: usize,
    /// Data sessions that can be used.
    pub(crate) data_sessions: usize,
    /// Tasks that have not ended.
    pub(crate) tasks: usize,
    /// Requests that run, in sessions and without.
    pub(crate) calls: usize,
    /// When something of it was last used, as far as the store knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_used: Option<u64>,
    /// What was issued to it up to this moment is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) revoked: Option<u64>,
}

impl PrincipalRow {
    fn used(&mut self, at: Option<u64>) {
        self.last_used = self.last_used.max(at);
    }
}

/// What a principal has. Of each kind no more than a thousand are shown.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct PrincipalDetail {
    #[serde(flatten)]
    pub(crate) row: PrincipalRow,
    #[serde(rename = "session_rows")]
    pub(crate) sessions: Vec<SessionRow>,
    #[serde(rename = "data_session_rows")]
    pub(crate) data_sessions: Vec<DataRow>,
    #[serde(rename = "task_rows")]
    pub(crate) tasks: Vec<TaskRow>,
    #[serde(rename = "call_rows")]
    pub(crate) calls: Vec<CallRow>,
}

/// A task in a list.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct TaskRow {
    /// The name in logs.
    pub(crate) label: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) backend: Option<String>,
    pub(crate) tool: String,
    pub(crate) status: String,
    pub(crate) created: u64,
}

/// A task with whose it is.
#[derive(Serialize, Clone, Debug)]
pub(crate) struct ListedTask {
    #[serde(flatten)]
    row: TaskRow,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    /// When it last changed, as far as the store knows.
    updated: u64,
}

impl ListedTask {
    pub(super) fn of(task: TaskInfo) -> Self {
        let (owner, Time(updated)) = (task.owner.clone(), task.updated);
        Self { row: TaskRow::of(task), owner, updated }
    }
}

impl TaskRow {
    fn of(task: TaskInfo) -> Self {
        Self {
            label: task.label,
            backend: task.route,
            tool: task.tool,
            status: task.status.to_owned(),
            created: task.created.0,
        }
    }
}

/// Whether data sessions end with what else a principal has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DataFate {
    Kept,
    Ended,
}

/// What was ended.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RevokedPrincipal {
    pub(crate) sessions: usize,
    pub(crate) calls: usize,
    pub(crate) tasks: usize,
    pub(crate) data_sessions: usize,
    /// What was issued up to this moment is refused.
    pub(crate) not_before: u64,
}

impl Operator {
    /// All principals that have something in the store, or were revoked.
    pub(crate) async fn principals(&self) -> Result<Vec<PrincipalRow>, Failure> {
        let mut rows = BTreeMap::new();
        let (revoked, unreadable) = revocation::all(self.store()).await.map_err(cannot_read)?;
        if unreadable > 0 {
            tracing::warn!(unreadable, "there are records of revoked principals that cannot be read");
        }
        for Revocation { principal, not_before } in revoked {
            of(&mut rows, Some(&principal)).revoked = Some(not_before);
        }
        self.each_session(|row| count_session(of(&mut rows, row.owner.as_ref()), row)).await?;
        self.each_data_session(|row| count_data(of(&mut rows, row.owner.as_ref()), row)).await?;
        let each_task = |task: TaskInfo| count_task(of(&mut rows, task.owner.as_ref()), &task);
        task::each(self.store(), now(), each_task).await.map_err(cannot_read)?;
        for call in self.calls_everywhere().await.rows {
            of(&mut rows, call.owner.as_ref()).calls += 1;
        }
        // Ended sessions and data sessions alone make no row.
        Ok(rows
            .into_values()
            .filter(|row| {
                *row != PrincipalRow { principal: row.principal.clone(), ..PrincipalRow::default() }
            })
            .collect())
    }

    /// What one principal has; `None` if the store knows nothing of it.
    pub(crate) async fn principal(&self, name: &str) -> Result<Option<PrincipalDetail>, Failure> {
        let revoked = revocation::of(self.store(), name).await.map_err(cannot_read)?;
        let row = PrincipalRow {
            principal: Some(name.to_owned()),
            revoked: revoked.map(|revoked| revoked.not_before),
            ..PrincipalRow::default()
        };
        let (sessions, data_sessions, tasks, calls) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut detail = PrincipalDetail { row, sessions, data_sessions, tasks, calls };
        self.each_session(|row| {
            if row.owner.as_deref() == Some(name) && is_alive(row) {
                count_session(&mut detail.row, row);
                push(&mut detail.sessions, || row.clone());
            }
        })
        .await?;
        self.each_data_session(|row| {
            if row.owner.as_deref() == Some(name) && row.state == DataState::Active {
                count_data(&mut detail.row, row);
                push(&mut detail.data_sessions, || row.clone());
            }
        })
        .await?;
        let each_task = |task: TaskInfo| {
            if task.owner.as_deref() == Some(name) {
                count_task(&mut detail.row, &task);
                push(&mut detail.tasks, || TaskRow::of(task));
            }
        };
        task::each(self.store(), now(), each_task).await.map_err(cannot_read)?;
        let calls = self.calls_everywhere().await.rows;
        for call in calls.into_iter().filter(|call| call.owner.as_deref() == Some(name)) {
            detail.row.calls += 1;
            push(&mut detail.calls, || call);
        }
        let is_known = detail.row.revoked.is_some()
            || !(detail.sessions.is_empty() && detail.data_sessions.is_empty() && detail.tasks.is_empty())
            || !detail.calls.is_empty();
        Ok(is_known.then_some(detail))
    }

    /// Refuses what was issued to a principal until now, and ends what it has: sessions with their streams and processes,
    /// running calls, tasks, and if that is wanted its data sessions.
    ///
    /// The record comes first: if anything after it fails, the command can be repeated, and no request of the principal gets in meanwhile.
    pub(crate) async fn revoke_principal(
        &self,
        name: &str,
        data: DataFate,
    ) -> Result<RevokedPrincipal, Failure> {
        self.check_alone().await?;
        let failed = || Failure::new(format!("cannot revoke {name}"));
        let hint = "its credentials are refused from now on; repeat the command to end what it has";
        let (owner, at) = (Principal::named(name), now());
        let Revocation { not_before, .. } =
            revocation::revoke(self.store(), name, at).await.map_err(|error| failed().caused_by(error))?;
        let mut ended = RevokedPrincipal { not_before, ..RevokedPrincipal::default() };
        let incomplete = |failure: Failure| failed().caused_by(failure).hint(hint);
        // Those in memory first: they are in use.
        (ended.sessions, ended.calls) =
            self.end_principal_everywhere(name, not_before).await.map_err(incomplete)?;
        let mut dormant = Vec::new();
        self.each_session(|row| {
            if row.owner.as_deref() == Some(name) && is_alive(row) {
                dormant.extend(parse_key(&row.key));
            }
        })
        .await
        .map_err(incomplete)?;
        let until = Instant::now() + REVOKE_PATIENCE;
        for key in dormant {
            let revoked = self.revoke_until(key, until).await.map_err(incomplete)?;
            ended.sessions += usize::from(revoked == Revoked::Now);
        }
        ended.tasks = self.cancel_tasks_of(&owner).await.map_err(|error| incomplete(cannot_read(error)))?;
        if data == DataFate::Ended {
            let mut found = Vec::new();
            self.each_data_session(|row| {
                if row.owner.as_deref() == Some(name)
                    && matches!(row.state, DataState::Active | DataState::Expired)
                {
                    found.extend(parse_key(&row.key));
                }
            })
            .await
            .map_err(incomplete)?;
            for key in found {
                let revoked = self.data().revoke(key).await.map_err(incomplete)?;
                ended.data_sessions += usize::from(revoked == Revoked::Now);
            }
        }
        tracing::info!(
            principal = name,
            sessions = ended.sessions,
            calls = ended.calls,
            tasks = ended.tasks,
            data_sessions = ended.data_sessions,
            "an operator revoked a principal"
        );
        Ok(ended)
    }

    /// Lets a principal in again with what it had. Returns whether it was revoked.
    pub(crate) async fn reinstate_principal(&self, name: &str) -> Result<bool, Failure> {
        self.check_alone().await?;
        let failed = |error: StoreError| Failure::new(format!("cannot reinstate {name}")).caused_by(error);
        let was_revoked = revocation::reinstate(self.store(), name).await.map_err(failed)?;
        self.reinstate_everywhere(name).await;
        if was_revoked {
            tracing::info!(principal = name, "an operator reinstated a principal");
        }
        Ok(was_revoked)
    }

    async fn each_session(&self, mut look: impl FnMut(&SessionRow)) -> Result<(), Failure> {
        let mut after = None;
        loop {
            let page = self.page(after, PAGE).await?;
            page.rows.iter().for_each(&mut look);
            after = page.next.as_deref().and_then(parse_key);
            if after.is_none() {
                return Ok(());
            }
        }
    }

    async fn each_data_session(&self, mut look: impl FnMut(&DataRow)) -> Result<(), Failure> {
        let mut after = None;
        loop {
            let page = self.data().page(after, PAGE).await?;
            page.rows.iter().for_each(&mut look);
            after = page.next.as_deref().and_then(parse_key);
            if after.is_none() {
                return Ok(());
            }
        }
    }
}

fn of<'a>(
    rows: &'a mut BTreeMap<Option<String>, PrincipalRow>,
    principal: Option<&String>,
) -> &'a mut PrincipalRow {
    let new = || PrincipalRow { principal: principal.cloned(), ..PrincipalRow::default() };
    rows.entry(principal.cloned()).or_insert_with(new)
}

fn is_alive(row: &SessionRow) -> bool {
    matches!(row.state, ShownState::Awake | ShownState::Dormant)
}

fn count_session(of: &mut PrincipalRow, row: &SessionRow) {
    if is_alive(row) {
        of.sessions += 1;
        of.awake += usize::from(row.state == ShownState::Awake);
        of.used(row.last_used);
    }
}

fn count_data(of: &mut PrincipalRow, row: &DataRow) {
    if row.state == DataState::Active {
        of.data_sessions += 1;
        of.used(row.last_used);
    }
}

fn count_task(of: &mut PrincipalRow, task: &TaskInfo) {
    if !task.is_over {
        let Time(updated) = task.updated;
        of.tasks += 1;
        of.used(Some(updated));
    }
}

fn push<T>(rows: &mut Vec<T>, row: impl FnOnce() -> T) {
    if rows.len() < MOST {
        rows.push(row());
    }
}
