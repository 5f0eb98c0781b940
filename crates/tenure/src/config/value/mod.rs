//! How a value is written: one form per kind of value, which reads and shows it.
//!
//! In: a [`SettingValue`] from a file, a variable or a flag. Out: the typed value, or a [`ValueRefusal`], which
//! becomes an error that names the found and the expected value.

pub(super) mod choice;
pub(super) mod measure;
pub(super) mod place;
pub(super) mod rate;
pub(super) mod units;
pub(super) mod web;

/// A value as it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum SettingValue {
    /// From a variable or a flag: the key decides what the text means.
    Untyped(String),
    /// A TOML string.
    Text(String),
    /// A TOML integer.
    Number(i64),
    /// A TOML boolean.
    Flag(bool),
    /// A TOML array of strings.
    List(Vec<String>),
    /// A TOML table.
    Table,
    /// Any other TOML value; no key takes one.
    Other,
}

/// A value that is not what the key expects, with a hint if there is one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct ValueRefusal {
    pub(super) hint: Option<String>,
}

/// A way to write a value.
pub(super) trait ValueForm {
    /// The type of the value.
    type Of;
    /// Completes the sentence "expected …".
    fn expected() -> String;
    /// Reads it.
    fn read(raw: &SettingValue) -> Result<Self::Of, ValueRefusal>;
    /// Writes it as TOML; `None` if it is not set.
    fn show(value: &Self::Of) -> Option<String>;
}

impl SettingValue {
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Untyped(text) | Self::Text(text) => Some(text),
            Self::Number(_) | Self::Flag(_) | Self::List(_) | Self::Table | Self::Other => None,
        }
    }

    pub(super) fn number(&self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Untyped(text) => text.parse().ok(),
            Self::Text(_) | Self::Flag(_) | Self::List(_) | Self::Table | Self::Other => None,
        }
    }
}

impl SettingValue {
    /// The words of a list. `split` reads the text of a variable or a flag.
    fn list(&self, split: impl Fn(&str) -> Vec<String>) -> Result<Vec<String>, ValueRefusal> {
        match self {
            Self::List(words) => Ok(words.clone()),
            Self::Untyped(text) => Ok(split(text)),
            Self::Text(text) => {
                Err(ValueRefusal::hint(format!("write it in brackets: {}", quoted_list([text]))))
            }
            _ => Err(ValueRefusal::default()),
        }
    }

    /// The names of a list; outside a file there are commas between them.
    fn names(&self) -> Result<Vec<String>, ValueRefusal> {
        let names = |text: &str| {
            text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
        };
        self.list(names)
    }

    fn flag(&self) -> Result<bool, ValueRefusal> {
        match self {
            Self::Flag(flag) => Ok(*flag),
            Self::Untyped(text) => text.parse().map_err(|_| ValueRefusal::default()),
            _ => Err(ValueRefusal::default()),
        }
    }
}

impl ValueRefusal {
    pub(super) fn hint(text: impl Into<String>) -> Self {
        Self { hint: Some(text.into()) }
    }
}

/// Text as a TOML string.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// Texts as a TOML array.
pub(super) fn quoted_list<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> String {
    let texts: Vec<_> = texts.into_iter().map(|text| quoted(text.as_ref())).collect();
    format!("[{}]", texts.join(", "))
}

/// A value that need not be set.
pub(super) struct Optional<F>(std::marker::PhantomData<F>);

impl<F: ValueForm> ValueForm for Optional<F> {
    type Of = Option<F::Of>;
    fn expected() -> String {
        F::expected()
    }
    fn read(raw: &SettingValue) -> Result<Option<F::Of>, ValueRefusal> {
        F::read(raw).map(Some)
    }
    fn show(value: &Option<F::Of>) -> Option<String> {
        value.as_ref().and_then(F::show)
    }
}
