//! What is secret between a gateway and others stays so: a run with opaque tokens of callers, with every way to prove to a server
//! behind who is asking, and with refusals of both, and a search of all that it leaves behind.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tenure::config::{Config, Sources};
use tenure_auth::outgoing::ClientKey;
use tenure_testkit::token_server::FakeTokenServer;

use super::office::Office;
use super::secrets::{Secrets, files, records};
use super::watchers::Watchers;
use super::world::{Bearing, PUBLIC, now};
use crate::operator::place::digits;
use crate::support::modern;
use crate::support::node::demo_with;
use crate::support::session::initialize;
use crate::upstream_auth::recorder::{Recorder, refusal};

const INTROSPECTION_SECRET: &str = "the-secret-for-introspection";
const UPSTREAM_SECRET: &str = "the-secret-for-the-server-behind";

/// A gateway, and all that it talks to.
struct Behind {
    office: Office,
    recorder: Recorder,
    server: FakeTokenServer,
    folder: tempfile::TempDir,
    watchers: Watchers,
    _demo: tenure::Node,
}

impl Behind {
    /// Lines for `[upstream]`, in which `TOKEN_URL` is that of the token server and `FOLDER` has two private keys.
    async fn with(upstream: &str) -> Self {
        let demo = demo_with(&[]).await;
        let recorder = Recorder::before(demo.address()).await;
        let (server, folder) = (FakeTokenServer::start().await, tempfile::tempdir().unwrap());
        for name in ["client.pem", "identity.pem"] {
            std::fs::write(folder.path().join(name), ClientKey::generate_pem()).unwrap();
        }
        let path = folder.path().display().to_string();
        let watchers = Watchers::start().await;
        let upstream = upstream.replace("TOKEN_URL", &server.token_url()).replace("FOLDER", &path);
        let sections = format!(
            "[log]\nlevel = \"trace\"\n[audit]\nfile = \"{path}/audit.jsonl\"\n\
             [upstream]\nurl = \"{}\"\npatience = \"0s\"\n{upstream}{}",
            recorder.url("/mcp"),
            watchers.sections(),
        );
        let issuer = format!("client_id = \"tenure\"\nclient_secret = \"{INTROSPECTION_SECRET}\"\n");
        let office = Office::with_issuer("", &sections, &issuer).await;
        Self { office, recorder, server, folder, watchers, _demo: demo }
    }

    /// An opaque token that is good.
    fn opaque(&self, user: &str) -> String {
        let token = format!("opaque-token-of-{user}-0123456789");
        let answer = json!({
            "active": true, "iss": self.office.issuer.url, "sub": user, "aud": format!("{PUBLIC}/mcp"),
            "client_id": "app", "iat": now().0 - 5, "exp": now().0 + 600,
        });
        self.office.issuer.introspects(&token, answer);
        token
    }
}

fn echo() -> Value {
    json!({ "name": "public_echo", "arguments": { "text": "x" } })
}

