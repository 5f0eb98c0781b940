//! Callers without good credentials at the port: they hold little of it, are soon refused, and are recorded.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use tenure_auth::UnixSeconds;
use tenure_auth::keys::{ApiKeyFile, NewKey};
use tenure_auth::scope::ScopeSet;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

use super::world::{AsValue, Browser, World, refusal};
use crate::support::client::Ask;
use crate::support::wait::within;

/// More connections than the port serves at once.
const CROWD: usize = 200;

/// A node that knows one key of operators, and the key.
async fn with_key(settings: &[(&str, &str)]) -> (World, TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("operators.toml");
    let scopes = ScopeSet::parse("admin:viewer").unwrap();
    let new = NewKey { name: "watch".to_owned(), scopes, ..NewKey::default() };
    let secret = ApiKeyFile::at(&path).add(new, UnixSeconds(1)).unwrap().expose().to_owned();
    let path = path.display().to_string();
    let world = World::with(&[&[("admin.keys_file", path.as_str())], settings].concat()).await;
    (world, folder, secret)
}

fn by(admin: SocketAddr, secret: &str) -> Ask {
    Ask::new("GET", "/api/v1/me")
        .header("Host", &admin.to_string())
        .header("Authorization", &format!("Bearer {secret}"))
}

/// A connection whose receive buffer is small, so that what is not read soon waits at the server.
async fn narrow(admin: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    within("connect", socket.connect(admin)).await.unwrap()
}

/// Requests for the largest file of the page, which come to megabytes of answers.
async fn asks_much(browser: &Browser) -> Vec<u8> {
    let get = |path: &str| Ask::new("GET", path).header("Host", &browser.admin.to_string());
    let text = get("/").send(browser.admin).await.text();
    let mut largest = (0, String::new());
    for file in text.split('"').filter(|word| word.starts_with("/assets/")) {
        let bytes = get(file).send(browser.admin).await.body.len();
        largest = largest.max((bytes, file.to_owned()));
    }
    let ask = get(&largest.1).header("Cookie", &browser.cookie).bytes();
    ask.repeat((8 << 20) / largest.0)
}

#[tokio::test]
async fn strangers_that_read_nothing_keep_no_operator_out() {
    let world = World::with(&[("http.stall_timeout", "1h")]).await;
    let browser = world.browser("viewer").await;
    let anybody = Browser { admin: world.admin, cookie: "tenure-1=no".to_owned() };
    let requests = asks_much(&anybody).await;
    let mut held = Vec::new();
    for number in 0..CROWD {
        let mut stream = narrow(world.admin).await;
        // Half of them do not even finish the head of a request.
        let sent = if number % 2 == 0 { &requests[..] } else { b"G" };
        // It may be refused already, and whatever of it the server does not read stays with us.
        let _ = tokio::time::timeout(Duration::from_millis(5), stream.write_all(sent)).await;
        held.push(stream);
    }
    assert_eq!(browser.read("me").await["via"], "link");
    let another = world.browser("viewer").await;
    assert_eq!(another.read("me").await["via"], "link");
    drop(held);
}

#[tokio::test]
async fn an_operator_that_reads_nothing_is_let_go() {
    let world = World::with(&[("http.stall_timeout", "500ms")]).await;
    let browser = world.browser("viewer").await;
    let requests = asks_much(&browser).await;
    let mut stream = narrow(world.admin).await;
    // A connection that is closed with unread bytes in it is reset, which a write finds out.
    let closed = async { while stream.write_all(&requests).await.is_ok() {} };
    within("the connection is closed", closed).await;
}

#[tokio::test]
async fn bad_credentials_are_counted_on_loopback_too_and_good_ones_always_pass() {
    let (world, _folder, secret) = with_key(&[]).await;
    let wrong = |number: usize| by(world.admin, &format!("tnr_wrong{number}"));
    for number in 0..10 {
        let response = wrong(number).send(world.admin).await;
        assert_eq!(refusal(&response), (401, "unauthorized".into()), "{number}");
    }
    for number in 10..15 {
        let response = wrong(number).send(world.admin).await;
        assert_eq!(refusal(&response), (429, "rate_limited".into()), "{number}");
        assert!(response.header("retry-after").is_some_and(|after| after.parse::<u64>().is_ok()));
    }
    // Codes and cookies are credentials too.
    assert_eq!(refusal(&world.log_in("guess").send(world.admin).await), (429, "rate_limited".into()));
    let cookie = format!("tenure-{}=guess", world.admin.port());
    let guess = Browser { admin: world.admin, cookie };
    assert_eq!(refusal(&guess.get("me").send(world.admin).await), (429, "rate_limited".into()));
    assert_eq!(by(world.admin, &secret).send(world.admin).await.status(), 200);
    assert_eq!(world.browser("viewer").await.read("me").await["via"], "link");
    // No credentials are no bad ones: a page begins without.
    let none = Ask::new("GET", "/api/v1/me").header("Host", &world.admin.to_string());
    assert_eq!(none.send(world.admin).await.status(), 401);
    let records = world.records("refused").await;
    let gist: Vec<_> = records
        .iter()
        .map(|record| {
            format!("{} {} {} {}", record["code"], record["reason"], record["name"], record["remote"])
        })
        .collect();
    let mut expected = vec![r#"401 "unauthorized" "key or token" "127.0.0.1""#; 10];
    expected.extend([r#"429 "rate_limited" "key or token" "127.0.0.1""#; 5]);
    expected.push(r#"429 "rate_limited" "code" "127.0.0.1""#);
    expected.push(r#"429 "rate_limited" "cookie" "127.0.0.1""#);
    expected.push(r#"401 "unauthorized" null "127.0.0.1""#);
    assert_eq!(gist, expected);
    assert!(records.iter().all(|record| record["method"] == "admin"), "{records:?}");
}

#[tokio::test]
async fn a_key_without_a_role_is_recorded_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("operators.toml");
    let new = NewKey { name: "client".to_owned(), ..NewKey::default() };
    let secret = ApiKeyFile::at(&path).add(new, UnixSeconds(1)).unwrap().expose().to_owned();
    let world = World::with(&[("admin.keys_file", &path.display().to_string())]).await;
    let response = by(world.admin, &secret).send(world.admin).await;
    assert_eq!(refusal(&response), (403, "forbidden".into()));
    let records = world.records("refused").await;
    assert_eq!((&records[0]["code"], &records[0]["reason"]), (&json!(403), &json!("forbidden")));
    assert_eq!(records[0]["principal"]["sub"], "client", "{records:?}");
}

#[tokio::test]
async fn one_login_follows_on_half_of_the_streams() {
    let world = World::new().await;
    let browser = world.browser("viewer").await;
    let mut followed = Vec::new();
    for _ in 0..8 {
        let mut live = browser.live().await;
        live.event().await.expect("an overview at once");
        followed.push(live);
    }
    let refused = within("refused", browser.get("live").send(world.admin)).await;
    assert_eq!(refusal(&refused), (503, "unavailable".into()));
    let text = refused.value()["message"].as_str().unwrap().to_owned();
    assert_eq!(text, "8 pages of this login follow already");
    let mut other = world.browser("viewer").await.live().await;
    other.event().await.expect("another login has a share of its own");
    // Room is made by the page that goes.
    drop(followed.pop());
    let again = async {
        while browser.get("live").begin(world.admin).await.head().await.status != 200 {
            tokio::task::yield_now().await;
        }
    };
    within("a stream in its place", again).await;
}
