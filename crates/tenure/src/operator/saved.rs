//! A session in a file: one line of JSON, and the checks that such a line has to pass.
//!
//! The line contains the hash of the session's id, never the secret id. Record and messages are as in the store, so
//! that a client with the id can go on wherever the line is imported. The format number rises when an older reader
//! would misread a line.

use std::collections::HashSet;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tenure_protocol::Revision;
use tenure_session::id::Position;
use tenure_session::port::clock::Time;
use tenure_session::port::store::{EntryPlace, Event, SavedLog, SavedStream};
use tenure_session::record::StoredSession;
use tenure_session::session::Phase;
use tenure_session::session::SavedSession;
use tenure_session::{SessionKey, StreamId};

use super::key::{key_text, parse_key};

/// The format that is written, and the newest that is read.
const FORMAT: u32 = 1;

/// The longest line that is read. A session with as many bytes of events as the configuration allows by default
/// takes a quarter of it at most.
pub(crate) const MAX_LINE_BYTES: usize = 512 << 20;

/// Positions beyond this are refused: a store continues from the highest position that it has seen.
const MAX_POSITION: u64 = 1 << 62;

/// A session, as it stands in a file.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct Saved {
    format: u32,
    key: String,
    record: Box<RawValue>,
    #[serde(default)]
    deadline: Option<u64>,
    #[serde(default)]
    streams: Vec<StreamLine>,
    #[serde(default)]
    next_stream: u32,
    #[serde(default)]
    trimmed: u64,
}

#[derive(Serialize, Deserialize, Debug)]
struct StreamLine {
    stream: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(default)]
    trimmed: u64,
    #[serde(default)]
    events: Vec<EventLine>,
}

#[derive(Serialize, Deserialize, Debug)]
struct EventLine {
    position: u64,
    at: u64,
    place: PlaceName,
    body: String,
}

#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
enum PlaceName {
    Middle,
    End,
}

/// Why a line is not a session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotSaved {
    #[error("not a line of exported sessions")]
    Json(#[from] serde_json::Error),
    #[error("export format {0} is newer than {FORMAT}, the newest this version reads")]
    Newer(u32),
    #[error("`{0}` is not the key of a session")]
    Key(String),
    #[error("the record of {label} cannot be read")]
    Record {
        label: String,
        #[source]
        cause: tenure_session::record::UnreadableRecord,
    },
    #[error("{label}: {what}")]
    Wrong { label: String, what: String },
}

impl Saved {
    /// The line for a session from a store.
    pub(crate) fn of(saved: &SavedSession) -> Result<Self, NotSaved> {
        let label = saved.key.label();
        let text = |bytes: &Bytes, what: &str| {
            let text = std::str::from_utf8(bytes).map(str::to_owned);
            text.map_err(|_| NotSaved::Wrong { label: label.clone(), what: format!("{what} is not text") })
        };
        let record = RawValue::from_string(text(&saved.record, "its record")?)?;
        let mut streams = Vec::with_capacity(saved.log.streams.len());
        for stream in &saved.log.streams {
            let mut events = Vec::with_capacity(stream.events.len());
            for event in &stream.events {
                events.push(EventLine {
                    position: event.position.0,
                    at: event.at.0,
                    place: if event.place == EntryPlace::End { PlaceName::End } else { PlaceName::Middle },
                    body: text(&event.body, "an event")?,
                });
            }
            streams.push(StreamLine {
                stream: stream.stream.number(),
                note: stream.note.as_ref().map(|note| text(note, "a note")).transpose()?,
                trimmed: stream.trimmed.0,
                events,
            });
        }
        Ok(Self {
            format: FORMAT,
            key: key_text(&saved.key),
            record,
            deadline: saved.deadline.map(|deadline| deadline.0),
            streams,
            next_stream: saved.log.next_stream,
            trimmed: saved.log.trimmed.0,
        })
    }

