//! The `_meta` of a modern request.

use crate::error::{Error, Reason};
use crate::json::RawJson;
use crate::json::members::{self, WrittenValue};
use crate::keys::{CAPABILITIES, CLIENT, LEVEL, META_VERSION, TOKEN};
use crate::modern::capability::Capabilities;
use crate::params::{self, LogLevel};

/// The `_meta` of a request, parsed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Meta {
    /// The protocol version of the client.
    pub version: String,
    /// The capabilities of the client.
    pub capabilities: Capabilities,
    /// `clientInfo`, if the client sends it. No decision may depend on it.
    pub info: Option<RawJson>,
    /// The log messages that it wants; no messages without it.
    pub level: Option<Level>,
    /// The token for progress notifications, if it wants them.
    pub token: Option<RawJson>,
}

/// The lowest level of log messages that a client wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// This level and higher ones.
    From(LogLevel),
    /// An unknown level. The request is refused for it, but after the rest of `_meta` was checked.
    Unknown,
}

impl Meta {
    /// Reads the `_meta` of a request's params.
    ///
    /// # Errors
    /// [`Reason::InvalidMeta`] when the version or the capabilities are missing or of the wrong type, or when any
    /// member is repeated.
    pub fn read(params: Option<&RawJson>) -> Result<Self, Error> {
        let params = params.ok_or_else(|| invalid("params._meta is missing"))?;
        // Some later readers give up on a name that is not valid text, and would skip their checks; so it is refused
        // here.
        let all = members::read(params.bytes()).ok_or_else(|| invalid("a name in params is not a text"))?;
        let mut metas = all.iter().filter(|(name, _)| name == "_meta").map(|(_, meta)| *meta);
        let meta = match (metas.next(), metas.next()) {
            (Some(meta), None) => meta,
            (None, _) => return Err(invalid("params._meta is missing")),
            (Some(_), Some(_)) => return Err(invalid("params._meta stands twice")),
        };
        let members =
            members::read(meta.get().as_bytes()).ok_or_else(|| invalid("params._meta must be an object"))?;
        if members::repeat(&members) {
            return Err(invalid("a member of params._meta stands twice"));
        }
        let raw =
            |value: WrittenValue<'_>| RawJson::trusted(params.bytes().slice_ref(value.get().as_bytes()));
        let mut version = None;
        let mut capabilities = None;
        let (mut info, mut level, mut token) = (None, None, None);
        for (name, value) in members {
            let text = value.get();
            match &*name {
                META_VERSION => version = serde_json::from_str(text).ok(),
                CAPABILITIES => capabilities = Capabilities::parse(raw(value)),
                CLIENT => info = text.starts_with('{').then(|| raw(value)),
                LEVEL if text != "null" => {
                    let known = serde_json::from_str::<String>(text).ok();
                    let known = known.and_then(|name| LogLevel::parse(&name));
                    level = Some(known.map_or(Level::Unknown, Level::From));
                }
                // A token that is neither a string nor a number is ignored.
                TOKEN if text.starts_with(['"', '-']) || text.starts_with(|c: char| c.is_ascii_digit()) => {
                    if text.len() > params::MAX_TOKEN_BYTES {
                        return Err(params::token_too_long());
                    }
                    token = Some(raw(value));
                }
                _ => {}
            }
        }
        let version =
            version.ok_or_else(|| invalid(format!("params._meta[\"{META_VERSION}\"] must be a string")))?;
        let capabilities = capabilities.ok_or_else(|| {
            invalid(format!("params._meta[\"{CAPABILITIES}\"] must be an object, nothing in it twice"))
        })?;
        Ok(Self { version, capabilities, info, level, token })
    }
}

/// The members of a request's `_meta` that describe its client, for our own requests on the client's behalf.
pub fn of_client(params: &RawJson) -> Option<serde_json::Map<String, serde_json::Value>> {
    #[derive(serde::Deserialize)]
    struct ParamsWithMeta {
        #[serde(rename = "_meta")]
        meta: serde_json::Map<String, serde_json::Value>,
    }
    let mut meta = params.read::<ParamsWithMeta>().ok()?.meta;
    meta.retain(|name, _| [META_VERSION, CAPABILITIES, CLIENT].contains(&&**name));
    Some(meta)
}

/// The name that a server gives itself in a result.
pub fn server_name(result: &RawJson) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct ResultWithMeta {
        #[serde(rename = "_meta")]
        meta: ServerInfoMeta,
    }
    #[derive(serde::Deserialize)]
    struct ServerInfoMeta {
        #[serde(rename = "io.modelcontextprotocol/serverInfo")]
        server: ServerInfoName,
    }
    #[derive(serde::Deserialize)]
    struct ServerInfoName {
        name: String,
    }
    result.read::<ResultWithMeta>().ok().map(|result| result.meta.server.name)
}

