//! The members of params that several stages need: the choice of the era, data sessions and backends. They are found
//! once, while the message is parsed.
//!
//! In: the params of a message. Out: an [`Outline`], or `None` if servers could read the params differently.

use std::borrow::Cow;
use std::sync::LazyLock;

use crate::json::members;
use crate::json::prefilter::Prefilter;
use crate::json::scan::{self, Cursor};
use crate::keys::META_VERSION;

static VERSION: LazyLock<Prefilter> = LazyLock::new(|| Prefilter::of(META_VERSION));

/// The raw values of those members.
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

/// The names that some servers also accept in another case.
const READ_BY_SERVERS: [&str; 3] = ["name", "arguments", "_meta"];

impl<'a> Outline<'a> {
    /// The tool that a call names, if it names one; `None` if the name is not a string.
    pub fn tool(&self) -> Option<Option<Cow<'a, str>>> {
        match self.name {
            None | Some(b"null") => Some(None),
            Some(name) => scan::unquoted(std::str::from_utf8(name).ok()?).map(Some),
        }
    }

    /// Finds the members. `None` if the text is not an object, or one of them is repeated, or is written so that only
    /// some servers find it.
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

/// The positions of the members in the text of the params, as far as the parser noted them. Small, because every
/// message has it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Places {
    name: MemberRange,
    arguments: MemberRange,
    meta: MemberRange,
    /// `_meta` has the version of the modern era.
    pub(crate) says_version: bool,
    looked_at: LookedAt,
}

/// How much of the params the parser has looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum LookedAt {
    No,
    /// The ranges are not complete: a position does not fit in `u16`, or a name needs [`Outline::read`].
    Partly,
    #[default]
    Wholly,
}

/// The start and end of a value. Offset 0 is always `{`, so 0 can mean "absent".
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct MemberRange(u16, u16);

impl Places {
    pub(crate) const UNKNOWN: Self = Self {
        name: MemberRange(0, 0),
        arguments: MemberRange(0, 0),
        meta: MemberRange(0, 0),
        says_version: false,
        looked_at: LookedAt::No,
    };

    /// Notes the position of a member. `None` if the member is repeated.
    pub(crate) fn note(&mut self, name: &[u8], from: usize, to: usize) -> Option<()> {
        let range = match name {
            b"name" => &mut self.name,
            b"arguments" => &mut self.arguments,
            b"_meta" => &mut self.meta,
            other => {
                let is_like = |name: &str| other.eq_ignore_ascii_case(name.as_bytes());
                if other == b"meta" || !other.is_ascii() || READ_BY_SERVERS.into_iter().any(is_like) {
                    self.looked_at = LookedAt::Partly;
                }
                return Some(());
            }
        };
        let is_first = *range == MemberRange::default();
        match (u16::try_from(from), u16::try_from(to)) {
            (Ok(from), Ok(to)) => *range = MemberRange(from, to),
            _ => {
                *range = MemberRange(u16::MAX, u16::MAX);
                self.looked_at = LookedAt::Partly;
            }
        }
        is_first.then_some(())
    }

    /// The outline of the object whose positions were noted; `None` if the positions are not complete.
    pub(crate) fn outline<'a>(&self, object: &'a [u8]) -> Option<Outline<'a>> {
        let at = |MemberRange(from, to): MemberRange| match from {
            0 => None,
            _ => object.get(usize::from(from)..usize::from(to)),
        };
        (self.looked_at == LookedAt::Wholly).then(|| Outline {
            name: at(self.name),
            arguments: at(self.arguments),
            meta: at(self.meta),
            misspelt: None,
        })
    }

    /// Whether the `_meta` of this object may have the version of the modern era; `false` is certain.
    pub(crate) fn may_say_version(&self, object: &[u8]) -> bool {
        match self.looked_at {
            LookedAt::Partly | LookedAt::Wholly => self.says_version,
            LookedAt::No => VERSION.may_be_in(object),
        }
    }
}
