//! GET `/sse` and POST `/messages`: the HTTP+SSE transport of revision 2024-11-05.
//!
//! The stream begins with the address that messages are posted to; all answers come on the stream. This transport does
//! not define resumption, but clients built on `EventSource` reconnect by themselves and send the id of the last event.
//! So every event has an id, which contains the session's name and the client's cursor.

use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use tenure_protocol::{Error, Incoming, Reason};
use tenure_session::SessionId;
use tenure_session::id::NodeId;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::keeper::{Doorkeeper, Post};
use super::presence::Lease;
use crate::cluster::RelayedWish;
use crate::duplex::{Cursor, Input, InputMessage, MAX_WAITING, Outgoing};
use crate::http::access::{Answers, Sender};
use crate::http::answer::AnswerFormat;
use crate::http::at_node::Home;
use crate::http::body::Body;
use crate::http::doors::connection::{Claim, ClosableInput, DoorConnection, DoorEnd, EndSignal};
use crate::http::elsewhere::Carried;
use crate::http::endpoint::{Endpoint, event_stream};
use crate::http::event_body::EventSource;
use crate::http::headers::{self, RequiredAccept};
use crate::http::reject::{empty, malformed, reject};
use crate::http::sse;

/// Stands between the name of a stream and the node that has it.
const NODE_MARK: char = '-';

impl Doorkeeper {
    pub(super) async fn open_stream(
        &self,
        endpoint: &Endpoint,
        parts: &Parts,
        sender: &Sender<'_>,
    ) -> Response<Body> {
        match self.try_open_stream(endpoint, parts, sender).await {
            Ok(response) => response,
            Err(error) => reject(&error, None),
        }
    }

    async fn try_open_stream(
        &self,
        endpoint: &Endpoint,
        parts: &Parts,
        sender: &Sender<'_>,
    ) -> Result<Response<Body>, Error> {
        let rules = endpoint.rules();
        rules.leniencies.check_accept(&parts.headers, RequiredAccept::Events)?;
        self.check_open(endpoint)?;
        let caller = endpoint.bodiless(parts, sender);
        let owner = caller.principal.clone();
        let claim = claim(parts)?;
        let connection = DoorConnection::prepare(self, endpoint, (caller, sender), claim).await?;
        let (input, posts) = mpsc::channel(1);
        let (output, messages) = mpsc::channel(MAX_WAITING);
        let post = self.posts().open(Post { input, owner, usable_until: connection.usable_until() });
        let (id, end_signal) = (connection.id(), EndSignal::default());
        let (last, written) = oneshot::channel();
        let stream = DoorStream {
            messages,
            post: post.name(),
            node: endpoint.node(),
            name: connection.is_own().then_some(id),
            opened: connection.opened(),
            cursor: connection.cursor(),
            last: Some(last),
            ended: false,
            end_signal: end_signal.clone(),
            retry: endpoint.sessions().limits().stop_retry,
        };
        self.spawn(async move {
            // Held until the connection has ended, and then closes the address.
            let _post = post;
            let written = async { written.await.unwrap_or_default() };
            connection.run(Posted(posts), output, end_signal, written).await;
        });
        let mut response = event_stream(Body::events(stream, rules.keep_alive));
        if let Ok(id) = HeaderValue::from_str(&id.expose()) {
            response.headers_mut().insert(headers::SESSION_ID, id);
        }
        Ok(response)
    }

    /// Takes a posted message, here or at the node that has the stream.
    pub(super) async fn take_message<B>(
        &self,
        endpoint: &Endpoint,
        parts: &Parts,
        body: B,
        sender: &Sender<'_>,
    ) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (stream, node) = match posted_to(parts) {
            Ok(named) => named,
            Err(error) => return reject(&error, None),
        };
        let Some(node) = node.filter(|node| Some(*node) != endpoint.node()) else {
            return self.take_named(endpoint, stream, parts, body, sender).await;
        };
        let read = endpoint.read(parts, body, endpoint.share(sender.remote)).await;
        let (body, _held) = match read {
            Ok(read) => read,
            Err(refused) => return reject(&refused.error, None),
        };
        let wish = RelayedWish::Message(stream.to_owned());
        let carried = Carried { wish: Some(&wish), ..Carried::of(&body, AnswerFormat::Streamable) };
        match Box::pin(endpoint.at_its_node(Home::AtNode(node), parts, sender, carried)).await {
            Ok(Some(answer)) => endpoint.passed_on_stream(answer, parts, sender),
            // The node is gone, and the stream with it.
            Ok(None) => reject(&unknown_stream(), None),
            Err(error) => reject(&error, None),
        }
    }

    /// Takes a message for the stream of this secret name.
    pub(in crate::http) async fn take_named<B>(
        &self,
        endpoint: &Endpoint,
        stream: &str,
        parts: &Parts,
        body: B,
        sender: &Sender<'_>,
    ) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let taken = async {
            let name = SessionId::parse(stream.as_bytes()).ok_or_else(unknown_stream)?;
            let post = self.posts().find(&name, &sender.principal).ok_or_else(unknown_stream)?;
            headers::check_content_type(&parts.headers)?;
            let read = endpoint.read(parts, body, endpoint.share(sender.remote)).await;
            Ok((post, read.map_err(|refused| refused.error)?))
        };
        let (post, (body, _held)) = match taken.await {
            Ok(taken) => taken,
            Err(error) => return reject(&error, None),
        };
        if let Some(notes) = sender.notes {
            notes.read(body.len());
        }
        let incoming = match Incoming::parse(&body) {
            Ok(incoming) => incoming,
            Err(fault) => return malformed(&fault),
        };
        if let Incoming::One(message) = &incoming
            && let Err(refusal) = endpoint.check_scopes(sender, message, Answers::Session)
        {
            return *refusal;
        }
        sender.extends(&post.usable_until);
        // If the queue stays full, this client does not read its stream, so only this client waits.
        let patience = endpoint.rules().body_timeout;
        match post.input.send_timeout(InputMessage::Read(incoming, sender.scopes()), patience).await {
            Ok(()) => empty(StatusCode::ACCEPTED),
            Err(mpsc::error::SendTimeoutError::Closed(_)) => reject(&unknown_stream(), None),
            Err(mpsc::error::SendTimeoutError::Timeout(_)) => {
                let text = "The stream is not read, so nothing more is taken";
                reject(&Error::new(Reason::SlowReader, text), None)
            }
        }
    }
}

