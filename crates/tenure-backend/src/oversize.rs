//! Finds the request that an oversize message answers, when only the start and the end of the message were kept.
//!
//! The id may stand before the result or after it. If its place is ambiguous, the answer is `None`.

/// The number of the request that the message answers.
pub(super) fn answers(start: &[u8], end: &[u8]) -> Option<u64> {
    let (start, end) = (String::from_utf8_lossy(start), String::from_utf8_lossy(end));
    let body = [start.find("\"result\""), start.find("\"error\"")].into_iter().flatten().min()?;
    let before = &start[..body];
    if before.contains("\"method\"") {
        return None;
    }
    number_after(before).map(|(number, _)| number).or_else(|| {
        let (number, rest) = number_after(&end[end.rfind("\"id\"")?..])?;
        // Only the message's own closing brace follows, so this is the message's id and not one inside the result.
        let rest: String = rest.chars().filter(|letter| !letter.is_whitespace()).collect();
        matches!(&*rest, "}" | ",\"jsonrpc\":\"2.0\"}").then_some(number)
    })
}

/// The number that follows `"id":`, and the text after that number.
fn number_after(text: &str) -> Option<(u64, &str)> {
    let (_, rest) = text.split_once("\"id\"")?;
    let rest = rest.trim_start().strip_prefix(':')?.trim_start();
    let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
    Some((rest[..digits].parse().ok()?, &rest[digits..]))
}

#[cfg(test)]
mod tests {
    use super::answers;

    #[test]
    fn the_id_is_found_where_servers_write_it() {
        let cases = [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"te"#, r#"xt":"…"}}"#, Some(7)),
            (r#"{ "id" : 7, "jsonrpc": "2.0", "error": {"#, "}}", Some(7)),
            (r#"{"result":{"text":"aa"#, r#"a"},"jsonrpc":"2.0","id":12}"#, Some(12)),
            (r#"{"result":{"text":"aa"#, r#"a"},"id":12,"jsonrpc":"2.0"}"#, Some(12)),
            // Within the result.
            (r#"{"result":{"text":"aa"#, r#"a","of":{"id":12}}}"#, None),
            (r#"{"result":{"id":3,"text":"aa"#, r#"a"}}"#, None),
            // Not an answer.
            (r#"{"jsonrpc":"2.0","id":7,"method":"x","params":{"result":"#, "}}", None),
            (r#"{"method":"x","params":{"result":"#, r#"},"jsonrpc":"2.0","id":7}"#, None),
            (r#"xxxxxxxxxxxxxxxxx"#, "xxxx", None),
            (r#"{"jsonrpc":"2.0","id":"7","result":{"#, "}}", None),
        ];
        for (start, end, wanted) in cases {
            assert_eq!(answers(start.as_bytes(), end.as_bytes()), wanted, "{start} … {end}");
        }
    }
}
