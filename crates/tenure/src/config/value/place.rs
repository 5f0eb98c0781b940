//! Forms for places: addresses, files, stores, commands, hosts and origins.

use std::net::SocketAddr;
use std::path::PathBuf;

use tenure_transport::http::{AllowedHosts, AllowedOrigins, Network, TrustedProxies};

use super::{SettingValue, ValueForm, ValueRefusal, quoted, quoted_list};
use crate::url_text::marked;

/// A path to a file.
pub(in crate::config) struct File;

impl ValueForm for File {
    type Of = PathBuf;
    fn expected() -> String {
        "the path of a file such as \"/etc/tenure/cert.pem\"".to_owned()
    }
    fn read(raw: &SettingValue) -> Result<PathBuf, ValueRefusal> {
        raw.text().filter(|text| !text.is_empty()).map(PathBuf::from).ok_or_else(ValueRefusal::default)
    }
    fn show(value: &PathBuf) -> Option<String> {
        Some(quoted(&value.display().to_string()))
    }
}

/// An address with a port.
pub(in crate::config) struct Address;

impl ValueForm for Address {
    type Of = SocketAddr;
    fn expected() -> String {
        "an IP address with a port such as \"127.0.0.1:8484\"".to_owned()
    }
    fn read(raw: &SettingValue) -> Result<SocketAddr, ValueRefusal> {
        if let Some(port) = raw.number() {
            return Err(ValueRefusal::hint(format!("for this port on loopback write \"127.0.0.1:{port}\"")));
        }
        let text = raw.text().ok_or_else(ValueRefusal::default)?;
        text.parse().map_err(|_| match text.rsplit_once(':') {
            Some(("", port)) => ValueRefusal::hint(format!("for every interface write \"0.0.0.0:{port}\"")),
            Some(("localhost", port)) => {
                ValueRefusal::hint(format!("for loopback write \"127.0.0.1:{port}\""))
            }
            _ => ValueRefusal::default(),
        })
    }
    fn show(value: &SocketAddr) -> Option<String> {
        Some(quoted(&value.to_string()))
    }
}

/// The name or address of a machine, with a port.
pub(in crate::config) struct PeerAddress;

impl ValueForm for PeerAddress {
    type Of = String;
    fn expected() -> String {
        "a name or an IP address with a port such as \"tenure-1.internal:8486\"".to_owned()
    }
    fn read(raw: &SettingValue) -> Result<String, ValueRefusal> {
        let text = raw.text().ok_or_else(ValueRefusal::default)?;
        let is_good = |text: &str| {
            let authority: hyper::http::uri::Authority = text.parse().ok()?;
            let is_plain = !authority.host().is_empty() && !text.contains('@');
            (is_plain && authority.port_u16().is_some_and(|port| port != 0)).then_some(())
        };
        is_good(text).map(|()| text.to_owned()).ok_or_else(ValueRefusal::default)
    }
    fn show(value: &String) -> Option<String> {
        Some(quoted(value))
    }
}

/// The URL of a store: an engine, a colon, and text that the engine interprets.
pub(in crate::config) struct StoreUrl;

impl ValueForm for StoreUrl {
    type Of = String;
    fn expected() -> String {
        "the URL of a store such as \"disk:/var/lib/tenure\", \"memory:\" or \"nats://127.0.0.1:4222\""
            .to_owned()
    }
    fn read(raw: &SettingValue) -> Result<String, ValueRefusal> {
        let text = raw.text().ok_or_else(ValueRefusal::default)?;
        match text.split_once(':') {
            Some((engine, _)) if !engine.is_empty() => Ok(text.to_owned()),
            _ => Err(ValueRefusal::hint("a store is named by its engine and a colon")),
        }
    }
    fn show(value: &String) -> Option<String> {
        // All that stands in front of an `@` may be a password, whatever characters it has.
        let shown = match (value.split_once("://"), value.rsplit_once('@')) {
            (Some((engine, _)), Some((_, servers))) => marked(&format!("{engine}://…@{servers}")),
            _ => marked(value),
        };
        Some(quoted(&shown))
    }
}

