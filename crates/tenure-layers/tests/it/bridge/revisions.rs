//! Clients of older revisions in front of a server that knows only a later one.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_layers::revisions::Revisions;
use tenure_protocol::{Notification, RawJson, Reply, Revision, RpcError};
use tenure_session::Limits;
use tenure_session::backend::{Backend, Call, Link, Open, Opened};
use tenure_session::port::BoxFuture;
use tenure_store::memory::Memory;
use tenure_testkit::runtime;

/// A server that knows one revision, and answers every call with audio content.
#[derive(Clone, Copy)]
struct SingleRevisionServer(Revision);

impl Backend for SingleRevisionServer {
    fn open(&self, _: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let result = RawJson::of(&json!({
            "protocolVersion": self.0.as_str(),
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "late", "version": "1" },
        }));
        Box::pin(std::future::ready(Ok(Opened { link: Box::new(*self), result })))
    }
}

impl Link for SingleRevisionServer {
    fn call(&self, _: Call) -> BoxFuture<Reply> {
        let result = json!({ "content": [{ "type": "audio", "data": "UklGRg==", "mimeType": "audio/wav" }] });
        Box::pin(std::future::ready(Ok(RawJson::of(&result))))
    }

    fn notify(&self, _: Notification) {}

    fn close(&self) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }
}

/// The revision that a client is told, and the type of the content that it gets from a tool.
async fn served(server: Revision, client: &str) -> (String, Value) {
    let backend = Arc::new(Revisions::new(Arc::new(SingleRevisionServer(server))));
    let sessions = runtime::start(Arc::new(Memory::new()), backend, Limits::default());
    let session = runtime::session(&sessions, client).await;
    let call = runtime::request(1, "tools/call", &json!({ "name": "sing" }));
    let answer = runtime::json_of(runtime::send(&session, call).await.unwrap());
    (session.revision().to_string(), answer["result"]["content"][0]["type"].clone())
}

#[tokio::test]
async fn a_client_of_an_older_revision_gets_what_it_knows() {
    let table = [
        (Revision::V2025_11_25, "2024-11-05", "2024-11-05", "text"),
        (Revision::V2025_11_25, "2025-03-26", "2025-03-26", "audio"),
        (Revision::V2025_11_25, "2025-11-25", "2025-11-25", "audio"),
        (Revision::V2024_11_05, "2025-11-25", "2024-11-05", "audio"),
    ];
    for (server, client, revision, content) in table {
        assert_eq!(served(server, client).await, (revision.to_owned(), json!(content)), "{server} {client}");
    }
}