    /// Reads a line.
    pub(crate) fn parse(line: &[u8]) -> Result<Self, NotSaved> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        // The format first: a newer format may have any other members.
        let Format { format } = serde_json::from_slice(line)?;
        if format > FORMAT {
            return Err(NotSaved::Newer(format));
        }
        Ok(serde_json::from_slice(line)?)
    }

    /// The line, without the line break.
    pub(crate) fn line(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a saved session has a JSON form")
    }

    /// Checks everything that could do harm in a store, and returns the session to import.
    pub(crate) fn check(self) -> Result<SavedSession, NotSaved> {
        let key = parse_key(&self.key).ok_or_else(|| NotSaved::Key(self.key.clone()))?;
        let label = key.label();
        let record = Bytes::from(self.record.get().to_owned());
        let kept = StoredSession::decode(&record)
            .map_err(|cause| NotSaved::Record { label: label.clone(), cause })?;
        let wrong = |what: String| NotSaved::Wrong { label: label.clone(), what };
        match kept {
            StoredSession::Session(session) => {
                Revision::parse(&session.revision)
                    .ok_or_else(|| wrong(format!("revision `{}` is not known", session.revision)))?;
                Phase::parse(&session.phase)
                    .ok_or_else(|| wrong(format!("phase `{}` is not known", session.phase)))?;
            }
            StoredSession::Tombstone(_) if !self.streams.is_empty() => {
                return Err(wrong("an ended session has no streams".to_owned()));
            }
            StoredSession::Tombstone(_) => {}
        }
        let log = check_log(self.streams, self.next_stream, self.trimmed).map_err(wrong)?;
        Ok(SavedSession { key, record, deadline: self.deadline.map(Time), log })
    }

    /// When the sweep looks at the session.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.deadline.map(Time)
    }

    /// The key of the session, before any check; `None` if it is malformed.
    pub(crate) fn key(&self) -> Option<SessionKey> {
        parse_key(&self.key)
    }
}

