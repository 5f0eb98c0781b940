//! The demo server's tools and what they keep.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tenure_session::runtime::{CallContext, Outlet};
use tenure_session::{Method, RawJson, Reason, RpcError};

use super::resources;

/// The most notes and hashes one session keeps.
const MAX_KEPT: usize = 1000;

/// What one session keeps.
#[derive(Debug, Default)]
pub(super) struct Desk {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    counter: u64,
    notes: Vec<String>,
    hashes: BTreeMap<String, String>,
}

#[derive(Deserialize)]
pub(super) struct ToolCall<'a> {
    name: &'a str,
    #[serde(borrow, default)]
    arguments: Option<&'a serde_json::value::RawValue>,
}

#[derive(Deserialize)]
struct Text {
    text: String,
}

#[derive(Deserialize)]
struct Name {
    name: String,
}

#[derive(Deserialize)]
struct Named {
    name: String,
    text: String,
}

#[derive(Deserialize)]
struct Work {
    seconds: u32,
    /// How long a second lasts.
    #[serde(default = "one_second")]
    interval_ms: u32,
}

fn one_second() -> u32 {
    1000
}

#[derive(Deserialize)]
struct Count {
    to: u32,
    interval_ms: u32,
    tag: String,
}

impl Desk {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The notes, for the resource that shows them.
    pub(super) fn notes(&self) -> Vec<String> {
        self.kept().notes.clone()
    }

    pub(super) async fn call(
        &self,
        outlet: &Outlet,
        context: &CallContext,
        call: ToolCall<'_>,
    ) -> Result<Value, RpcError> {
        let done = match call.name {
            "public_echo" => arguments::<Text>(&call).map(|arguments| text(&arguments.text)),
            "session_counter_inc" => Ok(self.count(1)),
            "session_counter_get" => Ok(self.count(0)),
            "notebook_append" => arguments::<Text>(&call).and_then(|arguments| self.append(arguments.text)),
            "notebook_read" => Ok(self.read()),
            "notebook_clear" => Ok(self.clear()),
            "notebook_status" => Ok(structured(&json!({ "notes": self.kept().notes.len() }))),
            "hashcheck_store" => arguments::<Named>(&call).and_then(|arguments| self.store(&arguments)),
            "hashcheck_verify" => arguments::<Named>(&call).and_then(|arguments| self.verify(&arguments)),
            "hashcheck_list" => {
                Ok(structured(&json!({ "names": self.kept().hashes.keys().collect::<Vec<_>>() })))
            }
            "hashcheck_delete" => arguments::<Name>(&call).map(|arguments| self.delete(&arguments.name)),
            "long_task" => match arguments(&call) {
                Ok(arguments) => work(context, &arguments).await,
                Err(error) => Err(error),
            },
            "count_slowly" => match arguments(&call) {
                Ok(arguments) => count_slowly(context, &arguments).await,
                Err(error) => Err(error),
            },
            "ask_name" => return ask_name(context).await,
            other => return Err(RpcError::of(Reason::InvalidParams, format!("Unknown tool: {other}"))),
        };
        if matches!(call.name, "notebook_append" | "notebook_clear") && done.is_ok() {
            // The note is written; whether somebody could be told of it does not change that.
            drop(outlet.resource_updated(resources::NOTEBOOK).await);
        }
        // A tool that cannot do its work says so to the model, not to the protocol.
        Ok(done.unwrap_or_else(
            |complaint| json!({ "content": [{ "type": "text", "text": complaint }], "isError": true }),
        ))
    }

    fn count(&self, by: u64) -> Value {
        let mut kept = self.kept();
        kept.counter += by;
        structured(&json!({ "counter": kept.counter }))
    }

    fn append(&self, note: String) -> Result<Value, String> {
        let mut kept = self.kept();
        if kept.notes.len() >= MAX_KEPT {
            return Err(format!(
                "The notebook is full: it holds {MAX_KEPT} notes. Clear it with notebook_clear."
            ));
        }
        kept.notes.push(note);
        Ok(structured(&json!({ "notes": kept.notes.len() })))
    }

    fn read(&self) -> Value {
        structured(&json!({ "notes": self.kept().notes }))
    }

    fn clear(&self) -> Value {
        let cleared = std::mem::take(&mut self.kept().notes).len();
        structured(&json!({ "cleared": cleared }))
    }

