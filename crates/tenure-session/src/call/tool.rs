//! The name and the arguments in the params of a `tools/call`.

use std::borrow::Cow;

use serde::Deserialize;
use tenure_protocol::{RawJson, Reason, RpcError};

/// The tool and the arguments of a call. Usually both were located when the message was parsed, so reading them is
/// cheap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ToolCall<'a> {
    /// The tool.
    pub name: Cow<'a, str>,
    /// Its arguments, as raw JSON.
    arguments: Option<&'a [u8]>,
}

impl<'a> ToolCall<'a> {
    /// Finds the tool and its arguments.
    ///
    /// # Errors
    /// When the tool's name is missing, or a member appears twice.
    pub fn read(params: Option<&'a RawJson>) -> Result<Self, RpcError> {
        let invalid = |why: &'static str| RpcError::of(Reason::InvalidParams, why);
        let params = params.ok_or_else(|| invalid("params are missing"))?;
        let found = params.outline().ok_or_else(|| invalid("the params make no sense"))?;
        let name = found.tool().ok_or_else(|| invalid("params: `name` is not a string"))?;
        let name = name.ok_or_else(|| invalid("params: `name` is missing"))?;
        Ok(Self { name, arguments: found.arguments.filter(|arguments| *arguments != b"null") })
    }

    /// Reads the arguments; missing arguments are read as an empty object.
    ///
    /// # Errors
    /// When they do not fit the type.
    pub fn arguments<T: Deserialize<'a>>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(self.arguments.unwrap_or(b"{}"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(params: &'static str) -> Result<(String, Value), String> {
        let params = RawJson::trusted(params);
        let call = ToolCall::read(Some(&params)).map_err(|error| error.message())?;
        Ok((call.name.clone().into_owned(), call.arguments().map_err(|error| error.to_string())?))
    }

    #[test]
    fn a_call_is_found_among_what_stands_around_it() {
        let found = |name: &str, arguments| Ok((name.to_owned(), arguments));
        let table = [
            (r#"{"name":"x"}"#, found("x", json!({}))),
            (r#" { "name" : "x" , "arguments" : null } "#, found("x", json!({}))),
            (
                r#"{"_meta":{"name":"y","arguments":7},"arguments":{"name":"z"},"n\u0061me":"\u0078"}"#,
                found("x", json!({ "name": "z" })),
            ),
            (r#"{"arguments":{}}"#, Err("params: `name` is missing".to_owned())),
            (r#"{"name":7}"#, Err("params: `name` is not a string".to_owned())),
            (r#"{"name":"x","name":"y"}"#, Err("the params make no sense".to_owned())),
            (r#"{"name":"x","arguments":{},"arguments":{}}"#, Err("the params make no sense".to_owned())),
        ];
        for (params, expected) in table {
            assert_eq!(read(params), expected, "{params}");
        }
        assert_eq!(ToolCall::read(None).unwrap_err().message(), "params are missing");
    }
}
