//! Replays of streams that are complete: what was received comes again, the same and nothing else.

use std::ops::ControlFlow;

use fastrand::Rng;
use tenure_testkit::sse::{Event, Item};

use super::calls::is_refusal;
use super::contact::{broke, gone, pause, unexpected};
use crate::check::{Circumstances, EventId, Fault, Kind, StreamCheck};
use crate::http::Reply;
use crate::session::{Finished, Session};
use crate::world::{Moment, World, count};

/// Replays a complete stream, from its beginning or from its very end.
pub(crate) async fn replay(world: &World, session: &Session, finished: &Finished, rng: &mut Rng) {
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
        () = world.overdue(sent) => Err(Fault::new(Kind::Hangs, "the replay of a complete stream does not end")),
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
    session: &Session,
    check: &StreamCheck,
    began: Moment,
    rng: &mut Rng,
) -> Result<(), Fault> {
    let Some(first) = check.first_id() else { return Ok(()) };
    loop {
        let mut replay = check.replay();
        if read(world, session, first, began, rng, |event, now| replay.hear(event, now)).await? {
            return replay.finish(world.circumstances(began));
        }
    }
}

/// Resumes after the answer: there is nothing more.
async fn nothing_follows(
    world: &World,
    session: &Session,
    finished: &Finished,
    rng: &mut Rng,
) -> Result<(), Fault> {
    let Some(last) = finished.check.last_id() else { return Ok(()) };
    let refuse = |event: &Event, now: Circumstances| match event.data.as_deref() {
        None | Some("") => Ok(ControlFlow::Continue(())),
        Some(_) if now.torn => Ok(ControlFlow::Break(())),
        Some(data) => Err(Fault::new(Kind::AfterAnswer, format!("after {last}: {data}"))),
    };
    while !read(world, session, last, finished.began, rng, refuse).await? {}
    Ok(())
}

/// Reads what comes after an id until the stream ends. `false`: the connection broke; begin again.
async fn read(
    world: &World,
    session: &Session,
    after: &str,
    began: Moment,
    rng: &mut Rng,
    mut take: impl FnMut(&Event, Circumstances) -> Result<ControlFlow<()>, Fault>,
) -> Result<bool, Fault> {
    pause(rng).await;
    if session.is_over() {
        return Ok(true);
    }
    let (who, connected) = (format!("{} replay", session.label), world.moment());
    let mut events = match world.http.get(&session.name, Some(after)).await {
        Ok(Reply::Stream(events)) => events,
        Ok(Reply::Whole { status: 404, body, .. }) => {
            gone(world, session, &who, &body);
            return Ok(true);
        }
        Ok(Reply::Whole { status: 400, body, .. }) if is_refusal(&body) => {
            if world.circumstances(began).torn {
                return Ok(true);
            }
            return Err(Fault::new(Kind::IdRefused, format!("{after}: {body}")));
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
    loop {
        match events.next().await {
            Ok(Some(Item::Event(event))) => {
                count(&world.tally.replayed);
                if take(&event, world.circumstances(began))?.is_break() {
                    return Ok(true);
                }
            }
            Ok(Some(Item::Comment(text))) if text.starts_with("gap") => {
                if !world.circumstances(began).torn {
                    return Err(Fault::new(Kind::Gap, format!("after {after}: {text}")));
                }
            }
            Ok(Some(Item::Comment(_))) => {}
            Ok(None) => return Ok(true),
            Err(broken) => {
                broke(world, &who, connected, &broken);
                return Ok(false);
            }
        }
    }
}

/// Tries to resume in one session after an event of another: that must be refused.
pub(crate) async fn trespass(world: &World, session: &Session, other: &Session) {
    let finished = other.finished();
    let Some(foreign) = finished.last().and_then(|finished| finished.check.first_id()) else { return };
    // The tags of two sessions may be equal by chance; then their ids cannot be told apart.
    let own = session.finished().last().and_then(|finished| finished.check.place()).map(|id| id.tag);
    if EventId::parse(foreign).is_none_or(|id| Some(id.tag) == own) {
        return;
    }
    let connected = world.moment();
    match world.http.get(&session.name, Some(foreign)).await {
        Ok(Reply::Whole { status: 400, body, .. }) if is_refusal(&body) => {}
        Ok(Reply::Whole { status: 404, body, .. }) => {
            gone(world, session, &session.label, &body);
        }
        Ok(Reply::Stream(_)) => {
            let detail = format!("the event id {foreign} of {} was honoured", other.label);
            world.violation(&session.label, Fault::new(Kind::WrongStream, detail));
        }
        Ok(reply) => unexpected(world, &session.label, "a foreign event id", &reply),
        Err(broken) => broke(world, &session.label, connected, &broken),
    }
}
