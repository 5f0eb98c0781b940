//! The address of a client behind proxies.
//!
//! In: the address of the connection, and the headers `Forwarded` (RFC 7239) and `X-Forwarded-For`. Out: the address of the
//! client. Every client can write these headers, so they count only on connections from listed proxies, and of their hops only
//! the last one that is no listed proxy itself: everything to its left was written by that client.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use http::header::{FORWARDED, HeaderMap, HeaderName};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The proxies whose headers are believed; none by default. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TrustedProxies(Arc<[Network]>);

/// Addresses that begin with the same bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl TrustedProxies {
    /// The proxies in these networks.
    pub fn new(networks: impl IntoIterator<Item = Network>) -> Self {
        Self(networks.into_iter().collect())
    }

    /// The networks.
    pub fn networks(&self) -> &[Network] {
        &self.0
    }

    fn has(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.has(address))
    }

    /// The client of a request, if a proxy passed it on for another one.
    pub(super) fn client(&self, peer: SocketAddr, headers: &HeaderMap) -> Option<SocketAddr> {
        if self.0.is_empty() || !self.has(peer.ip()) {
            return None;
        }
        let standard = self.last_untrusted(peer, forwarded(headers));
        let usual = self.last_untrusted(peer, x_forwarded_for(headers));
        let is_there = |name: &HeaderName| headers.contains_key(name);
        let client = match (is_there(&FORWARDED), is_there(&X_FORWARDED_FOR)) {
            (true, false) => standard,
            (false, true) => usual,
            (false, false) => return None,
            // A proxy writes one of the two and passes on the other, so one of them may be invented by the client, and
            // nothing shows which one.
            (true, true) if standard.ip() == usual.ip() => standard,
            (true, true) => {
                tracing::debug!(%peer, "`Forwarded` and `X-Forwarded-For` name different clients, so neither counts");
                peer
            }
        };
        (client != peer).then_some(client)
    }

    /// Goes back from the connection to the first address that is no listed proxy. A hop that cannot be read ends the way
    /// too: the proxy that wrote it counts as the client.
    fn last_untrusted(&self, peer: SocketAddr, hops: Vec<Option<SocketAddr>>) -> SocketAddr {
        let mut client = peer;
        for hop in hops.into_iter().rev() {
            match hop {
                Some(hop) if self.has(client.ip()) => client = hop,
                _ => break,
            }
        }
        client
    }
}

impl Network {
    fn has(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                shares(u128::from(own.to_bits()) << 96, u128::from(other.to_bits()) << 96, self.bits)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => shares(own.to_bits(), other.to_bits(), self.bits),
            _ => false,
        }
    }
}

fn shares(one: u128, other: u128, bits: u8) -> bool {
    bits == 0 || (one ^ other) >> (128 - u32::from(bits)) == 0
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NetworkError)?;
        let address = address.to_canonical();
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= most).ok_or(NetworkError)?,
        };
        Ok(Self { address, bits })
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let most = if self.address.is_ipv4() { 32 } else { 128 };
        match self.bits {
            bits if bits == most => write!(f, "{}", self.address),
            bits => write!(f, "{}/{bits}", self.address),
        }
    }
}

/// A text that names no network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not an address, and not a network such as 10.0.0.0/8")]
pub struct NetworkError;

/// The hops of `X-Forwarded-For`, the first one first; `None` for one that cannot be read.
fn x_forwarded_for(headers: &HeaderMap) -> Vec<Option<SocketAddr>> {
    let values = headers.get_all(&X_FORWARDED_FOR).iter();
    values
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(|hop| node(hop.trim_ascii()))
        .collect()
}

/// The hops of `Forwarded`.
fn forwarded(headers: &HeaderMap) -> Vec<Option<SocketAddr>> {
    let values = headers.get_all(FORWARDED).iter();
    values
        .flat_map(|value| match split_unquoted(value.as_bytes(), b',') {
            Some(hops) => hops.into_iter().map(for_of).collect(),
            // A quote is not closed, so the header is not trusted.
            None => vec![None],
        })
        .collect()
}

/// The `for` of one hop.
fn for_of(hop: &[u8]) -> Option<SocketAddr> {
    let mut found = None;
    for pair in split_unquoted(hop, b';')? {
        let pair = pair.trim_ascii();
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        if pair[..equals].eq_ignore_ascii_case(b"for") {
            let value = unquoted(&pair[equals + 1..])?;
            if found.replace(node(&value)?).is_some() {
                return None;
            }
        }
    }
    found
}

/// Splits at a separator that stands outside of quotes; `None` if a quote is not closed.
fn split_unquoted(text: &[u8], separator: u8) -> Option<Vec<&[u8]>> {
    let (mut parts, mut begin, mut is_quoted, mut is_escaped) = (Vec::new(), 0, false, false);
    for (place, byte) in text.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            byte if *byte == separator && !is_quoted => {
                parts.push(&text[begin..place]);
                begin = place + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    (!is_quoted).then_some(parts)
}

/// A token, or the text in quotes.
fn unquoted(value: &[u8]) -> Option<Vec<u8>> {
    let Some(inner) = value.strip_prefix(b"\"") else { return Some(value.to_vec()) };
    let inner = inner.strip_suffix(b"\"")?;
    let (mut text, mut bytes) = (Vec::with_capacity(inner.len()), inner.iter());
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return None,
            b'\\' => text.push(*bytes.next()?),
            byte => text.push(*byte),
        }
    }
    Some(text)
}

/// An address, with or without a port; IPv6 with a port, and in `Forwarded`, stands in brackets.
fn node(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(SocketAddr::new(address.to_canonical(), 0));
    }
    if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return inner.parse().ok().map(|address| SocketAddr::new(IpAddr::V6(address).to_canonical(), 0));
    }
    let address: SocketAddr = text.parse().ok()?;
    Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

#[cfg(test)]
mod tests;
