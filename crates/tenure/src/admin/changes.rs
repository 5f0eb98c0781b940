//! What is changed: each change with what the audit log should know of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use tenure_protocol::RequestId;
use tenure_session::session::Changes;
use tenure_session::settings::Settings;
use tenure_session::{SessionKey, StreamId};

use super::answers::{filter_of, restarter};
use super::api::{AdminApi, Outcome};
use super::caller::AdminCaller;
use super::error::AdminError;
use super::request::Asked;
use super::routes::{Does, SESSION_FILTER};
use super::through;
use crate::logs;
use crate::operator::{DataFate, HalfRevoked, Revoked, SessionFilter, now};

/// The most sessions that one request ends.
const MOST_REVOKED: u64 = 10_000;

/// How long another filter of the log may last: a forgotten one fills disks.
const LONGEST_LOG_S: u64 = 3600;

/// Makes a change.
pub(super) async fn change(
    api: &AdminApi,
    does: Does,
    caller: &AdminCaller,
    asked: &Asked,
) -> Result<Outcome, AdminError> {
    let operator = &api.0.operator;
    match does {
        Does::RevokeSession => revoke_session(api, asked.key()?).await,
        Does::SetLogLevel => set_log_level(api, asked),
        Does::RestartBackend => {
            let name = asked.path.get("name").map(String::as_str).unwrap_or_default();
            restarter(api, name)?.restart();
            Ok(Outcome::of(&json!({ "restarting": true })).about(name))
        }
        Does::Try => try_tool(api, caller, asked).await,
        Does::SleepSession => sleep(api, asked.key()?).await,
        Does::CancelCall => cancel_call(api, asked),
        Does::DetachReader => detach(api, asked),
        Does::CancelExchange => {
            let label = asked.path.get("label").map(String::as_str).unwrap_or_default();
            match api.0.runtimes.exchanges.cancel(label) {
                true => Ok(Outcome::of(&json!({ "cancelled": true }))),
                false => Err(AdminError::not_found("There is no such call any more")),
            }
        }
        Does::RevokeSessions => revoke_sessions(api, asked).await,
        Does::ChangeSettings => change_settings(api, asked).await,
        Does::ResumeData => {
            let found = operator.data().resume(asked.key()?).await?.ok_or_else(no_data)?;
            let name = found.row.name.clone();
            Ok(Outcome::of(&found).about(name))
        }
        Does::ClearData => {
            let found = operator.data().clear(asked.key()?).await?.ok_or_else(no_data)?;
            let name = found.name.clone();
            Ok(Outcome::of(&found).about(name))
        }
        Does::RevokeData => ended(operator.data().revoke(asked.key()?).await?, "data session"),
        Does::RevokePrincipal => {
            let name = principal(asked)?;
            let data: bool = asked.read("data")?.unwrap_or_default();
            let fate = if data { DataFate::Ended } else { DataFate::Kept };
            let ended = operator.revoke_principal(name, fate).await;
            let ended = ended.map_err(|HalfRevoked { failure, ended }| {
                let error = AdminError::from(failure);
                match ended {
                    Some(ended) => error.after(name.to_owned(), json!({ "ended": ended }).to_string()),
                    None => error,
                }
            })?;
            let change = json!({ "ended": ended }).to_string();
            Ok(Outcome::of(&ended).about(name).change(Some(change)))
        }
        Does::ReinstatePrincipal => {
            let name = principal(asked)?;
            match operator.reinstate_principal(name).await? {
                true => Ok(Outcome::of(&json!({ "reinstated": true })).about(name)),
                false => Err(AdminError::conflict(format!("{name} is not revoked"))),
            }
        }
        Does::RevokeLogin => {
            let label = asked.path.get("label").map(String::as_str).unwrap_or_default();
            let login = api.0.logins.revoke(label);
            let login = login.ok_or_else(|| AdminError::not_found("There is no such login"))?;
            let whose = super::caller::user_name(login.uid);
            Ok(Outcome::of(&json!({ "ended": label })).about(format!("{label} of {whose}")))
        }
        _ => Err(AdminError::not_supported("This is no change")),
    }
}

fn no_data() -> AdminError {
    AdminError::not_found("There is no such data session")
}