/// What the URL names: the secret name of the stream, and the node that has it.
fn posted_to(parts: &Parts) -> Result<(&str, Option<NodeId>), Error> {
    let query = parts.uri.query().unwrap_or_default();
    let name = query.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        matches!(key, "sessionId" | "session_id").then_some(value)
    });
    let Some(name) = name else {
        return Err(Error::new(
            Reason::SessionRequired,
            "Post to the address that the stream began with: the sessionId is missing",
        ));
    };
    match name.split_once(NODE_MARK) {
        None => Ok((name, None)),
        Some((name, node)) => Ok((name, Some(NodeId::parse(node).ok_or_else(unknown_stream)?))),
    }
}

fn unknown_stream() -> Error {
    Error::new(Reason::SessionNotFound, "There is no open stream of this name: begin with GET /sse")
}

/// The session that a client comes back to: by the id of the last event, or by name.
fn claim(parts: &Parts) -> Result<Option<Claim>, Error> {
    let last = parts.headers.get(headers::LAST_EVENT_ID).and_then(|value| value.to_str().ok());
    // An id of any other form comes from another server; then the client begins anew.
    let last = last.and_then(|last| {
        let (id, cursor) = last.split_once('.')?;
        Some((SessionId::parse(id.as_bytes())?, Cursor::parse(cursor)?))
    });
    if let Some((id, cursor)) = last {
        return Ok(Some(Claim { id, cursor: Some(cursor), lease: Lease::Own }));
    }
    named(parts)
}

/// The session that the header names.
pub(super) fn named(parts: &Parts) -> Result<Option<Claim>, Error> {
    match headers::session(&parts.headers) {
        headers::SessionHeader::None => Ok(None),
        headers::SessionHeader::Session(id) => Ok(Some(Claim { id, cursor: None, lease: Lease::Guest })),
        headers::SessionHeader::Unknown => {
            Err(Error::new(Reason::SessionNotFound, "Session not found or expired"))
        }
    }
}

/// The messages that the client posts.
struct Posted(mpsc::Receiver<InputMessage>);

impl Input for Posted {
    async fn next(&mut self) -> io::Result<Option<InputMessage>> {
        Ok(self.0.recv().await)
    }
}

impl ClosableInput for Posted {
    fn was_closed(&self) -> bool {
        // This transport has no message that closes the connection.
        false
    }

    async fn finish(&mut self) {}
}

/// The stream that a client reads: the writer, as the body of a response.
#[derive(Debug)]
struct DoorStream {
    messages: mpsc::Receiver<Outgoing>,
    /// The address to post to, and the node of a cluster at which it is.
    post: SessionId,
    node: Option<NodeId>,
    /// The name of the session, if events have ids.
    name: Option<SessionId>,
    /// Cancelled when the session is open; from then on the client can come back to it.
    opened: CancellationToken,
    cursor: Cursor,
    /// Gets the client's cursor when the stream ends.
    last: Option<oneshot::Sender<Cursor>>,
    ended: bool,
    end_signal: EndSignal,
    retry: Duration,
}

impl EventSource for DoorStream {
    fn open(&mut self, out: &mut BytesMut) {
        write(out, format_args!("event: endpoint\ndata: /messages?sessionId={}", self.post.expose()));
        if let Some(node) = self.node {
            write(out, format_args!("{NODE_MARK}{}", node.hex()));
        }
        out.put_u8(b'\n');
        self.write_id(out);
        out.put_u8(b'\n');
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, out: &mut BytesMut) -> Poll<Option<()>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let Some(outgoing) = ready!(self.messages.poll_recv(cx)) else {
            self.ended = true;
            if matches!(self.end_signal.get(), DoorEnd::Stopped | DoorEnd::Expired) {
                sse::write_close(self.retry, out);
            }
            return Poll::Ready(None);
        };
        self.cursor.pass(&outgoing);
        if let Outgoing::Message { body, .. } = outgoing {
            self.write_id(out);
            sse::write_message(&body, out);
        }
        Poll::Ready(Some(()))
    }

    /// It has to know which messages were written, and only a few messages wait in its queue.
    fn may_run_ahead(&self) -> bool {
        false
    }
}

impl DoorStream {
    fn write_id(&self, out: &mut BytesMut) {
        if let Some(name) = self.name.filter(|_| self.opened.is_cancelled()) {
            write(out, format_args!("id: {}.{}\n", name.expose(), self.cursor));
        }
    }
}

fn write(out: &mut BytesMut, text: std::fmt::Arguments<'_>) {
    std::io::Write::write_fmt(&mut out.writer(), text).expect("writing to memory does not fail");
}

impl Drop for DoorStream {
    fn drop(&mut self) {
        if let Some(last) = self.last.take() {
            // Fails if the connection's task was dropped; then the cursor is not needed.
            drop(last.send(std::mem::take(&mut self.cursor)));
        }
    }
}
