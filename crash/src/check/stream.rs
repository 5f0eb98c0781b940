//! One stream as its client sees it, over all its connections.
//!
//! Keeps every received event, so that a replay can be compared with them.

use std::ops::ControlFlow;

use serde_json::Value;
use tenure_testkit::sse::SseEvent;

use super::{CheckFault, Circumstances, Ending, EventId, EventMeaning, FaultKind, Script};

/// How many of the last events a fault shows.
const TRAIL: usize = 6;

/// What a client has received of one stream.
#[derive(Debug)]
pub(crate) struct StreamCheck {
    /// The id of the request, as JSON; the standalone stream has none.
    request: Option<Value>,
    script: Script,
    /// The last id that was received, with or without a message.
    last: Option<(EventId, String)>,
    /// The first id, after which everything can be replayed.
    first: Option<String>,
    /// Every message with its id, in the order received.
    events: Vec<(EventId, String)>,
    ending: Option<Ending>,
}

impl StreamCheck {
    /// The stream of a request.
    pub(crate) fn of_request(request: Value, script: Script) -> StreamCheck {
        StreamCheck { request: Some(request), ..StreamCheck::standalone(script) }
    }

    /// The stream that GET opens.
    pub(crate) fn standalone(script: Script) -> StreamCheck {
        StreamCheck { request: None, script, last: None, first: None, events: Vec::new(), ending: None }
    }

    /// The id to resume after.
    pub(crate) fn last_id(&self) -> Option<&str> {
        self.last.as_ref().map(|(_, text)| text.as_str())
    }

    /// The first id that was received.
    pub(crate) fn first_id(&self) -> Option<&str> {
        self.first.as_deref()
    }

    /// The last id, which names the stream and its session; `None` before the first id.
    pub(crate) fn place(&self) -> Option<EventId> {
        self.last.as_ref().map(|(id, _)| *id)
    }

    pub(crate) fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// How many messages were received.
    pub(crate) fn count(&self) -> usize {
        self.events.len()
    }

    /// Checks and keeps the next event.
    pub(crate) fn hear(&mut self, event: &SseEvent, now: Circumstances) -> Result<EventMeaning, CheckFault> {
        let heard = self.take(event, now);
        heard.map_err(|fault| CheckFault::new(fault.kind, format!("{}; {}", fault.detail, self.trail())))
    }

    /// Checks an answer that came as JSON instead of a stream.
    pub(crate) fn hear_json(&mut self, message: &Value, now: Circumstances) -> Result<Ending, CheckFault> {
        if message.get("id") != self.request.as_ref() {
            return Err(CheckFault::new(
                FaultKind::WrongAnswer,
                format!("{:?} is answered with {message}", self.request),
            ));
        }
        self.script.answer(message, now)
    }

    fn take(&mut self, event: &SseEvent, now: Circumstances) -> Result<EventMeaning, CheckFault> {
        let Some(text) = &event.id else {
            return match event.data.as_deref() {
                None | Some("") => Ok(EventMeaning::Retry),
                Some(data) => Err(CheckFault::new(FaultKind::Unlogged, data)),
            };
        };
        let Some(id) = EventId::parse(text) else {
            return Err(CheckFault::new(
                FaultKind::Unexpected,
                format!("an event id that cannot be read: {text}"),
            ));
        };
        if let Some((last, last_text)) = &self.last
            && (last.stream, last.tag) != (id.stream, id.tag)
        {
            return Err(CheckFault::new(FaultKind::WrongStream, format!("after {last_text} comes {text}")));
        }
        match event.data.as_deref().filter(|data| !data.is_empty()) {
            None => self.prime(id, text, now),
            Some(data) => self.message(id, text, data, now),
        }
    }

    /// Checks an event with only an id. After the first one it must repeat the client's last id: with a later id the
    /// client would miss events when it resumes, with an earlier one it would get some twice.
    fn prime(&mut self, id: EventId, text: &str, now: Circumstances) -> Result<EventMeaning, CheckFault> {
        let known = self.is_known(id);
        match &mut self.last {
            Some((last, _)) if id == *last => Ok(EventMeaning::Prime),
            // The events that the client received after this id are gone from the log. It continues from here, but
            // later events must still be new to it.
            Some((_, resume)) if now.torn => {
                text.clone_into(resume);
                Ok(EventMeaning::Prime)
            }
            Some(_) if known => {
                Err(CheckFault::new(FaultKind::WrongOrder, format!("the priming id {text} goes back")))
            }
            Some(_) => Err(CheckFault::new(
                FaultKind::Lost,
                format!("the priming id {text} is not of what was received"),
            )),
            None => {
                self.received(id, text);
                Ok(EventMeaning::Prime)
            }
        }
    }

    /// Whether the id was received, with or without a message.
    fn is_known(&self, id: EventId) -> bool {
        self.first.as_deref().and_then(EventId::parse) == Some(id)
            || self.events.iter().any(|(known, _)| *known == id)
    }

