//! What can be asked about data sessions.

use bytes::Bytes;
use hyper::{Method, StatusCode};
use tenure_session::SessionKey;

use super::client::Client;
use super::routes::{Answer, Query, ROWS, bad, json, read_key, refused};
use crate::failure::Failure;
use crate::operator::{
    DataDesk, DataDetail, DataName, DataPage, DataRow, Named, NewData, ResumedData, Revoked, Show, key_text,
};

/// Answers a request whose path goes on like this after `/data`.
pub(super) async fn route(
    desk: &DataDesk,
    method: &Method,
    path: &[&str],
    query: &Query<'_>,
    body: impl Future<Output = Result<Bytes, Failure>>,
) -> Result<Answer, Failure> {
    match (method, path) {
        (&Method::GET, []) => {
            let limit = query.get("limit").and_then(|limit| limit.parse().ok()).unwrap_or(ROWS);
            let page = match query.get("name") {
                Some(name) => {
                    let name = DataName::parse(name).ok_or_else(|| bad("the name of a data session"))?;
                    desk.matching(&name, limit).await?
                }
                None => desk.page(query.get("after").map(read_key).transpose()?, limit).await?,
            };
            Ok(json(StatusCode::OK, &page))
        }
        (&Method::POST, []) => {
            let new = serde_json::from_slice(&body.await?);
            let new = new.map_err(|error| bad("a data session to make").caused_by(error))?;
            Ok(json(StatusCode::OK, &desk.create(new).await?))
        }
        (&Method::GET, ["count"]) => Ok(json(StatusCode::OK, &desk.count().await?)),
        (&Method::GET, [key]) => {
            let show = if query.get("contents") == Some("true") { Show::Contents } else { Show::Facts };
            Ok(json(StatusCode::OK, &desk.show(read_key(key)?, show).await?))
        }
        (&Method::POST, [key, "resume"]) => Ok(json(StatusCode::OK, &desk.resume(read_key(key)?).await?)),
        (&Method::GET, [key, "names"]) => Ok(json(StatusCode::OK, &desk.select(read_key(key)?).await?)),
        (&Method::POST, [key, "clear"]) => Ok(json(StatusCode::OK, &desk.clear(read_key(key)?).await?)),
        (&Method::POST, [key, "revoke"]) => Ok(json(StatusCode::OK, &desk.revoke(read_key(key)?).await?)),
        _ => Ok(refused(StatusCode::METHOD_NOT_ALLOWED)),
    }
}

/// The desk of a running server.
#[derive(Debug)]
pub(crate) struct DataClient<'a>(pub(super) &'a Client);

impl DataClient<'_> {
    /// See [`DataDesk::count`].
    pub(crate) async fn count(&self) -> Result<u64, Failure> {
        self.0.get("/data/count").await
    }

    /// See [`DataDesk::page`].
    pub(crate) async fn page(&self, after: Option<SessionKey>, limit: usize) -> Result<DataPage, Failure> {
        let after = after.map(|key| format!("&after={}", key_text(&key))).unwrap_or_default();
        self.0.get(&format!("/data?limit={limit}{after}")).await
    }

    /// See [`DataDesk::matching`].
    pub(crate) async fn matching(&self, name: &DataName, limit: usize) -> Result<DataPage, Failure> {
        self.0.get(&format!("/data?limit={limit}&name={}", name.text())).await
    }

    /// See [`DataDesk::show`].
    pub(crate) async fn show(&self, key: SessionKey, show: Show) -> Result<Option<DataDetail>, Failure> {
        let contents = show == Show::Contents;
        self.0.get(&format!("/data/{}?contents={contents}", key_text(&key))).await
    }

    /// See [`DataDesk::create`].
    pub(crate) async fn create(&self, new: &NewData) -> Result<Named, Failure> {
        let body = serde_json::to_vec(new).expect("an order has a JSON form");
        self.0.post("/data", body.into()).await
    }

    /// See [`DataDesk::resume`].
    pub(crate) async fn resume(&self, key: SessionKey) -> Result<Option<ResumedData>, Failure> {
        self.0.post(&format!("/data/{}/resume", key_text(&key)), Bytes::new()).await
    }

    /// See [`DataDesk::select`].
    pub(crate) async fn select(&self, key: SessionKey) -> Result<Option<Named>, Failure> {
        self.0.get(&format!("/data/{}/names", key_text(&key))).await
    }

    /// See [`DataDesk::clear`].
    pub(crate) async fn clear(&self, key: SessionKey) -> Result<Option<DataRow>, Failure> {
        self.0.post(&format!("/data/{}/clear", key_text(&key)), Bytes::new()).await
    }

    /// See [`DataDesk::revoke`].
    pub(crate) async fn revoke(&self, key: SessionKey) -> Result<Revoked, Failure> {
        self.0.post(&format!("/data/{}/revoke", key_text(&key)), Bytes::new()).await
    }
}
