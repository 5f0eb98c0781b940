//! The members of params that everybody on a request's way looks for: whoever decides its era, data sessions, servers.
//! They are found once, when the message is read.

use std::borrow::Cow;
use std::sync::LazyLock;

use crate::json::members;
use crate::json::prefilter::Prefilter;
use crate::json::scan::{self, Cursor};
use crate::keys::META_VERSION;

static VERSION: LazyLock<Prefilter> = LazyLock::new(|| Prefilter::of(META_VERSION));

/// The values of those members, as they stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outline<'a> {
    /// The name of a tool or prompt.
    pub name: Option<&'a [u8]>,
    /// The arguments of a tool or prompt.
    pub arguments: Option<&'a [u8]>,
    /// `_meta`.
    pub meta: Option<&'a [u8]>,
    /// `meta`, as some clients write it.
    pub misspelt: Option<&'a [u8]>,
}

/// The names that a server may read in another spelling too.
const READ_BY_SERVERS: [&str; 3] = ["name", "arguments", "_meta"];

impl<'a> Outline<'a> {
    /// The tool that a call names, if it names one; `None` if that is no text.
    #[expect(clippy::option_option, reason = "what makes no sense, and no name")]
    pub fn tool(&self) -> Option<Option<Cow<'a, str>>> {
        match self.name {
            None | Some(b"null") => Some(None),
            Some(name) => scan::unquoted(std::str::from_utf8(name).ok()?).map(Some),
        }
    }

    /// Looks for them. `None` if it is no object, or one of them stands twice, or is written so that only some servers
    /// find it.
    pub(crate) fn read(object: &'a [u8]) -> Option<Self> {
        let mut found = Self::default();
        let mut cursor = Cursor::at_object(object)?;
        while let Some(name) = cursor.name()? {
            let value = cursor.value()?;
            let place = match &*name {
                b"name" => &mut found.name,
                b"arguments" => &mut found.arguments,
                b"_meta" => &mut found.meta,
                b"meta" => &mut found.misspelt,
                other => {
                    let other = std::str::from_utf8(other).ok()?;
                    if READ_BY_SERVERS.into_iter().any(|name| members::is_taken_for(other, name)) {
                        return None;
                    }
                    continue;
                }
            };
            if place.replace(value).is_some() {
                return None;
            }
        }
        cursor.is_at_end().then_some(found)
    }
}

/// Where they stand in a text, or that nobody has looked. Small, because every message has it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Places {
    name: Place,
    arguments: Place,
    meta: Place,
    /// The version of the modern era stands in `_meta`.
    pub(crate) says_version: bool,
    seen: Seen,
}

/// Whether somebody has looked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Seen {
    No,
    /// But not at everything: it is long, or there is something to be looked at closely.
    Partly,
    #[default]
    Wholly,
}

/// From where to where. Nothing stands at the very beginning of an object, so that means nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Place(u16, u16);

impl Places {
    pub(crate) const UNKNOWN: Self = Self {
        name: Place(0, 0),
        arguments: Place(0, 0),
        meta: Place(0, 0),
        says_version: false,
        seen: Seen::No,
    };

    /// Notes where a member stands. `None` if it stands somewhere else too.
    pub(crate) fn note(&mut self, name: &[u8], from: usize, to: usize) -> Option<()> {
        let place = match name {
            b"name" => &mut self.name,
            b"arguments" => &mut self.arguments,
            b"_meta" => &mut self.meta,
            other => {
                let is_like = |name: &str| other.eq_ignore_ascii_case(name.as_bytes());
                if other == b"meta" || !other.is_ascii() || READ_BY_SERVERS.into_iter().any(is_like) {
                    self.seen = Seen::Partly;
                }
                return Some(());
            }
        };
        let is_first = *place == Place::default();
        match (u16::try_from(from), u16::try_from(to)) {
            (Ok(from), Ok(to)) => *place = Place(from, to),
            _ => {
                *place = Place(u16::MAX, u16::MAX);
                self.seen = Seen::Partly;
            }
        }
        is_first.then_some(())
    }

    /// The members of the object in which they were noted; `None` if nobody has looked at all of them.
    pub(crate) fn outline<'a>(&self, object: &'a [u8]) -> Option<Outline<'a>> {
        let at = |Place(from, to): Place| match from {
            0 => None,
            _ => object.get(usize::from(from)..usize::from(to)),
        };
        (self.seen == Seen::Wholly).then(|| Outline {
            name: at(self.name),
            arguments: at(self.arguments),
            meta: at(self.meta),
            misspelt: None,
        })
    }

    /// Whether the version of the modern era can stand in the `_meta` of this object.
    pub(crate) fn may_say_version(&self, object: &[u8]) -> bool {
        match self.seen {
            Seen::Partly | Seen::Wholly => self.says_version,
            Seen::No => VERSION.may_be_in(object),
        }
    }
}