/// The name of a folder among others: short, and the same on every system.
pub(in crate::config) struct FolderName;

/// The longest name. The path of a socket in that folder has an upper limit.
const MAX_NAME: usize = 40;

impl ValueForm for FolderName {
    type Of = String;
    fn expected() -> String {
        format!("a name of at most {MAX_NAME} letters, digits, `.`, `_` and `-`")
    }
    fn read(raw: &SettingValue) -> Result<String, ValueRefusal> {
        let text = raw.text().ok_or_else(ValueRefusal::default)?;
        let is_plain =
            text.chars().all(|letter| letter.is_ascii_alphanumeric() || ['.', '_', '-'].contains(&letter));
        let begins_well = text.starts_with(|letter: char| letter.is_ascii_alphanumeric());
        if is_plain && begins_well && text.len() <= MAX_NAME {
            Ok(text.to_owned())
        } else {
            Err(ValueRefusal::default())
        }
    }
    fn show(value: &String) -> Option<String> {
        Some(quoted(value))
    }
}

/// The endpoint of a server.
pub(in crate::config) struct EndpointUrl;

impl ValueForm for EndpointUrl {
    type Of = String;
    fn expected() -> String {
        "the URL of an MCP endpoint such as \"https://mcp.example.com/mcp\"".to_owned()
    }
    fn read(raw: &SettingValue) -> Result<String, ValueRefusal> {
        match raw.text() {
            Some(text) if text.starts_with("http://") || text.starts_with("https://") => Ok(text.to_owned()),
            Some(_) => Err(ValueRefusal::hint("it begins with http:// or https://")),
            None => Err(ValueRefusal::default()),
        }
    }
    fn show(value: &String) -> Option<String> {
        Some(quoted(&marked(value)))
    }
}

/// The URL of a server, without the path of an endpoint.
pub(in crate::config) struct BaseUrl;

impl ValueForm for BaseUrl {
    type Of = String;
    fn expected() -> String {
        "the URL of this server such as \"https://mcp.example.com\"".to_owned()
    }
    fn read(raw: &SettingValue) -> Result<String, ValueRefusal> {
        let text = raw.text().ok_or_else(ValueRefusal::default)?;
        match tenure_auth::ProtectedResource::new(text, "/mcp") {
            Some(_) => Ok(text.trim_end_matches('/').to_owned()),
            None => Err(ValueRefusal::hint("it begins with http:// or https://, and has no query")),
        }
    }
    fn show(value: &String) -> Option<String> {
        Some(quoted(value))
    }
}

/// A list of names or patterns.
pub(in crate::config) struct Names;

impl ValueForm for Names {
    type Of = Vec<String>;
    fn expected() -> String {
        "a list such as [\"files/read_*\", \"echo\"]".to_owned()
    }
    fn read(raw: &SettingValue) -> Result<Vec<String>, ValueRefusal> {
        raw.names()
    }
    fn show(value: &Vec<String>) -> Option<String> {
        Some(quoted_list(value))
    }
}

/// Names with words for each of them.
pub(in crate::config) struct Assignments;

impl ValueForm for Assignments {
    type Of = Vec<String>;
    fn expected() -> String {
        "a list such as [\"files/read_* = files:read\", \"* = mcp:use\"]".to_owned()
    }
    fn read(raw: &SettingValue) -> Result<Vec<String>, ValueRefusal> {
        let rows = raw.names()?;
        match rows.iter().find(|row| !row.contains('=')) {
            Some(_) => {
                Err(ValueRefusal::hint("each is a name, an equals sign, and words with spaces between them"))
            }
            None => Ok(rows),
        }
    }
    fn show(value: &Vec<String>) -> Option<String> {
        Some(quoted_list(value))
    }
}

