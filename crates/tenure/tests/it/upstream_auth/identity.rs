//! A signed word about who is calling, and the names in the environment of a process of its own.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tenure::Node;
use tenure::config::{Config, Sources};
use tenure_auth::outgoing::ClientKey;
use tenure_testkit::issuer::{FakeIssuer, SigningKey};

use super::world::{World, echo, session, token};
use crate::auth::world::{Bearing, PUBLIC};
use crate::support::modern;

fn claims(jwt: &str) -> Value {
    let part = jwt.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

#[tokio::test]
async fn a_server_gets_a_signed_word_about_the_caller_of_each_request() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("identity.pem");
    std::fs::write(&file, ClientKey::generate_pem()).unwrap();
    let world = World::with(&format!("identity_key = \"{}\"\n", file.display())).await;
    let (ann, bob) = (world.token("ann"), world.token("bob"));
    let of_ann = world.session(&ann).await;
    world.send(echo(&of_ann, 1, "hi").bearer(&ann)).await;
    world.send(modern::ask(2, "tools/list", &json!({})).bearer(&bob)).await;
    let words = world.seen_values("x-tenure-principal");
    assert!(!words.contains(&"-".to_owned()), "{words:?}");
    let mut names = Vec::new();
    for word in &words {
        let claims = claims(word);
        assert_eq!(claims["aud"], world.recorder.url("/mcp"));
        assert_eq!((&claims["iss"], &claims["client_id"]), (&json!(PUBLIC), &json!("app")));
        assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), 60);
        names.push(claims["sub"].as_str().unwrap().to_owned());
    }
    names.sort();
    names.dedup();
    assert_eq!(names, ["corp:ann", "corp:bob"]);
    assert_eq!(world.seen_values("authorization"), ["-"]);
}

/// A server that says who its process was started for.
const WHO: &str = r#"
import json, os, sys
who = [os.environ.get(name) for name in ("TENURE_PRINCIPAL", "TENURE_CLIENT", "TENURE_STORE")]
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "who", "version": "1"}}
    elif "id" in asked:
        result = {"content": [{"type": "text", "text": json.dumps([who, os.getpid()])}]}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"#;

async fn in_front_of_a_child(issuer: &FakeIssuer, lines: &str) -> Node {
    let file = format!(
        "store = \"memory:\"\nlisten = \"127.0.0.1:0\"\n[streams]\njson_wait = \"0s\"\n\
         [[issuer]]\nname = \"corp\"\nurl = \"{}\"\n[auth]\npublic_url = \"{PUBLIC}\"\n\
         [child]\ncommand = [\"python3\", \"-c\", {}]\n{lines}",
        issuer.url,
        json!(WHO),
    );
    let sources = Sources { file: Some(("tenure.toml".into(), file)), ..Sources::default() };
    let config = Config::load(&sources).expect("a configuration that can be used").0;
    Node::start(&config).await.expect("a node")
}

fn said(answer: &Value) -> Value {
    let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
    serde_json::from_str(text).unwrap()
}

#[tokio::test]
async fn a_process_of_its_own_is_told_whose_it_is() {
    let issuer = FakeIssuer::start(SigningKey::es256("first")).await;
    let node = in_front_of_a_child(&issuer, "identity = true\n").await;
    let mut processes = Vec::new();
    for user in ["ann", "bob"] {
        let bearer = token(&issuer, user, &json!({}));
        let owner = session(node.address(), &bearer).await;
        let answer = echo(&owner, 1, "hi").bearer(&bearer).send(node.address()).await.json();
        let said = said(&answer);
        assert_eq!(said[0], json!([format!("corp:{user}"), "app", null]));
        processes.push(said[1].clone());
    }
    assert_ne!(processes[0], processes[1]);
    // A request without a session is answered by a process of its caller too.
    let bearer = token(&issuer, "eve", &json!({}));
    let call = modern::ask(1, "tools/call", &json!({"name": "x", "arguments": {}})).bearer(&bearer);
    let answer = call.send(node.address()).await.json();
    assert_eq!(said(&answer)[0], json!(["corp:eve", "app", null]));
}

#[tokio::test]
async fn a_process_is_told_nothing_unless_it_is_wanted_and_never_if_it_is_shared() {
    let issuer = FakeIssuer::start(SigningKey::es256("first")).await;
    for lines in ["", "share = true\n"] {
        let node = in_front_of_a_child(&issuer, lines).await;
        let bearer = token(&issuer, "ann", &json!({}));
        let owner = session(node.address(), &bearer).await;
        let answer = echo(&owner, 1, "hi").bearer(&bearer).send(node.address()).await.json();
        assert_eq!(said(&answer)[0], json!([null, null, null]), "{lines}");
    }
}
