//! Searches sessions: by where they stand, whose they are, and what they wait for.
//!
//! There is no index. What only sessions in memory have is looked for there; anything else in the store, in the order of keys,
//! until enough is found or the search has taken its share of time. Then it says how far it came.

use std::time::Duration;

use tenure_session::SessionKey;
use tenure_session::port::clock::Time;
use tenure_session::port::store::Space;
use tenure_session::session::SessionInfo;

use super::commands::{ANONYMOUS, Operator, PAGE, cannot_read, now};
use super::details;
use super::extent::{Extent, StoreLook};
use super::key::{Prefix, key_text, parse_key};
use super::view::{Found, ListedSession, SessionRow, ShownState};
use crate::failure::Failure;

/// Which sessions are meant. An empty filter means all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct SessionFilter {
    pub(crate) state: Option<ShownState>,
    /// `anonymous` stands for those without.
    pub(crate) owner: Option<String>,
    pub(crate) client: Option<String>,
    pub(crate) backend: Option<String>,
    pub(crate) revision: Option<String>,
    /// Only those that wait for an answer of their client.
    pub(crate) waits_for_client: bool,
    /// Only those with a request that is this old.
    pub(crate) older_than: Option<Duration>,
    pub(crate) prefix: Option<Prefix>,
}

impl SessionFilter {
    /// Whether only sessions in memory can fit.
    fn is_about_memory(&self) -> bool {
        self.state == Some(ShownState::Awake) || self.waits_for_client || self.older_than.is_some()
    }

    fn fits(&self, row: &SessionRow) -> bool {
        let same = |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
        let owner = row.owner.as_deref().unwrap_or(ANONYMOUS);
        self.state.is_none_or(|state| state == row.state)
            && self.owner.as_deref().is_none_or(|wanted| wanted == owner)
            && same(&self.client, &row.client)
            && same(&self.backend, &row.backend)
            && same(&self.revision, &row.revision)
            && self.prefix.as_ref().is_none_or(|prefix| row.key.starts_with(prefix.digits()))
    }

    fn fits_live(&self, live: &SessionInfo, now: Time) -> bool {
        let is_old = |age: Duration| live.calls.iter().any(|call| now.since(call.started) >= age);
        (!self.waits_for_client || live.calls.iter().any(|call| call.asking > 0))
            && self.older_than.is_none_or(is_old)
    }
}

impl Operator {
    /// The sessions that a filter selects, after a key.
    pub(crate) async fn search(
        &self,
        filter: &SessionFilter,
        after: Option<SessionKey>,
        limit: usize,
    ) -> Result<Found<ListedSession>, Failure> {
        if filter.is_about_memory() {
            return Ok(self.search_memory(filter, after, limit));
        }
        self.search_store(filter, after, limit, Extent::Share).await
    }

    /// The keys of all sessions that a filter selects, or `None` if there are more than `most`.
    pub(crate) async fn all_of(
        &self,
        filter: &SessionFilter,
        most: usize,
    ) -> Result<Option<Vec<SessionKey>>, Failure> {
        let found = match filter.is_about_memory() {
            true => self.search_memory(filter, None, most + 1),
            false => self.search_store(filter, None, most + 1, Extent::All).await?,
        };
        let keys: Vec<_> = found.rows.iter().filter_map(|found| parse_key(&found.row.key)).collect();
        Ok((keys.len() <= most).then_some(keys))
    }

    fn search_memory(
        &self,
        filter: &SessionFilter,
        after: Option<SessionKey>,
        limit: usize,
    ) -> Found<ListedSession> {
        let now = now();
        let mut live = self.awake();
        live.retain(|live| after.is_none_or(|after| live.key > after) && filter.fits_live(live, now));
        live.sort_by_key(|live| live.key);
        let mut rows = Vec::new();
        let mut next = None;
        for live in &live {
            let row = details::live_row(live);
            if !filter.fits(&row) {
                continue;
            }
            if rows.len() == limit {
                next = rows.last().map(|last: &ListedSession| last.row.key.clone());
                break;
            }
            rows.push(details::listed(row, Some(live), now));
        }
        Found { rows, next, looked_at: None, of: None }
    }

    async fn search_store(
        &self,
        filter: &SessionFilter,
        after: Option<SessionKey>,
        limit: usize,
        extent: Extent,
    ) -> Result<Found<ListedSession>, Failure> {
        let (mut look, now) = (StoreLook::begin(extent), now());
        let mut found = Found { rows: Vec::new(), next: None, looked_at: None, of: None };
        // A prefix is a stretch of keys, so the search begins right before it.
        let before = filter.prefix.as_ref().and_then(Prefix::before);
        let (mut after, mut is_first) = (after.max(before), true);
        loop {
            // A short first page: without a filter it is all that is needed.
            let page = if is_first { limit.clamp(1, PAGE) } else { PAGE };
            is_first = false;
            let records = self.store().list(Space::Session, after, page).await.map_err(cannot_read)?;
            let is_last = records.len() < page;
            for (key, record) in records {
                after = Some(key);
                look.count(1);
                let live = self.info(&key);
                let row = details::row(&key, &record, live.as_ref(), now);
                if filter.prefix.as_ref().is_some_and(|prefix| is_beyond(&row.key, prefix)) {
                    return Ok(found);
                }
                if !filter.fits(&row) {
                    continue;
                }
                found.rows.push(details::listed(row, live.as_ref(), now));
                if found.rows.len() == limit {
                    found.next = after.as_ref().map(key_text);
                    return Ok(found);
                }
            }
            if is_last {
                return Ok(found);
            }
            if !look.goes_on() {
                found.next = after.as_ref().map(key_text);
                (found.looked_at, found.of) = (look.cut_at(), self.session_count());
                return Ok(found);
            }
        }
    }
}

/// Whether a key comes after all keys with this prefix.
fn is_beyond(key: &str, prefix: &Prefix) -> bool {
    let digits = prefix.digits();
    key.get(..digits.len()).is_some_and(|start| start > digits)
}
