//! Finds a session in the jar by the beginning of its id, and shortens ids for display.

use tenure_client::{Book, JarRecord, KeptCookie};

use crate::failure::Failure;

/// The most letters of an id that are shown.
const SHOWN: usize = 12;

/// The beginning of an id, which tells it from others. Never more than half of it, so that it cannot be used.
pub(in crate::cli) fn short_id(id: &str) -> String {
    let shown = SHOWN.min(id.chars().count() / 2);
    let mut text: String = id.chars().take(shown).collect();
    text.push('…');
    crate::escape::plain(&text)
}

/// The session whose id is `id` or begins with it, among the sessions of one server, or of all servers without a key.
pub(in crate::cli) fn find(
    book: &Book,
    key: Option<&str>,
    id: &str,
) -> Result<Option<(JarRecord, KeptCookie)>, Failure> {
    // The output of `list` can be typed as it is.
    let prefix = id.trim_end_matches('…');
    if prefix.is_empty() {
        return Err(Failure::new("an empty id").hint("`tenure jar list` shows how the ids begin"));
    }
    let mut found: Vec<(JarRecord, KeptCookie)> = Vec::new();
    for record in book.records().into_iter().filter(|record| key.is_none_or(|key| record.key == key)) {
        for kept in &record.cookies {
            let known = kept.cookie.id().reveal();
            // The same session may be kept under several addresses.
            let is_new = !found.iter().any(|(_, other)| other.cookie.id() == kept.cookie.id());
            if known == prefix {
                return Ok(Some((record.clone(), kept.clone())));
            }
            if known.starts_with(prefix) && is_new {
                found.push((record.clone(), kept.clone()));
            }
        }
    }
    if found.len() > 1 {
        return Err(Failure::new(format!("{} sessions begin with `{prefix}`", found.len()))
            .hint("type more of it; `tenure jar list --show-secrets` shows whole ids"));
    }
    Ok(found.pop())
}

#[cfg(test)]
mod tests {
    use tenure_client::{DataSessionId, Dialect, SessionCookie};

    use super::*;
    use crate::cli::target::{Target, moment};

    fn book(ids: &[&str]) -> (Book, String) {
        let server = Target::Url("http://localhost/mcp".to_owned()).server(None);
        let mut book = Book::default();
        for id in ids {
            book.keep_as_used(
                &server,
                &SessionCookie::of_id(Dialect::Draft, &DataSessionId::new(*id)),
                moment(),
            );
        }
        (book, server.key().unwrap())
    }

    #[test]
    fn an_id_is_never_shown_whole() {
        for (id, shown) in [
            ("sess-0123456789abcdef0123456789abcdef", "sess-0123456…"),
            ("0123456789abcdef", "01234567…"),
            ("ab", "a…"),
            ("a", "…"),
            ("e\u{1b}[31m-and-so-on", "e\\u001b[31m-a…"),
        ] {
            assert_eq!(short_id(id), shown);
        }
    }

    #[test]
    fn a_session_is_found_by_how_it_begins() {
        let (book, key) = book(&["sess-aa1", "sess-aa2", "sess-aa", "sess-b1"]);
        let id = |typed| match find(&book, Some(&key), typed) {
            Ok(found) => found.map_or("none".to_owned(), |(_, kept)| kept.cookie.id().reveal().to_owned()),
            Err(failure) => failure.to_string().lines().next().unwrap_or_default().to_owned(),
        };
        assert_eq!(id("sess-b"), "sess-b1");
        assert_eq!(id("sess-b…"), "sess-b1");
        assert_eq!(id("sess-aa"), "sess-aa", "a whole id counts more than a beginning");
        assert_eq!(id("sess-a"), "error: 3 sessions begin with `sess-a`");
        assert_eq!(id("sess-c"), "none");
        assert_eq!(id("…"), "error: an empty id");
        assert!(find(&book, Some("url:http://elsewhere"), "sess-b").unwrap().is_none());
        assert!(find(&book, None, "sess-b").unwrap().is_some());
    }
}
