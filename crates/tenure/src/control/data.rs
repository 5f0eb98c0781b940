//! The requests about data sessions: the routes of the server, and the client that uses them.

use bytes::Bytes;
use hyper::{Method, StatusCode};
use tenure_session::SessionKey;

use super::client::ControlClient;
use super::routes::{ControlAnswer, Query, ROWS, bad, json, read_key, refused};
use crate::failure::Failure;
use crate::operator::{
    DataDetail, DataName, DataOperator, DataPage, DataRow, NamedData, NewData, ResumedData, Revoked, Show,
    key_text,
};

/// Answers a request; `path` is the part after `/data`.
pub(super) async fn route(
    operator: &DataOperator,
    method: &Method,
    path: &[&str],
    query: &Query<'_>,
    body: impl Future<Output = Result<Bytes, Failure>>,
) -> Result<ControlAnswer, Failure> {
    match (method, path) {
        (&Method::GET, []) => {
            let limit = query.get("limit").and_then(|limit| limit.parse().ok()).unwrap_or(ROWS);
            let page = match query.get("name") {
                Some(name) => {
                    let name = DataName::parse(name).ok_or_else(|| bad("the name of a data session"))?;
                    operator.matching(&name, limit).await?
                }
                None => operator.page(query.get("after").map(read_key).transpose()?, limit).await?,
            };
            Ok(json(StatusCode::OK, &page))
        }
        (&Method::POST, []) => {
            let new = serde_json::from_slice(&body.await?);
            let new = new.map_err(|error| bad("a data session to make").caused_by(error))?;
            Ok(json(StatusCode::OK, &operator.create(new).await?))
        }
        (&Method::GET, ["count"]) => Ok(json(StatusCode::OK, &operator.count().await?)),
        (&Method::GET, [key]) => {
            let show = if query.get("contents") == Some("true") { Show::Contents } else { Show::Facts };
            Ok(json(StatusCode::OK, &operator.show(read_key(key)?, show).await?))
        }
        (&Method::POST, [key, "resume"]) => Ok(json(StatusCode::OK, &operator.resume(read_key(key)?).await?)),
        (&Method::GET, [key, "names"]) => Ok(json(StatusCode::OK, &operator.select(read_key(key)?).await?)),
        (&Method::POST, [key, "clear"]) => Ok(json(StatusCode::OK, &operator.clear(read_key(key)?).await?)),
        (&Method::POST, [key, "revoke"]) => Ok(json(StatusCode::OK, &operator.revoke(read_key(key)?).await?)),
        _ => Ok(refused(StatusCode::METHOD_NOT_ALLOWED)),
    }
}

/// The data sessions of a running server, as a command reaches them.
#[derive(Debug)]
pub(crate) struct DataClient<'a>(pub(super) &'a ControlClient);

impl DataClient<'_> {
    /// See [`DataOperator::count`].
    pub(crate) async fn count(&self) -> Result<u64, Failure> {
        self.0.get("/data/count").await
    }

    /// See [`DataOperator::page`].
    pub(crate) async fn page(&self, after: Option<SessionKey>, limit: usize) -> Result<DataPage, Failure> {
        let after = after.map(|key| format!("&after={}", key_text(&key))).unwrap_or_default();
        self.0.get(&format!("/data?limit={limit}{after}")).await
    }

    /// See [`DataOperator::matching`].
    pub(crate) async fn matching(&self, name: &DataName, limit: usize) -> Result<DataPage, Failure> {
        self.0.get(&format!("/data?limit={limit}&name={}", name.text())).await
    }

    /// See [`DataOperator::show`].
    pub(crate) async fn show(&self, key: SessionKey, show: Show) -> Result<Option<DataDetail>, Failure> {
        let contents = show == Show::Contents;
        self.0.get(&format!("/data/{}?contents={contents}", key_text(&key))).await
    }

    /// See [`DataOperator::create`].
    pub(crate) async fn create(&self, new: &NewData) -> Result<NamedData, Failure> {
        let body = serde_json::to_vec(new).expect("an order has a JSON form");
        self.0.post("/data", body.into()).await
    }

    /// See [`DataOperator::resume`].
    pub(crate) async fn resume(&self, key: SessionKey) -> Result<Option<ResumedData>, Failure> {
        self.0.post(&format!("/data/{}/resume", key_text(&key)), Bytes::new()).await
    }

    /// See [`DataOperator::select`].
    pub(crate) async fn select(&self, key: SessionKey) -> Result<Option<NamedData>, Failure> {
        self.0.get(&format!("/data/{}/names", key_text(&key))).await
    }

    /// See [`DataOperator::clear`].
    pub(crate) async fn clear(&self, key: SessionKey) -> Result<Option<DataRow>, Failure> {
        self.0.post(&format!("/data/{}/clear", key_text(&key)), Bytes::new()).await
    }

    /// See [`DataOperator::revoke`].
    pub(crate) async fn revoke(&self, key: SessionKey) -> Result<Revoked, Failure> {
        self.0.post(&format!("/data/{}/revoke", key_text(&key)), Bytes::new()).await
    }
}
