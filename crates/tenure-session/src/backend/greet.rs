//! Sends a new server the settings that the client made at the last one: its log level and its subscriptions.
//!
//! The log level goes first, because it decides what the server says about the rest. The subscriptions run side by side.
//! All share one deadline, because the client waits: a server that is silent costs one timeout, not one for each.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use tenure_protocol::params::LogLevel;
use tenure_protocol::{Method, RawJson, Reason, Reply, Request, RequestId, RpcError};
use tokio::time::{Instant, timeout_at};

/// Most requests that a server gets at once.
const AT_ONCE: usize = 32;

/// The settings of a client.
#[derive(Default, Debug)]
pub struct Greeting(Vec<(Method, RawJson)>);

impl Greeting {
    /// With the log level and these subscriptions.
    pub fn new<'a>(level: Option<LogLevel>, uris: impl IntoIterator<Item = &'a str>) -> Self {
        let mut greeting = Self::default();
        if let Some(level) = level {
            let params = RawJson::of(&serde_json::json!({ "level": level.as_str() }));
            greeting.add(Method::LoggingSetLevel, params);
        }
        for uri in uris {
            greeting.add(Method::ResourcesSubscribe, RawJson::of(&serde_json::json!({ "uri": uri })));
        }
        greeting
    }

    /// Adds a request.
    pub fn add(&mut self, method: Method, params: RawJson) {
        self.0.push((method, params));
    }

    /// Sends all requests, and waits until each is answered or the time is over. Returns the replies in the order of
    /// the requests; those that came too late are errors. `send` sends one request to the server.
    ///
    /// # Cancel safety
    /// Requests that were not answered are dropped.
    pub async fn send<R: Future<Output = Reply>>(
        self,
        within: Duration,
        send: impl Fn(Request) -> R,
    ) -> Vec<Reply> {
        let (began, deadline) = (Instant::now(), Instant::now() + within);
        let levels = self.0.iter().take_while(|(method, _)| *method == Method::LoggingSetLevel).count();
        let mut replies = self.0.into_iter().enumerate().map(|(number, (method, params))| {
            let id = RequestId::from_text(&format!("tenure-wake-{number}"));
            // A server that is silent about its log level may still take subscriptions.
            let deadline = if number < levels { began + within / 2 } else { deadline };
            let reply = send(Request { id, method, params: Some(params) });
            async move {
                let late = || Err(RpcError::of(Reason::TimedOut, "The server did not answer in time"));
                timeout_at(deadline, reply).await.unwrap_or_else(|_| late())
            }
        });
        let mut replied = Vec::new();
        for reply in replies.by_ref().take(levels) {
            replied.push(reply.await);
        }
        replied.extend(stream::iter(replies).buffered(AT_ONCE).collect::<Vec<_>>().await);
        replied
    }
}
