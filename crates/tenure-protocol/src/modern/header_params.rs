//! Arguments of a tool that a client repeats in headers, because the tool's schema asks for it.
//!
//! A property with `"x-mcp-header": "Region"` is repeated in `Mcp-Param-Region`, so that a proxy can route by it. As a
//! server we check that header and argument agree; as a client we write the headers, and leave out tools with invalid
//! annotations.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::error::Error;
use crate::json::RawJson;
use crate::json::members::{self, MemberLookup};
use crate::modern::header_value;
use crate::modern::validate::mismatch;

/// The prefix of these headers.
pub const PREFIX: &str = "Mcp-Param-";

const ANNOTATION: &str = "x-mcp-header";

/// The arguments of one tool that are repeated in headers.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct HeaderParams(Vec<Param>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct Param {
    /// The header's whole name.
    header: Box<str>,
    /// The names of the members from `arguments` to the argument.
    path: Box<[Box<str>]>,
}

/// Why a tool's annotations are invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{ANNOTATION} at `{at}` {what}")]
pub struct Nonsense {
    at: String,
    what: &'static str,
}

impl HeaderParams {
    /// Reads the annotations of a tool from a `tools/list` result.
    ///
    /// # Errors
    /// When one of them is invalid.
    pub fn of_tool(tool: &RawJson) -> Result<Self, Nonsense> {
        match members::find(tool.bytes(), "inputSchema") {
            MemberLookup::One(schema) => Self::of_schema(schema.get()),
            MemberLookup::Absent | MemberLookup::Twice => Ok(Self::default()),
        }
    }

    /// Reads the annotations of a tool's input schema.
    ///
    /// # Errors
    /// When one of them is invalid.
    pub fn of_schema(schema: &str) -> Result<Self, Nonsense> {
        // Nearly every schema has none. Escapes could hide the name, so schemas with escapes are parsed.
        if !schema.contains(ANNOTATION) && !schema.contains(r"\u") {
            return Ok(Self::default());
        }
        // serde refuses a schema that is too deep; it counts as one without annotations.
        let Ok(schema) = serde_json::from_str::<Map<String, Value>>(schema) else {
            return Ok(Self::default());
        };
        let mut found = Self::default();
        found.walk(&schema, &mut Vec::new(), Chain::Properties)?;
        Ok(found)
    }

    /// Whether no argument is repeated in a header.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The headers of a `tools/call` with these params. An argument that no header can hold is left out; the server
    /// will refuse it.
    pub fn headers_for(&self, params: Option<&RawJson>) -> Vec<(&str, String)> {
        let written = |param: &Param| match ArgumentValue::of(params, &param.path) {
            ArgumentValue::Text(text) => Some(header_value::encode(&text).into_owned()),
            ArgumentValue::Literal(word) => Some(word.to_owned()),
            ArgumentValue::Number(text) => Some(whole(text)?.to_string()),
            ArgumentValue::Nothing | ArgumentValue::Other | ArgumentValue::Ambiguous => None,
        };
        self.0.iter().filter_map(|param| Some((&*param.header, written(param)?))).collect()
    }

    /// Checks the `Mcp-Param-*` headers of a `tools/call` against its params. The name of a header is its part after
    /// `Mcp-Param-`. Headers without an annotation or without an argument are ignored.
    ///
    /// # Errors
    /// [`HeaderMismatch`](crate::error::Reason::HeaderMismatch) when one is missing, repeated, or differs from its
    /// argument.
    pub fn check(&self, params: Option<&RawJson>, headers: &[(Box<str>, Box<str>)]) -> Result<(), Error> {
        self.0.iter().try_for_each(|param| param.check(params, headers))
    }

