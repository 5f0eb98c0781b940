//! The OpenAPI document and the server say the same.

use serde_json::{Value, json};

use super::world::{AsValue, World};
use crate::operator::place::digits;
use crate::support::client::Ask;

/// Fills in what is variable.
fn filled(path: &str, key: &str) -> String {
    path.replace("{key}", key).replace("{name}", "server").replace("{label}", "x-1")
}

#[tokio::test]
async fn every_path_of_the_document_answers_as_it_says() {
    let mut world = World::new().await;
    let (session, _link) = world.steered.session().await;
    let key = digits(&session);
    let document = world.read("openapi.json").await;
    assert_eq!(document["openapi"], "3.1.0");
    let mut answered = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let place = filled(path, &key);
            let is_stream = operation["responses"]["200"]["content"].get("text/event-stream").is_some();
            if is_stream {
                continue;
            }
            let ask = Ask::post("{}").at(&place).with_method(&method.to_uppercase()).without("Accept");
            let ask = if method == "get" { Ask::new("GET", &place) } else { ask };
            let response = world.at_socket(ask).await;
            let status = response.status();
            // Known, whatever it thinks of an empty body.
            assert!(!matches!(status, 405 | 500), "{method} {path}: {status}");
            let content = operation["responses"]["200"]["content"].as_object().unwrap();
            let kind = if status == 200 { content.keys().next().unwrap() } else { "application/json" };
            assert_eq!(response.header("content-type"), Some(kind), "{method} {path}");
            if kind != "application/json" {
                continue;
            }
            let body = response.value();
            if status == 200 {
                let schema = &operation["responses"]["200"]["content"]["application/json"]["schema"];
                if schema["$ref"] == "#/components/schemas/Rows" {
                    assert!(body["rows"].is_array(), "{method} {path}: {body}");
                }
                answered += 1;
            } else {
                let reasons =
                    document["components"]["schemas"]["Error"]["properties"]["reason"]["enum"].clone();
                assert!(reasons.as_array().unwrap().contains(&body["reason"]), "{method} {path}: {body}");
                assert!(body["message"].is_string(), "{method} {path}: {body}");
            }
            // Each member that it does not name fails.
            let unknown = match method.as_str() {
                "get" => Ask::new("GET", &format!("{place}?surprise=1")),
                method => Ask::post(r#"{"surprise":1}"#).at(&place).with_method(&method.to_uppercase()),
            };
            let refused = world.at_socket(unknown).await;
            assert_eq!(refused.status(), 400, "{method} {path}: {}", refused.text());
            assert!(refused.value()["message"].as_str().unwrap().contains("surprise"), "{}", refused.text());
            // And a method that it does not name.
            let other = world.at_socket(Ask::new("DELETE", &place)).await;
            assert_eq!(
                (other.status(), other.value()["reason"].clone()),
                (405, json!("method_not_allowed")),
                "{path}"
            );
        }
    }
    assert!(answered > 15, "{answered}");
}

#[tokio::test]
async fn the_document_names_each_operation_once() {
    let world = World::new().await;
    let document = world.read("openapi.json").await;
    let operations = document["paths"].as_object().unwrap().values();
    let mut names: Vec<Value> = operations
        .flat_map(|methods| methods.as_object().unwrap().values())
        .map(|operation| operation["operationId"].clone())
        .collect();
    let count = names.len();
    names.sort_by_key(ToString::to_string);
    names.dedup();
    assert_eq!(names.len(), count);
}