/// Headers, each with its value or the source of the value.
pub(in crate::config) struct Headers;

impl ValueForm for Headers {
    type Of = Vec<String>;
    fn expected() -> String {
        "a list of headers such as [\"Authorization: env:UPSTREAM_TOKEN\"]".to_owned()
    }
    fn read(raw: &SettingValue) -> Result<Vec<String>, ValueRefusal> {
        let headers = raw.list(|text| vec![text.to_owned()])?;
        match headers.iter().find(|header| !header.contains(':')) {
            Some(_) => Err(ValueRefusal::hint("each is a name, a colon and a value")),
            None => Ok(headers),
        }
    }
    fn show(value: &Vec<String>) -> Option<String> {
        // A value may be a secret; its source is not.
        let shown = value.iter().map(|header| match header.split_once(':') {
            Some((name, value))
                if !value.trim().starts_with("env:") && !value.trim().starts_with("file:") =>
            {
                format!("{name}: (hidden)")
            }
            _ => header.clone(),
        });
        Some(quoted_list(shown))
    }
}

/// Words, such as a program and its arguments.
pub(in crate::config) struct Words;

impl ValueForm for Words {
    type Of = Vec<String>;
    fn expected() -> String {
        "a list of words such as [\"npx\", \"-y\", \"some-mcp-server\"]".to_owned()
    }
    fn read(raw: &SettingValue) -> Result<Vec<String>, ValueRefusal> {
        if let SettingValue::Text(text) = raw {
            // A guess: only the author knows which words belong together.
            let words = quoted_list(text.split_whitespace());
            return Err(ValueRefusal::hint(format!("write each word by itself, in brackets: {words}")));
        }
        // Quotes are not supported here; a file can have words with spaces.
        raw.list(|text| text.split_whitespace().map(str::to_owned).collect())
    }
    fn show(value: &Vec<String>) -> Option<String> {
        Some(quoted_list(value))
    }
}

/// Variables of a program, each with its value or the source of the value.
pub(in crate::config) struct Environment;

impl ValueForm for Environment {
    type Of = Vec<String>;
    fn expected() -> String {
        Words::expected()
    }
    fn read(raw: &SettingValue) -> Result<Vec<String>, ValueRefusal> {
        Words::read(raw)
    }
    fn show(value: &Vec<String>) -> Option<String> {
        // A value may be a secret; its name and its source are not.
        let shown = value.iter().map(|variable| match variable.split_once('=') {
            Some((_, value)) if value.starts_with("env:") || value.starts_with("file:") => variable.clone(),
            Some((name, _)) => format!("{name}=(hidden)"),
            None => "(hidden)".to_owned(),
        });
        Some(quoted_list(shown))
    }
}

/// Addresses and networks of proxies.
pub(in crate::config) struct Proxies;

impl ValueForm for Proxies {
    type Of = TrustedProxies;
    fn expected() -> String {
        "a list of addresses and networks such as [\"127.0.0.1\", \"10.0.0.0/8\"]".to_owned()
    }
    fn read(raw: &SettingValue) -> Result<TrustedProxies, ValueRefusal> {
        let networks = raw.names()?.into_iter().map(|name| {
            let refused = |error| ValueRefusal::hint(format!("{} is {error}", quoted(&name)));
            name.parse::<Network>().map_err(refused)
        });
        networks.collect::<Result<Vec<_>, _>>().map(TrustedProxies::new)
    }
    fn show(value: &TrustedProxies) -> Option<String> {
        Some(quoted_list(value.networks().iter().map(Network::to_string)))
    }
}

/// The hosts that are answered. Nothing listed means loopback only.
pub(in crate::config) struct Hosts;