    /// Collects annotations. Visits all nested schemas, because one annotation in a forbidden place makes the tool
    /// invalid.
    fn walk(
        &mut self,
        schema: &Map<String, Value>,
        path: &mut Vec<Box<str>>,
        chain: Chain,
    ) -> Result<(), Nonsense> {
        if let Some(name) = schema.get(ANNOTATION) {
            self.annotate(schema, name, path, chain)?;
        }
        for (keyword, value) in schema {
            match (keyword.as_str(), value) {
                // Values, not schemas.
                (ANNOTATION | "default" | "const" | "enum" | "examples", _) => {}
                ("properties", Value::Object(schemas)) => self.each(schemas, path, chain)?,
                (
                    "patternProperties" | "dependentSchemas" | "$defs" | "definitions",
                    Value::Object(schemas),
                ) => {
                    self.each(schemas, path, Chain::Broken)?;
                }
                (_, Value::Object(schema)) => self.step(keyword, schema, path, Chain::Broken)?,
                (_, Value::Array(schemas)) => {
                    for schema in schemas.iter().filter_map(Value::as_object) {
                        self.step(keyword, schema, path, Chain::Broken)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn each(
        &mut self,
        schemas: &Map<String, Value>,
        path: &mut Vec<Box<str>>,
        chain: Chain,
    ) -> Result<(), Nonsense> {
        for (name, schema) in schemas {
            if let Value::Object(schema) = schema {
                self.step(name, schema, path, chain)?;
            }
        }
        Ok(())
    }

    fn step(
        &mut self,
        name: &str,
        schema: &Map<String, Value>,
        path: &mut Vec<Box<str>>,
        chain: Chain,
    ) -> Result<(), Nonsense> {
        path.push(name.into());
        let walked = self.walk(schema, path, chain);
        path.pop();
        walked
    }

    fn annotate(
        &mut self,
        schema: &Map<String, Value>,
        name: &Value,
        path: &[Box<str>],
        chain: Chain,
    ) -> Result<(), Nonsense> {
        let nonsense = |what| Err(Nonsense { at: path.join("."), what });
        if chain == Chain::Broken || path.is_empty() {
            return nonsense("is not at a property that is reached by properties alone");
        }
        let Some(name) = name.as_str().filter(|name| !name.is_empty() && name.bytes().all(is_token)) else {
            return nonsense("is not a name for a header");
        };
        if !matches!(schema.get("type").and_then(Value::as_str), Some("string" | "integer" | "boolean")) {
            return nonsense("is at something other than a string, an integer or a boolean");
        }
        let header = format!("{PREFIX}{name}").into_boxed_str();
        if self.0.iter().any(|other| other.header.eq_ignore_ascii_case(&header)) {
            return nonsense("has a name that another one has too");
        }
        self.0.push(Param { header, path: path.into() });
        Ok(())
    }
}

/// Whether the annotations of a tool are valid. Clients leave out tools with invalid ones.
pub fn is_valid(tool: &RawJson) -> bool {
    HeaderParams::of_tool(tool).is_ok()
}

/// How a schema was reached.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chain {
    /// From the root only through `properties`.
    Properties,
    /// In another way.
    Broken,
}

impl Param {
    fn check(&self, params: Option<&RawJson>, headers: &[(Box<str>, Box<str>)]) -> Result<(), Error> {
        let argument = ArgumentValue::of(params, &self.path);
        if argument == ArgumentValue::Nothing {
            return Ok(());
        }
        let name = &self.header[PREFIX.len()..];
        let mut values = headers.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
        let value = match (values.next(), values.next(), &argument) {
            (Some((_, value)), None, _) => value,
            // No header can hold this value, and the tool will not accept it either.
            (None, None, ArgumentValue::Other) => return Ok(()),
            (None, _, _) => return Err(mismatch(&self.header, "is missing")),
            (Some(_), Some(_), _) => return Err(mismatch(&self.header, "stands twice")),
        };
        let value = header_value::decode(value).ok_or_else(|| mismatch(&self.header, "cannot be decoded"))?;
        let same = match argument {
            ArgumentValue::Text(text) => value == text,
            ArgumentValue::Literal(word) => value == word,
            ArgumentValue::Number(number) => {
                whole(number).is_some_and(|number| whole(&value) == Some(number))
            }
            ArgumentValue::Nothing | ArgumentValue::Other | ArgumentValue::Ambiguous => false,
        };
        if same { Ok(()) } else { Err(mismatch(&self.header, "differs from the body")) }
    }
}

/// The value of one argument of a request.
#[derive(PartialEq)]
enum ArgumentValue<'a> {
    /// Absent or null.
    Nothing,
    Text(Cow<'a, str>),
    Number(&'a str),
    /// `true` or `false`
    Literal(&'a str),
    /// An array or object, which no header can hold.
    Other,
    /// A value that servers read differently: a repeated member, or a string with half of a surrogate pair.
    Ambiguous,
}

impl<'a> ArgumentValue<'a> {
    fn of(params: Option<&'a RawJson>, path: &[Box<str>]) -> Self {
        let Some(params) = params else { return Self::Nothing };
        let mut at: &[u8] = params.bytes();
        // Only for `arguments` itself other cases count: a tool may have two arguments whose names differ only in case.
        let mut found = members::find_sent(at, "arguments");
        let mut names = path.iter();
        loop {
            match found {
                MemberLookup::One(value) => at = value.get().as_bytes(),
                MemberLookup::Absent => return Self::Nothing,
                MemberLookup::Twice => return Self::Ambiguous,
            }
            let Some(name) = names.next() else { break };
            found = members::find(at, name);
        }
        let text = std::str::from_utf8(at).unwrap_or_default();
        match text.as_bytes() {
            b"null" => Self::Nothing,
            b"true" | b"false" => Self::Literal(text),
            [b'"', ..] => serde_json::from_str(text).map_or(Self::Ambiguous, Self::Text),
            [b'-' | b'0'..=b'9', ..] => Self::Number(text),
            _ => Self::Other,
        }
    }
}

/// The value of a JSON number, if it is whole and a double holds it exactly.
fn whole(text: &str) -> Option<i64> {
    const SAFE: i64 = (1 << 53) - 1;
    if !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')) {
        return None;
    }
    RawJson::parse(text.to_owned())?;
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i64 = exponent.parse().ok()?;
    let (digits, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let (sign, digits) = digits.strip_prefix('-').map_or((1, digits), |digits| (-1, digits));
    let all = format!("{digits}{fraction}");
    let significant = all.trim_end_matches('0');
    if significant.is_empty() {
        return Some(0);
    }
    let dropped = i64::try_from(all.len() - significant.len()).ok()?;
    let scale = exponent.checked_sub(i64::try_from(fraction.len()).ok()?)?.checked_add(dropped)?;
    let power = 10_i64.checked_pow(u32::try_from(scale).ok()?)?;
    let value = significant.parse::<i64>().ok()?.checked_mul(power)?;
    (value <= SAFE).then_some(sign * value)
}

/// The characters of an HTTP token.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests;
