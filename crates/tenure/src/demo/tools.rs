//! The demo server's tools.

use std::convert::Infallible;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tenure_protocol::{Method, RawJson, Reason, RpcError};
use tenure_session::State;
use tenure_session::call::{CallContext, Outlet, ToolCall};
use tenure_session::state::{Fault, date};

use super::kept::{self, DemoWorkspace, MAX_KEPT};
use super::link_counter::LinkCounter;
use super::resources;

#[derive(Deserialize)]
struct Text {
    text: String,
}

#[derive(Deserialize)]
struct NameArgument {
    name: String,
}

#[derive(Deserialize)]
struct NamedText {
    name: String,
    text: String,
}

#[derive(Deserialize)]
struct LongTaskArguments {
    seconds: u32,
    /// How long a second lasts.
    #[serde(default = "one_second")]
    interval_ms: u32,
}

fn one_second() -> u32 {
    1000
}

#[derive(Deserialize)]
struct SlowCountArguments {
    to: u32,
    interval_ms: u32,
    tag: String,
}

#[derive(Deserialize)]
struct Probe {
    #[serde(default = "status")]
    action: String,
}

fn status() -> String {
    "status".to_owned()
}

/// Calls a tool.
pub(super) async fn call(
    outlet: Option<&Outlet>,
    counter: &LinkCounter,
    context: &CallContext,
    call: &ToolCall<'_>,
) -> Result<Value, RpcError> {
    // Boxed, because the future of every call would otherwise be as large as the largest of these.
    let done = match &*call.name {
        "public_echo" => arguments::<Text>(call).map(|arguments| text(&arguments.text)),
        "long_task" => match arguments(call) {
            Ok(arguments) => Box::pin(work(context, &arguments)).await,
            Err(error) => Err(error),
        },
        "count_slowly" => match arguments(call) {
            Ok(arguments) => Box::pin(count_slowly(context, &arguments)).await,
            Err(error) => Err(error),
        },
        "link_counter_inc" => Ok(structured(&counter.add_one())),
        "ask_name" => return Box::pin(ask_name(context)).await,
        "session_probe" => match arguments(call) {
            Ok(arguments) => Box::pin(probe(context, &arguments)).await?,
            Err(error) => Err(error),
        },
        _ => Box::pin(on_workspace(context, call)).await?,
    };
    if matches!(&*call.name, "notebook_append" | "notebook_clear" | "session_reset")
        && done.is_ok()
        && let Some(outlet) = outlet
    {
        // The note is written, even if this notification fails.
        drop(Box::pin(outlet.resource_updated(resources::NOTEBOOK)).await);
    }
    // A tool's failure is a result for the model, not an error of the protocol.
    Ok(done.unwrap_or_else(
        |complaint| json!({ "content": [{ "type": "text", "text": complaint }], "isError": true }),
    ))
}

/// The result of a tool, or why it failed, as a text for the model.
type Done = Result<Value, String>;

/// Calls a tool that works on a workspace. Several calls may change the same workspace at once, so a change is repeated
/// if another one was written first.
async fn on_workspace(context: &CallContext, call: &ToolCall<'_>) -> Result<Done, RpcError> {
    let state = kept::of(context);
    let read = |look: fn(&DemoWorkspace) -> Value| {
        let (kept, _) = state.clone()?.get::<DemoWorkspace>().map_err(|fault| fault.to_error().to_rpc())?;
        Ok(Ok(structured(&look(&kept))))
    };
    let change: Box<dyn FnMut(&mut DemoWorkspace) -> Done + Send> = match &*call.name {
        "session_counter_get" => return read(|kept| json!({ "counter": kept.counter })),
        "notebook_read" => return read(|kept| json!({ "notes": kept.notes })),
        "notebook_status" => return read(|kept| json!({ "notes": kept.notes.len() })),
        "client_notes_list" => return read(|kept| json!({ "notes": kept.client_notes })),
        "client_notes_status" => return read(|kept| json!({ "notes": kept.client_notes.len() })),
        "whoami" => return Ok(Ok(structured(&who(state?)))),
        "echo" => {
            state?;
            return Ok(arguments::<Text>(call).map(|arguments| text(&arguments.text)));
        }
        "hashcheck_list" => return read(|kept| json!({ "names": kept.hashes.keys().collect::<Vec<_>>() })),
        "hashcheck_verify" => {
            let named = match arguments::<NamedText>(call) {
                Ok(named) => named,
                Err(complaint) => return Ok(Err(complaint)),
            };
            let (kept, _) = state?.get::<DemoWorkspace>().map_err(|fault| fault.to_error().to_rpc())?;
            return Ok(verify(&kept, &named));
        }
        "session_counter_inc" => Box::new(|kept| {
            kept.counter += 1;
            Ok(structured(&json!({ "counter": kept.counter })))
        }),
        "session_reset" => Box::new(|kept| {
            kept.empty();
            Ok(text("reset"))
        }),
        "notebook_append" => match arguments::<Text>(call) {
            Ok(note) => Box::new(move |kept| append(&mut kept.notes, &note.text, "notebook_clear")),
            Err(complaint) => return Ok(Err(complaint)),
        },
        "notebook_clear" => Box::new(|kept| Ok(clear(&mut kept.notes))),
        "client_notes_add" => match arguments::<Text>(call) {
            Ok(note) => {
                Box::new(move |kept| append(&mut kept.client_notes, &note.text, "client_notes_clear"))
            }
            Err(complaint) => return Ok(Err(complaint)),
        },
        "client_notes_clear" => Box::new(|kept| Ok(clear(&mut kept.client_notes))),
        "hashcheck_store" => match arguments::<NamedText>(call) {
            Ok(named) => Box::new(move |kept| store(kept, &named)),
            Err(complaint) => return Ok(Err(complaint)),
        },
        "hashcheck_delete" => match arguments::<NameArgument>(call) {
            Ok(NameArgument { name }) => Box::new(move |kept| {
                let deleted = kept.hashes.remove(&name).is_some();
                Ok(structured(&json!({ "name": name, "deleted": deleted })))
            }),
            Err(complaint) => return Ok(Err(complaint)),
        },
        other => return Err(RpcError::of(Reason::InvalidParams, format!("Unknown tool: {other}"))),
    };
    match state?.change(change).await {
        Ok(done) => Ok(done),
        Err(fault @ Fault::TooLarge { .. }) => Ok(Err(format!("There is no room for it: {fault}."))),
        Err(fault) => Err(fault.to_error().to_rpc()),
    }
}