impl ValueForm for Hosts {
    type Of = AllowedHosts;
    fn expected() -> String {
        "a list of hosts such as [\"mcp.example.com\"], or [\"*\"] for any".to_owned()
    }
    fn read(raw: &SettingValue) -> Result<AllowedHosts, ValueRefusal> {
        Ok(match names(raw, &host)? {
            HostNames::None => AllowedHosts::Loopback,
            HostNames::Any => AllowedHosts::Any,
            HostNames::List(hosts) => AllowedHosts::List(hosts),
        })
    }
    fn show(value: &AllowedHosts) -> Option<String> {
        Some(match value {
            AllowedHosts::Loopback => quoted_list::<&str>([]),
            AllowedHosts::Any => quoted_list(["*"]),
            AllowedHosts::List(hosts) => quoted_list(hosts),
        })
    }
}

/// The origins that are answered. Nothing listed means loopback only.
pub(in crate::config) struct Origins;

impl ValueForm for Origins {
    type Of = AllowedOrigins;
    fn expected() -> String {
        "a list of origins such as [\"https://app.example.com\"], or [\"*\"] for any".to_owned()
    }
    fn read(raw: &SettingValue) -> Result<AllowedOrigins, ValueRefusal> {
        Ok(match names(raw, &origin)? {
            HostNames::None => AllowedOrigins::Loopback,
            HostNames::Any => AllowedOrigins::Any,
            HostNames::List(origins) => AllowedOrigins::List(origins),
        })
    }
    fn show(value: &AllowedOrigins) -> Option<String> {
        Some(match value {
            AllowedOrigins::Loopback => quoted_list::<&str>([]),
            AllowedOrigins::Any => quoted_list(["*"]),
            AllowedOrigins::List(origins) => quoted_list(origins),
        })
    }
}

enum HostNames {
    None,
    Any,
    List(Vec<String>),
}

/// Reads a list; `check` refuses a name that could never match a header.
fn names(
    raw: &SettingValue,
    check: &dyn Fn(&str) -> Result<(), ValueRefusal>,
) -> Result<HostNames, ValueRefusal> {
    // No host and no origin has a quote in it, but a list copied from a file has.
    if matches!(raw, SettingValue::Untyped(text) if text.contains('"')) {
        return Err(ValueRefusal::hint(
            "outside a file, write the names with commas between them, without quotes",
        ));
    }
    let names = raw.names()?;
    match &names[..] {
        [] => Ok(HostNames::None),
        [name] if name == "*" => Ok(HostNames::Any),
        _ if names.iter().any(|name| name == "*") => {
            Err(ValueRefusal::hint("`*` stands for all, so it stands alone"))
        }
        _ => {
            names.iter().try_for_each(|name| check(name))?;
            Ok(HostNames::List(names))
        }
    }
}

fn host(name: &str) -> Result<(), ValueRefusal> {
    let hint = |problem: &str| Err(ValueRefusal::hint(format!("{} {problem}", quoted(name))));
    match name {
        _ if name.contains("://") => hint("is a URL; write its host only"),
        _ if name.contains('*') => hint("is a pattern; write every host in full"),
        _ if name.is_empty()
            || name.contains(|letter: char| letter.is_whitespace() || "/,\"".contains(letter)) =>
        {
            hint("is not a host")
        }
        _ => Ok(()),
    }
}

fn origin(name: &str) -> Result<(), ValueRefusal> {
    let hint = |problem: &str| Err(ValueRefusal::hint(format!("{} {problem}", quoted(name))));
    match name.split_once("://") {
        None => hint("has no scheme; write it as a browser does, such as \"https://app.example.com\""),
        Some(_) if name.contains('*') => hint("is a pattern; write every origin in full"),
        Some((_, host)) if host.contains('/') => hint("has a path; an origin ends after host and port"),
        Some((scheme, host))
            if scheme.is_empty() || host.is_empty() || name.contains(char::is_whitespace) =>
        {
            hint("is not an origin")
        }
        Some(_) => Ok(()),
    }
}
