//! Sealing what a client carries for us: it must come back unread and unchanged, from whom it was given to.

/// Seals and opens.
///
/// 1. What was sealed opens with the same `bound` and no other.
/// 2. What was changed does not open. Nor does what somebody else sealed.
/// 3. The same thing sealed twice looks different each time.
pub trait Seal: Send + Sync + 'static {
    /// Seals something that belongs to `bound`.
    fn seal(&self, bound: &[u8], plain: &[u8]) -> Option<Vec<u8>>;
    /// Opens it again.
    fn open(&self, bound: &[u8], sealed: &[u8]) -> Option<Vec<u8>>;
}
