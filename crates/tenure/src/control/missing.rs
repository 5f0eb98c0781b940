//! The nodes that did not answer, in a header beside an answer: the form of the answers stays as it is without a cluster.

use hyper::http::{HeaderMap, HeaderName, HeaderValue};

use crate::operator::MissingNode;

const HEADER: HeaderName = HeaderName::from_static("tenure-missing-nodes");

/// Most nodes that are named.
const MOST: usize = 100;

/// Names the nodes that did not answer.
pub(super) fn name(missing: &[MissingNode], headers: &mut HeaderMap) {
    if missing.is_empty() {
        return;
    }
    let named = &missing[..missing.len().min(MOST)];
    // JSON escapes control characters, and a header may have any other byte.
    if let Ok(text) = serde_json::to_vec(named)
        && let Ok(value) = HeaderValue::from_bytes(&text)
    {
        headers.insert(HEADER, value);
    }
}

/// Reads the names again.
pub(super) fn read(headers: &HeaderMap) -> Vec<MissingNode> {
    let value = headers.get(HEADER).map(HeaderValue::as_bytes);
    value.and_then(|value| serde_json::from_slice(value).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_that_are_missing_are_read_as_they_were_named() {
        let mut headers = HeaderMap::new();
        name(&[], &mut headers);
        assert!(headers.is_empty() && read(&headers).is_empty());
        let missing = vec![MissingNode {
            node: "n-00ff".to_owned(),
            address: "größe:8485".to_owned(),
            why: "it did not answer in time".to_owned(),
        }];
        name(&missing, &mut headers);
        assert_eq!(read(&headers), missing);
    }
}
