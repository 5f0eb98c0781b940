//! The names of traces and spans, and whether a request is traced.
//!
//! In: `traceparent` as W3C writes it. Out: the same for the next one.

use std::cell::Cell;

use ring::rand::{SecureRandom, SystemRandom};

/// A span that others can be under: its trace, and itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SpanContext {
    pub(super) trace: u128,
    pub(super) span: u64,
    pub(super) is_sampled: bool,
}

impl SpanContext {
    /// Reads a `traceparent`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_hex = |text: &str, length: usize| {
            text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        let is_known = is_hex(version, 2)
            && version != "ff"
            && (version != "00" || parts.next().is_none())
            && is_hex(flags, 2);
        let (trace, span) = (
            u128::from_str_radix(trace, 16).ok().filter(|_| is_hex(trace, 32))?,
            u64::from_str_radix(span, 16).ok().filter(|_| is_hex(span, 16))?,
        );
        let flags = u8::from_str_radix(flags, 16).ok()?;
        (is_known && trace != 0 && span != 0).then_some(Self { trace, span, is_sampled: flags & 1 == 1 })
    }

    /// As it is sent on.
    pub(super) fn write(&self) -> String {
        format!("00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.is_sampled))
    }

    /// A new span in the same trace.
    pub(super) fn child(&self) -> Self {
        Self { span: random_id(), ..*self }
    }
}

/// Which of the requests without a parent are traced: those whose random number is below this.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ratio(u64);

impl Ratio {
    /// This share of all, from 0 to 1.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of all numbers need not be exact"
    )]
    pub(super) fn new(share: f64) -> Self {
        Self((share.clamp(0.0, 1.0) * u64::MAX as f64) as u64)
    }

    pub(super) fn takes(self, number: u64) -> bool {
        self.0 == u64::MAX || number < self.0
    }
}

/// The number of a request of a session, which is the same when it runs again after a restart: so that the second run can name the span of
/// the first. Without a session it is random.
pub(super) fn number_of(session: Option<&str>, request: &[u8]) -> u64 {
    let Some(session) = session else { return random_id() };
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for byte in session.bytes().chain([0]).chain(request.iter().copied()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    scattered(hash)
}

/// The trace of a request without a parent.
pub(super) fn trace_of(number: u64) -> u128 {
    (u128::from(scattered(number ^ 0x7465_6e75_7265)) << 64) | u128::from(number.max(1))
}

/// The span of the first run of a request.
pub(super) fn span_of(trace: u128, number: u64) -> u64 {
    #[expect(clippy::cast_possible_truncation, reason = "both halves count")]
    let folded = (trace >> 64) as u64 ^ trace as u64;
    scattered(folded ^ scattered(number)).max(1)
}

/// Every bit of the result depends on every bit of the number.
fn scattered(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A number that is hard to meet twice. Not a secret: names of spans go to others.
pub(super) fn random_id() -> u64 {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(seed());
    }
    let state = STATE.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    STATE.set(state);
    scattered(state).max(1)
}

fn seed() -> u64 {
    let mut bytes = [0; 8];
    let drawn = SystemRandom::new().fill(&mut bytes);
    drawn.expect("the operating system provides randomness");
    u64::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_is_read_and_written_as_w3c_says() {
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let read = SpanContext::parse(text).unwrap();
        assert!(read.is_sampled);
        assert_eq!(read.write(), text);
        assert!(!SpanContext::parse(&text.replace("-01", "-00")).unwrap().is_sampled);
        assert!(SpanContext::parse(&format!("{}-more", text.replacen("00", "cc", 1))).is_some());
        let zeros = "00-00000000000000000000000000000000-b7ad6b7169203331-01";
        for bad in
            ["", "00", &text.to_uppercase(), &text[..54], &format!("{text}-more"), &format!("+{text}"), zeros]
        {
            assert_eq!(SpanContext::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_share_of_requests_is_taken_and_the_same_request_always_so() {
        let (none, some, all) = (Ratio::new(0.0), Ratio::new(0.01), Ratio::new(1.0));
        let mut taken = 0;
        for request in 0..100_000_u32 {
            let number = number_of(Some("s-4f3a9c01"), request.to_string().as_bytes());
            assert_eq!(number, number_of(Some("s-4f3a9c01"), request.to_string().as_bytes()));
            taken += u32::from(some.takes(number));
            assert!(all.takes(number) && !none.takes(number));
        }
        assert!((800..1_200).contains(&taken), "{taken}");
        assert_ne!(number_of(None, b"1"), number_of(None, b"1"));
        assert_ne!(span_of(1, 2), span_of(1, 3));
    }
}
