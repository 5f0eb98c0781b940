//! The credentials that a request presents, read from its headers.
//!
//! Nothing here is verified. A request that presents two credentials, or one in its query, is refused: a server and a proxy
//! in front of it could disagree which one counts.

use std::fmt;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, Uri};

use crate::certificate::ClientCertificate;
use crate::keys::is_key;
use crate::last_shown::LastShown;
use crate::refusal::{AuthRefusal, TokenFault};

/// A longer header is refused unread.
const MAX_HEADER_BYTES: usize = 8 << 10;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const DPOP: HeaderName = HeaderName::from_static("dpop");

/// The credentials of one request, and what a proof of possession is bound to.
#[derive(Clone)]
pub struct Presented<'a> {
    pub(crate) credentials: Option<Credentials<'a>>,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) certificate: Option<&'a ClientCertificate>,
    pub(crate) last: Option<&'a LastShown>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Credentials<'a> {
    /// A token or key whose bearer is believed.
    Bearer(&'a str),
    /// A token that is bound to a key, with the proof that the client has the key.
    Dpop { token: &'a str, proof: &'a str },
}

impl<'a> Presented<'a> {
    /// Reads the credentials of a request to this URI with this method.
    pub fn read(headers: &'a HeaderMap, uri: &'a Uri, method: &'a str) -> Result<Self, AuthRefusal> {
        if uri.query().is_some_and(has_token) {
            return Err(AuthRefusal::Malformed("a token does not belong into the query"));
        }
        let authorization = only(headers, &AUTHORIZATION)?;
        let key = only(headers, &API_KEY)?;
        let credentials = match (authorization, key) {
            (Some(_), Some(_)) => return Err(AuthRefusal::Malformed("two credentials")),
            (Some(value), None) => from_authorization(value, headers)?,
            // A key of another service must not be shown to our issuers.
            (None, Some(key)) if key.is_ascii() && is_key(key) => Some(Credentials::Bearer(key)),
            (None, Some(key)) if !key.is_ascii() => return Err(UNPRINTABLE),
            (None, Some(_)) => return Err(AuthRefusal::Invalid(TokenFault::Unknown)),
            (None, None) => None,
        };
        Ok(Self { credentials, method, path: uri.path(), certificate: None, last: None })
    }

    /// Adds the certificate that the connection's client has proven to own.
    #[must_use]
    pub fn with_certificate(mut self, certificate: Option<&'a ClientCertificate>) -> Self {
        self.certificate = certificate;
        self
    }

    /// Adds what the connection showed last. A connection that has one is verified faster, and no differently.
    #[must_use]
    pub fn with_last_shown(mut self, last: Option<&'a LastShown>) -> Self {
        self.last = last;
        self
    }

    /// Whether the request presents any credentials.
    pub fn is_empty(&self) -> bool {
        self.credentials.is_none() && self.certificate.is_none()
    }
}

/// It would show the credentials.
impl fmt::Debug for Presented<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.credentials {
            None => "nothing",
            Some(Credentials::Bearer(_)) => "bearer",
            Some(Credentials::Dpop { .. }) => "dpop",
        };
        f.debug_struct("Presented").field("credentials", &kind).finish_non_exhaustive()
    }
}

/// The one value of a header.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, AuthRefusal> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(AuthRefusal::Malformed("two credentials"));
    }
    if value.len() > MAX_HEADER_BYTES {
        return Err(AuthRefusal::Malformed("the credentials are too long"));
    }
    // A value has no control characters, so what is ASCII here is printable. That it is, is checked where it is used.
    let value = std::str::from_utf8(value.as_bytes()).map_err(|_| UNPRINTABLE)?;
    Ok(Some(value.trim_ascii()))
}

const UNPRINTABLE: AuthRefusal = AuthRefusal::Malformed("the credentials are not printable ASCII");

/// Another scheme is no credentials for us: the challenge tells the client which scheme to use.
fn from_authorization<'a>(
    value: &'a str,
    headers: &'a HeaderMap,
) -> Result<Option<Credentials<'a>>, AuthRefusal> {
    let Some((scheme, token)) = value.split_once(' ') else {
        if !value.is_ascii() {
            return Err(UNPRINTABLE);
        }
        return match value.eq_ignore_ascii_case("bearer") || value.eq_ignore_ascii_case("dpop") {
            true => Err(AuthRefusal::Malformed("the token is missing")),
            false => Ok(None),
        };
    };
    let token = token.trim_ascii_start();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Ok(Some(Credentials::Bearer(token)));
    }
    if scheme.eq_ignore_ascii_case("dpop") {
        let proof = only(headers, &DPOP)?.ok_or(AuthRefusal::Malformed("the DPoP proof is missing"))?;
        if !proof.is_ascii() {
            return Err(UNPRINTABLE);
        }
        return Ok(Some(Credentials::Dpop { token, proof }));
    }
    if value.is_ascii() { Ok(None) } else { Err(UNPRINTABLE) }
}

