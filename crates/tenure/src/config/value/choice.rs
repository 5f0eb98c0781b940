//! Forms for choices: yes or no, one of several names, lists of names, and log filters.

use tenure_layers::bridge::Reuse;
use tenure_layers::data::{FEATURES, Required};
use tenure_layers::limited::OverLimit;
use tenure_protocol::Eras;
use tenure_session::limits::{Gate, OnGap, OtherServer, UnknownEventId};
use tracing_subscriber::filter::{LevelFilter, Targets};

use super::{SettingValue, ValueForm, ValueRefusal, quoted, quoted_list};
use crate::config::audit::AuditDurability;
use crate::config::auth::AuthMode;
use crate::config::compat::Compat;
use crate::config::effective::{DataOffer, Inherited, LogFormat, Speaks, WriteDurability};
use crate::config::lookup::similar;
use crate::config::profile::Profile;
use crate::config::upstream_auth::UpstreamAuthMode;

/// Whether requests wait for `notifications/initialized`.
pub(in crate::config) struct Strict;

impl ValueForm for Strict {
    type Of = Gate;
    fn expected() -> String {
        "true or false".to_owned()
    }
    fn read(raw: &SettingValue) -> Result<Gate, ValueRefusal> {
        raw.flag().map(|is_strict| if is_strict { Gate::Strict } else { Gate::Lenient })
    }
    fn show(value: &Gate) -> Option<String> {
        Some((*value == Gate::Strict).to_string())
    }
}

/// A value with a name.
pub(in crate::config) trait Choice: Copy + PartialEq + 'static {
    /// Every value, with its name.
    const ALL: &'static [(&'static str, Self)];
}

/// One of some names.
pub(in crate::config) struct OneOf<T>(std::marker::PhantomData<T>);

impl<T: Choice> ValueForm for OneOf<T> {
    type Of = T;
    fn expected() -> String {
        let names: Vec<_> = T::ALL.iter().map(|(name, _)| quoted(name)).collect();
        format!("one of {}", names.join(", "))
    }
    fn read(raw: &SettingValue) -> Result<T, ValueRefusal> {
        let text = raw.text().ok_or_else(ValueRefusal::default)?;
        let found = T::ALL.iter().find(|(name, _)| *name == text);
        found.map(|(_, value)| *value).ok_or_else(|| ValueRefusal {
            hint: similar(text, T::ALL.iter().map(|(name, _)| *name))
                .map(|name| format!("did you mean {}?", quoted(name))),
        })
    }
    fn show(value: &T) -> Option<String> {
        T::ALL.iter().find(|(_, known)| known == value).map(|(name, _)| quoted(name))
    }
}

impl Choice for Profile {
    const ALL: &'static [(&'static str, Self)] = &{
        let mut named = [("", Self::Development); Self::ALL.len()];
        let mut index = 0;
        while index < named.len() {
            named[index] = (Self::ALL[index].as_str(), Self::ALL[index]);
            index += 1;
        }
        named
    };
}

macro_rules! choices {
    ($($type:ty: $($name:literal => $value:ident),+;)+) => {
        $(impl Choice for $type {
            const ALL: &'static [(&'static str, Self)] = &[$(($name, Self::$value)),+];
        })+
    };
}

choices! {
    AuditDurability: "best_effort" => BestEffort, "required" => Required;
    AuthMode: "auto" => Auto, "none" => None;
    Compat: "none" => None, "sources" => Sources;
    LogFormat: "auto" => Auto, "pretty" => Pretty, "json" => Json;
    UnknownEventId: "fresh" => Fresh, "error" => Error, "replay_all" => ReplayAll;
    OtherServer: "refuse" => Refuse, "warn" => Warn;
    OnGap: "report" => Report, "warn" => Warn, "error" => Error;
    WriteDurability: "os" => Os, "disk" => Disk;
    Eras: "both" => Both, "legacy" => Legacy, "modern" => Modern;
    Speaks: "auto" => Auto, "legacy" => Legacy, "modern" => Modern;
    UpstreamAuthMode: "none" => None, "client_credentials" => ClientCredentials, "token_exchange" => TokenExchange;
    Reuse: "principal" => Principal, "request" => Request;
    OverLimit: "error" => Error, "tool_result" => ToolResult;
    DataOffer: "auto" => Auto, "always" => Always, "never" => Never;
}

/// One of some error codes that clients in the field act on.
pub(in crate::config) struct Code<const DRAFT: bool>;

impl<const DRAFT: bool> ValueForm for Code<DRAFT> {
    type Of = i32;
    fn expected() -> String {
        if DRAFT { "-32044, -32043 or -32002" } else { "-32002 or -32043" }.to_owned()
    }
    fn read(raw: &SettingValue) -> Result<i32, ValueRefusal> {
        match raw.number() {
            Some(-32044) if DRAFT => Ok(-32044),
            Some(code @ (-32043 | -32002)) => i32::try_from(code).map_err(|_| ValueRefusal::default()),
            _ => Err(ValueRefusal::default()),
        }
    }
    fn show(value: &i32) -> Option<String> {
        Some(value.to_string())
    }
}

