//! The answers for those who watch a server without calling it: the one who scrapes metrics, a collector of traces, and a viewer
//! of the operator API. All bytes are kept as they arrive.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_util::task::AbortOnDropHandle;

use super::office::Office;
use super::secrets::Secrets;
use crate::support::client::{Ask, Connection};
use crate::support::wait::{until, within};

/// A collector of traces that keeps what it gets.
pub(super) struct Collector {
    address: SocketAddr,
    posts: Arc<Mutex<Vec<Vec<u8>>>>,
    _serving: AbortOnDropHandle<()>,
}

/// Where all of them look at one server.
pub(super) struct Watchers {
    pub(super) collector: Collector,
    metrics: SocketAddr,
}

impl Collector {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, posts) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<Vec<u8>>>>::default());
        let kept = Arc::clone(&posts);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A process has one connection, or one after the other.
                take_posts(stream, &kept).await;
            }
        });
        Self { address, posts, _serving: AbortOnDropHandle::new(serving) }
    }

    /// All posts so far, once there is one about this.
    pub(super) async fn posts_about(&self, text: &str) -> Vec<Vec<u8>> {
        let is_about = |post: &Vec<u8>| String::from_utf8_lossy(post).contains(text);
        until(text, || self.posts.lock().unwrap().iter().any(is_about)).await;
        self.posts.lock().unwrap().clone()
    }
}

async fn take_posts(mut stream: TcpStream, posts: &Mutex<Vec<Vec<u8>>>) {
    let mut read = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&read).to_ascii_lowercase();
        let head = read.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
        let length = text
            .split_once("content-length: ")
            .and_then(|(_, rest)| rest.lines().next()?.trim().parse::<usize>().ok());
        if let (Some(head), Some(length)) = (head, length) {
            let whole = head + length;
            if read.len() >= whole {
                posts.lock().unwrap().push(read.drain(..whole).collect());
                if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.is_err() {
                    return;
                }
                continue;
            }
        }
        if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
            return;
        }
    }
}

impl Watchers {
    pub(super) async fn start() -> Self {
        // Given back at once: the server takes it.
        let metrics = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        Self { collector: Collector::start().await, metrics }
    }

    /// Sections for the server that they watch.
    pub(super) fn sections(&self) -> String {
        format!(
            "[metrics]\nlisten = \"{}\"\n[traces]\nendpoint = \"http://{}\"\nsample = \"100%\"\n\
             [admin]\nlisten = \"127.0.0.1:0\"\n",
            self.metrics, self.collector.address
        )
    }

    /// `/metrics`, in both forms.
    pub(super) async fn scraped(&self) -> Vec<(String, Vec<u8>)> {
        let mut seen = Vec::new();
        for form in ["text/plain", "application/openmetrics-text; version=1.0.0"] {
            let answer = Ask::new("GET", "/metrics").header("Accept", form).send(self.metrics).await;
            assert_eq!(answer.status(), 200, "{answer:?}");
            assert!(answer.text().contains("mcp_server_operation_duration_seconds"), "{}", answer.text());
            seen.push((format!("/metrics as {form}"), answer.body.clone()));
        }
        seen
    }

    /// Every answer of the operator API that changes nothing, to a viewer and to an administrator, with these keys in its paths and
    /// about these principals; and the next news of its stream. Notes the logins, which are secret too.
    pub(super) async fn viewed(
        &self,
        office: &Office,
        keys: &[String],
        principals: &[&str],
        secrets: &mut Secrets,
    ) -> Vec<(String, Vec<u8>)> {
        let mut seen = Vec::new();
        for role in ["viewer", "admin"] {
            let browser = Browser::log_in(office, role).await;
            secrets.add("a login of an operator", browser.cookie.split_once('=').unwrap().1);
            let document: Value =
                serde_json::from_slice(&browser.get("/api/v1/openapi.json").await.1).unwrap();
            let before = seen.len();
            for (path, operation) in document["paths"].as_object().unwrap() {
                let Some(get) = operation.get("get") else { continue };
                if get["responses"]["200"]["content"].get("text/event-stream").is_some() {
                    let mut stream = browser.ask(path).open(browser.address).await;
                    let event = stream.event().await.expect("news");
                    seen.push((format!("{path} as {role}"), format!("{event:?}").into_bytes()));
                    continue;
                }
                let is_variable = path.contains('{');
                let paths: Vec<String> = match is_variable {
                    true => {
                        keys.iter().map(|key| path.replace("{key}", key).replace("{name}", key)).collect()
                    }
                    false => vec![path.clone()],
                };
                for place in paths {
                    let (status, answer) = browser.get(&place).await;
                    let is_expected = status == 200 || is_variable || (status == 403 && role == "viewer");
                    assert!(is_expected, "{place} as {role}: {status} {}", String::from_utf8_lossy(&answer));
                    seen.push((format!("{place} as {role}: {status}"), answer));
                }
            }
            for (path, principal) in ["principals/show", "limits/show"]
                .into_iter()
                .flat_map(|path| principals.iter().map(move |name| (path, name)))
            {
                let body = json!({ "principal": principal }).to_string();
                let ask = browser
                    .with_page_headers(Ask::post(body).at(&format!("/api/v1/{path}")).without("Accept"));
                let answer = ask.header("Cookie", &browser.cookie).send(browser.address).await;
                // Not every principal has something.
                assert!(matches!(answer.status(), 200 | 404), "{path}: {}", answer.text());
                seen.push((format!("{path} as {role}: {}", answer.status()), answer.body.clone()));
            }
            let good = seen[before..].iter().filter(|(place, _)| place.ends_with(": 200")).count();
            assert!(good > 20, "{good} answers as {role}");
        }
        seen
    }
}

/// The page of an operator.
struct Browser {
    address: SocketAddr,
    cookie: String,
}

impl Browser {
    async fn log_in(office: &Office, role: &str) -> Self {
        let socket = office.gateway.folder.path().join("store/control.sock");
        let stream = within("connect", UnixStream::connect(socket)).await.unwrap();
        let mut connection = Connection::over(stream);
        let wish = json!({ "role": role }).to_string();
        connection.write(&Ask::post(wish).at("/api/v1/codes").without("Accept").bytes()).await;
        let code: Value = serde_json::from_slice(&connection.response().await.body).unwrap();
        let place = code["url"].as_str().unwrap().strip_prefix("http://").unwrap().split('/').next().unwrap();
        let browser = Self { address: place.parse().unwrap(), cookie: String::new() };
        let login = Ask::post(json!({ "code": code["code"] }).to_string()).at("/login").without("Accept");
        let login = browser.with_page_headers(login).send(browser.address).await;
        assert_eq!(login.status(), 204, "{}", login.text());
        let cookie = login.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        Self { cookie, ..browser }
    }

    /// The headers that the page sends with what is more than a look.
    fn with_page_headers(&self, ask: Ask) -> Ask {
        ask.header("Host", &self.address.to_string())
            .header("Origin", &format!("http://{}", self.address))
            .header("Sec-Fetch-Site", "same-origin")
            .header("X-Tenure", "1")
    }

    fn ask(&self, path: &str) -> Ask {
        Ask::new("GET", path)
            .header("Host", &self.address.to_string())
            .header("Cookie", &self.cookie)
            .header("Sec-Fetch-Site", "same-origin")
    }

    async fn get(&self, path: &str) -> (u16, Vec<u8>) {
        let answer = self.ask(path).send(self.address).await;
        (answer.status(), answer.body.clone())
    }
}
