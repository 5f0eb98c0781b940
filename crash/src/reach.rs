//! Brings each request to one of the nodes, as a load balancer would, and judges how long its answer took.
//!
//! A node that refuses connections is passed over; every other failure is the client's to see. No request is sent twice.

use serde_json::Value;
use tenure_testkit::wire::Ask;
use tokio::time::{Instant, timeout};

use crate::check::{CheckFault, FaultKind, Patience};
use crate::http::{Broken, HttpReply, NodeConnection, SessionName, reason};
use crate::life::Moment;
use crate::world::{DEADLINE, World, count};

impl World {
    /// Sends a message.
    pub(crate) async fn post(
        &self,
        session: Option<&SessionName>,
        message: &Value,
    ) -> Result<HttpReply, Broken> {
        self.send(session, Ask::post(message.to_string())).await
    }

    /// Opens the standalone stream, or resumes a stream.
    pub(crate) async fn get(
        &self,
        session: &SessionName,
        last_event_id: Option<&str>,
    ) -> Result<HttpReply, Broken> {
        self.send(Some(session), Ask::get().header_if("Last-Event-ID", last_event_id)).await
    }

    /// Ends a session.
    pub(crate) async fn delete(&self, session: &SessionName) -> Result<HttpReply, Broken> {
        self.send(Some(session), Ask::new("DELETE", "/mcp")).await
    }

    async fn send(&self, session: Option<&SessionName>, ask: Ask) -> Result<HttpReply, Broken> {
        let then = self.moment();
        let ask = named(ask, session);
        let mut refused = Broken::new(0, "there are no nodes");
        for node in self.balancer.order(session) {
            match NodeConnection::open(node, self.balancer.nodes[node]).await {
                Ok(connection) => return self.ask(connection, node, &ask, then).await,
                Err(broken) if self.lived_since(then, node) => return Err(broken),
                Err(broken) => refused = broken,
            }
        }
        Err(refused)
    }

    /// Asks one node, whatever the way of the other requests.
    pub(crate) async fn ask_node(
        &self,
        node: usize,
        session: Option<&SessionName>,
        ask: Ask,
    ) -> Result<HttpReply, Broken> {
        let then = self.moment();
        let connection = NodeConnection::open(node, self.balancer.nodes[node]).await?;
        self.ask(connection, node, &named(ask, session), then).await
    }

    async fn ask(
        &self,
        connection: NodeConnection,
        node: usize,
        ask: &Ask,
        then: Moment,
    ) -> Result<HttpReply, Broken> {
        let sent = Instant::now();
        let Ok(reply) = timeout(DEADLINE * 2, connection.ask(ask)).await else {
            let fault = CheckFault::new(FaultKind::Hangs, "a request got no answer at all");
            self.violation(&format!("node {node}"), fault);
            return Err(Broken { excused: true, ..Broken::new(node, "no answer") });
        };
        self.silence(&format!("node {node}"), node, then, sent);
        match reply {
            // Refused as HTTP, or as the answer to a request.
            Ok(HttpReply::Whole { status, body, .. })
                if (status == 503 || reason(&body) == "store_unavailable")
                    && self.is_cluster()
                    && !self.was_calm_since(then) =>
            {
                count(&self.tally.refused);
                Err(Broken { excused: true, ..Broken::new(node, body.to_string()) })
            }
            reply => reply,
        }
    }

    /// A client has waited since then for a sign of life from a node, and has got one now.
    pub(crate) fn silence(&self, who: &str, node: usize, then: Moment, since: Instant) {
        // A node that was paused or killed can say nothing.
        if !self.is_cluster() || !self.lived_since(then, node) {
            return;
        }
        let waited = since.elapsed();
        self.tally.waits.add(waited);
        let patience = Patience { troubles: self.troubles_since(since) };
        if let Err(fault) = patience.judge(waited) {
            self.violation(who, fault);
        }
    }
}

fn named(ask: Ask, session: Option<&SessionName>) -> Ask {
    ask.header_if("Mcp-Session-Id", session.map(|name| name.id.as_str()))
        .header_if("MCP-Protocol-Version", session.map(|name| name.revision))
}
