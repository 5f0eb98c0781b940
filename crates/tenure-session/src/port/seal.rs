//! Seals data that a client carries for us: the client can neither read nor change it, and only the same client can
//! bring it back.

/// Seals and opens.
///
/// 1. Sealed bytes open only with the `bound` that they were sealed with.
/// 2. Changed bytes do not open, nor do bytes that were sealed with another key.
/// 3. Sealing the same bytes twice gives different results.
pub trait Seal: Send + Sync + 'static {
    /// Seals `plain` and binds it to `bound`.
    fn seal(&self, bound: &[u8], plain: &[u8]) -> Option<Vec<u8>>;
    /// Opens sealed bytes.
    fn open(&self, bound: &[u8], sealed: &[u8]) -> Option<Vec<u8>>;
}
