//! Arguments of a tool that stand in headers too, because the tool's schema says so.
//!
//! A property with `"x-mcp-header": "Region"` is repeated in `Mcp-Param-Region`, so that whoever stands in between
//! can route by it. As a server we check that header and argument agree; as a client we write the headers, and do
//! not offer tools whose annotations make no sense.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::error::Error;
use crate::json::RawJson;
use crate::json::members::{self, Found};
use crate::modern::header_value;
use crate::modern::validate::mismatch;

/// What every such header's name begins with.
pub const PREFIX: &str = "Mcp-Param-";

const ANNOTATION: &str = "x-mcp-header";

/// The arguments of one tool that stand in headers too.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct HeaderParams(Vec<Param>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct Param {
    /// The header's whole name.
    header: Box<str>,
    /// The way to the argument, from `arguments` on.
    path: Box<[Box<str>]>,
}

/// Why a tool's annotations make no sense.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{ANNOTATION} at `{at}` {what}")]
pub struct Nonsense {
    at: String,
    what: &'static str,
}

impl HeaderParams {
    /// Reads the annotations of a tool, as it stands in a list.
    ///
    /// # Errors
    /// When one of them makes no sense.
    pub fn of_tool(tool: &RawJson) -> Result<Self, Nonsense> {
        match members::find(tool.bytes(), "inputSchema") {
            Found::One(schema) => Self::of_schema(schema.get()),
            Found::Absent | Found::Twice => Ok(Self::default()),
        }
    }

    /// Reads the annotations of a tool's input schema.
    ///
    /// # Errors
    /// When one of them makes no sense.
    pub fn of_schema(schema: &str) -> Result<Self, Nonsense> {
        // Nearly every schema has none. With escapes a name may be written in another way.
        if !schema.contains(ANNOTATION) && !schema.contains(r"\u") {
            return Ok(Self::default());
        }
        // What the parser does not read, for its depth, nobody else reads either.
        let Ok(schema) = serde_json::from_str::<Map<String, Value>>(schema) else {
            return Ok(Self::default());
        };
        let mut found = Self::default();
        found.walk(&schema, &mut Vec::new(), Chain::Properties)?;
        Ok(found)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The headers that a `tools/call` with these params has to carry. What cannot stand in a header is left to the
    /// server to refuse.
    pub fn headers_for(&self, params: Option<&RawJson>) -> Vec<(&str, String)> {
        let written = |param: &Param| match Said::of(params, &param.path) {
            Said::Text(text) => Some(header_value::encode(&text).into_owned()),
            Said::Literal(word) => Some(word.to_owned()),
            Said::Number(text) => Some(whole(text)?.to_string()),
            Said::Nothing | Said::Other | Said::Ambiguous => None,
        };
        self.0.iter().filter_map(|param| Some((&*param.header, written(param)?))).collect()
    }

    /// Checks the `Mcp-Param-*` headers of a `tools/call` against its params. Headers are named by what stands for
    /// the star. Those that no annotation asks for are ignored, as are those of arguments that are not there.
    ///
    /// # Errors
    /// [`HeaderMismatch`](crate::error::Reason::HeaderMismatch) when one is missing, stands twice or says something else.
    pub fn check(&self, params: Option<&RawJson>, headers: &[(Box<str>, Box<str>)]) -> Result<(), Error> {
        self.0.iter().try_for_each(|param| param.check(params, headers))
    }

    /// Collects annotations. Every schema is looked into, since an annotation where none may be spoils the tool.
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
            return nonsense("is no name for a header");
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

/// Whether the annotations of a tool make sense. Clients do not offer a tool where they do not.
pub fn is_valid(tool: &RawJson) -> bool {
    HeaderParams::of_tool(tool).is_ok()
}

/// How a schema was reached.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chain {
    /// From the root through properties alone.
    Properties,
    /// In another way.
    Broken,
}

impl Param {
    fn check(&self, params: Option<&RawJson>, headers: &[(Box<str>, Box<str>)]) -> Result<(), Error> {
        let said = Said::of(params, &self.path);
        if said == Said::Nothing {
            return Ok(());
        }
        let name = &self.header[PREFIX.len()..];
        let mut values = headers.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
        let value = match (values.next(), values.next(), &said) {
            (Some((_, value)), None, _) => value,
            // It cannot stand in a header, and the tool will not take it either.
            (None, None, Said::Other) => return Ok(()),
            (None, _, _) => return Err(mismatch(&self.header, "is missing")),
            (Some(_), Some(_), _) => return Err(mismatch(&self.header, "stands twice")),
        };
        let value = header_value::decode(value).ok_or_else(|| mismatch(&self.header, "cannot be decoded"))?;
        let same = match said {
            Said::Text(text) => value == text,
            Said::Literal(word) => value == word,
            Said::Number(number) => whole(number).is_some_and(|number| whole(&value) == Some(number)),
            Said::Nothing | Said::Other | Said::Ambiguous => false,
        };
        if same { Ok(()) } else { Err(mismatch(&self.header, "does not say what the body says")) }
    }
}

/// What a request's arguments say at some place.
#[derive(PartialEq)]
enum Said<'a> {
    /// Nothing, or null.
    Nothing,
    Text(Cow<'a, str>),
    Number(&'a str),
    /// `true` or `false`
    Literal(&'a str),
    /// Something that no header can say.
    Other,
    /// Something that not all read in the same way: it stands twice, or has half of a surrogate pair.
    Ambiguous,
}

impl<'a> Said<'a> {
    fn of(params: Option<&'a RawJson>, path: &[Box<str>]) -> Self {
        let Some(params) = params else { return Self::Nothing };
        let mut at: &[u8] = params.bytes();
        // What the arguments are called is the tool's affair: it may have two whose names differ in case.
        let mut found = members::find_sent(at, "arguments");
        let mut names = path.iter();
        loop {
            match found {
                Found::One(value) => at = value.get().as_bytes(),
                Found::Absent => return Self::Nothing,
                Found::Twice => return Self::Ambiguous,
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

/// The value of a number as JSON writes it, if it is whole and no reader of numbers as doubles gets it wrong.
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

/// Characters of a name in HTTP.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests;
