//! URLs as people see them: without the parts that may be secret, which are the user with the password and the query.

use std::borrow::Cow;

use tenure_protocol::Method;

/// A URL without its secrets, in the shortest form.
pub(crate) fn public_part(url: &str) -> String {
    let end = |text: &str| text.split(['?', '#']).next().unwrap_or_default().to_owned();
    match split(url) {
        Some((scheme, _, host, rest)) => format!("{scheme}://{host}{}", end(rest)),
        None => end(url),
    }
}

/// The name of what a message is about: a tool or prompt as it is, and a resource without the secret parts of its URI.
pub(crate) fn public_name<'a>(method: Option<&Method>, name: &'a str) -> Cow<'a, str> {
    match method {
        Some(Method::ToolsCall | Method::PromptsGet) => Cow::Borrowed(name),
        _ => Cow::Owned(public_part(name)),
    }
}

/// A URL with a mark for each secret that is left out, for texts about what a person has typed.
pub(crate) fn marked(url: &str) -> String {
    let Some((scheme, user, host, rest)) = split(url) else { return url.to_owned() };
    let user = if user.is_some() { "…@" } else { "" };
    match rest.find(['?', '#']) {
        Some(end) => format!("{scheme}://{user}{host}{}…", &rest[..=end]),
        None => format!("{scheme}://{user}{host}{rest}"),
    }
}

/// A value as TOML with such a mark in each of its texts that is a URL.
pub(crate) fn marked_in(toml: &str) -> String {
    fn mark(value: &mut toml::Value) {
        match value {
            toml::Value::String(text) => *text = marked(text),
            toml::Value::Array(values) => values.iter_mut().for_each(mark),
            toml::Value::Table(table) => table.iter_mut().for_each(|(_, value)| mark(value)),
            _ => {}
        }
    }
    if !toml.contains("://") {
        return toml.to_owned();
    }
    let table = format!("value = {toml}").parse::<toml::Table>();
    match table.ok().and_then(|mut table| table.remove("value")) {
        Some(mut value) => {
            mark(&mut value);
            value.to_string()
        }
        None => "\"(hidden)\"".to_owned(),
    }
}

/// The host of a URL, with its port.
pub(crate) fn host(url: &str) -> &str {
    split(url).map_or(url, |(_, _, host, _)| host)
}

/// The scheme, the user, the host, and the rest, which begins with the path.
fn split(url: &str) -> Option<(&str, Option<&str>, &str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    match authority.rsplit_once('@') {
        Some((user, host)) => Some((scheme, Some(user), host, rest)),
        None => Some((scheme, None, authority, rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_secrets() {
        for (url, short, marked_url) in [
            ("http://localhost:8484/mcp", "http://localhost:8484/mcp", "http://localhost:8484/mcp"),
            ("https://me:geheim@example.com/mcp", "https://example.com/mcp", "https://…@example.com/mcp"),
            ("https://example.com/mcp?key=geheim", "https://example.com/mcp", "https://example.com/mcp?…"),
            ("https://a:b@c@example.com?key=geheim", "https://example.com", "https://…@example.com?…"),
            ("https://example.com/@me", "https://example.com/@me", "https://example.com/@me"),
            ("example.com?key=geheim", "example.com", "example.com?key=geheim"),
        ] {
            assert_eq!((public_part(url).as_str(), marked(url).as_str()), (short, marked_url), "{url}");
        }
        assert_eq!(marked("https://example.com/a#geheim"), "https://example.com/a#…");
        assert_eq!(host("https://a:b@example.com:8484?x"), "example.com:8484");
    }

    #[test]
    fn each_url_in_a_value_is_marked() {
        for (value, shown) in [
            (r#""https://me:geheim@a/?k=geheim""#, r#""https://…@a/?…""#),
            (r#"["a", "https://b/?k=x\"geheim", 'http://me:"@c']"#, r#"["a", "https://b/?…", "http://…@c"]"#),
            (r#""plain \" text""#, r#""plain \" text""#),
            ("true", "true"),
            ("https://me:geheim@no-toml", r#""(hidden)""#),
        ] {
            assert_eq!(marked_in(value), shown);
        }
    }
}
