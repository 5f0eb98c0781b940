//! A reverse proxy that notes the head of every request, and refuses those that a test wants refused.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

/// A request as the server behind gets it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names in small letters.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Everything, to look for something in it.
    pub(crate) fn text(&self) -> String {
        format!("{self:?}")
    }
}

/// Returns the whole response for a request that is to be refused.
type Gate = Box<dyn FnMut(&Seen) -> Option<String> + Send>;

pub(crate) struct Recorder {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    _serves: AbortOnDropHandle<()>,
}

struct Shared {
    behind: SocketAddr,
    seen: Mutex<Vec<Seen>>,
    gate: Mutex<Gate>,
}

impl Recorder {
    pub(crate) async fn before(behind: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let gate: Gate = Box::new(|_| None);
        let shared = Arc::new(Shared { behind, seen: Mutex::default(), gate: Mutex::new(gate) });
        let serves = AbortOnDropHandle::new(tokio::spawn(serve(listener, Arc::clone(&shared))));
        Self { address, shared, _serves: serves }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().clone()
    }

    pub(crate) fn gate(&self, gate: impl FnMut(&Seen) -> Option<String> + Send + 'static) {
        *self.shared.gate.lock() = Box::new(gate);
    }
}

/// A refusal as an authorization-minded server writes it, which no client of the gateway may ever see.
pub(crate) fn refusal(status: u16) -> String {
    let body =
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32099,"message":"upstream says: log in at evil"}}"#;
    format!(
        "HTTP/1.1 {status} Refused\r\nwww-authenticate: Bearer realm=\"upstream-realm\", \
         resource_metadata=\"http://127.0.0.1:1/evil\"\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        connections.spawn(pass(client, Arc::clone(&shared)));
        while connections.try_join_next().is_some() {}
    }
}

/// Passes one request on. The response ends with its connection.
async fn pass(mut client: TcpStream, shared: Arc<Shared>) -> Option<()> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        if client.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ').map(str::to_owned);
    let (method, path) = (first.next()?, first.next()?);
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.and_then(|(_, length)| length.parse::<usize>().ok()).unwrap_or(0);
    while bytes.len() < end + 4 + length {
        if client.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let body = String::from_utf8_lossy(&bytes[end + 4..]).into_owned();
    let seen = Seen { method, path, headers, body };
    shared.seen.lock().push(seen.clone());
    let refused = (shared.gate.lock())(&seen);
    if let Some(refused) = refused {
        client.write_all(refused.as_bytes()).await.ok()?;
        return client.shutdown().await.ok();
    }
    let mut server = TcpStream::connect(shared.behind).await.ok()?;
    let mut request = format!("{} {} HTTP/1.1\r\n", seen.method, seen.path);
    for (name, value) in seen.headers.iter().filter(|(name, _)| name != "connection") {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("connection: close\r\n\r\n");
    server.write_all(request.as_bytes()).await.ok()?;
    server.write_all(seen.body.as_bytes()).await.ok()?;
    let (mut from_client, mut to_client) = client.split();
    let mut nothing = [0; 64];
    tokio::select! {
        _ = tokio::io::copy(&mut server, &mut to_client) => {}
        // The client hangs up.
        _ = from_client.read(&mut nothing) => {}
    }
    None
}
