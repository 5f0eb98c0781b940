//! SWAR: tests eight bytes of a text at once in one `u64`.

/// A word of eight equal bytes.
pub const fn all(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// SWAR test: the lowest set 0x80 bit marks the first byte below `than`; higher 0x80 bits may be false positives, and
/// the other bits have no meaning. `than` must not be above 0x80.
pub const fn less(word: u64, than: u8) -> u64 {
    word.wrapping_sub(all(than)) & !word
}

/// As [`less`], for bytes that are equal to `byte`.
pub const fn equal(word: u64, byte: u8) -> u64 {
    less(word ^ all(byte), 1)
}

/// The index of the first byte that [`less`] or [`equal`] marked, in a little-endian word.
pub const fn first(found: u64) -> Option<usize> {
    match found & all(0x80) {
        0 => None,
        found => Some(found.trailing_zeros() as usize / 8),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_is_found(bytes: [u8; 8], byte in 0_u8..0x40) {
            let bytes = bytes.map(|it| it % 0x80);
            let word = u64::from_le_bytes(bytes);
            prop_assert_eq!(first(equal(word, byte)), bytes.iter().position(|it| *it == byte));
            prop_assert_eq!(first(less(word, byte)), bytes.iter().position(|it| *it < byte));
            let high = bytes.map(|it| it | 0x80);
            prop_assert_eq!(first(less(u64::from_le_bytes(high), byte) | equal(word, byte)), bytes.iter().position(|it| *it == byte));
        }
    }
}
