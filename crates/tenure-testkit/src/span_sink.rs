//! A collector for tests: takes spans over OTLP (HTTP, protobuf), and shows what they say.
//!
//! It reads the bytes of the protocol itself, so that a mistake in our own messages cannot cancel itself out.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use crate::wire::within;

/// A span as it arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArrivedSpan {
    /// The trace, in hex.
    pub trace: String,
    /// Its own id, in hex.
    pub span: String,
    /// The span that it is under, in hex; empty without one.
    pub parent: String,
    /// Its name.
    pub name: String,
    /// 2 for the server's end of a call, 3 for the client's.
    pub kind: u64,
    /// Its attributes, as text.
    pub attributes: BTreeMap<String, String>,
    /// Traces and spans that it links to.
    pub links: Vec<(String, String)>,
    /// 2 for an error, 0 if it does not say.
    pub status: u64,
    /// How long it took, in ns.
    pub took_ns: u64,
    /// What the process says of itself.
    pub resource: BTreeMap<String, String>,
}

/// The collector. It ends with this value.
#[derive(Debug)]
pub struct SpanSink {
    address: SocketAddr,
    arrived: mpsc::Receiver<ArrivedSpan>,
    _serving: AbortOnDropHandle<()>,
}

/// What a collector does with a post.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SinkManner {
    /// Takes it.
    Takes,
    /// Reads it, and never answers.
    Hangs,
}

impl SpanSink {
    /// Starts a collector on a free port.
    ///
    /// # Panics
    /// When there is no free port.
    pub async fn start(manner: SinkManner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (spans, arrived) = mpsc::channel(100_000);
        #[expect(clippy::disallowed_methods, reason = "it ends with its handle")]
        let serving = tokio::spawn(serve(listener, spans, manner));
        Self { address, arrived, _serving: AbortOnDropHandle::new(serving) }
    }

    /// What `traces.endpoint` names.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The next spans that arrive, as many as this.
    ///
    /// # Panics
    /// When they do not arrive in time.
    pub async fn spans(&mut self, count: usize) -> Vec<ArrivedSpan> {
        let mut spans = Vec::new();
        for _ in 0..count {
            spans.push(within("a span", self.arrived.recv()).await.expect("the collector runs"));
        }
        spans
    }

    /// Whether a span has arrived that no test has asked for.
    pub fn has_more(&mut self) -> bool {
        self.arrived.try_recv().is_ok()
    }
}

async fn serve(listener: TcpListener, spans: mpsc::Sender<ArrivedSpan>, manner: SinkManner) {
    let mut connections = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        connections.spawn(answer(socket, spans.clone(), manner));
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(mut socket: TcpStream, spans: mpsc::Sender<ArrivedSpan>, manner: SinkManner) {
    let mut read = Vec::new();
    loop {
        let head_end = loop {
            if let Some(end) = memchr::memmem::find(&read, b"\r\n\r\n") {
                break end + 4;
            }
            if socket.read_buf(&mut read).await.unwrap_or(0) == 0 {
                return;
            }
        };
        let head = String::from_utf8_lossy(&read[..head_end]).to_ascii_lowercase();
        assert!(head.starts_with("post /v1/traces "), "{head}");
        assert!(head.contains("content-type: application/x-protobuf"), "{head}");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
        let end = head_end + length.unwrap_or(0);
        while read.len() < end {
            if socket.read_buf(&mut read).await.unwrap_or(0) == 0 {
                return;
            }
        }
        for span in spans_in(&read[head_end..end]) {
            drop(spans.send(span).await);
        }
        read.drain(..end);
        if manner == SinkManner::Hangs {
            return std::future::pending().await;
        }
        if socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.is_err() {
            return;
        }
    }
}

/// A field of a message.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    fn bytes(&self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Number(_) => panic!("a number where bytes belong"),
        }
    }

    fn text(&self) -> String {
        String::from_utf8(self.bytes().to_vec()).expect("text")
    }

    fn hex(&self) -> String {
        self.bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn number(&self) -> u64 {
        match self {
            Self::Number(number) => *number,
            Self::Bytes(_) => panic!("bytes where a number belongs"),
        }
    }
}

fn varint(rest: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0, 0);
    loop {
        let (first, after) = rest.split_first().expect("the end of a number");
        *rest = after;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return number;
        }
        shift += 7;
    }
}

fn fields(message: &[u8]) -> Vec<(u64, Field<'_>)> {
    let (mut rest, mut fields) = (message, Vec::new());
    while !rest.is_empty() {
        let key = varint(&mut rest);
        let take = |rest: &mut &'_ [u8], count: usize| {
            let (taken, after) = rest.split_at(count);
            let mut bytes = [0; 8];
            bytes[..count].copy_from_slice(taken);
            *rest = after;
            u64::from_le_bytes(bytes)
        };
        let field = match key & 7 {
            0 => Field::Number(varint(&mut rest)),
            1 => Field::Number(take(&mut rest, 8)),
            5 => Field::Number(take(&mut rest, 4)),
            2 => {
                let length = usize::try_from(varint(&mut rest)).expect("a length");
                let (bytes, after) = rest.split_at(length);
                rest = after;
                Field::Bytes(bytes)
            }
            kind => panic!("a field of kind {kind}"),
        };
        fields.push((key >> 3, field));
    }
    fields
}

fn attribute(message: &[u8]) -> (String, String) {
    let (mut key, mut value) = (String::new(), String::new());
    for (number, field) in fields(message) {
        match number {
            1 => key = field.text(),
            2 => {
                for (kind, field) in fields(field.bytes()) {
                    value = if kind == 1 { field.text() } else { field.number().to_string() };
                }
            }
            other => panic!("an attribute has no field {other}"),
        }
    }
    (key, value)
}

fn spans_in(body: &[u8]) -> Vec<ArrivedSpan> {
    let mut spans = Vec::new();
    for (_, of_resource) in fields(body) {
        let mut resource = BTreeMap::new();
        for (number, field) in fields(of_resource.bytes()) {
            if number == 1 {
                resource.extend(fields(field.bytes()).iter().map(|(_, field)| attribute(field.bytes())));
                continue;
            }
            for (number, field) in fields(field.bytes()) {
                if number == 2 {
                    spans.push(ArrivedSpan { resource: resource.clone(), ..span(field.bytes()) });
                }
            }
        }
    }
    spans
}

fn span(message: &[u8]) -> ArrivedSpan {
    let (mut span, mut began) = (ArrivedSpan::default(), 0);
    for (number, field) in fields(message) {
        match number {
            1 => span.trace = field.hex(),
            2 => span.span = field.hex(),
            4 => span.parent = field.hex(),
            5 => span.name = field.text(),
            6 => span.kind = field.number(),
            7 => began = field.number(),
            8 => span.took_ns = field.number() - began,
            9 => span.attributes.extend([attribute(field.bytes())]),
            13 => {
                let ids: Vec<_> = fields(field.bytes()).iter().map(|(_, field)| field.hex()).collect();
                span.links.push((ids[0].clone(), ids[1].clone()));
            }
            15 => {
                let code = fields(field.bytes()).into_iter().find(|(number, _)| *number == 3);
                span.status = code.map_or(0, |(_, field)| field.number());
            }
            _ => {}
        }
    }
    span
}
