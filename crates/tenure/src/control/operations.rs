//! The operations of operators, wherever the store is open: in a running server, or in this process.
//!
//! Each operation is here once, as its request to the server (which `routes` answers) and as the operation itself.

use std::path::Path;

use bytes::Bytes;
use hyper::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tenure_layers::limited::PrincipalLimits;
use tenure_session::SessionKey;
use tenure_session::session::{Changes, Existing};
use tenure_session::settings::Settings;

use super::PrincipalOrder;
use super::client::ControlClient;
use crate::admin::{AdminRole, LoginCode};
use crate::failure::Failure;
use crate::operator::{
    CallList, DataDetail, DataFate, DataName, DataRow, Detail, Extent, LoopView, MissingNode, NamedData,
    NewData, NodeRow, Operator, Page, Prefix, PrincipalDetail, PrincipalRow, ResumedData, Revoked,
    RevokedPrincipal, Saved, SessionRow, Show, UsageRow, key_text,
};
use crate::wire::{BackedUp, ByteProgress};

/// The operations on one store.
#[derive(Debug)]
pub(crate) enum Operations {
    /// A server has it open.
    Server(ControlClient),
    /// This process has it open.
    Here(Box<Operator>),
}

/// A request to a server.
#[derive(Debug)]
pub(super) struct ControlRequest {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Bytes,
}

fn get(path: String) -> ControlRequest {
    ControlRequest { method: Method::GET, path, body: Bytes::new() }
}

fn post(path: String) -> ControlRequest {
    ControlRequest { method: Method::POST, path, body: Bytes::new() }
}

impl ControlRequest {
    fn with(self, body: &impl Serialize) -> Self {
        let body = serde_json::to_vec(body).expect("a request has a JSON form");
        Self { body: body.into(), ..self }
    }
}

/// The path of a page of `things`.
fn page_path(things: &str, after: Option<SessionKey>, limit: usize) -> String {
    let after = after.map(|key| format!("&after={}", key_text(&key))).unwrap_or_default();
    format!("/{things}?limit={limit}{after}")
}

impl Operations {
    /// Asks the server, or does it here.
    async fn run<T: DeserializeOwned>(
        &self,
        request: ControlRequest,
        here: impl AsyncFnOnce(&Operator) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        match self {
            Self::Server(client) => client.ask(request).await,
            Self::Here(operator) => {
                let operator: &Operator = operator;
                here(operator).await
            }
        }
    }

    /// The process id of the server that has the store open, if there is one.
    pub(crate) async fn pid(&self) -> Option<i32> {
        match self {
            Self::Server(client) => client.pid().await,
            Self::Here(_) => None,
        }
    }

    /// The background loops of that server. Empty for a server of a version that does not list them.
    pub(crate) async fn loops(&self) -> Vec<LoopView> {
        let loops = self.run(get("/loops".to_owned()), async |operator| Ok(operator.loops())).await;
        loops.unwrap_or_default()
    }

    /// What clients make the server hold; `None` if no server has the store open.
    pub(crate) async fn usage(&self) -> Result<Option<Vec<UsageRow>>, Failure> {
        self.of_server("/usage").await
    }

    /// What principals have left of their limits; `None` if no server has the store open.
    pub(crate) async fn limits_left(
        &self,
        principal: Option<&str>,
    ) -> Result<Option<Vec<PrincipalLimits>>, Failure> {
        match self {
            Self::Server(client) => client.ask(post("/limits".to_owned()).with(&principal)).await.map(Some),
            Self::Here(_) => Ok(None),
        }
    }

    /// A one-time code for the page of the server; `None` if no server has the store open.
    pub(crate) async fn login_code(&self, role: AdminRole) -> Result<Option<LoginCode>, Failure> {
        match self {
            Self::Server(client) => {
                let order = serde_json::json!({ "role": role });
                client.ask_api(Method::POST, "codes", &order).await.map(Some)
            }
            Self::Here(_) => Ok(None),
        }
    }

    /// The nodes that share the store; empty if it belongs to one process.
    pub(crate) async fn nodes(&self) -> Result<Vec<NodeRow>, Failure> {
        self.run(get("/nodes".to_owned()), async |operator| operator.nodes().await).await
    }

    /// The nodes that did not answer one of the requests so far.
    pub(crate) fn missing_nodes(&self) -> Vec<MissingNode> {
        match self {
            Self::Server(client) => client.missing_nodes(),
            Self::Here(operator) => operator.missing_nodes(),
        }
    }

    /// The running requests; `None` if no server has the store open.
    pub(crate) async fn calls(&self) -> Result<Option<CallList>, Failure> {
        self.of_server("/calls").await
    }

    async fn of_server<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, Failure> {
        match self {
            Self::Server(client) => client.ask(get(path.to_owned())).await.map(Some),
            Self::Here(_) => Ok(None),
        }
    }

    /// See [`Operator::backup`].
    pub(crate) async fn backup(
        &self,
        to: &Path,
        progress: impl FnMut(ByteProgress) + Send + 'static,
    ) -> Result<BackedUp, Failure> {
        match self {
            Self::Server(client) => client.backup(to, progress).await,
            Self::Here(operator) => operator.backup(to, progress).await,
        }
    }
}

/// Operations on sessions.
impl Operations {
    /// See [`Operator::page`].
    pub(crate) async fn page(
        &self,
        after: Option<SessionKey>,
        limit: usize,
    ) -> Result<Page<SessionRow>, Failure> {
        let request = get(page_path("sessions", after, limit));
        self.run(request, async |operator| operator.page(after, limit).await).await
    }

