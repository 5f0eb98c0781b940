//! Where the port listens, and how it is opened.

use serde_json::Value;
use tenure::Node;

use super::world::in_memory;
use crate::cli::process::{Server, finish, tenure};
use crate::operator::place::{Place, stop};
use crate::support::client::Ask;

/// What a configuration with these settings is refused with.
async fn refused(settings: &[&str]) -> String {
    let flags = settings.iter().flat_map(|setting| ["--set", setting]);
    let arguments: Vec<&str> = ["config", "check"].into_iter().chain(flags).collect();
    let said = finish(tenure(&arguments)).await;
    assert_eq!(said.code, Some(1), "{settings:?}: {}", said.out);
    said.err
}

#[tokio::test]
async fn other_machines_get_in_over_tls_with_credentials_alone() {
    let mut texts = String::new();
    for settings in [
        &["admin.listen=192.0.2.1:8485"][..],
        &["admin.listen=192.0.2.1:8485", "tls.cert=/c", "tls.key=/k"],
        &["admin.listen=0.0.0.0:8485", "tls.cert=/c", "tls.key=/k", "admin.keys_file=/o"],
        &["admin.listen=192.0.2.1:8485", "tls.cert=/c", "tls.key=/k", "admin.scope=ops"],
        &["admin.listen=everywhere"],
    ] {
        texts.push_str(&format!("# {}\n{}\n", settings.join(" "), refused(settings).await));
    }
    expect_test::expect_file!["snapshots/refused.txt"].assert_eq(&texts);
}

#[tokio::test]
async fn an_embedder_is_refused_the_same() {
    let mut config = in_memory(&[]);
    config.admin.listen = Some("192.0.2.1:8485".parse().unwrap());
    let failure = Node::start(&config).await.unwrap_err().to_string();
    assert!(failure.contains("there is no TLS"), "{failure}");
}

#[tokio::test]
async fn without_the_setting_there_is_no_port_and_a_hint_says_how_to_get_one() {
    let place = Place::new();
    let server = place.serve().await;
    expect_test::expect_file!["snapshots/no_page.txt"].assert_eq(&place.refused(&["admin", "open"]).await);
    stop(server).await;
    expect_test::expect_file!["snapshots/no_server.txt"].assert_eq(&place.refused(&["admin", "open"]).await);
}

#[tokio::test]
async fn the_command_prints_a_link_that_logs_in() {
    let place = Place::new();
    let server = place.serve_with(&["--admin=127.0.0.1:0"]).await;
    let printed = place.told(&["admin", "open", "--no-browser", "--role", "viewer"]).await;
    let (url, code) = printed.trim().split_once("/login#").unwrap();
    let admin = url.strip_prefix("http://").unwrap().parse().unwrap();
    let body = serde_json::json!({ "code": code }).to_string();
    let ask = super::world::from_page(admin, Ask::post(body).at("/login"));
    assert_eq!(ask.send(admin).await.status(), 204);
    let link: Value = serde_json::from_str(&place.told(&["admin", "open", "--json"]).await).unwrap();
    assert!(link["url"].as_str().unwrap().starts_with(url), "{link}");
    stop(server).await;
}

#[tokio::test]
async fn a_server_in_memory_has_a_page_too() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join("run")).unwrap();
    let command = |arguments: &[&str]| {
        let mut command = tenure(arguments);
        command.env("XDG_RUNTIME_DIR", home.path().join("run")).env("HOME", home.path());
        command.env("XDG_DATA_HOME", home.path().join("data"));
        command
    };
    let server = Server::of(command(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--store",
        "memory:",
        "--admin=127.0.0.1:0",
    ]))
    .await;
    let said = finish(command(&["admin", "open", "--no-browser"])).await;
    assert!(said.out.contains("/login#"), "{}", said.err);
    stop(server).await;
}

#[tokio::test]
async fn a_deploy_takes_the_port_over() {
    let place = Place::new();
    let first = place.serve_with(&["--admin=127.0.0.1:0"]).await;
    let link: Value = serde_json::from_str(&place.told(&["admin", "open", "--json"]).await).unwrap();
    let admin = link["url"].as_str().unwrap().strip_prefix("http://").unwrap();
    let admin = admin.split('/').next().unwrap().to_owned();
    let second = place.serve_with(&["--take-over", &format!("--admin={admin}")]).await;
    let (status, _, logs) = first.ended().await;
    assert_eq!(status.code(), Some(0), "{logs}");
    let address: std::net::SocketAddr = admin.parse().unwrap();
    // The next process has the port as soon as the first one has given it up.
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    while tokio::net::TcpStream::connect(address).await.is_err() {
        assert!(tokio::time::Instant::now() < deadline, "nobody listens at {address}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let response = Ask::new("GET", "/").header("Host", &admin).send(address).await;
    assert_eq!(response.status(), 200);
    stop(second).await;
}

#[tokio::test]
async fn ad7_a_page_goes_on_after_the_server_was_killed() {
    let place = Place::new();
    let first = place.serve_with(&["--admin=127.0.0.1:0"]).await;
    let link: Value = serde_json::from_str(&place.told(&["admin", "open", "--json"]).await).unwrap();
    let (url, code) = link["url"].as_str().unwrap().split_once("/login#").unwrap();
    let admin: std::net::SocketAddr = url.strip_prefix("http://").unwrap().parse().unwrap();
    let body = serde_json::json!({ "code": code }).to_string();
    let response = super::world::from_page(admin, Ask::post(body).at("/login")).send(admin).await;
    let cookie = response.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    crate::operator::place::kill(first).await;
    let second = place.serve_with(&[&format!("--admin={admin}")]).await;
    let ask = Ask::new("GET", "/api/v1/me").header("Host", &admin.to_string()).header("Cookie", &cookie);
    let response = ask.send(admin).await;
    assert_eq!(response.status(), 200, "{}", response.text());
    stop(second).await;
}