fn invalid(detail: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(Reason::InvalidMeta, detail)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Short names, so that a case fits its line.
    fn params(text: &str) -> RawJson {
        let long = [("$v", META_VERSION), ("$c", CAPABILITIES), ("$i", CLIENT), ("$l", LEVEL)];
        let text = long.iter().fold(text.to_owned(), |text, (short, long)| text.replace(short, long));
        RawJson::parse(text).expect("a test writes JSON")
    }

    fn read(text: &str) -> Result<Meta, Error> {
        Meta::read(Some(&params(text)))
    }

    #[test]
    fn what_must_be_there_and_of_what_type() {
        let good = [
            r#"{"_meta":{"$v":"2026-07-28","$c":{}}}"#,
            r#"{"name":"x","_meta":{"$c":{"sampling":{}},"$v":"v999","traceparent":"00-1","x":[1]}}"#,
            r#"{"\u005fmeta":{"$v":"2026-07-28","io.modelcontextprotocol\/clientCapabilities":{}}}"#,
            // Optional members of the wrong type are ignored.
            r#"{"_meta":{"$v":"","$c":{},"$i":7,"progressToken":{},"$l":null}}"#,
        ];
        for text in good {
            assert!(read(text).is_ok(), "{text}: {:?}", read(text));
        }
        let bad = [
            "{}",
            r#"{"_meta":null}"#,
            r#"{"_meta":[]}"#,
            r#"{"_meta":{}}"#,
            r#"{"_meta":{"$v":"2026-07-28"}}"#,
            r#"{"_meta":{"$c":{}}}"#,
            r#"{"_meta":{"$v":20260728,"$c":{}}}"#,
            r#"{"_meta":{"$v":null,"$c":{}}}"#,
            r#"{"_meta":{"$v":["2026-07-28"],"$c":{}}}"#,
            r#"{"_meta":{"$v":"2026-07-28","$c":null}}"#,
            r#"{"_meta":{"$v":"2026-07-28","$c":[]}}"#,
            r#"{"_meta":{"$v":"2026-07-28","$c":"{}"}}"#,
            r#"{"_meta":{"$v":"2026-07-28"},"$c":{}}"#,
            r#"{"_meta":{"$v":"2026-07-28","$c":{}},"\ud800":1}"#,
            r#"{"_meta":{"$v":"2026-07-28","$c":{},"\ud800":1}}"#,
        ];
        for text in bad {
            assert_eq!(read(text).unwrap_err().reason(), Reason::InvalidMeta, "{text}");
        }
        assert_eq!(Meta::read(None).unwrap_err().reason(), Reason::InvalidMeta);
    }

    #[test]
    fn nothing_stands_twice() {
        let bad = [
            r#"{"_meta":{"$v":"2026-07-28","$c":{}},"_meta":{"$v":"2026-07-28","$c":{}}}"#,
            r#"{"_meta":{"$v":"2026-07-28","$c":{}},"\u005fmeta":{}}"#,
            r#"{"_meta":{"$v":"2026-07-28","$c":{},"$v":"2026-07-28"}}"#,
            r#"{"_meta":{"$v":"2026-07-28","$c":{},"io.modelcontextprotocol\/protocolVersion":"x"}}"#,
            r#"{"_meta":{"$v":"2026-07-28","$c":{},"$c":{}}}"#,
            r#"{"_meta":{"$v":"2026-07-28","$c":{},"x":1,"x":1}}"#,
            r#"{"_meta":{"$v":"2026-07-28","$c":{"roots":{},"roots":{}}}}"#,
        ];
        for text in bad {
            assert_eq!(read(text).unwrap_err().reason(), Reason::InvalidMeta, "{text}");
        }
    }

    #[test]
    fn what_else_is_said() {
        let with =
            |more: &str| read(&format!(r#"{{"_meta":{{"$v":"2026-07-28","$c":{{}}{more}}}}}"#)).unwrap();
        let plain = with("");
        assert_eq!((plain.version.as_str(), plain.capabilities.raw().bytes()), ("2026-07-28", &"{}".into()));
        assert_eq!((plain.info, plain.level, plain.token), (None, None, None));

        let info = with(r#","$i":{ "name":"c" }"#).info.unwrap();
        assert_eq!(info.bytes(), r#"{ "name":"c" }"#, "the bytes it was");
        for (more, level) in [
            (r#","$l":"info""#, Level::From(LogLevel::Info)),
            (r#","$l":"emergency""#, Level::From(LogLevel::Emergency)),
            (r#","$l":"loud""#, Level::Unknown),
            (r#","$l":"INFO""#, Level::Unknown),
            (r#","$l":3"#, Level::Unknown),
        ] {
            assert_eq!(with(more).level, Some(level), "{more}");
        }
        for (more, token) in [
            (r#","progressToken":"p\u0031""#, Some(r#""p\u0031""#)),
            (r#","progressToken":-7"#, Some("-7")),
            (r#","progressToken":12345678901234567890123"#, Some("12345678901234567890123")),
            (r#","progressToken":null"#, None),
            (r#","progressToken":true"#, None),
        ] {
            assert_eq!(with(more).token, token.map(RawJson::trusted), "{more}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in r#"\{"_meta":\{("(io\.modelcontextprotocol/(protocolVersion|clientCapabilities)|x)":("2026-07-28"|\{\}|\{"roots":\{\}\}|1|null|\[\]),?){0,4}\}\}"#) {
            if let Some(params) = RawJson::parse(text.clone()) {
                let counts = |name: &str| text.matches(name).count();
                let read = Meta::read(Some(&params));
                if read.is_ok() {
                    prop_assert_eq!((counts(META_VERSION), counts(CAPABILITIES)), (1, 1));
                    prop_assert!(counts("\"x\"") < 2);
                }
            }
        }
    }
}
