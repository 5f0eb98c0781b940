//! What is secret stays so: a run that uses every kind of credential and id, and a search of all that it leaves behind.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tenure_testkit::issuer::SigningKey;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use super::office::Office;
use super::secrets::{Secrets, files, records};
use super::watchers::Watchers;
use super::world::{Bearing, PUBLIC, now};
use crate::operator::place::digits;
use crate::support::client::{Ask, Response, connect};
use crate::support::modern;
use crate::support::session::{initialize, initialize_params, request};
use crate::support::wait::within;

fn hash(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(text))
}

/// A token that is bound to a key, and the proof of a request with it.
fn bound(office: &Office, key: &SigningKey) -> (String, String) {
    let jwk = key.jwk();
    let member = |name: &str| jwk[name].as_str().unwrap().to_owned();
    let thumbprint =
        hash(&format!(r#"{{"crv":"P-256","kty":"EC","x":"{}","y":"{}"}}"#, member("x"), member("y")));
    let claims = json!({
        "iss": office.issuer.url, "sub": "dora", "aud": format!("{PUBLIC}/mcp"), "client_id": "app", "scope": "mcp:use",
        "iat": now().0 - 5, "exp": now().0 + 600, "cnf": { "jkt": thumbprint },
    });
    let token = office.issuer.token(&claims);
    let proof = json!({
        "jti": "0123456789", "htm": "POST", "htu": format!("{PUBLIC}/mcp"), "iat": now().0, "ath": hash(&token),
    });
    let proof = key.sign(&json!({ "alg": "ES256", "typ": "dpop+jwt", "jwk": jwk }), &proof);
    (token, proof)
}

fn text_of(response: &Response) -> String {
    format!("{response:?} {}", response.text())
}

#[tokio::test]
async fn au10_no_credential_cookie_or_id_is_where_operators_or_strangers_look() {
    let audit = tempfile::tempdir().unwrap();
    let audit_file = audit.path().join("audit.jsonl");
    let audited = format!(
        "[limits]\nprincipal = \"1000/s\"\n[audit]\nfile = \"{}\"\ndurability = \"required\"\n",
        audit_file.display()
    );
    let sections = "[log]\nlevel = \"trace\"\n[tasks]\nafter = \"300ms\"\n[exchanges]\nstream_after = \"50ms\"\n\
         [doors]\nsse = true\nrpc = true\npost_sse = true\nmcp_sse = true\nwebsocket = true\n";
    let rules = "dpop = true\nscopes = [\"* = mcp:use\", \"notebook_append = notes:write\"]\n";
    let watchers = Watchers::start().await;
    let sections = format!("{sections}{audited}{}", watchers.sections());
    let mut office = Office::with(rules, &sections).await;
    let (mut secrets, mut refusals) = (Secrets::default(), Vec::new());
    let token = |user: &str, scope: &str| {
        let claims = json!({
            "iss": office.issuer.url, "sub": user, "aud": format!("{PUBLIC}/mcp"), "client_id": "app", "scope": scope,
            "iat": now().0 - 5, "exp": now().0 + 600,
        });
        office.issuer.token(&claims)
    };
    let (alice, bob) = (token("alice", "mcp:use"), token("bob", "mcp:use"));
    let key = office.key("ci").await;
    let client_key = SigningKey::es256("client");
    let (bound, proof) = bound(&office, &client_key);
    for token in [&alice, &bob, &bound, &proof] {
        secrets.token(token);
    }
    secrets.add("a static key", &key[4..]);

    // Sessions at every door.
    let session = office.session(&alice).await;
    secrets.add("a session id", &session.id);
    let ask = |id: u64, method: &str, params: Value| session.request(id, method, &params).bearer(&alice);
    assert_eq!(office.send(ask(1, "tools/list", json!({}))).await.status(), 200);
    let made = office
        .send(ask(2, "tools/call", json!({ "name": "create_workspace", "arguments": {} })))
        .await
        .json();
    secrets.add("a handle", made["result"]["structuredContent"]["workspace_id"].as_str().unwrap());
    let long = json!({ "name": "long_task", "arguments": { "seconds": 3600, "interval_ms": 50 }, "_meta": { "progressToken": 1 } });
    let mut call = ask(3, "tools/call", long.clone()).open(office.gateway.address).await;
    call.message().await.expect("progress");
    let rpc = office.send(initialize("2025-11-25").at("/rpc").header("X-API-Key", &key)).await;
    secrets.add("a session id of /rpc", rpc.header("mcp-session-id").expect("an id"));
    let mut sse = Ask::new("GET", "/sse")
        .header("Accept", "text/event-stream")
        .bearer(&bob)
        .open(office.gateway.address)
        .await;
    secrets.add("a session id of /sse", sse.header("mcp-session-id").expect("an id"));
    let address = sse.event().await.unwrap().data.expect("an address");
    secrets.add("an address of /messages", address.split_once('=').unwrap().1);
    let first = request(0, "initialize", &initialize_params("2024-11-05")).to_string();
    assert_eq!(
        office.send(Ask::post_to(&address, &first).without("Accept").bearer(&bob)).await.status(),
        202
    );
    sse.message().await.expect("an answer");
    let mut upgrade = format!("ws://{}/ws", office.gateway.address).into_client_request().unwrap();
    upgrade.headers_mut().insert("authorization", format!("Bearer {alice}").parse().unwrap());
    let stream = connect(office.gateway.address).await;
    let (mut socket, shake) =
        within("a handshake", tokio_tungstenite::client_async(upgrade, stream)).await.unwrap();
    secrets.add("a session id of /ws", shake.headers()["mcp-session-id"].to_str().unwrap());
    socket
        .send(Message::text(request(0, "initialize", &initialize_params("2025-11-25")).to_string()))
        .await
        .unwrap();
    within("an answer", socket.next()).await.unwrap().unwrap();
    let proven =
        initialize("2025-11-25").header("Authorization", &format!("DPoP {bound}")).header("DPoP", &proof);
    let proven = office.send(proven).await;
    secrets.add("a session id with a bound token", proven.header("mcp-session-id").expect("an id"));

    // Without sessions.
    let mut listening = modern::ask(
        4,
        "subscriptions/listen",
        &json!({ "notifications": { "resourceSubscriptions": ["demo://visitors"] } }),
    )
    .bearer(&alice)
    .open(office.gateway.address)
    .await;
    listening.message().await.expect("an acknowledgement");
    secrets.add("the event id of a listen", &listening.last_id());
    let with = |capabilities: Value, name: &str, arguments: Value| {
        let mut params = modern::with_meta(&json!({ "name": name, "arguments": arguments }));
        let known = params["_meta"]["io.modelcontextprotocol/clientCapabilities"].as_object_mut().unwrap();
        known.extend(capabilities.as_object().unwrap().clone());
        let body = request(5, "tools/call", &params).to_string();
        let ask =
            Ask::post(body).header("MCP-Protocol-Version", "2026-07-28").header("Mcp-Method", "tools/call");
        ask.header("Mcp-Name", name).bearer(&alice)
    };
    let asked = office.send(with(json!({ "elicitation": { "form": {} } }), "ask_name", json!({}))).await;
    let asked = asked.text();
    let state = asked.split_once("\"requestState\":\"").unwrap_or_else(|| panic!("no state: {asked}")).1;
    secrets.add("the state of a request", state.split_once('"').unwrap().0);
    let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let grown = office
        .send(
            with(tasks, "long_task", json!({ "seconds": 3600, "interval_ms": 500 }))
                .without("Accept")
                .header("Accept", "application/json"),
        )
        .await
        .text();
    let task = grown.split_once("\"taskId\":\"").unwrap_or_else(|| panic!("no task: {grown}")).1;
    secrets.add("a task id", task.split_once('"').unwrap().0);
    let made =
        office.send(modern::ask(6, "dev.tenure/session/create", &json!({})).bearer(&alice)).await.text();
    let cookie = made
        .split_once("\"sessionId\":\"")
        .or_else(|| made.split_once("\"id\":\""))
        .unwrap_or_else(|| panic!("no cookie: {made}"))
        .1;
    secrets.add("a cookie", cookie.split_once('"').unwrap().0);

    // What is refused.
    let foreign = SigningKey::es256("first")
        .sign(&json!({ "alg": "ES256", "kid": "first" }), &json!({ "iss": office.issuer.url, "sub": "eve" }));
    secrets.token(&foreign);
    let wrong_key = format!("tnr_{}", "Zx9".repeat(16));
    secrets.add("a wrong key", &wrong_key[4..]);
    secrets.add("an opaque token", "opaque-0123456789abcdefghij");
    secrets.add("a password", "QWxhZGRpbjpvcGVuc2VzYW1l");
    let bare = || initialize("2025-11-25");
    for refused in [
        bare().bearer(&foreign),
        bare().bearer(&wrong_key),
        bare().bearer("opaque-0123456789abcdefghij"),
        bare().header("Authorization", "Basic QWxhZGRpbjpvcGVuc2VzYW1l"),
        bare().at(&format!("/mcp?access_token={alice}")),
        bare().bearer(&alice).header("X-API-Key", &key),
        bare().header("Authorization", &format!("DPoP {bound}")).header("DPoP", &proof),
        bare().bearer(&bound),
        session.request(7, "ping", &json!({})).bearer(&bob),
        session.get().bearer(&bob),
        session.delete().bearer(&bob),
        ask(8, "tools/call", json!({ "name": "notebook_append", "arguments": { "text": "x" } })),
        Ask::post_to(&address, "{}").without("Accept").bearer(&alice),
    ] {
        let response = office.send(refused).await;
        assert!(response.status() >= 400, "{response:?}");
        refusals.push(text_of(&response));
    }

    // All that is there to be seen, before some of it is revoked.
    let mut keys = vec![digits(&session), "server".to_owned(), "main".to_owned()];
    let listed = office.told(&["sessions", "data", "list", "--json"]).await;
    let listed = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    keys.extend(listed.map(|row| row["key"].as_str().unwrap().to_owned()));
    let mut watched =
        watchers.viewed(&office, &keys, &["corp:alice", "key:ci", "anonymous"], &mut secrets).await;
    watched.extend(watchers.scraped().await);
    // Operators.
    let mut told = Vec::new();
    for arguments in [
        &["sessions", "list"][..],
        &["sessions", "list", "--json"],
        &["sessions", "data", "list"],
        &["sessions", "data", "list", "--json"],
        &["calls"],
        &["calls", "--json"],
        &["usage", "--json"],
        &["limits", "show", "--json"],
        &["audit", "show", "--json", &audit_file.display().to_string()],
        &["principals", "list", "--json"],
        &["principals", "show", "corp:alice"],
        &["principals", "show", "corp:alice", "--json"],
        &["principals", "revoke", "corp:bob", "--json"],
    ] {
        let said = office.command(arguments).await;
        assert_eq!(said.code, Some(0), "{arguments:?}: {}", said.err);
        told.push((arguments.join(" "), said.out + &said.err));
    }
    let label = tenure_session::SessionId::parse(session.id.as_bytes()).unwrap().key().label();
    for arguments in [&["sessions", "show", &label][..], &["sessions", "revoke", &label]] {
        let said = office.command(arguments).await;
        assert_eq!(said.code, Some(0), "{arguments:?}: {}", said.err);
        told.push((arguments.join(" "), said.out + &said.err));
    }
    let keys = office.key_file().path().display().to_string();
    told.push(("keys list".to_owned(), office.told(&["keys", "list", "--file", &keys]).await));
    drop((call, sse, socket, listening));
    assert_eq!(office.gateway.stop().await.code(), Some(0));

    let log = office.gateway.whole_log().await.join("\n");
    assert!(log.contains("credentials refused"), "the log is that of everything");
    let posts = watchers.collector.posts_about("create_workspace").await;
    watched.extend(posts.into_iter().map(|post| ("what a collector gets".to_owned(), post)));
    let has_access_lines = log.contains("\"target\":\"access\"") || log.contains("INFO access:");
    assert!(has_access_lines, "and has a line for each request");
    secrets.search("the log", log.as_bytes());
    for (command, said) in &told {
        assert!(!said.is_empty(), "{command} says nothing");
        secrets.search(command, said.as_bytes());
    }
    for (place, seen) in &watched {
        secrets.search(place, seen);
    }
    for refusal in &refusals {
        secrets.search("a refusal", refusal.as_bytes());
    }
    // The store has what clients were told, and for that they may come back with their own credentials: results of tools, and
    // the names of data sessions that belong to a principal.
    let contents = ["a handle", "a cookie"];
    let folder = office.gateway.folder.path().join("store");
    let mut found = Vec::new();
    files(&folder, &mut found);
    files(office.keys.path(), &mut found);
    files(audit.path(), &mut found);
    assert!(found.len() > 3, "{found:?}");
    let recorded = std::fs::read_to_string(&audit_file).unwrap();
    assert!(recorded.contains("create_workspace"), "calls were recorded: {recorded}");
    secrets.search("the audit log", recorded.as_bytes());
    for file in &found {
        let bytes = std::fs::read(file).unwrap();
        secrets.search_but(&file.display().to_string(), &bytes, &contents);
    }
    let mut count = 0;
    for (name, value) in records(&folder).await {
        count += 1;
        secrets.search_but(&name, &value, &contents);
    }
    assert!(count > 5, "{count}");
}
