//! Records events that are not calls: sessions, questions to users, tasks, credentials, and refusals.
//!
//! In: events of the runtime, of the transport and of the authenticator. Out: records, without a wait.

use std::sync::Arc;

use tenure_auth::{CredentialEvent, CredentialObserver};
use tenure_protocol::Method;
use tenure_session::Principal;
use tenure_session::port::observer::{Happened, SessionEvent, SessionMove, SessionObserver};
use tenure_transport::observe::{Outcome, RequestEnd, RequestObserver};

use super::record::{Event, PrincipalRecord, cut, millis};
use super::start::Audit;
use crate::url_text::public_name;

/// The codes of refusals: no good credentials, no scope, a limit.
const REFUSALS: [i64; 3] = [-31001, -31003, -31029];

impl SessionObserver for Audit {
    fn happened(&self, event: &SessionEvent<'_>) {
        let (kind, method, name, client, outcome) = match event.what {
            Happened::Created { client } => (Event::SessionCreated, None, None, client, None),
            Happened::Moved { how: SessionMove::TakenOver } => {
                (Event::SessionMoved, None, None, None, Some("taken_over"))
            }
            Happened::Moved { how: SessionMove::GivenBack } => {
                (Event::SessionMoved, None, None, None, Some("given_back"))
            }
            Happened::Ended { how, .. } => (Event::SessionEnded, None, None, None, Some(how)),
            Happened::Asked { method: Method::ElicitationCreate } => {
                (Event::ElicitationSent, Some(Method::ElicitationCreate), None, None, None)
            }
            Happened::Answered { method: Method::ElicitationCreate, how } => {
                (Event::ElicitationAnswered, Some(Method::ElicitationCreate), None, None, Some(how))
            }
            Happened::TaskBegun { tool } => (Event::TaskBegun, None, Some(tool), None, None),
            Happened::TaskEnded { tool, how } => (Event::TaskEnded, None, Some(tool), None, Some(how)),
            // Other questions are asked of programs, not of people.
            _ => return,
        };
        let mut record = self.begin(kind);
        record.backend = event.endpoint.map(cut);
        record.client = client.map(cut);
        record.method = method.map(|method| method.as_str().into());
        record.name = name.map(cut);
        record.outcome = outcome;
        record.principal = Some(PrincipalRecord::of(event.owner));
        record.session = Some(event.label.into());
        self.note(record);
    }
}

impl CredentialObserver for Audit {
    fn happened(&self, event: &CredentialEvent<'_>) {
        let (kind, name) = match *event {
            CredentialEvent::KeyAdded { name } => (Event::KeyAdded, name),
            CredentialEvent::KeyRemoved { name } => (Event::KeyRemoved, name),
            CredentialEvent::TokenExchanged { server, .. } => (Event::TokenExchanged, server),
            _ => return,
        };
        let mut record = self.begin(kind);
        record.name = Some(cut(name));
        if let CredentialEvent::TokenExchanged { principal, client, refusal, .. } = *event {
            let principal = Principal::verified(principal.into(), client.map(Into::into));
            record.principal = Some(PrincipalRecord::of(&principal));
            record.outcome = Some(if refusal.is_none() { "ok" } else { "error" });
            record.reason = refusal.map(Box::from);
        }
        self.note(record);
    }
}

/// Records refusals.
pub(super) struct RefusalObserver(pub(super) Arc<Audit>);

impl RequestObserver for RefusalObserver {
    fn ended(&self, request: &RequestEnd<'_>) {
        let status = request.http.and_then(|http| http.status);
        let (code, reason) = match request.outcome {
            Outcome::Error { code, reason: Some(reason) } => (code, Some(reason.as_str())),
            Outcome::Limited { reason } => (reason.code().into(), Some(reason.as_str())),
            Outcome::None | Outcome::Result | Outcome::ToolError | Outcome::Error { .. } => (0, None),
        };
        // A server behind has codes of its own, and no reason of ours.
        let is_refusal =
            matches!(status, Some(401 | 403 | 429)) || (reason.is_some() && REFUSALS.contains(&code));
        if !is_refusal {
            return;
        }
        let mut record = self.0.begin(Event::Refused);
        record.backend = request.endpoint.map(cut);
        record.bytes_in = Some(request.bytes_in);
        record.client = request.client.map(cut);
        // A refusal in-band has status 200, which does not show it.
        record.code = status.filter(|status| *status >= 400).map(i64::from).or(Some(code));
        record.duration_ms = Some(millis(request.duration));
        record.method = request.method.map(|method| cut(method.as_str()));
        record.name = request.name.map(|name| cut(&public_name(request.method, name)));
        record.principal = Some(PrincipalRecord::of(request.principal));
        record.reason = reason.map(Box::from);
        record.remote = request.remote.map(|remote| remote.ip().to_string().into());
        record.request_id = request.correlation.map(cut);
        record.session = request.session.map(cut);
        record.trace_id = request.trace.map(cut);
        self.0.refused_request(record);
    }
}
