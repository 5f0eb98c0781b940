//! What no two streams of one session may share: stream numbers and the ids of questions.

use std::collections::HashMap;

use super::{EventId, Fault, Kind};

/// What is known of a session's streams.
#[derive(Debug, Default)]
pub(crate) struct SessionCheck {
    /// The tag in every event id of the session.
    tag: Option<u32>,
    /// Which request each stream number belongs to.
    owners: HashMap<u32, String>,
    /// On which stream each question of the server was asked.
    questions: HashMap<String, u32>,
}

impl SessionCheck {
    /// A request (or the standalone stream) found itself on the stream of this id.
    pub(crate) fn claim(&mut self, id: EventId, owner: &str) -> Result<(), Fault> {
        let tag = *self.tag.get_or_insert(id.tag);
        if tag != id.tag {
            let detail = format!("{owner}: an event id with the tag {:x} in a session of {tag:x}", id.tag);
            return Err(Fault::new(Kind::WrongStream, detail));
        }
        let known = self.owners.entry(id.stream).or_insert_with(|| owner.to_owned());
        if known != owner {
            let detail = format!("stream {:x} belongs to {known} and now to {owner} too", id.stream);
            return Err(Fault::new(Kind::IdReused, detail));
        }
        Ok(())
    }

    /// A question was asked. Each has an id of its own, also after a restart: an answer to an old
    /// question must not be taken for one to a new question.
    pub(crate) fn asked(&mut self, question: &str, stream: u32) -> Result<(), Fault> {
        match self.questions.insert(question.to_owned(), stream) {
            None => Ok(()),
            Some(before) => {
                let detail =
                    format!("question {question} was asked on stream {before:x} and on {stream:x} again");
                Err(Fault::new(Kind::IdReused, detail))
            }
        }
    }
}