fn principal(asked: &Asked) -> Result<&str, AdminError> {
    match asked.text("principal").unwrap_or_default() {
        "" | "anonymous" => Err(AdminError::bad("Callers without credentials cannot be told apart")
            .hint("end their sessions by a filter: `sessions/revoke` with `principal` `anonymous`")),
        name => Ok(name),
    }
}

async fn revoke_session(api: &AdminApi, key: SessionKey) -> Result<Outcome, AdminError> {
    Ok(ended(api.0.operator.revoke(key).await?, "session")?.about(key.label()))
}

async fn try_tool(api: &AdminApi, caller: &AdminCaller, asked: &Asked) -> Result<Outcome, AdminError> {
    if !api.0.config.admin.can_try {
        return Err(AdminError::not_supported("Tools cannot be tried on this server").hint("set `admin.try`"));
    }
    let backend = asked.text("backend").unwrap_or("main");
    let tool = asked.text("tool").unwrap_or_default();
    let arguments = asked.read::<Value>("arguments")?.unwrap_or_else(|| json!({}));
    let result = through::call(api, caller, backend, (tool, &arguments)).await?;
    Ok(Outcome::of(&json!({ "result": result })).about(format!("{backend}/{tool}")))
}

/// Changes what is logged, and puts it back after a while. If the process ends before, it begins as configured anyway.
fn set_log_level(api: &AdminApi, asked: &Asked) -> Result<Outcome, AdminError> {
    let levels = asked.text("level").unwrap_or_default();
    let seconds: u64 = asked.read("for_s")?.unwrap_or_default();
    if !(1..=LONGEST_LOG_S).contains(&seconds) {
        return Err(AdminError::bad(format!("`for_s` has to be 1 to {LONGEST_LOG_S} seconds"))
            .hint("set `log.level` for longer, and start the server again"));
    }
    let length = Duration::from_secs(seconds);
    let changed = logs::set_level(levels, now().after(length).0)?;
    let (number, before) = changed.ok_or_else(|| AdminError::not_supported("The log is not ours"))?;
    let stop = api.0.stop.clone();
    api.0.tasks.spawn(async move {
        stop.run_until_cancelled(tokio::time::sleep(length)).await;
        logs::restore_level(number);
    });
    let change = json!({ "level": [before.level, levels], "for_s": seconds }).to_string();
    Ok(Outcome::of(&logs::level()).about(levels).change(Some(change)))
}

/// Only what is in memory can be cancelled, detached or made dormant.
fn not_awake() -> AdminError {
    AdminError::not_found("There is no such session in the memory of this server")
}

async fn sleep(api: &AdminApi, key: SessionKey) -> Result<Outcome, AdminError> {
    let slept = api.0.runtimes.sessions.put_to_sleep(&key).await;
    let slept =
        slept.map_err(|error| AdminError::unavailable(format!("The store did not take it: {error}")))?;
    match slept.ok_or_else(not_awake)? {
        true => Ok(Outcome::of(&json!({ "dormant": true }))),
        false => Err(AdminError::conflict("Something is done in it, or somebody reads one of its streams")
            .hint("cancel its requests and detach its readers first")),
    }
}

fn cancel_call(api: &AdminApi, asked: &Asked) -> Result<Outcome, AdminError> {
    let key = asked.key()?;
    let id: Value = asked.read("call")?.unwrap_or_default();
    let bad = || AdminError::bad("`call` has to be the id of a request: a text or a whole number");
    let id = RequestId::from_raw(id.to_string().into()).ok_or_else(bad)?;
    match api.0.runtimes.sessions.cancel_call(&key, &id) {
        true => Ok(Outcome::of(&json!({ "cancelled": true })).about(format!("{} {id:?}", key.label()))),
        false => Err(AdminError::not_found("There is no such request in flight any more")),
    }
}

fn detach(api: &AdminApi, asked: &Asked) -> Result<Outcome, AdminError> {
    let key = asked.key()?;
    let stream: u32 = asked.read("stream")?.unwrap_or_default();
    match api.0.runtimes.sessions.detach_reader(&key, StreamId::new(stream)) {
        true => {
            Ok(Outcome::of(&json!({ "detached": true })).about(format!("{} stream {stream}", key.label())))
        }
        false => Err(AdminError::not_found("No connection reads this stream")),
    }
}

