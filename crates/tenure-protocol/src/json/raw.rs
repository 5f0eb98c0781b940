//! One JSON value, kept as its original bytes.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::json::outline::{Outline, Places};

/// Bytes that are one valid JSON value.
#[derive(Clone)]
pub struct RawJson {
    bytes: Bytes,
    /// The positions of some members, if the parser noted them.
    places: Places,
}

impl RawJson {
    /// `{}`
    pub const EMPTY_OBJECT: Self = Self { bytes: Bytes::from_static(b"{}"), places: Places::UNKNOWN };

    /// Takes bytes that the caller knows to be one JSON value, for example because it just wrote them.
    pub fn trusted(bytes: impl Into<Bytes>) -> Self {
        Self { bytes: bytes.into(), places: Places::UNKNOWN }
    }

    /// As `trusted`, for an object whose member positions the parser noted.
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
    /// When the value has no JSON form, for example a map with keys that are not strings.
    pub fn of(value: &impl serde::Serialize) -> Self {
        Self::trusted(serde_json::to_vec(value).expect("the value has a JSON form"))
    }

    /// A copy in its own buffer, for a value that is kept longer than its message: a slice would keep the whole body.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self { bytes: Bytes::copy_from_slice(&self.bytes), places: self.places }
    }

    /// The JSON text.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Whether its `_meta` may have the version of the modern era; `false` is certain.
    pub fn may_say_version(&self) -> bool {
        self.places.may_say_version(&self.bytes)
    }

    /// The members of params that several stages need. `None` if the value is not an object, or one of them is repeated
    /// or written so that only some servers find it: then it is unknown which value the server will use.
    pub fn outline(&self) -> Option<Outline<'_>> {
        self.places.outline(&self.bytes).or_else(|| Outline::read(&self.bytes))
    }

    /// Reads the value into a type.
    ///
    /// # Errors
    /// When the JSON does not fit the type.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        match std::str::from_utf8(&self.bytes) {
            // One UTF-8 check for the whole text, instead of one for every string in it.
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
