//! The members of params that everybody on a request's way looks for: whoever decides its era, data sessions, servers.
//! They are found once, when the message is read.

use std::sync::LazyLock;

use crate::mention::Mention;
use crate::protocol::META_VERSION;
use crate::scan::Cursor;

static VERSION: LazyLock<Mention> = LazyLock::new(|| Mention::of(META_VERSION));

/// The values of those members, as they stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Outline<'a> {
    pub(crate) name: Option<&'a [u8]>,
    pub(crate) arguments: Option<&'a [u8]>,
    pub(crate) meta: Option<&'a [u8]>,
    /// `meta`, as some clients write it.
    pub(crate) misspelt: Option<&'a [u8]>,
    /// The version of the modern era may stand in `_meta`.
    pub(crate) may_say_version: bool,
}

impl<'a> Outline<'a> {
    /// Looks for them. `None` if it is no object, or one of them stands twice.
    pub(super) fn read(object: &'a [u8]) -> Option<Self> {
        let mut found = Self::default();
        let mut cursor = Cursor::at_object(object)?;
        while let Some(name) = cursor.name()? {
            let value = cursor.value()?;
            let place = match &*name {
                b"name" => &mut found.name,
                b"arguments" => &mut found.arguments,
                b"_meta" => &mut found.meta,
                b"meta" => &mut found.misspelt,
                _ => continue,
            };
            if place.replace(value).is_some() {
                return None;
            }
        }
        found.may_say_version = found.meta.is_some_and(|meta| VERSION.may_be_in(meta));
        cursor.is_at_end().then_some(found)
    }
}

/// Where they stand in a text, or that nobody has looked. Small, because every message has it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Places {
    name: Place,
    arguments: Place,
    meta: Place,
    /// The version of the modern era stands in `_meta`.
    pub(super) says_version: bool,
    is_unknown: bool,
}

/// From where to where. Nothing stands at the very beginning of an object, so that means nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Place(u16, u16);

impl Places {
    pub(super) const UNKNOWN: Self = Self {
        name: Place(0, 0),
        arguments: Place(0, 0),
        meta: Place(0, 0),
        says_version: false,
        is_unknown: true,
    };

    /// Notes where a member stands. `None` if it stands somewhere else too.
    pub(super) fn note(&mut self, name: &[u8], from: usize, to: usize) -> Option<()> {
        let place = match name {
            b"name" => &mut self.name,
            b"arguments" => &mut self.arguments,
            b"_meta" => &mut self.meta,
            b"meta" => {
                self.is_unknown = true;
                return Some(());
            }
            _ => return Some(()),
        };
        let is_first = *place == Place::default();
        match (u16::try_from(from), u16::try_from(to)) {
            (Ok(from), Ok(to)) => *place = Place(from, to),
            // In what is so long they can be looked for again.
            _ => self.is_unknown = true,
        }
        is_first.then_some(())
    }

    /// The members of the object in which they were noted; `None` if nobody has looked.
    pub(super) fn outline<'a>(&self, object: &'a [u8]) -> Option<Outline<'a>> {
        let at = |Place(from, to): Place| match from {
            0 => None,
            _ => object.get(usize::from(from)..usize::from(to)),
        };
        (!self.is_unknown).then(|| Outline {
            name: at(self.name),
            arguments: at(self.arguments),
            meta: at(self.meta),
            misspelt: None,
            may_say_version: self.says_version,
        })
    }
}
