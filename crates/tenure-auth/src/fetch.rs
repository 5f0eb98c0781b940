//! Requests to authorization servers: bounded in time and size, over TLS, without redirects.
//!
//! A URL comes from the configuration, from the metadata of a server that the configuration names, or from the metadata of a
//! server behind, which may be hostile. The last kind may lead to public addresses only, which is checked where names
//! are resolved, so that no server behind can make us call services of our own network.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::CACHE_CONTROL;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
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
    #[error("`{0}` is not a public address, and the server behind may not lead us to others")]
    NotPublic(String),
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

/// A client for authorization servers.
#[derive(Clone, Debug)]
pub(crate) struct Fetcher {
    client: Client,
    reach: Reach,
}

/// Where the URLs of a [`Fetcher`] may lead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    /// To any address: they come from the configuration, or from a server that it names.
    Anywhere,
    /// To public addresses only: they come from the metadata of a server behind.
    Public,
}

/// A document, and how long its sender says that it counts.
pub(crate) struct Fetched {
    pub(crate) body: Vec<u8>,
    pub(crate) max_age: Option<Duration>,
}

/// An answer with any status.
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Fetcher {
    /// A client that trusts what the builder trusts.
    pub(crate) fn new(builder: ClientBuilder) -> Result<Self, reqwest::Error> {
        Self::with_reach(builder, Reach::Anywhere)
    }

    /// The same for URLs that may lead there.
    pub(crate) fn with_reach(builder: ClientBuilder, reach: Reach) -> Result<Self, reqwest::Error> {
        // Without a crypto provider, building a client with TLS panics. Fails if one is installed already.
        drop(rustls::crypto::ring::default_provider().install_default());
        let builder = match reach {
            Reach::Anywhere => builder,
            Reach::Public => builder.dns_resolver(Arc::new(PublicNames)),
        };
        let client = builder.redirect(reqwest::redirect::Policy::none()).timeout(TIMEOUT).build()?;
        Ok(Self { client, reach })
    }

    pub(crate) async fn get(&self, url: &str) -> Result<Fetched, FetchError> {
        let answered = self.send(self.client.get(self.checked(url)?), "application/json").await?;
        fetched(answered)
    }

    /// Asks for anything, whatever the status of the answer.
    pub(crate) async fn look(&self, url: &str, accept: &'static str) -> Result<HeaderMap, FetchError> {
        let request = self.client.get(self.checked(url)?).header("accept", accept);
        let response = request.send().await.map_err(unreachable)?;
        Ok(response.headers().clone())
    }

    /// Posts a form, with our own credentials at the issuer.
    pub(crate) async fn post_form(
        &self,
        url: &str,
        form: String,
        credentials: Option<(&str, &str)>,
    ) -> Result<Fetched, FetchError> {
        fetched(self.post(url, form, credentials).await?)
    }

    /// The same, whatever the status of the answer.
    pub(crate) async fn post(
        &self,
        url: &str,
        form: String,
        credentials: Option<(&str, &str)>,
    ) -> Result<Answered, FetchError> {
        let mut request = self.client.post(self.checked(url)?);
        request = request.header("content-type", "application/x-www-form-urlencoded").body(form);
        if let Some((name, secret)) = credentials {
            request = request.basic_auth(form_encoded(name), Some(form_encoded(secret)));
        }
        self.send(request, "application/json").await
    }

    async fn send(&self, request: RequestBuilder, accept: &'static str) -> Result<Answered, FetchError> {
        let mut response = request.header("accept", accept).send().await.map_err(unreachable)?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if body.len() + chunk.len() > MAX_BYTES {
                return Err(FetchError::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Answered { status, headers, body })
    }

    /// The URL, if it may be asked.
    fn checked(&self, url: &str) -> Result<Url, FetchError> {
        let parsed = checked(url)?;
        match (self.reach, address_of(&parsed)) {
            (Reach::Anywhere, _) => Ok(parsed),
            // Names are checked where they are resolved.
            (Reach::Public, None) if parsed.scheme() == "https" => Ok(parsed),
            (Reach::Public, Some(address)) if parsed.scheme() == "https" && is_public(address) => Ok(parsed),
            (Reach::Public, _) => Err(FetchError::NotPublic(url.to_owned())),
        }
    }
}

fn unreachable(error: reqwest::Error) -> FetchError {
    FetchError::Unreachable(error.without_url())
}

fn fetched(answered: Answered) -> Result<Fetched, FetchError> {
    match answered.status {
        200 => Ok(Fetched { max_age: max_age(&answered.headers), body: answered.body }),
        status => Err(FetchError::Status(status)),
    }
}

/// Resolves names to public addresses alone.
struct PublicNames;

impl Resolve for PublicNames {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> = found.filter(|address| is_public(address.ip())).collect();
            match public.is_empty() {
                true => Err(Box::from(FetchError::NotPublic(name.as_str().to_owned()))),
                false => Ok(Box::new(public.into_iter()) as Addrs),
            }
        })
    }
}

