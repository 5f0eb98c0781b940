//! Requests to issuers: bounded in time and size, over TLS, without redirects.

use std::time::Duration;

use http::HeaderMap;
use http::header::CACHE_CONTROL;
use reqwest::{Client, ClientBuilder, RequestBuilder, Url};

/// How long an issuer may take.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);

/// The largest document of an issuer.
const MAX_BYTES: usize = 256 << 10;

/// Why an issuer gave no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("`{0}` is not an HTTPS URL")]
    NotSecure(String),
    #[error("could not be reached")]
    Unreachable(#[source] reqwest::Error),
    #[error("answered with status {0}")]
    Status(u16),
    #[error("answered with more than 256 KiB")]
    TooLarge,
    #[error("{0}")]
    Content(&'static str),
    #[error("could not read the file")]
    File(#[source] std::io::Error),
}

/// A client for issuers.
#[derive(Clone, Debug)]
pub(crate) struct Fetcher(Client);

/// A document, and how long its sender says that it counts.
pub(crate) struct Fetched {
    pub(crate) body: Vec<u8>,
    pub(crate) max_age: Option<Duration>,
}

impl Fetcher {
    /// A client that trusts what the builder trusts.
    pub(crate) fn new(builder: ClientBuilder) -> Result<Self, reqwest::Error> {
        // Without a crypto provider, building a client with TLS panics. Fails if one is installed already.
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = builder.redirect(reqwest::redirect::Policy::none()).timeout(TIMEOUT).build()?;
        Ok(Self(client))
    }

    pub(crate) async fn get(&self, url: &str) -> Result<Fetched, FetchError> {
        self.send(self.0.get(checked(url)?)).await
    }

    /// Posts a form, with our own credentials at the issuer.
    pub(crate) async fn post_form(
        &self,
        url: &str,
        form: String,
        credentials: Option<(&str, &str)>,
    ) -> Result<Fetched, FetchError> {
        let mut request = self.0.post(checked(url)?);
        request = request.header("content-type", "application/x-www-form-urlencoded").body(form);
        if let Some((name, secret)) = credentials {
            request = request.basic_auth(form_encoded(name), Some(form_encoded(secret)));
        }
        self.send(request).await
    }

    async fn send(&self, request: RequestBuilder) -> Result<Fetched, FetchError> {
        let request = request.header("accept", "application/json");
        let mut response =
            request.send().await.map_err(|error| FetchError::Unreachable(error.without_url()))?;
        if response.status() != 200 {
            return Err(FetchError::Status(response.status().as_u16()));
        }
        let max_age = max_age(response.headers());
        let mut body = Vec::new();
        while let Some(chunk) =
            response.chunk().await.map_err(|error| FetchError::Unreachable(error.without_url()))?
        {
            if body.len() + chunk.len() > MAX_BYTES {
                return Err(FetchError::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Fetched { body, max_age })
    }
}

/// A URL that cannot be read or changed on its way: HTTPS, or HTTP to this very machine.
fn checked(url: &str) -> Result<Url, FetchError> {
    let not_secure = || FetchError::NotSecure(url.to_owned());
    let parsed = Url::parse(url).map_err(|_| not_secure())?;
    let is_loopback = match parsed.host_str() {
        Some("localhost") => true,
        Some(host) => {
            let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
            address.is_ok_and(|address| address.is_loopback())
        }
        None => false,
    };
    match parsed.scheme() == "https" || parsed.scheme() == "http" && is_loopback {
        true => Ok(parsed),
        false => Err(not_secure()),
    }
}

fn max_age(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(CACHE_CONTROL)?.to_str().ok()?;
    let seconds = value.split(',').find_map(|part| part.trim().strip_prefix("max-age="))?;
    seconds.parse().ok().map(Duration::from_secs)
}

/// One value of a form.
pub(crate) fn form_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for &byte in text.as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte))
            }
            _ => {
                use std::fmt::Write as _;
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_urls_that_nobody_on_the_way_can_change_are_asked() {
        for url in ["https://id.example/x", "http://127.0.0.1:1/x", "http://localhost:2", "http://[::1]:3/"] {
            assert!(checked(url).is_ok(), "{url}");
        }
        for url in
            ["http://id.example", "ftp://localhost", "file:///etc/passwd", "nonsense", "http://10.0.0.1/"]
        {
            assert!(checked(url).is_err(), "{url}");
        }
    }

    #[test]
    fn forms_carry_any_text() {
        assert_eq!(form_encoded("a b&c=ä~"), "a%20b%26c%3D%C3%A4~");
    }
}
