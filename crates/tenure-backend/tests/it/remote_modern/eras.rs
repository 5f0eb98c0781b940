//! The verdicts about servers of either era, when they are probed in both eras.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenure_backend::remote::{RemoteBackend, Upstream};
use tenure_protocol::revision::MODERN;
use tenure_protocol::translate::evidence::Verdict;
use tenure_protocol::{RawJson, Revision, RpcError};
use tenure_session::Route;
use tenure_session::backend::probe::{self, Probe};
use tenure_session::backend::{Backend, Open, Opened, Opening};
use tenure_session::call::{Client, Fanout, Outlet};

use super::{client, responder, soon};
use crate::raw::{self, Answer, Asked, Raw};

/// What a server says in either era.
async fn verdicts(answer: fn(&Asked) -> Answer) -> (Verdict, Verdict) {
    let server = Raw::start(move |_, asked| answer(asked)).await;
    let asked = client();
    let attempt = soon(responder(&server.url).probe(asked.call(1, "server/discover", json!({})))).await;
    let opened = opened(&server.url).await;
    (attempt.verdict(MODERN), probe::opening(&opened))
}

async fn opened(url: &str) -> Result<Opened, RpcError> {
    let client: Arc<dyn Client> = client();
    let open = Open {
        params: RawJson::of(
            &json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}),
        ),
        revision: Revision::LATEST,
        opening: Opening::Fresh,
        route: Route::MAIN,
        outlet: Outlet::to(&client),
        fanout: Fanout::new(Route::MAIN),
    };
    let upstream = Upstream { patience: Duration::ZERO, ..Upstream::new(url) };
    soon(RemoteBackend::new(&upstream).unwrap().open(open)).await
}

fn is_initialize(asked: &Asked) -> bool {
    asked.body["method"] == "initialize"
}

fn discovered(asked: &Asked) -> Answer {
    raw::result(asked, &json!({"resultType": "complete", "supportedVersions": [MODERN], "capabilities": {}}))
}

fn introduced(asked: &Asked) -> Answer {
    raw::result(
        asked,
        &json!({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}),
    )
}

#[tokio::test]
async fn servers_tell_their_era() {
    type Row = (&'static str, fn(&Asked) -> Answer, (Verdict, Verdict));
    let table: [Row; 9] = [
        (
            "of both",
            |asked| if is_initialize(asked) { introduced(asked) } else { discovered(asked) },
            (Verdict::Yes, Verdict::Yes),
        ),
        (
            "modern, and says what it serves",
            |asked| match is_initialize(asked) {
                true => raw::error(
                    "400 Bad Request",
                    asked,
                    &json!({"code": -32022, "message": "m", "data": {"supported": [MODERN], "requested": "2025-11-25"}}),
                ),
                false => discovered(asked),
            },
            (Verdict::Yes, Verdict::No),
        ),
        (
            "modern, and does not know initialize",
            |asked| match is_initialize(asked) {
                true => raw::error("404 Not Found", asked, &json!({"code": -32601, "message": "m"})),
                false => discovered(asked),
            },
            (Verdict::Yes, Verdict::No),
        ),
        (
            "legacy, and wants a session",
            |asked| match is_initialize(asked) {
                true => introduced(asked),
                false => raw::error(
                    "400 Bad Request",
                    asked,
                    &json!({"code": -32000, "message": "No valid session ID"}),
                ),
            },
            (Verdict::No, Verdict::Yes),
        ),
        (
            "legacy, and says nothing that is JSON",
            |asked| match is_initialize(asked) {
                true => introduced(asked),
                false => raw::whole("404 Not Found", "text/plain", "no such session"),
            },
            (Verdict::No, Verdict::Yes),
        ),
        (
            "does not let us in",
            |asked| raw::error("401 Unauthorized", asked, &json!({"code": -32600, "message": "who?"})),
            (Verdict::Unknown, Verdict::Unknown),
        ),
        (
            "is ill",
            |_| raw::whole("503 Service Unavailable", "text/plain", ""),
            (Verdict::Unknown, Verdict::Unknown),
        ),
        ("breaks off", |_| Answer::Bytes(String::new()), (Verdict::Unknown, Verdict::Unknown)),
        ("breaks off a stream", |_| Answer::Bytes(raw::stream(&[])), (Verdict::Unknown, Verdict::Unknown)),
    ];
    for (name, answer, expected) in table {
        assert_eq!(verdicts(answer).await, expected, "a server that is {name}");
    }
}

#[tokio::test]
async fn a_refusal_of_initialize_keeps_what_the_server_said() {
    let data = json!({"supported": [MODERN], "requested": "2025-11-25"});
    let said = json!({"code": -32022, "message": "not here", "data": data});
    let kept = said.clone();
    let server = Raw::start(move |_, asked| match asked.header("mcp-method") {
        None if asked.body["method"] == "initialize" => raw::error("404 Not Found", asked, &said),
        _ => raw::whole("405 Method Not Allowed", "text/plain", ""),
    })
    .await;
    let refused = opened(&server.url).await.unwrap_err();
    assert_eq!(refused.raw().read::<serde_json::Value>().unwrap(), kept);

    let server = Raw::start(|_, _| raw::whole("403 Forbidden", "text/plain", "")).await;
    let refused = opened(&server.url).await.unwrap_err();
    let refused: serde_json::Value = refused.raw().read().unwrap();
    let reason = &refused["data"]["reason"];
    assert_eq!((&refused["code"], reason), (&json!(-31011), &json!("backend_unauthorized")));
}
