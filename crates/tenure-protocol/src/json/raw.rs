//! JSON that stays the bytes it was.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::json::outline::{Outline, Places};

/// Bytes that are one valid JSON value.
#[derive(Clone)]
pub struct RawJson {
    bytes: Bytes,
    /// Where some of its members stand, if they were looked for when it was read.
    places: Places,
}

impl RawJson {
    /// `{}`
    pub const EMPTY_OBJECT: Self = Self { bytes: Bytes::from_static(b"{}"), places: Places::UNKNOWN };

    /// Takes bytes that the caller knows to be one JSON value, e.g. because it just wrote them.
    pub fn trusted(bytes: impl Into<Bytes>) -> Self {
        Self { bytes: bytes.into(), places: Places::UNKNOWN }
    }

    /// The same for an object whose members were looked for.
    pub(crate) fn with_places(bytes: Bytes, places: Places) -> Self {
        Self { bytes, places }
    }

    /// Checks that the bytes are one JSON value.
    pub fn parse(bytes: impl Into<Bytes>) -> Option<Self> {
        let bytes = bytes.into();
        serde_json::from_slice::<&RawValue>(&bytes).ok()?;
        Some(Self::trusted(bytes))
    }

    /// Writes a value as JSON.
    ///
    /// # Panics
    /// When the value has no JSON form, e.g. a map with keys that are not strings.
    pub fn of(value: &impl serde::Serialize) -> Self {
        Self::trusted(serde_json::to_vec(value).expect("the value has a JSON form"))
    }

    /// The same value in a buffer of its own, for whoever keeps it longer than the message it came in.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self { bytes: Bytes::copy_from_slice(&self.bytes), places: self.places }
    }

    /// The JSON text.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Whether the version of the modern era can stand in its `_meta`; `false` is for sure.
    pub fn may_say_version(&self) -> bool {
        self.places.may_say_version(&self.bytes)
    }

    /// The members of params that everybody on a request's way looks for. `None` if it is no object, or one of them
    /// stands twice, or is written so that only some servers find it: nobody can tell what a server will make of it.
    pub fn outline(&self) -> Option<Outline<'_>> {
        self.places.outline(&self.bytes).or_else(|| Outline::read(&self.bytes))
    }

    /// Reads the value into a type.
    ///
    /// # Errors
    /// When the JSON does not fit the type.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        match std::str::from_utf8(&self.bytes) {
            // Checked once, instead of with every string in it.
            Ok(text) => serde_json::from_str(text),
            Err(_) => serde_json::from_slice(&self.bytes),
        }
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for RawJson {}

impl std::fmt::Debug for RawJson {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.bytes))
    }
}
