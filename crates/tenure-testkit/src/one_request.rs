//! Just enough HTTP for servers that tests control: of each connection one request is read, one answer is written, and it closes.
//!
//! In: a listener. Out: the head and the body of each request, to a function that answers it.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

/// A request.
pub(crate) struct OneRequest {
    /// The first line, and the headers with their names in small letters.
    pub(crate) head: String,
    /// The path, with the query.
    pub(crate) path: String,
    pub(crate) body: String,
    stream: TcpStream,
}

/// Serves a free loopback port as long as the handle is held. `answer` is told the port's URL.
pub(crate) async fn serve<A>(
    answer: impl Fn(OneRequest, String) -> A + Send + Sync + 'static,
) -> (String, AbortOnDropHandle<()>)
where
    A: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let answer = std::sync::Arc::new(answer);
    let own = url.clone();
    let serving = async move {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let (answer, url) = (std::sync::Arc::clone(&answer), own.clone());
            connections.spawn(async move {
                if let Some(request) = read(stream).await {
                    answer(request, url).await;
                }
            });
            while connections.try_join_next().is_some() {}
        }
    };
    #[expect(clippy::disallowed_methods, reason = "it ends with its handle")]
    let serves = AbortOnDropHandle::new(tokio::spawn(serving));
    (url, serves)
}

async fn read(mut stream: TcpStream) -> Option<OneRequest> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let small = |line: &str| match line.split_once(':') {
        Some((name, value)) if !name.contains(' ') => format!("{}:{value}", name.to_ascii_lowercase()),
        _ => line.to_owned(),
    };
    let head = head.lines().map(small).collect::<Vec<_>>().join("\n");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length = length.and_then(|length| length.trim().parse::<usize>().ok()).unwrap_or(0);
    while bytes.len() < end + 4 + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let body = String::from_utf8_lossy(&bytes[end + 4..]).into_owned();
    let path = head.split(' ').nth(1)?.to_owned();
    Some(OneRequest { head, path, body, stream })
}

impl OneRequest {
    /// Answers with a text, and closes. The text of a redirect is where it leads.
    pub(crate) async fn answer(mut self, status: u16, text: &str) {
        let location =
            if (300..400).contains(&status) { format!("location: {text}\r\n") } else { String::new() };
        let head = format!(
            "HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\n{location}content-length: {}\r\n\
             connection: close\r\n\r\n",
            text.len()
        );
        drop(self.stream.write_all(format!("{head}{text}").as_bytes()).await);
    }
}
