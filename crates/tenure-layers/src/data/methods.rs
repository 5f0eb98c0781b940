//! `session/create` and the like, in all dialects.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tenure_protocol::data_session::{Dialect, Verb};
use tenure_protocol::{Era, RawJson, Reason, Reply, Request, RpcError};
use tenure_session::call::Caller;
use tenure_session::id::{Principal, SessionKey};
use tenure_session::state::{About, Fault, NewState, StateId, date};

use crate::data::cookie_cache::KnownCookie;
use crate::data::cookie_out::CookieEcho;
use crate::data::dialect::{self, Shown, invalid, unreadable};
use crate::data::path::DataShared;
use crate::data::policy::Policy;
use crate::data::request::DataRequest;

/// Data sessions on one page of a list.
const PAGE: usize = 100;

#[derive(Deserialize, Default)]
struct DataSessionParams {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    cursor: Option<String>,
    #[serde(default)]
    hints: DataSessionHints,
}

#[derive(Deserialize, Default)]
struct DataSessionHints {
    #[serde(default)]
    label: Option<String>,
    #[serde(default)]
    data: Option<Box<RawValue>>,
}

/// The params of a method of the layer.
fn params(era: Era, request: &Request) -> Result<DataSessionParams, RpcError> {
    #[derive(Deserialize)]
    struct ModernMethodParams {
        #[serde(rename = "sessionId", default)]
        id: Option<String>,
        #[serde(default)]
        cursor: Option<String>,
        #[serde(default)]
        hints: DataSessionHints,
    }
    let Some(params) = &request.params else { return Ok(DataSessionParams::default()) };
    let read = match era {
        Era::Legacy => params.read::<DataSessionParams>(),
        Era::Modern => params
            .read::<ModernMethodParams>()
            .map(|ModernMethodParams { id, cursor, hints }| DataSessionParams { id, cursor, hints }),
    };
    read.map_err(|error| invalid(format!("{}: {error}", request.method)))
}

impl DataShared {
    /// Answers a method of the layer.
    pub(super) async fn answer(
        &self,
        dialect: Dialect,
        verb: Verb,
        request: &Request,
        caller: &Caller,
    ) -> Reply {
        let params = params(dialect.era(), request)?;
        let read = DataRequest::read(request.params.as_ref());
        let cookies = read.and_then(|read| read.cookies(dialect.era())).ok_or_else(unreadable)?;
        let cookie = cookies.read(self.policy.max_cookie_bytes)?;
        if let Some(cookie) = &cookie {
            // Restores the state that the cookie carries, if it must; `carry_out` reports a failure.
            let known = KnownCookie::new(cookie.clone(), &caller.principal);
            let fetched = self.fetch(&known);
            drop(self.by_cookie(&known, fetched, self.states.now(), caller.peer()).await);
        }
        let cookie = cookie.filter(|cookie| cookie.dialect == dialect).map(|cookie| cookie.id);
        self.carry_out(dialect, verb, params, cookie, caller).await
    }

    /// Carries out a method of the layer.
    async fn carry_out(
        &self,
        dialect: Dialect,
        verb: Verb,
        params: DataSessionParams,
        cookie: Option<String>,
        caller: &Caller,
    ) -> Reply {
        if !self.policy.features.iter().any(|feature| feature == verb.feature()) {
            return Err(RpcError::of(
                Reason::MethodNotFound,
                "This server does not offer it for data sessions",
            ));
        }
        match (verb, dialect) {
            (Verb::Create, Dialect::Draft) if cookie.is_some() => {
                Err(invalid("sessions/create must not carry a session"))
            }
            (Verb::Create, _) => self.create(dialect, params.hints, caller).await,
            (Verb::List, _) => {
                self.list(dialect, params.cursor.as_deref(), cookie.as_deref(), &caller.principal).await
            }
            (_, _) => {
                // Released clients name the session to delete by the cookie alone.
                let id =
                    params.id.or(cookie).ok_or_else(|| dialect::required(dialect, &self.policy, None))?;
                self.on_one(dialect, verb, &id, params.hints, caller).await
            }
        }
    }

