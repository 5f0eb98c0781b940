//! What is read: each request for a look, and where its answer comes from.

mod overview;
mod sessions;
mod servers;
mod audit_log;

pub(super) use overview::overview;
pub(super) use servers::{endpoint, restarter};
pub(super) use sessions::filter_of;

use hyper::StatusCode;
use serde::Serialize;

use super::api::{AdminApi, Outcome, Shows, with_type};
use super::caller::AdminCaller;
use super::error::AdminError;
use super::live::{self, Topics};
use super::openapi;
use super::request::Asked;
use super::role::AdminRole;
use super::routes::Does;
use crate::figures::Span;
use crate::logs;
use crate::operator::{CallRow, DataName, Extent, Show, now};

/// Answers a request that changes nothing.
pub(super) async fn answer(
    api: &AdminApi,
    does: Does,
    caller: &AdminCaller,
    asked: &Asked,
) -> Result<Outcome, AdminError> {
    let (operator, figures) = (&api.0.operator, &api.0.runtimes.figures);
    match does {
        Does::Me => Ok(Outcome::of(&overview::me(api, caller))),
        Does::Overview => Ok(Outcome::of(&overview(api))),
        Does::History => {
            let span = if asked.query("span") == Some("24h") { Span::Day } else { Span::TenMinutes };
            Ok(Outcome::of(&figures.history(span)))
        }
        Does::EndedSessions => Ok(Outcome::rows(&figures.ended_sessions(asked.limit()))),
        Does::RecentCalls => Ok(Outcome::rows(&figures.recent_calls(asked.limit()))),
        Does::SlowestTools => Ok(Outcome::rows(&figures.slowest())),
        Does::Metrics => {
            let text = figures.metrics_text().into();
            Ok(Outcome::answered(with_type(StatusCode::OK, "text/plain; version=0.0.4", text)))
        }
        Does::Sessions => {
            let filter = filter_of(asked)?;
            Ok(Outcome::of(&operator.search(&filter, asked.after()?, asked.limit()).await?))
        }
        Does::Session => sessions::session(api, caller, asked.key()?).await,
        Does::SessionEvents => sessions::events(api, asked).await,
        Does::Calls => Ok(calls(api, asked)),
        Does::DataSessions => match asked.query("name") {
            Some(name) => {
                let bad = || AdminError::bad("`name` has to be a name such as d-4f3a9c01, or a key");
                let name = DataName::parse(name).ok_or_else(bad)?;
                Ok(Outcome::of(&operator.data().matching(&name, asked.limit()).await?))
            }
            None => Ok(Outcome::of(&operator.data().page(asked.after()?, asked.limit()).await?)),
        },
        Does::DataSession => {
            let show = if asked.flag("contents") { Show::Contents } else { Show::Facts };
            let found = operator.data().show(asked.key()?, show).await?;
            let mut found = found.ok_or_else(|| AdminError::not_found("There is no such data session"))?;
            if caller.role < AdminRole::Payloads {
                found.hints = None;
            }
            let (name, shows) = (found.row.name.clone(), Shows::contents_if(found.hints.is_some()));
            Ok(Outcome::of(&found).about(name).shows(shows))
        }
        Does::Tasks => Ok(Outcome::of(&operator.tasks(asked.limit()).await?)),
        Does::Backends => Ok(Outcome::rows(&servers::backends(api))),
        Does::Backend => servers::backend(api, asked).await,
        Does::Nodes => Ok(Outcome::rows(&operator.for_one().nodes().await?)),
        Does::Principals => Ok(Outcome::of(&operator.principals(Extent::Share).await?)),
        Does::PrincipalShow => {
            let name = asked.text("principal").unwrap_or_default();
            let found = operator.principal(name, Extent::Share).await?;
            let found = found.ok_or_else(|| AdminError::not_found("It has nothing here"))?;
            Ok(Outcome::of(&found))
        }
        Does::Limits => Ok(Outcome::rows(&operator.limits_left(None).await)),
        Does::LimitsShow => Ok(Outcome::rows(&operator.limits_left(asked.text("principal")).await)),
        Does::Usage => Ok(Outcome::rows(&operator.usage())),
        Does::Loops => Ok(Outcome::rows(&operator.loops())),
        Does::Config => Ok(Outcome::rows(&api.0.settings)),
        Does::Audit => audit_log::records(api, asked, caller.role).await,
        Does::LogLevel => {
            let level = logs::level().ok_or_else(|| AdminError::not_supported("The log is not ours"))?;
            Ok(Outcome::of(&level))
        }
        Does::Logins => Ok(Outcome::rows(&api.0.logins.list(now()))),
        Does::Bundle => Ok(Outcome::of(&bundle(api))),
        Does::OpenApi => Ok(Outcome::of(&openapi::document())),
        Does::Live => {
            let topics = if asked.flag("calls") { Topics::All } else { Topics::WithoutCalls };
            live::stream(api, caller, topics)
        }
        Does::MakeCode => overview::code(api, caller, asked),
        _ => Err(AdminError::not_supported("This is a change")),
    }
}

/// All that helps to find a fault. No message, no argument, no secret is in it.
fn bundle(api: &AdminApi) -> serde_json::Value {
    let operator = &api.0.operator;
    serde_json::json!({
        "format": 1,
        "version": env!("CARGO_PKG_VERSION"),
        "taken": now().0,
        "started": api.0.started.0,
        "overview": overview(api),
        "config": api.0.settings,
        "loops": operator.loops(),
        "metrics": api.0.runtimes.figures.metrics_text(),
        "slowest": api.0.runtimes.figures.slowest(),
        "usage": operator.usage(),
        "calls": operator.calls().rows,
    })
}

fn calls(api: &AdminApi, asked: &Asked) -> Outcome {
    #[derive(Serialize)]
    struct Calls {
        rows: Vec<CallRow>,
        of: usize,
    }
    let now = now();
    let same = |name: &str, found: Option<&str>| asked.query(name).is_none_or(|wanted| Some(wanted) == found);
    let fits = |row: &CallRow| {
        same("state", Some(row.state.as_str()))
            && same("method", Some(&row.method))
            && same("tool", row.tool.as_deref())
            && same("principal", Some(row.owner.as_deref().unwrap_or("anonymous")))
            && asked.count("older_than_s").is_none_or(|age| now.0.saturating_sub(row.started) / 1000 >= age)
    };
    let mut rows = api.0.operator.calls().rows;
    rows.retain(fits);
    let of = rows.len();
    rows.truncate(asked.limit());
    Outcome::of(&Calls { rows, of })
}
