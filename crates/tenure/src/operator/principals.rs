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
use super::extent::{Extent, StoreLook};
use super::key::parse_key;
use super::view::{Found, SessionRow, ShownState};
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
    /// How many records were looked at, if that are not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) looked_at: Option<usize>,
    /// How many sessions and data sessions there are then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) of: Option<usize>,
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

/// A revocation that failed on its way.
#[derive(Debug)]
pub(crate) struct HalfRevoked {
    pub(crate) failure: Failure,
    /// What was ended before that; `None` if the principal is not even refused.
    pub(crate) ended: Option<RevokedPrincipal>,
}

impl From<Failure> for HalfRevoked {
    fn from(failure: Failure) -> Self {
        Self { failure, ended: None }
    }
}

/// So that a command tells the failure alone.
impl From<HalfRevoked> for Failure {
    fn from(half: HalfRevoked) -> Self {
        half.failure
    }
}

impl Operator {
    /// Principals that have something in the store, or were revoked: all of them, or those among the records of one look.
    pub(crate) async fn principals(&self, extent: Extent) -> Result<Found<PrincipalRow>, Failure> {
        let (mut rows, mut look) = (BTreeMap::new(), StoreLook::begin(extent));
        // What is revoked and what runs comes first: it is little, and matters most if the look is cut.
        let (revoked, unreadable) = revocation::all(self.store()).await.map_err(cannot_read)?;
        if unreadable > 0 {
            tracing::warn!(unreadable, "there are records of revoked principals that cannot be read");
        }
        for Revocation { principal, not_before } in revoked {
            of(&mut rows, Some(&principal)).revoked = Some(not_before);
        }
        for call in self.calls_everywhere().await.rows {
            of(&mut rows, call.owner.as_ref()).calls += 1;
        }
        self.each_session(&mut look, |row| count_session(of(&mut rows, row.owner.as_ref()), row)).await?;
        self.each_data_session(&mut look, |row| count_data(of(&mut rows, row.owner.as_ref()), row)).await?;
        self.each_task(&mut look, |task| count_task(of(&mut rows, task.owner.as_ref()), &task)).await?;
        // Ended sessions and data sessions alone make no row.
        let rows = rows.into_values().filter(|row| {
            *row != PrincipalRow { principal: row.principal.clone(), ..PrincipalRow::default() }
        });
        let (looked_at, of) = self.extent_of(&look).await?;
        Ok(Found { rows: rows.collect(), next: None, looked_at, of })
    }

    /// What one principal has, of all records or of those of one look; `None` if nothing is known of it.
    pub(crate) async fn principal(
        &self,
        name: &str,
        extent: Extent,
    ) -> Result<Option<PrincipalDetail>, Failure> {
        let mut look = StoreLook::begin(extent);
        let revoked = revocation::of(self.store(), name).await.map_err(cannot_read)?;
        let row = PrincipalRow {
            principal: Some(name.to_owned()),
            revoked: revoked.map(|revoked| revoked.not_before),
            ..PrincipalRow::default()
        };
        let mut detail = PrincipalDetail {
            row,
            looked_at: None,
            of: None,
            sessions: Vec::new(),
            data_sessions: Vec::new(),
            tasks: Vec::new(),
            calls: Vec::new(),
        };
        let calls = self.calls_everywhere().await.rows;
        for call in calls.into_iter().filter(|call| call.owner.as_deref() == Some(name)) {
            detail.row.calls += 1;
            push(&mut detail.calls, || call);
        }
        self.each_session(&mut look, |row| {
            if row.owner.as_deref() == Some(name) && is_alive(row) {
                count_session(&mut detail.row, row);
                push(&mut detail.sessions, || row.clone());
            }
        })
        .await?;
        self.each_data_session(&mut look, |row| {
            if row.owner.as_deref() == Some(name) && row.state == DataState::Active {
                count_data(&mut detail.row, row);
                push(&mut detail.data_sessions, || row.clone());
            }
        })
        .await?;
        self.each_task(&mut look, |task| {
            if task.owner.as_deref() == Some(name) {
                count_task(&mut detail.row, &task);
                push(&mut detail.tasks, || TaskRow::of(task));
            }
        })
        .await?;
        (detail.looked_at, detail.of) = self.extent_of(&look).await?;
        let is_known = detail.row.revoked.is_some()
            || !(detail.sessions.is_empty() && detail.data_sessions.is_empty() && detail.tasks.is_empty())
            || !detail.calls.is_empty();
        // A look that was cut cannot tell that it has nothing.
        Ok((is_known || detail.looked_at.is_some()).then_some(detail))
    }

