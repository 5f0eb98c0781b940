//! Forms for what authorization servers are told: URLs, names, and secrets that stand elsewhere.

use super::{SettingValue, ValueForm, ValueRefusal, quoted};
use crate::url_text::marked;

/// A URL.
pub(in crate::config) struct WebUrl;

impl ValueForm for WebUrl {
    type Of = String;
    fn expected() -> String {
        "a URL such as \"https://id.example.com\"".to_owned()
    }
    fn read(raw: &SettingValue) -> Result<String, ValueRefusal> {
        match raw.text() {
            Some(text) if text.starts_with("http://") || text.starts_with("https://") => Ok(text.to_owned()),
            Some(_) => Err(ValueRefusal::hint("it begins with https://, or with http:// on this machine")),
            None => Err(ValueRefusal::default()),
        }
    }
    fn show(value: &String) -> Option<String> {
        Some(quoted(&marked(value)))
    }
}

/// A text that is not empty.
pub(in crate::config) struct PlainText;

impl ValueForm for PlainText {
    type Of = String;
    fn expected() -> String {
        "a text".to_owned()
    }
    fn read(raw: &SettingValue) -> Result<String, ValueRefusal> {
        raw.text().filter(|text| !text.is_empty()).map(str::to_owned).ok_or_else(ValueRefusal::default)
    }
    fn show(value: &String) -> Option<String> {
        Some(quoted(value))
    }
}

/// A secret, or the place where it stands.
pub(in crate::config) struct Secret;

impl ValueForm for Secret {
    type Of = String;
    fn expected() -> String {
        "a secret as \"env:VARIABLE\" or \"file:PATH\"".to_owned()
    }
    fn read(raw: &SettingValue) -> Result<String, ValueRefusal> {
        PlainText::read(raw)
    }
    fn show(value: &String) -> Option<String> {
        // A value is a secret; its source is not.
        let is_source = value.starts_with("env:") || value.starts_with("file:");
        Some(quoted(if is_source { value } else { "(hidden)" }))
    }
}
