//! Clients of an older revision in front of a server that answers in a later one.
//!
//! A client that asks for an old revision may know no other, and would disconnect. So it is told its own revision, and
//! results are converted to that revision. If the server answers in an earlier revision, nothing is converted: later
//! revisions contain everything of the earlier ones, and the client is told the server's revision.

use std::sync::Arc;

use tenure_protocol::json::object::{self, Object};
use tenure_protocol::translate::downgrade;
use tenure_protocol::{Notification, RawJson, Reply, Revision, RpcError};
use tenure_session::backend::{Backend, Call, Link, Open, Opened, Responder};
use tenure_session::port::BoxFuture;

/// A backend whose clients get the revision that they asked for if the server's revision is later.
pub struct Revisions(Arc<dyn Backend>);

impl Revisions {
    /// Wraps a backend.
    pub fn new(inner: Arc<dyn Backend>) -> Self {
        Self(inner)
    }
}

impl std::fmt::Debug for Revisions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Revisions")
    }
}

impl Backend for Revisions {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let asked = open.revision;
        let opening = self.0.open(open);
        Box::pin(async move {
            let opened = opening.await?;
            let Some(result) = lowered(&opened.result, asked) else { return Ok(opened) };
            tracing::debug!(revision = %asked, "the server speaks a later revision; its results are converted");
            Ok(Opened { link: Box::new(Lowered { inner: opened.link, revision: asked }), result })
        })
    }

    fn responder(self: Arc<Self>) -> Option<Arc<dyn Responder>> {
        Arc::clone(&self.0).responder()
    }
}

/// The `initialize` result for a client of an earlier revision; `None` if the server's revision is not later.
fn lowered(result: &RawJson, asked: Revision) -> Option<RawJson> {
    let mut object = Object::read(object::text(result))?;
    let said = object.get("protocolVersion").and_then(object::unquoted)?;
    if Revision::parse(&said)? <= asked {
        return None;
    }
    object.set("protocolVersion", object::quoted(asked.as_str()));
    Some(RawJson::trusted(object.write().into_owned()))
}

struct Lowered {
    inner: Box<dyn Link>,
    revision: Revision,
}

impl Link for Lowered {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        let (method, revision) = (call.request.method.clone(), self.revision);
        let reply = self.inner.call(call);
        Box::pin(async move { Ok(downgrade::result_for(&method, &reply.await?, revision)) })
    }

    fn notify(&self, notification: Notification) {
        self.inner.notify(notification);
    }

    fn close(&self) -> BoxFuture<()> {
        self.inner.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_keeps_its_revision_only_in_front_of_a_later_one() {
        let answer = |version: &str| RawJson::trusted(format!(r#"{{"protocolVersion":"{version}","x":1}}"#));
        let table = [
            ("2025-11-25", Revision::V2024_11_05, Some(r#"{"protocolVersion":"2024-11-05","x":1}"#)),
            ("2025-06-18", Revision::V2025_03_26, Some(r#"{"protocolVersion":"2025-03-26","x":1}"#)),
            ("2025-06-18", Revision::V2025_06_18, None),
            ("2024-11-05", Revision::V2025_11_25, None),
            ("v999", Revision::V2024_11_05, None),
        ];
        for (said, asked, expected) in table {
            let expected = expected.map(RawJson::trusted);
            assert_eq!(lowered(&answer(said), asked), expected, "{said} {asked}");
        }
        assert_eq!(lowered(&RawJson::EMPTY_OBJECT, Revision::V2024_11_05), None);
    }
}