    /// See [`Operator::matching`].
    pub(crate) async fn matching(&self, prefix: &Prefix, limit: usize) -> Result<Page<SessionRow>, Failure> {
        let request = get(format!("/sessions?limit={limit}&prefix={}", prefix.digits()));
        self.run(request, async |operator| operator.matching(prefix, limit).await).await
    }

    /// See [`Operator::show`].
    pub(crate) async fn show(&self, key: SessionKey) -> Result<Option<Detail>, Failure> {
        let request = get(format!("/sessions/{}", key_text(&key)));
        self.run(request, async |operator| operator.show(key).await).await
    }

    /// See [`Operator::revoke`].
    pub(crate) async fn revoke(&self, key: SessionKey) -> Result<Revoked, Failure> {
        let request = post(format!("/sessions/{}/revoke", key_text(&key)));
        self.run(request, async |operator| operator.revoke(key).await).await
    }

    /// See [`Operator::annotate`].
    pub(crate) async fn annotate(
        &self,
        key: SessionKey,
        changes: &Changes,
    ) -> Result<Option<Settings>, Failure> {
        let request = post(format!("/sessions/{}/settings", key_text(&key))).with(changes);
        self.run(request, async |operator| operator.annotate(key, changes).await).await
    }

    /// See [`Operator::export`].
    pub(crate) async fn export(&self, key: SessionKey) -> Result<Option<Saved>, Failure> {
        let request = get(format!("/sessions/{}/export", key_text(&key)));
        self.run(request, async |operator| operator.export(key).await).await
    }

    /// See [`Operator::import`].
    pub(crate) async fn import(&self, saved: Saved, existing: Existing) -> Result<(), Failure> {
        match self {
            Self::Server(client) => {
                let path = format!("/sessions?replace={}", existing == Existing::Replace);
                client.ask(ControlRequest { body: saved.line().into(), ..post(path) }).await
            }
            Self::Here(operator) => operator.import(saved, existing).await,
        }
    }
}

/// Operations on principals.
impl Operations {
    /// See [`Operator::principals`].
    pub(crate) async fn principals(&self) -> Result<Vec<PrincipalRow>, Failure> {
        self.run(get("/principals".to_owned()), async |operator| {
            Ok(operator.principals(Extent::All).await?.rows)
        })
        .await
    }

    /// See [`Operator::principal`].
    pub(crate) async fn principal(&self, name: &str) -> Result<Option<PrincipalDetail>, Failure> {
        let request = about("show", name, DataFate::Kept);
        self.run(request, async |operator| operator.principal(name, Extent::All).await).await
    }

    /// See [`Operator::revoke_principal`].
    pub(crate) async fn revoke_principal(
        &self,
        name: &str,
        data: DataFate,
    ) -> Result<RevokedPrincipal, Failure> {
        self.run(about("revoke", name, data), async |operator| {
            Ok(operator.revoke_principal(name, data).await?)
        })
        .await
    }

    /// See [`Operator::reinstate_principal`].
    pub(crate) async fn reinstate_principal(&self, name: &str) -> Result<bool, Failure> {
        let request = about("reinstate", name, DataFate::Kept);
        self.run(request, async |operator| operator.reinstate_principal(name).await).await
    }
}

/// A request about a principal, whose name may have any characters.
fn about(verb: &str, principal: &str, data: DataFate) -> ControlRequest {
    let order = PrincipalOrder { principal: principal.to_owned(), data: data == DataFate::Ended };
    post(format!("/principals/{verb}")).with(&order)
}

/// Operations on data sessions; see [`DataOperator`](crate::operator::DataOperator).
impl Operations {
    pub(crate) async fn data_count(&self) -> Result<u64, Failure> {
        self.run(get("/data/count".to_owned()), async |operator| operator.data().count().await).await
    }

    pub(crate) async fn data_page(
        &self,
        after: Option<SessionKey>,
        limit: usize,
    ) -> Result<Page<DataRow>, Failure> {
        let request = get(page_path("data", after, limit));
        self.run(request, async |operator| operator.data().page(after, limit).await).await
    }

    pub(crate) async fn data_matching(
        &self,
        name: &DataName,
        limit: usize,
    ) -> Result<Page<DataRow>, Failure> {
        let request = get(format!("/data?limit={limit}&name={}", name.text()));
        self.run(request, async |operator| operator.data().matching(name, limit).await).await
    }

    pub(crate) async fn data_show(&self, key: SessionKey, show: Show) -> Result<Option<DataDetail>, Failure> {
        let request = get(format!("/data/{}?contents={}", key_text(&key), show == Show::Contents));
        self.run(request, async |operator| operator.data().show(key, show).await).await
    }

    pub(crate) async fn data_create(&self, new: NewData) -> Result<NamedData, Failure> {
        let request = post("/data".to_owned()).with(&new);
        self.run(request, async |operator| operator.data().create(new).await).await
    }

    pub(crate) async fn data_resume(&self, key: SessionKey) -> Result<Option<ResumedData>, Failure> {
        let request = post(format!("/data/{}/resume", key_text(&key)));
        self.run(request, async |operator| operator.data().resume(key).await).await
    }

    pub(crate) async fn data_select(&self, key: SessionKey) -> Result<Option<NamedData>, Failure> {
        let request = get(format!("/data/{}/names", key_text(&key)));
        self.run(request, async |operator| operator.data().select(key).await).await
    }

    pub(crate) async fn data_clear(&self, key: SessionKey) -> Result<Option<DataRow>, Failure> {
        let request = post(format!("/data/{}/clear", key_text(&key)));
        self.run(request, async |operator| operator.data().clear(key).await).await
    }

    pub(crate) async fn data_revoke(&self, key: SessionKey) -> Result<Revoked, Failure> {
        let request = post(format!("/data/{}/revoke", key_text(&key)));
        self.run(request, async |operator| operator.data().revoke(key).await).await
    }
}