    async fn create(&self, dialect: Dialect, hints: DataSessionHints, caller: &Caller) -> Reply {
        let kind = self.main_kind();
        let given =
            hints.data.as_ref().and_then(|data| serde_json::from_str::<Map<String, Value>>(data.get()).ok());
        let data = (kind.begin)(&given.unwrap_or_default()).map_err(invalid)?;
        let new = NewState {
            kind: kind.kind.clone(),
            about: About { label: hints.label, data: hints.data },
            data,
            idle_ttl: kind.idle_ttl,
            max_lifetime: kind.max_lifetime,
            peer: caller.peer(),
        };
        let made = self.states.create(&caller.principal, new).await;
        let state = made.map_err(|fault| fault.to_error().to_rpc())?;
        Ok(dialect::session(dialect, &state, &self.policy, None))
    }

    async fn on_one(
        &self,
        dialect: Dialect,
        verb: Verb,
        id: &str,
        hints: DataSessionHints,
        caller: &Caller,
    ) -> Reply {
        let principal = &caller.principal;
        let refused = |fault| refused(dialect, &self.policy, id, fault);
        let name = StateId::from_cookie(id)
            .ok_or(Fault::Lost(tenure_session::state::Lost::NotFound))
            .map_err(refused)?;
        if verb == Verb::Recover {
            let (state, recovered) = self.states.recover(principal, name).await.map_err(refused)?;
            return Ok(dialect::session(dialect, &state, &self.policy, Some(recovered)));
        }
        let state = self.states.find(principal, name).await.map_err(refused)?;
        match verb {
            Verb::Delete => {
                state.delete().await.map_err(refused)?;
                Ok(dialect::deleted(dialect))
            }
            Verb::Fork => {
                let forked = state.fork_for(caller.peer(), hints.label).await;
                let child = forked.map_err(|fault| fault.to_error().to_rpc())?;
                Ok(dialect::session(dialect, &child, &self.policy, None))
            }
            _ => Ok(dialect::session(dialect, &state, &self.policy, None)),
        }
    }

    /// The caller's data sessions. An anonymous caller sees only the session whose cookie it sent.
    async fn list(
        &self,
        dialect: Dialect,
        cursor: Option<&str>,
        cookie: Option<&str>,
        principal: &Principal,
    ) -> Reply {
        #[derive(Serialize)]
        struct DataSessionsPage<'a> {
            sessions: Vec<Shown<'a>>,
            #[serde(rename = "nextCursor", skip_serializing_if = "Option::is_none")]
            next: Option<String>,
        }
        let after =
            cursor.map(|cursor| SessionKey::parse(cursor).ok_or_else(|| invalid("not a cursor of ours")));
        let page = self.states.list(principal, after.transpose()?, PAGE).await;
        let page = page.map_err(|fault| fault.to_error().to_rpc())?;
        let ids: Vec<_> =
            page.states.iter().filter_map(|listed| Some((listed.id?.cookie(), listed))).collect();
        let mut sessions: Vec<Shown<'_>> = ids
            .iter()
            .map(|(id, listed)| Shown {
                dialect,
                id,
                expiry: listed.expiry.map(date),
                data: listed.about.data.as_deref(),
            })
            .collect();
        let proven = match cookie.and_then(StateId::from_cookie) {
            Some(id) => self.states.find(principal, id).await.ok(),
            None => None,
        };
        let own = proven.as_ref().map(|state| (state.id().cookie(), state.about(), state.expiry().map(date)));
        if let (None, Some((id, about, expiry))) = (principal.name(), &own) {
            sessions.push(Shown { dialect, id, expiry: expiry.clone(), data: about.data.as_deref() });
        }
        let result = RawJson::of(&DataSessionsPage { sessions, next: page.next.map(|key| key.hex()) });
        Ok(match &proven {
            Some(state) => {
                let id = state.id().cookie();
                self.echoed(result, (dialect, &id), state, self.states.now(), &CookieEcho::default())
            }
            None => result,
        })
    }
}

/// The error when an operation on a data session fails.
fn refused(dialect: Dialect, policy: &Policy, id: &str, fault: Fault) -> RpcError {
    match fault {
        Fault::Lost(lost) => dialect::lost(dialect, policy, id, lost),
        fault => fault.to_error().to_rpc(),
    }
}