#[tokio::test]
async fn au10_nor_is_what_a_gateway_shows_to_servers_behind_and_to_authorization_servers() {
    let (by_secret, by_key) = (
        format!(
            "token_url = \"TOKEN_URL\"\nclient_id = \"gateway\"\nclient_secret = \"{UPSTREAM_SECRET}\"\n"
        ),
        "token_url = \"TOKEN_URL\"\nclient_id = \"gateway\"\nclient_key = \"FOLDER/client.pem\"\n".to_owned(),
    );
    for (mode, settings, expected) in [
        ("fixed", String::new(), &["a header"][..]),
        ("client_credentials", by_secret.clone(), &["a token", "Basic"]),
        ("client_credentials", by_key, &["a token", "an assertion"]),
        ("token_exchange", by_secret, &["a token", "Basic"]),
    ] {
        let identity = "identity_key = \"FOLDER/identity.pem\"\n";
        let upstream = match mode {
            "fixed" => {
                format!("{identity}headers = [\"Authorization: Bearer fixed-for-the-server-behind\"]\n")
            }
            mode => format!("{identity}auth = \"{mode}\"\n{settings}"),
        };
        let mut behind = Behind::with(&upstream).await;
        let mut secrets = Secrets::default();
        for (what, secret) in [
            ("our secret at the issuer", INTROSPECTION_SECRET),
            ("our secret at the token server", UPSTREAM_SECRET),
            ("a header for the server behind", "fixed-for-the-server-behind"),
        ] {
            secrets.add(what, secret);
        }
        secrets.add("the proof at the issuer", &STANDARD.encode(format!("tenure:{INTROSPECTION_SECRET}")));
        secrets.add("the proof at the token server", &STANDARD.encode(format!("gateway:{UPSTREAM_SECRET}")));
        let (alice, unknown) = (behind.opaque("alice"), "opaque-token-of-nobody-0123456789");
        secrets.add("an opaque token", &alice);
        secrets.add("an unknown opaque token", unknown);

        let mut said = String::new();
        let office = &behind.office;
        let session = office.session(&alice).await;
        let call = |id| session.request(id, "tools/call", &echo()).bearer(&alice);
        assert!(office.send(call(1)).await.json()["result"].is_object(), "{mode}");
        let modern = modern::ask(2, "tools/call", &echo()).bearer(&alice);
        assert!(office.send(modern).await.json()["result"].is_object(), "{mode}");
        let refused = office.send(initialize("2025-11-25").bearer(unknown)).await;
        assert_eq!(refused.status(), 401);
        said += &format!("{refused:?} {}", refused.text());
        // The server behind refuses, in words of its own, and so does the token server when it is asked once more.
        behind
            .server
            .refuses(Some((401, json!({ "error": "invalid_client", "error_description": UPSTREAM_SECRET }))));
        behind.recorder.gate(|_| Some(refusal(401)));
        for ask in [call(3), modern::ask(4, "tools/list", &json!({})).bearer(&alice)] {
            let refused = office.send(ask).await;
            assert_eq!(refused.json()["error"]["data"]["reason"], "backend_unauthorized", "{refused:?}");
            said += &format!("{refused:?} {}", refused.text());
        }

        // What was shown to the others: tokens, proofs, signed words about callers, and the ids of our sessions there.
        let mut seen_kinds = vec![];
        for seen in behind.recorder.seen() {
            for (name, what) in [
                ("authorization", "a token for the server behind"),
                ("x-tenure-principal", "a signed word about the caller"),
                ("mcp-session-id", "the id of a session at the server behind"),
            ] {
                if let Some(value) = seen.header(name) {
                    secrets.add(what, value.rsplit(' ').next().unwrap());
                    seen_kinds.push(name);
                }
            }
        }
        for name in ["authorization", "x-tenure-principal", "mcp-session-id"] {
            assert!(seen_kinds.contains(&name), "{mode}: the server behind saw no {name}");
        }
        for asked in behind.server.asked() {
            let assertion = asked.field("client_assertion");
            if !assertion.is_empty() {
                secrets.token(assertion);
            }
            assert_eq!(asked.basic.is_some(), expected.contains(&"Basic"), "{mode}");
            assert_eq!(!assertion.is_empty(), expected.contains(&"an assertion"), "{mode}");
        }
        assert_eq!(behind.server.asked().is_empty(), !expected.contains(&"a token"), "{mode}");

        let keys = [digits(&session), "main".to_owned()];
        let mut watched = behind.watchers.viewed(office, &keys, &["corp:alice"], &mut secrets).await;
        watched.extend(behind.watchers.scraped().await);
        let folder = office.gateway.folder.path().to_owned();
        let config = folder.join("tenure.toml").display().to_string();
        for arguments in [
            &["sessions", "list", "--json"][..],
            &["calls", "--json"],
            &["usage", "--json"],
            &["principals", "show", "corp:alice", "--json"],
            &["config", "show", "--config", &config],
            &["config", "check", "--config", &config],
        ] {
            let told = office.command(arguments).await;
            assert_eq!(told.code, Some(0), "{arguments:?}: {}", told.err);
            said += &told.out;
            said += &told.err;
        }
        let file = std::fs::read_to_string(&config).unwrap();
        let sources = Sources { file: Some((config.clone().into(), file)), ..Sources::default() };
        said += &format!("{:?}", Config::load(&sources).expect("a configuration that can be used").0);

        assert_eq!(behind.office.gateway.stop().await.code(), Some(0));
        let log = behind.office.gateway.whole_log().await.join("\n");
        assert!(log.contains("credentials refused"), "the log is that of everything");
        secrets.search("the log", log.as_bytes());
        secrets.search("what was said", said.as_bytes());
        let posts = behind.watchers.collector.posts_about("public_echo").await;
        watched.extend(posts.into_iter().map(|post| ("what a collector gets".to_owned(), post)));
        for (place, seen) in &watched {
            secrets.search(place, seen);
        }
        let mut found = Vec::new();
        files(&folder.join("store"), &mut found);
        let audit = behind.folder.path().join("audit.jsonl");
        let recorded = std::fs::read_to_string(&audit).unwrap();
        assert_eq!(recorded.contains("token_exchanged"), mode == "token_exchange", "{mode}");
        found.push(audit);
        for file in &found {
            secrets.search(&file.display().to_string(), &std::fs::read(file).unwrap());
        }
        let records = records(&folder.join("store")).await;
        assert!(!records.is_empty());
        for (name, value) in &records {
            secrets.search(name, value);
        }
    }
}