fn ended(revoked: Revoked, what: &str) -> Result<Outcome, AdminError> {
    match revoked {
        Revoked::Now => Ok(Outcome::of(&json!({ "ended": true }))),
        Revoked::Before(end) => {
            let end = json!(end);
            let how = end.as_str().unwrap_or("ended");
            Err(AdminError::conflict(format!("The {what} has ended before: {how}")))
        }
        Revoked::Unknown => Err(AdminError::not_found(format!("There is no such {what}"))),
    }
}

#[derive(Serialize)]
struct EndedSessions {
    ended: usize,
    /// Those that ended by themselves meanwhile.
    gone: usize,
}

async fn revoke_sessions(api: &AdminApi, asked: &Asked) -> Result<Outcome, AdminError> {
    let query = asked.as_query("filter", &SESSION_FILTER)?;
    if query.is_unfiltered() {
        return Err(AdminError::bad("The filter is empty, so it would select every session")
            .hint("name at least one member, such as `principal`"));
    }
    let filter: SessionFilter = filter_of(&query)?;
    let expect: u64 = asked.read("expect")?.unwrap_or_default();
    let most = usize::try_from(expect.min(MOST_REVOKED)).unwrap_or_default();
    let keys = api.0.operator.all_of(&filter, most).await?.ok_or_else(|| {
        let found =
            AdminError::conflict(format!("More than {most} sessions fit the filter, so none was ended"));
        match expect > MOST_REVOKED {
            true => found.hint(format!("one request ends {MOST_REVOKED} at most: narrow the filter")),
            false => found.hint("look at them once more, and say how many they are"),
        }
    })?;
    let filter = asked.read::<Value>("filter")?.unwrap_or_default();
    let (mut done, of) = (EndedSessions { ended: 0, gone: 0 }, keys.len());
    for key in keys {
        match api.0.operator.revoke(key).await {
            Ok(Revoked::Now) => done.ended += 1,
            Ok(Revoked::Before(_) | Revoked::Unknown) => done.gone += 1,
            Err(failure) => return Err(half_way(failure.into(), &done, of, &filter)),
        }
    }
    let change = json!({ "filter": filter, "ended": done.ended }).to_string();
    Ok(Outcome::of(&done).about(format!("{} sessions", done.ended)).change(Some(change)))
}

/// The error of ends of which some were done: the caller and the audit log hear how many.
fn half_way(error: AdminError, done: &EndedSessions, of: usize, filter: &Value) -> AdminError {
    let EndedSessions { ended, gone } = *done;
    let were = if ended == 1 { "was" } else { "were" };
    let message = format!("{}; {ended} of {of} sessions {were} ended before that", error.message);
    let change = json!({ "filter": filter, "ended": ended, "left": of - ended - gone }).to_string();
    AdminError { message, ..error }.after(format!("{ended} of {of} sessions"), change)
}

async fn change_settings(api: &AdminApi, asked: &Asked) -> Result<Outcome, AdminError> {
    let key = asked.key()?;
    let changes =
        Changes { metadata: asked.read("metadata")?.unwrap_or_default(), ttl: asked.read("ttl_ms")? };
    let gone = || AdminError::not_found("There is no such session");
    let before = api.0.operator.show(key).await?.ok_or_else(gone)?.settings;
    let after = api.0.operator.annotate(key, &changes).await?.ok_or_else(gone)?;
    let change = difference(&before, &after);
    Ok(Outcome::of(&after).about(key.label()).change(change))
}

/// The members that differ, each with what it was and what it is; `None` if nothing does.
pub(crate) fn difference(before: &Settings, after: &Settings) -> Option<String> {
    let members = |settings: &Settings| {
        let ttl = serde_json::to_value(settings.ttl).unwrap_or_default();
        let metadata =
            settings.metadata.iter().map(|(name, value)| (format!("metadata.{name}"), value.clone()));
        metadata.chain([("ttl_ms".to_owned(), ttl)]).collect::<BTreeMap<_, _>>()
    };
    let (before, after) = (members(before), members(after));
    let names: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let differing = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
    let changes: BTreeMap<_, _> = differing.map(|name| (name, [before.get(name), after.get(name)])).collect();
    (!changes.is_empty()).then(|| json!(changes).to_string())
}