/// Yes or no.
pub(in crate::config) struct YesNo;

impl ValueForm for YesNo {
    type Of = bool;
    fn expected() -> String {
        Strict::expected()
    }
    fn read(raw: &SettingValue) -> Result<bool, ValueRefusal> {
        raw.flag()
    }
    fn show(value: &bool) -> Option<String> {
        Some(value.to_string())
    }
}

/// Which tools need a data session.
pub(in crate::config) struct RequiredTools;

impl ValueForm for RequiredTools {
    type Of = Required;
    fn expected() -> String {
        "\"none\", \"all\", or a list of tools such as [\"notebook_append\"]".to_owned()
    }
    fn read(raw: &SettingValue) -> Result<Required, ValueRefusal> {
        match raw.text() {
            Some("none") => Ok(Required::None),
            Some("all") => Ok(Required::All),
            _ => Ok(match raw.names()? {
                names if names.is_empty() => Required::None,
                names => Required::Tools(names.into_iter().collect()),
            }),
        }
    }
    fn show(value: &Required) -> Option<String> {
        Some(match value {
            Required::None => quoted("none"),
            Required::All => quoted("all"),
            Required::Tools(tools) => quoted_list(tools),
        })
    }
}

/// Which variables a child inherits.
pub(in crate::config) struct Variables;

impl ValueForm for Variables {
    type Of = Inherited;
    fn expected() -> String {
        "\"all\", \"none\", or a list of variables such as [\"NODE_ENV\"]".to_owned()
    }
    fn read(raw: &SettingValue) -> Result<Inherited, ValueRefusal> {
        let names = match raw.text() {
            Some("all") => return Ok(Inherited::All),
            Some("none") => Vec::new(),
            _ => raw.names()?,
        };
        match names.iter().find(|name| name.is_empty() || name.contains(['=', '*'])) {
            Some(name) => Err(ValueRefusal::hint(format!("{} is not the name of a variable", quoted(name)))),
            None => Ok(Inherited::Only(names)),
        }
    }
    fn show(value: &Inherited) -> Option<String> {
        Some(match value {
            Inherited::All => quoted("all"),
            Inherited::Only(names) if names.is_empty() => quoted("none"),
            Inherited::Only(names) => quoted_list(names),
        })
    }
}

/// What can be asked of data sessions.
pub(in crate::config) struct Features;

impl ValueForm for Features {
    type Of = Vec<String>;
    fn expected() -> String {
        format!("a list with \"create\" and others of {}", FEATURES.map(quoted).join(", "))
    }
    fn read(raw: &SettingValue) -> Result<Vec<String>, ValueRefusal> {
        let named = raw.list(|text| text.split(',').map(|name| name.trim().to_owned()).collect())?;
        if let Some(unknown) = named.iter().find(|name| !FEATURES.contains(&name.as_str())) {
            let hint =
                similar(unknown, FEATURES.into_iter()).map(|name| format!("did you mean {}?", quoted(name)));
            return Err(ValueRefusal { hint });
        }
        if !named.iter().any(|name| name == "create") {
            return Err(ValueRefusal::hint(
                "without \"create\" no data session can begin; that is `data_sessions.offer = \"never\"`",
            ));
        }
        // In a fixed order, independent of the order in the file.
        Ok(FEATURES
            .iter()
            .filter(|name| named.iter().any(|named| named == *name))
            .map(|name| (*name).to_owned())
            .collect())
    }
    fn show(value: &Vec<String>) -> Option<String> {
        Some(quoted_list(value))
    }
}

/// A filter of log lines.
pub(in crate::config) struct LogFilter;

impl ValueForm for LogFilter {
    type Of = String;
    fn expected() -> String {
        "a log level such as \"info\", or a filter such as \"info,tenure_session=debug\"".to_owned()
    }
    fn read(raw: &SettingValue) -> Result<String, ValueRefusal> {
        const LEVELS: &str = "the levels are off, error, warn, info, debug and trace";
        let text = raw.text().filter(|text| !text.is_empty()).ok_or_else(ValueRefusal::default)?;
        // `Targets` reads a single word as a target to log in full, so that a mistyped level would log everything.
        let word = text.split(',').map(str::trim).find(|part| {
            part.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
                && part.parse::<LevelFilter>().is_err()
        });
        if let Some(word) = word.filter(|_| !text.contains('[')) {
            return Err(ValueRefusal::hint(format!("{LEVELS}; for a target write `{word}=info`")));
        }
        text.parse::<Targets>().map_err(|_| ValueRefusal::hint(LEVELS))?;
        Ok(text.to_owned())
    }
    fn show(value: &String) -> Option<String> {
        Some(quoted(value))
    }
}
