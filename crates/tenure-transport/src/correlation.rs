//! The id by which logs of several processes are put together, and the trace that a request belongs to.
//!
//! In: the headers `x-request-id` and `traceparent`. Out: an id that is safe in any log. Others' ids are taken only if they
//! are short and plain.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use http::{HeaderMap, HeaderName};

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub(crate) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The longest id that is taken from others.
const LONGEST: usize = 64;

/// The id of a request, and its trace id, if it has them.
pub(crate) fn of(headers: &HeaderMap) -> (Option<Arc<str>>, Option<Box<str>>) {
    let trace = only(headers, &TRACEPARENT).and_then(trace_id);
    let own = only(headers, &REQUEST_ID).filter(|id| is_plain(id));
    (own.or(trace).map(Arc::from), trace.map(Box::from))
}

/// The id of a request, if it has one.
pub(crate) fn id_of(headers: &HeaderMap) -> Option<Arc<str>> {
    let own = only(headers, &REQUEST_ID).filter(|id| is_plain(id));
    own.or_else(|| only(headers, &TRACEPARENT).and_then(trace_id)).map(Arc::from)
}

/// A new id. It is no secret, and unique in this process.
pub(crate) fn make() -> Arc<str> {
    static PROCESS: OnceLock<u32> = OnceLock::new();
    static NEXT: AtomicU32 = AtomicU32::new(0);
    #[expect(clippy::cast_possible_truncation, reason = "any 32 bits will do")]
    let process = *PROCESS.get_or_init(|| RandomState::new().build_hasher().finish() as u32);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut text = [0; 16];
    for (place, digit) in text.iter_mut().enumerate() {
        let half = if place < 8 { process } else { number };
        let shift = 28 - 4 * (place % 8);
        *digit = b"0123456789abcdef"[(half >> shift & 15) as usize];
    }
    std::str::from_utf8(&text).expect("hex digits are text").into()
}

/// The value of a header that occurs once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then(|| value.to_str().ok())?
}

fn is_plain(id: &str) -> bool {
    let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:+/=@".contains(&byte);
    (1..=LONGEST).contains(&id.len()) && id.bytes().all(is_safe)
}

/// The trace id of a `traceparent`.
fn trace_id(traceparent: &str) -> Option<&str> {
    let mut parts = traceparent.split('-');
    let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_hex = |text: &str, length| {
        text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_known = is_hex(version, 2) && version != "ff" && (version != "00" || parts.next().is_none());
    let is_set = |text: &str| text.bytes().any(|byte| byte != b'0');
    (is_known
        && is_hex(trace, 32)
        && is_set(trace)
        && is_hex(parent, 16)
        && is_set(parent)
        && is_hex(flags, 2))
    .then_some(trace)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    fn read(lines: &[(&HeaderName, &str)]) -> (Option<String>, Option<String>) {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let (id, trace) = of(&headers);
        (id.map(|id| id.to_string()), trace.map(String::from))
    }

    #[test]
    fn an_id_of_others_is_taken_only_if_it_is_short_and_plain() {
        let parent = format!("00-{TRACE}-b7ad6b7169203331-01");
        let taken = |id: &str| read(&[(&REQUEST_ID, id)]).0;
        for good in ["a", "f3c1-77_x.y:z+w/=@", &"x".repeat(64), TRACE] {
            assert_eq!(taken(good).as_deref(), Some(good));
        }
        for bad in ["", " a", "a b", "a\tb", "a\"b", "ä", "a;b", "<x>", "a\\b", &"x".repeat(65)] {
            assert_eq!(taken(bad), None, "{bad:?}");
        }
        let both = [(&REQUEST_ID, "mine"), (&TRACEPARENT, parent.as_str())];
        assert_eq!(read(&both), (Some("mine".to_owned()), Some(TRACE.to_owned())));
        let odd = [(&REQUEST_ID, "a b"), (&TRACEPARENT, parent.as_str())];
        assert_eq!(
            read(&odd),
            (Some(TRACE.to_owned()), Some(TRACE.to_owned())),
            "the trace stands in for it"
        );
        assert_eq!(read(&[(&REQUEST_ID, "one"), (&REQUEST_ID, "two")]), (None, None), "two count as absent");
    }

    #[test]
    fn a_traceparent_is_read_as_w3c_says() {
        let table = [
            (format!("00-{TRACE}-b7ad6b7169203331-01"), true),
            (format!("cc-{TRACE}-b7ad6b7169203331-01-more"), true),
            (format!("00-{TRACE}-b7ad6b7169203331-01-more"), false),
            (format!("ff-{TRACE}-b7ad6b7169203331-01"), false),
            (format!("00-{}-b7ad6b7169203331-01", TRACE.to_uppercase()), false),
            (format!("00-{}-b7ad6b7169203331-01", "0".repeat(32)), false),
            (format!("00-{TRACE}-0000000000000000-01"), false),
            (format!("00-{TRACE}-b7ad6b7169203331"), false),
            (format!("00-{TRACE}x-b7ad6b7169203331-01"), false),
            (String::new(), false),
        ];
        for (text, is_good) in table {
            assert_eq!(read(&[(&TRACEPARENT, &text)]).1.is_some(), is_good, "{text}");
        }
    }

    #[test]
    fn ids_that_are_made_differ_and_can_be_taken() {
        let (one, two) = (make(), make());
        assert!(one != two && is_plain(&one) && one.len() == 16);
    }
}
