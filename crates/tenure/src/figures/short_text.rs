//! A text that needs no allocation if it is short, as names of tools and servers are.
//!
//! A call is noted by one thread and forgotten by another one, hundreds of calls later. An allocation for each name would cost more
//! than all else that is noted of a call.

/// So many bytes fit in.
const ROOM: usize = 46;

/// A text.
#[derive(Clone, Debug)]
pub(super) enum ShortText {
    Short { length: u8, bytes: [u8; ROOM] },
    Long(Box<str>),
}

impl ShortText {
    pub(super) fn new(text: &str) -> Self {
        match u8::try_from(text.len()) {
            Ok(length) if text.len() <= ROOM => {
                let mut bytes = [0; ROOM];
                bytes[..text.len()].copy_from_slice(text.as_bytes());
                Self::Short { length, bytes }
            }
            _ => Self::Long(text.into()),
        }
    }

    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Short { length, bytes } => {
                // Made of a whole text, so it is one.
                std::str::from_utf8(&bytes[..usize::from(*length)]).unwrap_or_default()
            }
            Self::Long(text) => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_comes_back_as_it_was_whatever_its_length() {
        for text in ["", "echo", "é", &"é".repeat(23), &"é".repeat(24), &"x".repeat(46), &"x".repeat(300)]
        {
            let kept = ShortText::new(text);
            assert_eq!(kept.as_str(), text);
            assert_eq!(matches!(kept, ShortText::Short { .. }), text.len() <= ROOM, "{text}");
        }
    }
}