/// The address of a URL whose host is an address, or `localhost`; `None` for a name that has to be resolved.
pub(crate) fn address_of(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?.trim_start_matches('[').trim_end_matches(']');
    match host.trim_end_matches('.') {
        "localhost" => Some(IpAddr::from([127, 0, 0, 1])),
        name if name.ends_with(".localhost") => Some(IpAddr::from([127, 0, 0, 1])),
        host => host.parse().ok(),
    }
}

/// Whether an address is one of the internet, and not of this machine, of a private network, or of a cloud's inside.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [a, b, c, _] = v4.octets();
            let is_special = v4.is_private()
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.is_broadcast()
                || v4.is_documentation()
                || v4.is_multicast()
                || a == 0
                || a >= 240
                || (a == 100 && (64..128).contains(&b))
                || (a == 192 && b == 0 && c == 0)
                || (a == 198 && (18..20).contains(&b));
            !is_special
        }
        IpAddr::V6(v6) => {
            // Global unicast, without the ranges in it that lead into IPv4 or are for documentation.
            let [a, b, ..] = v6.segments();
            (0x2000..0x4000).contains(&a) && a != 0x2002 && !(a == 0x2001 && (b < 0x200 || b == 0xdb8))
        }
    }
}

/// A URL that cannot be read or changed on its way: HTTPS, or HTTP to this very machine.
fn checked(url: &str) -> Result<Url, FetchError> {
    let not_secure = || FetchError::NotSecure(url.to_owned());
    let parsed = Url::parse(url).map_err(|_| not_secure())?;
    let is_loopback = address_of(&parsed).is_some_and(|address| address.is_loopback());
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
    fn only_urls_that_cannot_be_changed_on_the_way_are_asked() {
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
    fn a_server_behind_leads_to_public_addresses_alone() {
        let fetcher = Fetcher::with_reach(Client::builder(), Reach::Public).unwrap();
        for url in ["https://id.example/x", "https://1.1.1.1/", "https://[2606:4700::1]/"] {
            assert!(fetcher.checked(url).is_ok(), "{url}");
        }
        for url in [
            "http://127.0.0.1/",
            "https://127.0.0.1/",
            "https://localhost/",
            "https://a.localhost./",
            "https://10.1.2.3/",
            "https://169.254.169.254/latest",
            "https://100.64.0.1/",
            "https://0.0.0.0/",
            "https://2130706433/",
            "https://0x7f.1/",
            "https://[::1]/",
            "https://[::ffff:10.0.0.1]/",
            "https://[fd00::1]/",
            "https://[fe80::1]/",
            "https://[2002:7f00:1::]/",
        ] {
            assert!(fetcher.checked(url).is_err(), "{url}");
        }
    }

    #[tokio::test]
    async fn a_name_of_this_machine_is_not_resolved_for_a_server_behind() {
        let resolved = PublicNames.resolve("localhost".parse().unwrap()).await;
        assert!(resolved.is_err());
    }

    #[test]
    fn forms_carry_any_text() {
        assert_eq!(form_encoded("a b&c=ä~"), "a%20b%26c%3D%C3%A4~");
    }
}