    fn store(&self, named: &Named) -> Result<Value, String> {
        let mut kept = self.kept();
        if kept.hashes.len() >= MAX_KEPT && !kept.hashes.contains_key(&named.name) {
            return Err(format!("No room: {MAX_KEPT} hashes are kept. Delete one with hashcheck_delete."));
        }
        let hash = hash(&named.text);
        kept.hashes.insert(named.name.clone(), hash.clone());
        Ok(structured(&json!({ "name": named.name, "sha256": hash })))
    }

    fn verify(&self, named: &Named) -> Result<Value, String> {
        match self.kept().hashes.get(&named.name) {
            Some(kept) => {
                Ok(structured(&json!({ "name": named.name, "matches": *kept == hash(&named.text) })))
            }
            None => Err(format!("Nothing is kept under `{}`. Store it with hashcheck_store.", named.name)),
        }
    }

    fn delete(&self, name: &str) -> Value {
        let deleted = self.kept().hashes.remove(name).is_some();
        structured(&json!({ "name": name, "deleted": deleted }))
    }
}

async fn work(context: &CallContext, work: &Work) -> Result<Value, String> {
    let Work { seconds, interval_ms } = *work;
    if !(1..=3600).contains(&seconds) {
        return Err("seconds must be between 1 and 3600".to_owned());
    }
    check_interval(interval_ms)?;
    let worked = |steps: u32| f64::from(steps) * f64::from(interval_ms) / 1000.0;
    for second in 0..seconds {
        let done = context.progress(f64::from(second), Some(f64::from(seconds)), Some("working")).await;
        if done.is_err() || !pause(context, interval_ms).await {
            return Err(format!("stopped after {} s", worked(second)));
        }
    }
    // The request may be over by now; then nobody hears of the last step either.
    drop(context.progress(f64::from(seconds), Some(f64::from(seconds)), Some("done")).await);
    Ok(text(&format!("worked for {} s", worked(seconds))))
}

async fn count_slowly(context: &CallContext, count: &Count) -> Result<Value, String> {
    let Count { to, interval_ms, tag } = count;
    if !(1..=1000).contains(to) {
        return Err("to must be between 1 and 1000".to_owned());
    }
    check_interval(*interval_ms)?;
    for n in 1..=*to {
        let message = RawJson::of(&json!({ "level": "info", "data": { "tag": tag, "n": n } }));
        let told = context.notify(&Method::LogMessage, Some(&message)).await;
        let told = told.and(context.progress(f64::from(n), Some(f64::from(*to)), None).await);
        if told.is_err() || !pause(context, *interval_ms).await {
            return Err(format!("stopped at {n}"));
        }
    }
    Ok(text(&format!("{tag}: counted to {to}")))
}

fn check_interval(interval_ms: u32) -> Result<(), String> {
    match interval_ms {
        1..=10_000 => Ok(()),
        _ => Err("interval_ms must be between 1 and 10000".to_owned()),
    }
}

/// Waits; `false` if the request is withdrawn meanwhile.
async fn pause(context: &CallContext, interval_ms: u32) -> bool {
    if context.is_cancelled() {
        return false;
    }
    tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(interval_ms.into())) => true,
        () = context.cancelled() => false,
    }
}

async fn ask_name(context: &CallContext) -> Result<Value, RpcError> {
    #[derive(Deserialize)]
    struct Answer {
        action: String,
        #[serde(default)]
        content: serde_json::Map<String, Value>,
    }
    let schema =
        json!({ "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] });
    let params = RawJson::of(&json!({ "message": "What is your name?", "requestedSchema": schema }));
    let answer = context.ask(&Method::ElicitationCreate, Some(&params)).await?;
    let answer: Answer =
        answer.read().map_err(|error| RpcError::of(Reason::InvalidParams, error.to_string()))?;
    let name = answer.content.get("name").and_then(Value::as_str);
    Ok(match (answer.action.as_str(), name) {
        ("accept", Some(name)) => text(&format!("Hello, {name}!")),
        _ => text("Hello, whoever you are!"),
    })
}

fn arguments<'a, T: Deserialize<'a>>(call: &ToolCall<'a>) -> Result<T, String> {
    let raw = call.arguments.map_or("{}", serde_json::value::RawValue::get);
    serde_json::from_str(raw).map_err(|error| format!("The arguments of {} are wrong: {error}", call.name))
}

fn text(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

fn structured(value: &Value) -> Value {
    json!({ "content": [{ "type": "text", "text": value.to_string() }], "structuredContent": value })
}

fn hash(text: &str) -> String {
    use std::fmt::Write;
    Sha256::digest(text).iter().fold(String::with_capacity(64), |mut hex, byte| {
        // Writing to a string does not fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