fn check_log(lines: Vec<StreamLine>, next_stream: u32, trimmed: u64) -> Result<SavedLog, String> {
    if trimmed > MAX_POSITION {
        return Err("a position is too large".to_owned());
    }
    let mut log =
        SavedLog { streams: Vec::with_capacity(lines.len()), next_stream, trimmed: Position(trimmed) };
    let mut positions = HashSet::new();
    let mut above = None;
    for line in lines {
        let number = line.stream;
        let wrong = |what: &str| Err(format!("stream {number}: {what}"));
        if above.is_some_and(|above| number <= above) {
            return wrong("the streams are not in order");
        }
        if number >= next_stream {
            return wrong("its number is not below `next_stream`");
        }
        above = Some(number);
        if line.trimmed > MAX_POSITION {
            return wrong("a position is too large");
        }
        let mut saved = SavedStream {
            stream: StreamId::new(number),
            note: line.note.map(Bytes::from),
            trimmed: Position(line.trimmed),
            events: Vec::with_capacity(line.events.len()),
        };
        let (mut last, mut is_ended) = (line.trimmed, false);
        for event in line.events {
            if is_ended {
                return wrong("an event follows the end");
            }
            if event.position <= last {
                return wrong("the events are not in order");
            }
            if event.position > MAX_POSITION {
                return wrong("a position is too large");
            }
            if event.position <= trimmed {
                return wrong("an event is where everything was trimmed");
            }
            if !positions.insert(event.position) {
                return wrong("two events have the same position");
            }
            last = event.position;
            is_ended = event.place == PlaceName::End;
            saved.events.push(Event {
                position: Position(event.position),
                body: event.body.into(),
                place: if is_ended { EntryPlace::End } else { EntryPlace::Middle },
                at: Time(event.at),
            });
        }
        if is_ended && saved.note.is_some() {
            return wrong("it is complete and has a note");
        }
        log.streams.push(saved);
    }
    Ok(log)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn saved() -> Value {
        json!({
            "format": 1,
            "key": "4f3a9c01000000000000000000000001",
            "record": { "format": 1, "session": {
                "owner": null, "revision": "2025-11-25", "phase": "initialized", "created": 1, "last_used": 2,
                "initialize": {}, "initialize_result": {},
            } },
            "deadline": 5,
            "streams": [
                { "stream": 0, "trimmed": 0, "events": [
                    { "position": 3, "at": 1, "place": "middle", "body": "{}" },
                ] },
                { "stream": 2, "trimmed": 4, "note": "{}", "events": [
                    { "position": 5, "at": 2, "place": "middle", "body": "{\"a\":1}" },
                    { "position": 9, "at": 3, "place": "middle", "body": "" },
                ] },
            ],
            "next_stream": 3,
            "trimmed": 2,
        })
    }

    fn check(value: &Value) -> Result<SavedSession, NotSaved> {
        Saved::parse(value.to_string().as_bytes())?.check()
    }

    #[test]
    fn a_line_survives_being_read_and_written() {
        let session = check(&saved()).unwrap();
        assert_eq!((session.key.label().as_str(), session.deadline), ("s-4f3a9c01", Some(Time(5))));
        assert_eq!((session.log.next_stream, session.log.trimmed), (3, Position(2)));
        assert_eq!(session.log.streams[1].events[0].body, "{\"a\":1}");
        let line = Saved::of(&session).unwrap().line();
        assert!(!line.contains(&b'\n'));
        let again = Saved::parse(&line).unwrap().check().unwrap();
        assert_eq!((again.record, again.log), (session.record, session.log));
    }

    #[test]
    fn a_line_of_an_earlier_version_says_nothing_of_streams_that_were_trimmed_away() {
        let mut saved = saved();
        saved.as_object_mut().unwrap().remove("trimmed");
        assert_eq!(check(&saved).unwrap().log.trimmed, Position::START);
    }

    #[test]
    fn the_record_stays_as_it_was_byte_for_byte() {
        let line = saved().to_string().replace("\"created\":1,", "\"created\" : 1,  \"added\":1.50,");
        let session = Saved::parse(line.as_bytes()).unwrap().check().unwrap();
        let record = String::from_utf8(session.record.to_vec()).unwrap();
        assert!(record.contains("\"created\" : 1,  \"added\":1.50"), "{record}");
    }

    #[test]
    fn what_would_do_harm_in_a_store_is_refused() {
        let event = |position: u64| json!({ "position": position, "at": 1, "place": "middle", "body": "" });
        let table = [
            ("/format", json!(2), "export format 2 is newer than 1, the newest this version reads"),
            ("/key", json!("4f3a"), "`4f3a` is not the key of a session"),
            ("/record", json!({ "format": 1 }), "the record of s-4f3a9c01 cannot be read"),
            ("/record/format", json!(2), "the record of s-4f3a9c01 cannot be read"),
            (
                "/record/session/revision",
                json!("1999-01-01"),
                "s-4f3a9c01: revision `1999-01-01` is not known",
            ),
            ("/record/session/phase", json!("full moon"), "s-4f3a9c01: phase `full moon` is not known"),
            ("/streams/1/stream", json!(0), "s-4f3a9c01: stream 0: the streams are not in order"),
            ("/next_stream", json!(2), "s-4f3a9c01: stream 2: its number is not below `next_stream`"),
            ("/streams/1/trimmed", json!(5), "s-4f3a9c01: stream 2: the events are not in order"),
            ("/streams/1/trimmed", json!(1_u64 << 63), "s-4f3a9c01: stream 2: a position is too large"),
            ("/trimmed", json!(1_u64 << 63), "s-4f3a9c01: a position is too large"),
            ("/trimmed", json!(3), "s-4f3a9c01: stream 0: an event is where everything was trimmed"),
            ("/streams/1/events/1", event(5), "s-4f3a9c01: stream 2: the events are not in order"),
            ("/streams/1/events/1", event(u64::MAX), "s-4f3a9c01: stream 2: a position is too large"),
            ("/streams/0/events/0", event(5), "s-4f3a9c01: stream 2: two events have the same position"),
            ("/streams/1/events/0/place", json!("end"), "s-4f3a9c01: stream 2: an event follows the end"),
            (
                "/streams/1/events/1/place",
                json!("end"),
                "s-4f3a9c01: stream 2: it is complete and has a note",
            ),
            ("/streams/1/events/1/place", json!("note"), "not a line of exported sessions"),
        ];
        for (place, value, expected) in table {
            let mut saved = saved();
            *saved.pointer_mut(place).unwrap() = value;
            assert_eq!(check(&saved).unwrap_err().to_string(), expected, "{place}");
        }
        let mut tombstone = saved();
        tombstone["record"] =
            json!({ "format": 1, "tombstone": { "owner": null, "end": "deleted", "at": 1 } });
        assert_eq!(check(&tombstone).unwrap_err().to_string(), "s-4f3a9c01: an ended session has no streams");
        tombstone["streams"] = json!([]);
        check(&tombstone).unwrap();
    }
}
