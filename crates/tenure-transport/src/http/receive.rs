//! Receives the body of a request, and takes its memory from the share of its sender.
//!
//! Memory is taken before bytes are read. While the sender's share is used up, nothing is read from its connection, so
//! the sender has to wait; if its wait takes too long, it is refused. Then the rest is read once, without being kept, for the id
//! of the request: a refusal with that id is an answer, after which the client goes on.

use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tenure_protocol::{Error, Reason, RequestId};
use tenure_session::budget::{Full, Resource, Share, Taken};

use crate::duplex::{OversizeMessage, OversizeScan};

/// How much memory is taken first for a body without a declared length.
const FIRST_BYTES: usize = 16 << 10;

/// How long a request waits for room in its sender's share, and how often it tries.
const ROOM_WAIT: Duration = Duration::from_secs(5);
const ROOM_LOOKS: Duration = Duration::from_millis(20);

/// How long the rest of a body that is refused may take.
const REST_WAIT: Duration = Duration::from_secs(1);

/// A body that is refused, with the id of its request if that was found.
#[derive(Debug)]
pub(super) struct RefusedBody {
    pub(super) error: Error,
    pub(super) id: Option<RequestId>,
}

impl From<Error> for RefusedBody {
    fn from(error: Error) -> Self {
        Self { error, id: None }
    }
}

/// Receives a whole body. `declared` is the length that its sender announces, `limit` the longest body that is
/// accepted.
///
/// # Cancel safety
/// Dropping it drops the bytes that were received.
pub(super) async fn receive<B>(
    body: B,
    share: Share,
    declared: Option<usize>,
    limit: usize,
) -> Result<(Bytes, Taken), RefusedBody>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let first_bytes = declared.unwrap_or(FIRST_BYTES.min(limit));
    let mut body = pin!(body);
    let mut held = match share.take(Resource::Memory, first_bytes) {
        Ok(held) => held,
        Err(_) => match Box::pin(room(share.take_anyway(Resource::Memory, 0), first_bytes)).await {
            Ok(held) => held,
            Err(error) => {
                let id = Box::pin(id_in(OversizeScan::default(), body, limit)).await;
                return Err(RefusedBody { error, id });
            }
        },
    };
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(data) = next(body.as_mut()).await {
        let data = data?;
        let length = first.len() + all.len() + data.len();
        if length > limit {
            return Err(too_large(limit).into());
        }
        if length > held.amount() {
            // In large steps, so that a body in many pieces takes memory only a few times.
            let more = length.saturating_mul(2).min(limit);
            held = match held.resize(more) {
                Ok(()) => held,
                Err(_) => match Box::pin(room(held, length)).await {
                    Ok(held) => held,
                    Err(error) => {
                        let mut scan = OversizeScan::default();
                        for bytes in [&first[..], &all[..], &data[..]] {
                            scan.feed(bytes);
                        }
                        drop((first, all, data));
                        let id = Box::pin(id_in(scan, body, limit)).await;
                        return Err(RefusedBody { error, id });
                    }
                },
            };
        }
        if first.is_empty() && all.is_empty() {
            first = data;
        } else {
            if all.is_empty() {
                all.reserve(held.amount());
                all.extend_from_slice(&std::mem::take(&mut first));
            }
            all.extend_from_slice(&data);
        }
    }
    let body = if all.is_empty() { first } else { all.freeze() };
    if held.amount() != body.len() {
        held.resize_anyway(body.len());
    }
    Ok((body, held))
}

/// Reads the rest of a body for the id of its request, and keeps nothing of it.
async fn id_in<B>(mut scan: OversizeScan, mut body: Pin<&mut B>, limit: usize) -> Option<RequestId>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let rest = async {
        let mut length = 0;
        while let Some(data) = next(body.as_mut()).await {
            let data = data.ok()?;
            length += data.len();
            if length > limit {
                return None;
            }
            scan.feed(&data);
        }
        match scan.end() {
            OversizeMessage::Request(id) => Some(id),
            OversizeMessage::Answer(_) | OversizeMessage::Other => None,
        }
    };
    tokio::time::timeout(REST_WAIT, rest).await.ok().flatten()
}

/// The next bytes of a body.
async fn next<B>(mut body: Pin<&mut B>) -> Option<Result<Bytes, Error>>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    loop {
        match body.frame().await? {
            // Trailers are ignored.
            Ok(frame) => match frame.into_data() {
                Ok(data) => return Some(Ok(data)),
                Err(_) => continue,
            },
            Err(error) => {
                let refusal = Error::new(Reason::InvalidRequest, "The body could not be read");
                return Some(Err(refusal.caused_by(error.into())));
            }
        }
    }
}

/// Waits until this much memory can be taken.
async fn room(mut held: Taken, amount: usize) -> Result<Taken, Error> {
    let wait = async {
        while held.resize(amount).is_err() {
            tokio::time::sleep(ROOM_LOOKS).await;
        }
    };
    let waited = tokio::time::timeout(ROOM_WAIT, wait).await;
    match waited {
        Ok(()) => Ok(held),
        Err(_) => Err(match held.resize(amount) {
            Ok(()) => return Ok(held),
            Err(Full::OfPeer) => Error::new(
                Reason::TooMuchHeld,
                "Too much of yours is being received or answered; try again later",
            ),
            Err(Full::InAll) => {
                Error::new(Reason::TooMuchHeld, "The server holds as much as it may; try again later")
            }
        }),
    }
}

pub(super) fn too_large(limit: usize) -> Error {
    Error::new(Reason::BodyTooLarge, format!("The body is larger than {limit} bytes")).with("limit", limit)
}