    /// How far a look came, if it was cut, and of how many sessions and data sessions. Tasks are not counted anywhere.
    async fn extent_of(&self, look: &StoreLook) -> Result<(Option<usize>, Option<usize>), Failure> {
        let Some(looked_at) = look.cut_at() else { return Ok((None, None)) };
        let data_sessions = usize::try_from(self.data().count().await?).unwrap_or(usize::MAX);
        Ok((Some(looked_at), self.session_count().map(|sessions| (sessions + data_sessions).max(looked_at))))
    }

    /// Refuses what was issued to a principal until now, and ends what it has: sessions with their streams and processes,
    /// running calls, tasks, and if that is wanted its data sessions.
    ///
    /// The record comes first: if anything after it fails, the command can be repeated, and no request of the principal gets in meanwhile.
    pub(crate) async fn revoke_principal(
        &self,
        name: &str,
        data: DataFate,
    ) -> Result<RevokedPrincipal, HalfRevoked> {
        self.check_alone().await?;
        let failed = || Failure::new(format!("cannot revoke {name}"));
        let Revocation { not_before, .. } =
            revocation::revoke(self.store(), name, now()).await.map_err(|error| failed().caused_by(error))?;
        let mut ended = RevokedPrincipal { not_before, ..RevokedPrincipal::default() };
        if let Err(failure) = self.end_all_of(name, data, &mut ended).await {
            let hint = "its credentials are refused from now on; repeat the command to end what it has";
            return Err(HalfRevoked { failure: failed().caused_by(failure).hint(hint), ended: Some(ended) });
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

    /// Ends what a revoked principal has, and counts it as it goes.
    async fn end_all_of(
        &self,
        name: &str,
        data: DataFate,
        ended: &mut RevokedPrincipal,
    ) -> Result<(), Failure> {
        let mut all = StoreLook::begin(Extent::All);
        // Those in memory first: they are in use.
        (ended.sessions, ended.calls) = self.end_principal_everywhere(name, ended.not_before).await?;
        let mut dormant = Vec::new();
        self.each_session(&mut all, |row| {
            if row.owner.as_deref() == Some(name) && is_alive(row) {
                dormant.extend(parse_key(&row.key));
            }
        })
        .await?;
        let until = Instant::now() + REVOKE_PATIENCE;
        for key in dormant {
            let revoked = self.revoke_until(key, until).await?;
            ended.sessions += usize::from(revoked == Revoked::Now);
        }
        ended.tasks = self.cancel_tasks_of(&Principal::named(name)).await.map_err(cannot_read)?;
        if data == DataFate::Ended {
            let mut found = Vec::new();
            self.each_data_session(&mut all, |row| {
                if row.owner.as_deref() == Some(name)
                    && matches!(row.state, DataState::Active | DataState::Expired)
                {
                    found.extend(parse_key(&row.key));
                }
            })
            .await?;
            for key in found {
                let revoked = self.data().revoke(key).await?;
                ended.data_sessions += usize::from(revoked == Revoked::Now);
            }
        }
        Ok(())
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

    async fn each_session(
        &self,
        look: &mut StoreLook,
        mut see: impl FnMut(&SessionRow),
    ) -> Result<(), Failure> {
        let mut after = None;
        while look.goes_on() {
            let page = self.page(after, PAGE).await?;
            page.rows.iter().for_each(&mut see);
            look.count(page.rows.len());
            after = page.next.as_deref().and_then(parse_key);
            if after.is_none() {
                break;
            }
        }
        Ok(())
    }

    async fn each_data_session(
        &self,
        look: &mut StoreLook,
        mut see: impl FnMut(&DataRow),
    ) -> Result<(), Failure> {
        let mut after = None;
        while look.goes_on() {
            let page = self.data().page(after, PAGE).await?;
            page.rows.iter().for_each(&mut see);
            look.count(page.rows.len());
            after = page.next.as_deref().and_then(parse_key);
            if after.is_none() {
                break;
            }
        }
        Ok(())
    }

    async fn each_task(&self, look: &mut StoreLook, see: impl FnMut(TaskInfo)) -> Result<(), Failure> {
        if !look.goes_on() {
            return Ok(());
        }
        let goes_on = |read| {
            look.count(read);
            look.goes_on()
        };
        task::each(self.store(), now(), see, goes_on).await.map_err(cannot_read)
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
