//! Operations on what may be in the memory of any node.

use std::time::Duration;

use tenure_session::SessionKey;
use tenure_session::id::NodeId;
use tenure_session::session::Changes;
use tenure_session::settings::Settings;
use tokio::time::Instant;

use super::others::{NotDone, Others};
use super::question::Question;
use crate::failure::Failure;
use crate::operator::calls::CallList;
use crate::operator::commands::{Operator, Revoked, cannot_read};
use crate::operator::details;
use crate::operator::key::{Prefix, key_text};
use crate::operator::usage::UsageRow;
use crate::operator::view::{Detail, Page, SessionRow, ShownState};

/// How long an end is tried: a node that is lost is held gone within five seconds, and then any node can end its sessions.
const END_PATIENCE: Duration = Duration::from_secs(8);

/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(250);

impl Operator {
    /// Sessions in the order of their keys, after one of them.
    pub(crate) async fn page(
        &self,
        after: Option<SessionKey>,
        limit: usize,
    ) -> Result<Page<SessionRow>, Failure> {
        let mut page = self.page_here(after, limit).await?;
        if let Some(others) = self.others() {
            others.fill(&mut page.rows).await;
        }
        Ok(page)
    }

    /// Sessions whose keys begin with these digits.
    pub(crate) async fn matching(&self, prefix: &Prefix, limit: usize) -> Result<Page<SessionRow>, Failure> {
        let mut page = self.page_here(prefix.before(), limit).await?;
        let found = page.rows.len();
        page.rows.retain(|row| row.key.starts_with(prefix.digits()));
        page.next = page.next.filter(|_| page.rows.len() == found);
        if let Some(others) = self.others() {
            others.fill(&mut page.rows).await;
        }
        Ok(page)
    }

    /// Everything about one session.
    pub(crate) async fn show(&self, key: SessionKey) -> Result<Option<Detail>, Failure> {
        let Some((others, node)) = self.elsewhere(key).await? else { return self.show_here(key).await };
        match others.look(node, &Question::Show { key: key_text(&key) }).await {
            Ok(detail) => {
                let detail: Option<Detail> = detail;
                Ok(detail.map(|mut detail| {
                    detail.row.node.get_or_insert_with(|| format!("{node:?}"));
                    detail
                }))
            }
            Err(NotDone::Failed(failure)) => Err(failure),
            Err(NotDone::Unanswered(why)) => {
                let mut detail = self.show_here(key).await?;
                if let Some(detail) = &mut detail {
                    detail.row.node = Some(format!("{node:?}"));
                    let words = format!("its node {node:?} did not say more ({why}): this is from the store");
                    detail.problems.insert(0, words);
                }
                Ok(detail)
            }
        }
    }

    /// Ends a session, wherever it is.
    pub(crate) async fn revoke(&self, key: SessionKey) -> Result<Revoked, Failure> {
        self.check_alone().await?;
        self.revoke_until(key, Instant::now() + END_PATIENCE).await
    }

    pub(in crate::operator) async fn revoke_until(
        &self,
        key: SessionKey,
        until: Instant,
    ) -> Result<Revoked, Failure> {
        let mut unknown = 0;
        loop {
            let failure = match self.elsewhere(key).await? {
                None => match self.revoke_here(key).await {
                    // Another node may have taken it meanwhile.
                    Err(failure) if self.others().is_some() => failure,
                    done => return done,
                },
                Some((others, node)) => {
                    match others.ask(node, &Question::Revoke { key: key_text(&key) }).await {
                        // It may have given the session up just now.
                        Ok(Revoked::Unknown) if unknown < 2 => {
                            unknown += 1;
                            continue;
                        }
                        Ok(done) => return Ok(done),
                        Err(NotDone::Failed(failure)) => failure,
                        Err(NotDone::Unanswered(why)) => not_reached("revoke", key, node, &why.to_string()),
                    }
                }
            };
            if Instant::now() + PAUSE >= until {
                return Err(failure);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Changes the settings of a session and returns all of them; `None` if the session does not exist or has ended.
    pub(crate) async fn annotate(
        &self,
        key: SessionKey,
        changes: &Changes,
    ) -> Result<Option<Settings>, Failure> {
        self.check_alone().await?;
        let Some((others, node)) = self.elsewhere(key).await? else {
            return self.annotate_here(key, changes).await;
        };
        let question = Question::Annotate { key: key_text(&key), changes: changes.clone() };
        match others.ask(node, &question).await {
            Ok(settings) => Ok(settings),
            Err(NotDone::Failed(failure)) => Err(failure),
            Err(NotDone::Unanswered(why)) => Err(not_reached("change", key, node, &why.to_string())),
        }
    }

    /// The running requests of all nodes, the oldest first.
    pub(crate) async fn calls_everywhere(&self) -> CallList {
        let mut all = self.calls();
        let Some(others) = self.others() else { return all };
        let own = others.roster().node();
        all.rows.iter_mut().for_each(|row| row.node = Some(format!("{own:?}")));
        for (node, list) in others.look_at_all::<CallList>(&Question::Calls {}).await {
            all.found += list.found;
            all.rows.extend(list.rows.into_iter().map(|mut row| {
                row.node = Some(format!("{node:?}"));
                row
            }));
        }
        all.rows.sort_by_key(|row| row.started);
        all
    }

    /// What clients make the nodes hold, each of them.
    pub(crate) async fn usage_everywhere(&self) -> Vec<UsageRow> {
        let mut all = self.usage();
        let Some(others) = self.others() else { return all };
        let own = others.roster().node();
        all.iter_mut().for_each(|row| row.node = Some(format!("{own:?}")));
        for (node, rows) in others.look_at_all::<Vec<UsageRow>>(&Question::Usage {}).await {
            all.extend(rows.into_iter().map(|mut row| {
                row.node = Some(format!("{node:?}"));
                row
            }));
        }
        all
    }

    /// The living node other than this one that has a session.
    async fn elsewhere(&self, key: SessionKey) -> Result<Option<(&Others, NodeId)>, Failure> {
        let Some(others) = self.others() else { return Ok(None) };
        if self.info(&key).is_some() {
            return Ok(None);
        }
        let owner = self.store().owner(key).await.map_err(cannot_read)?;
        let node = owner.map(|(node, _)| node).filter(|node| *node != others.roster().node());
        Ok(node.filter(|node| others.roster().is_listed(*node)).map(|node| (others, node)))
    }
}

impl Others {
    /// Completes the rows of sessions that are in the memory of other nodes.
    async fn fill(&self, rows: &mut [SessionRow]) {
        let dormant = rows.iter().filter(|row| row.state == ShownState::Dormant);
        let keys: Vec<String> = dormant.map(|row| row.key.clone()).collect();
        if keys.is_empty() {
            return;
        }
        for (node, awake) in self.look_at_all::<Vec<SessionRow>>(&Question::Awake { keys }).await {
            for live in awake {
                if let Some(row) = rows.iter_mut().find(|row| row.key == live.key) {
                    details::put_live(row, live);
                    row.node = Some(format!("{node:?}"));
                }
            }
        }
    }
}

fn not_reached(verb: &str, key: SessionKey, node: NodeId, why: &str) -> Failure {
    Failure::new(format!("cannot {verb} {}: it is at the node {node:?}", key.label()))
        .because(why)
        .hint("`tenure nodes` shows how that node is; if it is lost, the others notice within five seconds: try again then")
}
