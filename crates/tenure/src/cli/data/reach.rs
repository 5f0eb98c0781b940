//! Finds the data session that a name means, and forwards operations to the server or to this process.

use tenure_session::{Principal, SessionKey};

use crate::cli::reach::Reach;
use crate::failure::Failure;
use crate::operator::{
    DataDetail, DataName, DataPage, DataRow, NamedData, NewData, ResumedData, Revoked, Show, parse_key,
    parse_secret,
};

/// Matches that are listed when a name fits several.
const MATCHES: usize = 10;

/// Rows that are asked for at once.
pub(super) const PAGE: usize = 500;

const FORGOTTEN: &str = "`tenure sessions data list` shows those of this store; how one ended is forgotten after \
                         `data_sessions.tombstone_ttl`";

/// The data sessions that these names mean, each once, with their names in logs. Finds all of them before the caller
/// changes the first, so that a mistyped name changes nothing.
pub(super) async fn resolve_all(
    reach: &Reach,
    names: &[String],
) -> Result<Vec<(String, SessionKey)>, Failure> {
    let mut found = Vec::new();
    for name in names {
        let row = resolve_row(reach, name).await?;
        let key = parse_key(&row.key).ok_or_else(|| unknown(name))?;
        if !found.iter().any(|(_, known)| *known == key) {
            found.push((row.name, key));
        }
    }
    Ok(found)
}

/// The data session that a name means.
pub(super) async fn resolve(reach: &Reach, name: &str) -> Result<SessionKey, Failure> {
    let row = resolve_row(reach, name).await?;
    parse_key(&row.key).ok_or_else(|| unknown(name))
}

async fn resolve_row(reach: &Reach, name: &str) -> Result<DataRow, Failure> {
    if let Some(parsed) = DataName::parse(name) {
        let mut rows = reach.data_matching(&parsed, MATCHES + 1).await?.rows;
        return match rows.len() {
            0 => Err(unknown(name)),
            1 => Ok(rows.remove(0)),
            _ => Err(ambiguous(name, &rows)),
        };
    }
    let Some(id) = parse_secret(name) else {
        return Err(Failure::new(format!("`{name}` is not the name of a data session"))
            .hint("write its name as `tenure sessions data list` shows it, such as `d-4f3a9c01`"));
    };
    // The secret stays in this process; only its hash is asked for. The hash depends on the owner.
    let anonymous = DataName::Key(id.key(&Principal::ANONYMOUS));
    if let Some(row) = reach.data_matching(&anonymous, 1).await?.rows.pop() {
        return Ok(row);
    }
    let mut after = None;
    loop {
        let page = reach.data_page(after, PAGE).await?;
        let is_it = |row: &DataRow| {
            let owner = row.owner.as_deref().map(Principal::named);
            owner.is_some_and(|owner| parse_key(&row.key) == Some(id.key(&owner)))
        };
        if let Some(row) = page.rows.into_iter().find(is_it) {
            return Ok(row);
        }
        after = page.next.as_deref().and_then(parse_key);
        if after.is_none() {
            return Err(Failure::new("no data session has that id").hint(FORGOTTEN));
        }
    }
}

pub(super) fn unknown(name: &str) -> Failure {
    Failure::new(format!("no data session is called `{name}`")).hint(FORGOTTEN)
}

fn ambiguous(name: &str, rows: &[DataRow]) -> Failure {
    let mut what = format!("`{name}` fits several data sessions:");
    for row in rows.iter().take(MATCHES) {
        what.push_str(&format!("\n  {}  {}", row.key, super::list::state_words(row)));
    }
    if rows.len() > MATCHES {
        what.push_str("\n  and more");
    }
    Failure::new(what).hint("write more of the name, or the whole key")
}

impl Reach {
    pub(in crate::cli) async fn data_count(&self) -> Result<u64, Failure> {
        match self {
            Self::Server(client) => client.data().count().await,
            Self::Here(operator) => operator.data().count().await,
        }
    }

    pub(super) async fn data_page(
        &self,
        after: Option<SessionKey>,
        limit: usize,
    ) -> Result<DataPage, Failure> {
        match self {
            Self::Server(client) => client.data().page(after, limit).await,
            Self::Here(operator) => operator.data().page(after, limit).await,
        }
    }

    async fn data_matching(&self, name: &DataName, limit: usize) -> Result<DataPage, Failure> {
        match self {
            Self::Server(client) => client.data().matching(name, limit).await,
            Self::Here(operator) => operator.data().matching(name, limit).await,
        }
    }

    pub(super) async fn data_show(&self, key: SessionKey, show: Show) -> Result<Option<DataDetail>, Failure> {
        match self {
            Self::Server(client) => client.data().show(key, show).await,
            Self::Here(operator) => operator.data().show(key, show).await,
        }
    }

    pub(super) async fn data_create(&self, new: NewData) -> Result<NamedData, Failure> {
        match self {
            Self::Server(client) => client.data().create(&new).await,
            Self::Here(operator) => operator.data().create(new).await,
        }
    }

    pub(super) async fn data_resume(&self, key: SessionKey) -> Result<Option<ResumedData>, Failure> {
        match self {
            Self::Server(client) => client.data().resume(key).await,
            Self::Here(operator) => operator.data().resume(key).await,
        }
    }

    pub(super) async fn data_select(&self, key: SessionKey) -> Result<Option<NamedData>, Failure> {
        match self {
            Self::Server(client) => client.data().select(key).await,
            Self::Here(operator) => operator.data().select(key).await,
        }
    }

    pub(super) async fn data_clear(&self, key: SessionKey) -> Result<Option<DataRow>, Failure> {
        match self {
            Self::Server(client) => client.data().clear(key).await,
            Self::Here(operator) => operator.data().clear(key).await,
        }
    }

    pub(super) async fn data_revoke(&self, key: SessionKey) -> Result<Revoked, Failure> {
        match self {
            Self::Server(client) => client.data().revoke(key).await,
            Self::Here(operator) => operator.data().revoke(key).await,
        }
    }
}
