//! Checks that no two streams of one session share a stream number or the id of a question.

use std::collections::HashMap;

use super::{CheckFault, EventId, FaultKind};

/// The stream numbers and questions that a session has used.
#[derive(Debug, Default)]
pub(crate) struct SessionCheck {
    /// The tag in every event id of the session.
    tag: Option<u32>,
    /// Which request each stream number belongs to.
    owners: HashMap<u32, String>,
    /// The stream on which each question of the server was asked.
    questions: HashMap<String, u32>,
}

impl SessionCheck {
    /// A request (or the standalone stream) got this id, so the stream belongs to it.
    pub(crate) fn claim(&mut self, id: EventId, owner: &str) -> Result<(), CheckFault> {
        let tag = *self.tag.get_or_insert(id.tag);
        if tag != id.tag {
            let detail = format!("{owner}: an event id with the tag {:x} in a session of {tag:x}", id.tag);
            return Err(CheckFault::new(FaultKind::WrongStream, detail));
        }
        let known = self.owners.entry(id.stream).or_insert_with(|| owner.to_owned());
        if known != owner {
            let detail = format!("stream {:x} belongs to {known} and now to {owner} too", id.stream);
            return Err(CheckFault::new(FaultKind::IdReused, detail));
        }
        Ok(())
    }

    /// Records a question. Each must have an id of its own, also after a restart: the server must not take an answer to
    /// an old question for an answer to a new one.
    pub(crate) fn asked(&mut self, question: &str, stream: u32) -> Result<(), CheckFault> {
        match self.questions.insert(question.to_owned(), stream) {
            None => Ok(()),
            Some(before) => {
                let detail =
                    format!("question {question} was asked on stream {before:x} and on {stream:x} again");
                Err(CheckFault::new(FaultKind::IdReused, detail))
            }
        }
    }
}