    fn message(
        &mut self,
        id: EventId,
        text: &str,
        data: &str,
        now: Circumstances,
    ) -> Result<EventMeaning, CheckFault> {
        let message: Value = serde_json::from_str(data).map_err(|error| {
            CheckFault::new(FaultKind::Unexpected, format!("{text} is no JSON ({error}): {data}"))
        })?;
        let answers = message.get("method").is_none();
        if self.ending.is_some() {
            let kind = if answers { FaultKind::DoubleAnswer } else { FaultKind::AfterAnswer };
            return Err(CheckFault::new(kind, format!("{text} {data}")));
        }
        if self.is_known(id) {
            let known = self.events.iter().find(|(known, _)| *known == id);
            let (kind, before) = match known {
                Some((_, body)) if body == data => (FaultKind::Repeated, "the same"),
                Some((_, body)) => (FaultKind::IdReused, body.as_str()),
                None => (FaultKind::IdReused, "nothing"),
            };
            return Err(CheckFault::new(kind, format!("{text} {data}, and before under this id: {before}")));
        }
        let heard = if answers {
            if message.get("id") != self.request.as_ref() {
                return Err(CheckFault::new(
                    FaultKind::WrongStream,
                    format!("{:?} hears {data}", self.request),
                ));
            }
            let ending = self.script.answer(&message, now)?;
            self.ending = Some(ending);
            EventMeaning::Answer(ending)
        } else {
            self.script.hear(&message, now)?
        };
        self.received(id, text);
        self.events.push((id, data.to_owned()));
        Ok(heard)
    }

    fn received(&mut self, id: EventId, text: &str) {
        self.first.get_or_insert_with(|| text.to_owned());
        self.last = Some((id, text.to_owned()));
    }

    /// The last events in short, to help find the cause of a fault.
    fn trail(&self) -> String {
        let last = &self.events[self.events.len().saturating_sub(TRAIL)..];
        let events: Vec<String> =
            last.iter().map(|(id, body)| format!("{:x}-{:x} {body}", id.stream, id.place)).collect();
        format!("{} events before, the last ones: [{}]", self.events.len(), events.join(", "))
    }

    /// Begins to compare a replay from the first id with what was received.
    pub(crate) fn replay(&self) -> ReplayCheck<'_> {
        // If the first id had a message, that is not replayed, because the client resumes after it.
        let skipped = self.events.first().is_some_and(|(id, _)| {
            self.first.as_deref().and_then(EventId::parse).is_some_and(|first| first == *id)
        });
        ReplayCheck { stream: self, at: usize::from(skipped) }
    }
}

/// A replay of a complete stream, compared event by event.
#[derive(Debug)]
pub(crate) struct ReplayCheck<'a> {
    stream: &'a StreamCheck,
    at: usize,
}

impl ReplayCheck<'_> {
    /// Checks the next replayed event: it must have the same id and the same bytes as when it was received.
    /// Breaks when the rest cannot be compared.
    pub(crate) fn hear(
        &mut self,
        event: &SseEvent,
        now: Circumstances,
    ) -> Result<ControlFlow<()>, CheckFault> {
        let (Some(text), Some(data)) = (&event.id, event.data.as_deref().filter(|data| !data.is_empty()))
        else {
            return Ok(ControlFlow::Continue(()));
        };
        let id = EventId::parse(text);
        let known = self.stream.events.iter().position(|(known, _)| Some(*known) == id);
        if let Some(known) = known
            && self.stream.events[known].1 != data
        {
            let before = &self.stream.events[known].1;
            return Err(CheckFault::new(
                FaultKind::IdReused,
                format!("{text} was {before} and is now {data}"),
            ));
        }
        let expected = self.stream.events.get(self.at).map(|(id, _)| *id);
        if expected == id {
            self.at += 1;
            return Ok(ControlFlow::Continue(()));
        }
        // Received events may be gone, and the stream may end in another way. If the server asks a question again,
        // stop: it waits for an answer, and a comparison gives none.
        if now.torn {
            let asks = known.is_none() && data.contains("elicitation/create");
            return Ok(if asks { ControlFlow::Break(()) } else { ControlFlow::Continue(()) });
        }
        let kind = match known {
            Some(known) if known < self.at => FaultKind::Repeated,
            Some(_) => FaultKind::Lost,
            None => FaultKind::WrongOrder,
        };
        Err(CheckFault::new(kind, format!("a replay brings {text} {data}, but {expected:?} is next")))
    }

    /// Checks at the end of the replay that no event is missing.
    pub(crate) fn finish(self, now: Circumstances) -> Result<(), CheckFault> {
        let missing = self.stream.events.len() - self.at;
        if missing == 0 || now.torn {
            return Ok(());
        }
        let detail = format!("a replay ends {missing} events early; {}", self.stream.trail());
        Err(CheckFault::new(FaultKind::Lost, detail))
    }
}
