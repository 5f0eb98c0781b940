//! Chains of proxies, honest and spoofed.

use http::HeaderValue;

use super::*;

fn trusted(networks: &[&str]) -> TrustedProxies {
    TrustedProxies::new(networks.iter().map(|network| network.parse().unwrap()))
}

/// The client that is found behind 10.0.0.1, with 10.0.0.0/8 and `2001:db8:ffff::/48` listed.
fn client(lines: &[&str]) -> String {
    client_at("10.0.0.1:4711", lines)
}

fn client_at(peer: &str, lines: &[&str]) -> String {
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap();
        let name = HeaderName::try_from(name.to_lowercase()).unwrap();
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    let found = trusted(&["10.0.0.0/8", "2001:db8:ffff::/48"]).client(peer.parse().unwrap(), &headers);
    found.map_or_else(|| "proxy".to_owned(), |client| client.to_string())
}

#[test]
fn the_client_is_the_last_hop_that_is_no_listed_proxy() {
    let table: &[(&[&str], &str)] = &[
        (&[], "proxy"),
        // The usual header.
        (&["X-Forwarded-For: 203.0.113.7"], "203.0.113.7:0"),
        (&["X-Forwarded-For: 203.0.113.7:4711"], "203.0.113.7:4711"),
        (&["X-Forwarded-For: 2001:db8::7"], "[2001:db8::7]:0"),
        (&["X-Forwarded-For: [2001:db8::7]"], "[2001:db8::7]:0"),
        (&["X-Forwarded-For: [2001:db8::7]:4711"], "[2001:db8::7]:4711"),
        (&["X-Forwarded-For: ::ffff:203.0.113.7"], "203.0.113.7:0"),
        (&["X-Forwarded-For: 203.0.113.7,10.1.2.3 , 10.0.0.9"], "203.0.113.7:0"),
        (&["X-Forwarded-For: 203.0.113.7, 2001:db8:ffff::1"], "203.0.113.7:0"),
        // The part that the client wrote itself stands to the left.
        (&["X-Forwarded-For: 127.0.0.1, 198.51.100.1, 203.0.113.7"], "203.0.113.7:0"),
        (&["X-Forwarded-For: 10.9.9.9, 203.0.113.7"], "203.0.113.7:0"),
        (&["X-Forwarded-For: 198.51.100.1", "X-Forwarded-For: 203.0.113.7"], "203.0.113.7:0"),
        (&["X-Forwarded-For: 203.0.113.7", "X-Forwarded-For: 10.0.0.9"], "203.0.113.7:0"),
        // Only proxies: the first of them.
        (&["X-Forwarded-For: 10.0.0.3, 10.0.0.2"], "10.0.0.3:0"),
        // A hop that cannot be read ends the way.
        (&["X-Forwarded-For: 203.0.113.7 garbage"], "proxy"),
        (&["X-Forwarded-For: 203.0.113.7, garbage"], "proxy"),
        (&["X-Forwarded-For: 203.0.113.7,"], "proxy"),
        (&["X-Forwarded-For: "], "proxy"),
        (&["X-Forwarded-For: unknown, 10.0.0.9"], "10.0.0.9:0"),
        (&["X-Forwarded-For: 203.0.113.7, \u{e9}, 10.0.0.9"], "10.0.0.9:0"),
        (&["X-Forwarded-For: 203.0.113.7:99999"], "proxy"),
        (&["X-Forwarded-For: 203.0.113"], "proxy"),
        (&["X-Forwarded-For: \"203.0.113.7\""], "proxy"),
        // The standard header.
        (&["Forwarded: for=203.0.113.7"], "203.0.113.7:0"),
        (&["Forwarded: For=203.0.113.7;proto=https;by=10.0.0.1"], "203.0.113.7:0"),
        (&["Forwarded: proto=https; for=\"203.0.113.7:4711\""], "203.0.113.7:4711"),
        (&["Forwarded: for=\"[2001:db8::7]:4711\""], "[2001:db8::7]:4711"),
        (&["Forwarded: for=\"[2001:db8::7]\", for=10.0.0.9"], "[2001:db8::7]:0"),
        (&["Forwarded: for=\"203.0.\\113.7\""], "203.0.113.7:0"),
        (&["Forwarded: for=198.51.100.1, for=203.0.113.7;host=\"a,b;for=10.0.0.9\""], "203.0.113.7:0"),
        (&["Forwarded: for=198.51.100.1", "Forwarded: for=203.0.113.7"], "203.0.113.7:0"),
        (&["Forwarded: for=unknown"], "proxy"),
        (&["Forwarded: for=_hidden, for=10.0.0.9"], "10.0.0.9:0"),
        (&["Forwarded: proto=https"], "proxy"),
        (&["Forwarded: for=203.0.113.7;for=198.51.100.1"], "proxy"),
        (&["Forwarded: for=203.0.113.7, for=\"198.51.100.1"], "proxy"),
        (&["Forwarded: for=\"203.0.113.7\" garbage"], "proxy"),
        (&["Forwarded: for=\"\\"], "proxy"),
        (&["Forwarded: garbage"], "proxy"),
        // Both: one of them may be the client's.
        (&["Forwarded: for=203.0.113.7", "X-Forwarded-For: 203.0.113.7"], "203.0.113.7:0"),
        (&["Forwarded: for=127.0.0.1", "X-Forwarded-For: 203.0.113.7"], "proxy"),
        (&["Forwarded: for=203.0.113.7", "X-Forwarded-For: 127.0.0.1"], "proxy"),
    ];
    for (lines, expected) in table {
        assert_eq!(client(lines), *expected, "{lines:?}");
    }
}

#[test]
fn headers_of_others_count_for_nothing() {
    for peer in ["203.0.113.7:1", "11.0.0.1:1", "[2001:db8:fffe::1]:1", "127.0.0.1:1"] {
        assert_eq!(client_at(peer, &["X-Forwarded-For: 198.51.100.1"]), "proxy", "{peer}");
    }
    for peer in ["[::ffff:10.0.0.1]:1", "[2001:db8:ffff:1::1]:1"] {
        assert_eq!(client_at(peer, &["X-Forwarded-For: 198.51.100.1"]), "198.51.100.1:0", "{peer}");
    }
    let mut headers = HeaderMap::new();
    headers.insert("x-forwarded-for", HeaderValue::from_static("198.51.100.1"));
    assert_eq!(TrustedProxies::default().client("127.0.0.1:1".parse().unwrap(), &headers), None);
}

#[test]
fn networks_are_read_and_written() {
    for text in ["10.0.0.0/8", "127.0.0.1", "::1", "2001:db8::/32", "0.0.0.0/0"] {
        assert_eq!(text.parse::<Network>().unwrap().to_string(), text);
    }
    assert_eq!("127.0.0.1/32".parse::<Network>().unwrap().to_string(), "127.0.0.1");
    for bad in
        ["", "10.0.0.0/33", "::/129", "10.0.0/8", "localhost", "10.0.0.0/", "10.0.0.0/-1", "1.2.3.4:80"]
    {
        assert_eq!(bad.parse::<Network>(), Err(NetworkError), "{bad}");
    }
    let all: Network = "0.0.0.0/0".parse().unwrap();
    assert!(all.has("198.51.100.1".parse().unwrap()) && !all.has("::1".parse().unwrap()));
}
