//! Replays complete streams: the same events must come again, and no others.

use std::ops::ControlFlow;

use fastrand::Rng;
use tenure_testkit::sse::{SseEvent, SseItem};

use super::calls::is_refusal;
use super::contact::{broke, gone, pause, unexpected};
use crate::check::{CheckFault, Circumstances, EventId, FaultKind, StreamCheck};
use crate::http::HttpReply;
use crate::life::Moment;
use crate::session::{ClientSession, Finished};
use crate::world::{World, count};

/// Replays a complete stream, from its beginning or from its very end.
pub(crate) async fn replay(world: &World, session: &ClientSession, finished: &Finished, rng: &mut Rng) {
    let sent = tokio::time::Instant::now();
    let at_the_end = rng.u8(0..4) == 0;
    let check = async {
        if at_the_end {
            nothing_follows(world, session, finished, rng).await
        } else {
            compare(world, session, &finished.check, finished.began, rng).await
        }
    };
    let outcome = tokio::select! {
        outcome = check => outcome,
        () = world.overdue(sent) => {
            Err(CheckFault::new(FaultKind::Hangs, "the replay of a complete stream does not end"))
        }
    };
    if let Err(fault) = outcome
        && !session.is_over()
    {
        world.violation(&format!("{} replay", session.label), fault);
    }
}

/// Reads a stream again from its first id and compares it with what was received.
pub(super) async fn compare(
    world: &World,
    session: &ClientSession,
    check: &StreamCheck,
    began: Moment,
    rng: &mut Rng,
) -> Result<(), CheckFault> {
    let Some(first) = check.first_id() else { return Ok(()) };
    loop {
        let mut replay = check.replay();
        if read(world, session, first, began, rng, |event, now| replay.hear(event, now)).await? {
            return replay.finish(world.circumstances(began));
        }
    }
}

/// Resumes after the answer, and checks that no more events come.
async fn nothing_follows(
    world: &World,
    session: &ClientSession,
    finished: &Finished,
    rng: &mut Rng,
) -> Result<(), CheckFault> {
    let Some(last) = finished.check.last_id() else { return Ok(()) };
    let refuse = |event: &SseEvent, now: Circumstances| match event.data.as_deref() {
        None | Some("") => Ok(ControlFlow::Continue(())),
        Some(_) if now.torn => Ok(ControlFlow::Break(())),
        Some(data) => Err(CheckFault::new(FaultKind::AfterAnswer, format!("after {last}: {data}"))),
    };
    while !read(world, session, last, finished.began, rng, refuse).await? {}
    Ok(())
}

/// Reads the events after an id until the stream ends. `false` if the connection broke and the caller must begin again.
async fn read(
    world: &World,
    session: &ClientSession,
    after: &str,
    began: Moment,
    rng: &mut Rng,
    mut take: impl FnMut(&SseEvent, Circumstances) -> Result<ControlFlow<()>, CheckFault>,
) -> Result<bool, CheckFault> {
    pause(rng).await;
    if session.is_over() {
        return Ok(true);
    }
    let (who, connected) = (format!("{} replay", session.label), world.moment());
    let mut events = match world.get(&session.name, Some(after)).await {
        Ok(HttpReply::Stream(events)) => events,
        Ok(HttpReply::Whole { status: 404, body, .. }) => {
            gone(world, session, &who, &body);
            return Ok(true);
        }
        Ok(HttpReply::Whole { status: 400, body, .. }) if is_refusal(&body) => {
            if world.circumstances(began).torn {
                return Ok(true);
            }
            return Err(CheckFault::new(FaultKind::IdRefused, format!("{after}: {body}")));
        }
        Ok(reply) => {
            unexpected(world, &who, "a replay", &reply);
            return Ok(true);
        }
        Err(broken) => {
            broke(world, &who, connected, &broken);
            return Ok(false);
        }
    };
    let mut told_to_come_back = false;
    loop {
        match events.next().await {
            Ok(Some(SseItem::Event(event))) => {
                count(&world.tally.replayed);
                told_to_come_back |= event.id.is_none() && event.data.as_deref().is_none_or(str::is_empty);
                if take(&event, world.circumstances(began))?.is_break() {
                    return Ok(true);
                }
            }
            Ok(Some(SseItem::Comment(text))) if text.starts_with("gap") => {
                if !world.circumstances(began).torn {
                    return Err(CheckFault::new(FaultKind::Gap, format!("after {after}: {text}")));
                }
            }
            Ok(Some(SseItem::Comment(_))) => {}
            // A node that is told to end, or gives the session up, sends its readers elsewhere.
            Ok(None) => return Ok(!told_to_come_back),
            Err(broken) => {
                broke(world, &who, connected, &broken);
                return Ok(false);
            }
        }
    }
}

/// Tries to resume in one session after an event of another session, which the server must refuse.
pub(crate) async fn trespass(world: &World, session: &ClientSession, other: &ClientSession) {
    let finished = other.finished();
    let Some(foreign) = finished.last().and_then(|finished| finished.check.first_id()) else { return };
    // If two sessions have equal tags by chance, their ids cannot be distinguished.
    let own = session.finished().last().and_then(|finished| finished.check.place()).map(|id| id.tag);
    if EventId::parse(foreign).is_none_or(|id| Some(id.tag) == own) {
        return;
    }
    let connected = world.moment();
    match world.get(&session.name, Some(foreign)).await {
        Ok(HttpReply::Whole { status: 400, body, .. }) if is_refusal(&body) => {}
        Ok(HttpReply::Whole { status: 404, body, .. }) => {
            gone(world, session, &session.label, &body);
        }
        Ok(HttpReply::Stream(_)) => {
            let detail = format!("the event id {foreign} of {} was honoured", other.label);
            world.violation(&session.label, CheckFault::new(FaultKind::WrongStream, detail));
        }
        Ok(reply) => unexpected(world, &session.label, "a foreign event id", &reply),
        Err(broken) => broke(world, &session.label, connected, &broken),
    }
}