/// The characters of `b64token` in RFC 6750. A comma, for example, would come of two headers that a proxy joined. Checked before
/// a token is judged, and not for one that is byte for byte the one before it on its connection: that one was checked.
pub(crate) fn check_token(token: &str) -> Result<(), AuthRefusal> {
    // Without a branch for each byte, so that many are looked at with one instruction, and with few comparisons: this is done for
    // each request. From `-` to `9` there are `.`, `/` and the digits.
    let is_allowed = |byte: u8| {
        (byte | 0x20).is_ascii_lowercase()
            | matches!(byte, b'-'..=b'9')
            | matches!(byte, b'+' | b'=' | b'_' | b'~')
    };
    match !token.is_empty() && token.bytes().fold(true, |all, byte| all & is_allowed(byte)) {
        true => Ok(()),
        false if !token.is_ascii() => Err(UNPRINTABLE),
        false => Err(AuthRefusal::Malformed("the token has characters that no token has")),
    }
}

fn has_token(query: &str) -> bool {
    query.split('&').any(|pair| {
        let name = pair.split('=').next().unwrap_or_default();
        name.eq_ignore_ascii_case("access_token") || name.eq_ignore_ascii_case("api_key")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(headers: &[(&'static str, &str)], uri: &str) -> Result<Option<String>, AuthRefusal> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let uri = uri.parse().unwrap();
        let presented = Presented::read(&map, &uri, "POST")?;
        if let Some(Credentials::Bearer(token) | Credentials::Dpop { token, .. }) = presented.credentials {
            check_token(token)?;
        }
        Ok(presented.credentials.map(|credentials| match credentials {
            Credentials::Bearer(token) => format!("bearer {token}"),
            Credentials::Dpop { token, proof } => format!("dpop {token} {proof}"),
        }))
    }

    #[test]
    fn a_token_has_the_characters_of_the_standard_and_no_others() {
        let allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/=";
        for character in (0..=0x7f_u8).map(char::from) {
            let token = format!("a{character}b");
            assert_eq!(check_token(&token).is_ok(), allowed.contains(character), "{character:?}");
        }
        assert!(check_token("").is_err());
    }

    #[test]
    fn credentials_are_read_from_one_place() {
        let long = format!("Bearer {}", "a".repeat(9 << 10));
        type Row<'a> = (&'a [(&'static str, &'a str)], &'a str, Result<Option<&'a str>, &'a str>);
        let rows: &[Row<'_>] = &[
            (&[], "/mcp", Ok(None)),
            (&[("authorization", "Bearer abc")], "/mcp", Ok(Some("bearer abc"))),
            (&[("authorization", "bEARER   abc== ")], "/mcp", Ok(Some("bearer abc=="))),
            (&[("x-api-key", "tnr_1")], "/mcp?x=1", Ok(Some("bearer tnr_1"))),
            (&[("authorization", "DPoP abc"), ("dpop", "p.r.f")], "/mcp", Ok(Some("dpop abc p.r.f"))),
            (&[("authorization", "Basic dTpw")], "/mcp", Ok(None)),
            (&[("authorization", "nonsense")], "/mcp", Ok(None)),
            (&[("authorization", "Bearer")], "/mcp", Err("missing")),
            (&[("authorization", "Bearer  ")], "/mcp", Err("missing")),
            (&[("authorization", "DPoP abc")], "/mcp", Err("proof is missing")),
            (&[("authorization", "Bearer a"), ("authorization", "Bearer a")], "/mcp", Err("two")),
            (&[("authorization", "Bearer a"), ("x-api-key", "b")], "/mcp", Err("two")),
            (&[("x-api-key", "a"), ("x-api-key", "b")], "/mcp", Err("two")),
            (&[("authorization", "DPoP a"), ("dpop", "1"), ("dpop", "2")], "/mcp", Err("two")),
            (&[("authorization", "Bearer a, Bearer b")], "/mcp", Err("characters")),
            (&[("authorization", "Bearer \u{e9}")], "/mcp", Err("ASCII")),
            (&[("authorization", "Basic \u{e9}")], "/mcp", Err("ASCII")),
            (&[("authorization", "\u{e9}")], "/mcp", Err("ASCII")),
            (&[("authorization", "DPoP abc"), ("dpop", "\u{e9}")], "/mcp", Err("ASCII")),
            (&[("authorization", &long)], "/mcp", Err("too long")),
            (&[], "/mcp?access_token=a", Err("query")),
            (&[("authorization", "Bearer a")], "/mcp?x&Access_Token=", Err("query")),
        ];
        for (headers, uri, expected) in rows {
            match (read(headers, uri), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found.as_deref(), *expected, "{headers:?}"),
                (Err(AuthRefusal::Malformed(said)), Err(expected)) => {
                    assert!(said.contains(expected), "{said}")
                }
                (found, _) => panic!("{headers:?}: {found:?}"),
            }
        }
    }

    #[test]
    fn what_is_presented_is_not_shown() {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", "Bearer secret".parse().unwrap());
        let uri = Uri::from_static("/mcp");
        let shown = format!("{:?}", Presented::read(&headers, &uri, "GET").unwrap());
        assert!(shown.contains("bearer") && !shown.contains("secret"), "{shown}");
    }
}