/// Adds a note, if there is room; `clear_with` makes room.
fn append(notes: &mut Vec<String>, note: &str, clear_with: &str) -> Done {
    if notes.len() >= MAX_KEPT {
        return Err(format!("There is no room: {MAX_KEPT} notes are kept. Clear them with {clear_with}."));
    }
    notes.push(note.to_owned());
    Ok(structured(&json!({ "notes": notes.len() })))
}

fn clear(notes: &mut Vec<String>) -> Value {
    structured(&json!({ "cleared": std::mem::take(notes).len() }))
}

/// Which workspace it is. A model gets the handle, not the id that the client keeps.
fn who(state: &State) -> Value {
    let about = state.about();
    let data = about.data.and_then(|data| serde_json::from_str::<Value>(data.get()).ok());
    json!({
        "workspace_id": state.id().handle(&state.kind()),
        "label": about.label,
        "data": data.unwrap_or_else(|| json!({})),
        "expires": state.expiry().map(date),
    })
}

fn store(kept: &mut DemoWorkspace, named: &NamedText) -> Done {
    if kept.hashes.len() >= MAX_KEPT && !kept.hashes.contains_key(&named.name) {
        return Err(format!("No room: {MAX_KEPT} hashes are kept. Delete one with hashcheck_delete."));
    }
    let hash = hash(&named.text);
    kept.hashes.insert(named.name.clone(), hash.clone());
    Ok(structured(&json!({ "name": named.name, "sha256": hash })))
}

fn verify(kept: &DemoWorkspace, named: &NamedText) -> Done {
    match kept.hashes.get(&named.name) {
        Some(kept) => Ok(structured(&json!({ "name": named.name, "matches": *kept == hash(&named.text) }))),
        None => Err(format!("Nothing is kept under `{}`. Store it with hashcheck_store.", named.name)),
    }
}

/// Tells the status of the caller's workspace, or revokes it; the answer then also removes the cookie. A new workspace
/// in its place is named by its handle, since the id of a data session never changes.
async fn probe(context: &CallContext, probe: &Probe) -> Result<Done, RpcError> {
    let state = kept::of(context)?;
    match probe.action.as_str() {
        "status" => {
            let (kept, _) = state.get::<DemoWorkspace>().map_err(|fault| fault.to_error().to_rpc())?;
            let shown = json!({
                "title": kept.title, "counter": kept.counter, "notes": kept.notes.len(), "hashes": kept.hashes.len(),
            });
            Ok(Ok(structured(&shown)))
        }
        "revoke" => match state.revoke().await {
            Ok(()) => Ok(Ok(text("The session is revoked."))),
            Err(fault) => Err(fault.to_error().to_rpc()),
        },
        "new" => {
            let anew = async {
                let fresh = state.fork(None).await?;
                let empty = |kept: &mut DemoWorkspace| {
                    kept.empty();
                    Ok::<_, Infallible>(())
                };
                let Ok(()) = fresh.change(empty).await?;
                state.revoke().await?;
                Ok::<_, Fault>(structured(&who(&fresh)))
            };
            anew.await.map(Ok).map_err(|fault| fault.to_error().to_rpc())
        }
        other => Ok(Err(format!("There is no action `{other}`: it is `status`, `revoke` or `new`."))),
    }
}

async fn work(context: &CallContext, work: &LongTaskArguments) -> Result<Value, String> {
    let LongTaskArguments { seconds, interval_ms } = *work;
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
    // If the request has ended, the last step cannot be reported either.
    drop(context.progress(f64::from(seconds), Some(f64::from(seconds)), Some("done")).await);
    Ok(text(&format!("worked for {} s", worked(seconds))))
}

async fn count_slowly(context: &CallContext, count: &SlowCountArguments) -> Result<Value, String> {
    let SlowCountArguments { to, interval_ms, tag } = count;
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

/// Waits; `false` if the request is cancelled meanwhile.
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
    struct NameAnswer {
        action: String,
        #[serde(default)]
        content: serde_json::Map<String, Value>,
    }
    let schema =
        json!({ "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] });
    let params = RawJson::of(&json!({ "message": "What is your name?", "requestedSchema": schema }));
    let answer = context.ask(&Method::ElicitationCreate, Some(&params)).await?;
    let answer: NameAnswer =
        answer.read().map_err(|error| RpcError::of(Reason::InvalidParams, error.to_string()))?;
    let name = answer.content.get("name").and_then(Value::as_str);
    Ok(match (answer.action.as_str(), name) {
        ("accept", Some(name)) => text(&format!("Hello, {name}!")),
        _ => text("Hello, stranger!"),
    })
}

fn arguments<'a, T: Deserialize<'a>>(call: &ToolCall<'a>) -> Result<T, String> {
    call.arguments().map_err(|error| format!("The arguments of {} are wrong: {error}", call.name))
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
