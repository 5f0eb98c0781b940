//! `tenure call`: calls one tool of a server, in the session that the jar keeps.

mod answer;
pub(super) mod arguments;

use std::process::ExitCode;

use clap::Args;
use rmcp::model::{CallToolRequest, CallToolRequestParams, JsonObject, Tool};
use rmcp::service::ServiceError;
use serde_json::Value;
use tenure_client::{Create, DataSessionId, Era, Jar, SessionOptions};

use self::answer::PrintedPart;
pub(super) use self::answer::{for_stdout, part};
use self::arguments::Given;
use super::connect::{ClientArgs, ServerConnection, block_on, close, session_failure, unanswered};
use super::jar::short_id;
use super::listener::CallListener;
use super::signals::Signals;
use super::target::Target;
use super::{Failure, note};

/// The exit status by which shells report an interrupted program.
const INTERRUPTED: u8 = 130;

#[derive(Args, Debug)]
pub(super) struct CallArgs {
    /// The server's URL (left out if a command follows `--`), the tool, and its arguments: one JSON object, `@FILE`,
    /// `-` for standard input, or any number of `key=value`, of the type that the tool asks for, and `key:=json`.
    #[arg(required = true, value_name = "WORD")]
    words: Vec<String>,
    /// Print the structured content as JSON, or the list of contents if the tool gives none.
    #[arg(long, conflicts_with = "raw")]
    json: bool,
    /// Print the whole result as JSON, but for the session's cookie.
    #[arg(long)]
    raw: bool,
    /// Begin a new session, and use it from now on.
    #[arg(long, conflicts_with_all = ["session", "no_session"])]
    new: bool,
    /// Go on with this session, and use it from now on: its id, or the beginning of one in the jar.
    #[arg(long, value_name = "ID", conflicts_with = "no_session")]
    session: Option<String>,
    /// Use no session, and keep none.
    #[arg(long)]
    no_session: bool,
    #[command(flatten)]
    client: ClientArgs,
}

pub(super) fn run(args: &CallArgs) -> Result<ExitCode, Failure> {
    let (target, words) = args.client.split(&args.words)?;
    let Some((tool, given)) = words.split_first() else {
        let list = target.typed("tenure tools", "");
        return Err(Failure::new("no tool to call").hint(format!("`{list}` lists the tools")));
    };
    let call = CallCommand { args, target, tool, arguments: arguments::read(given)? };
    block_on(call.run())
}

struct CallCommand<'a> {
    args: &'a CallArgs,
    target: Target,
    tool: &'a str,
    arguments: Given,
}

impl CallCommand<'_> {
    async fn run(self) -> Result<ExitCode, Failure> {
        let args = self.args;
        let mut signals = Signals::listen()?;
        let listener = args.client.connect.listener();
        let connecting = args.client.connect.connect(
            &self.target,
            args.client.jar.principal(),
            listener.clone(),
            self.options()?,
        );
        let connection = tokio::select! {
            connection = connecting => connection?,
            _ = signals.next() => return Ok(ExitCode::from(INTERRUPTED)),
        };
        let done = tokio::select! {
            answered = self.ask(&connection, &listener) => {
                listener.finish();
                // Print before closing the connection, which a server may delay.
                answered.and_then(|result| answer::print(&result, args.form()))
            }
            _ = signals.next() => {
                listener.finish();
                Ok(ExitCode::from(INTERRUPTED))
            }
        };
        tokio::select! {
            () = close(connection) => {}
            _ = signals.next() => {}
        }
        done
    }

    fn options(&self) -> Result<SessionOptions, Failure> {
        let args = self.args;
        if args.no_session {
            return Ok(SessionOptions { create: Create::Never, ..SessionOptions::new(Jar::in_memory()) });
        }
        let options = SessionOptions::new(args.client.jar.open()?);
        // The user has chosen the session, so the client must not create another.
        let create = if args.new || args.session.is_some() { Create::Never } else { options.create };
        Ok(SessionOptions { create, ..options })
    }

    async fn ask(&self, connection: &ServerConnection, listener: &CallListener) -> Result<Value, Failure> {
        self.choose_session(connection).await?;
        let arguments = self.typed_arguments(connection).await?;
        let params = CallToolRequestParams::new(self.tool.to_owned()).with_arguments(arguments);
        let options = self.args.client.connect.call_options(listener);
        let answer = connection.request(CallToolRequest::new(params), &options).await;
        let result = answer.map_err(|error| self.explain(&error))?;
        if self.args.client.connect.is_verbose()
            && let Some(session) = connection.sessions().current()
        {
            note(&format!("session {}", short_id(session.id.reveal())));
        }
        Ok(serde_json::to_value(result).expect("a result has a JSON form"))
    }

    /// The arguments, with the types of the tool's schema.
    async fn typed_arguments(&self, connection: &ServerConnection) -> Result<JsonObject, Failure> {
        // Over HTTP a modern server may require arguments to be repeated in headers. rmcp does that for the tools that
        // it has seen in a list.
        let for_headers = connection.era() == Era::Modern && matches!(self.target, Target::Url(_));
        if !for_headers && !self.arguments.has_pairs() {
            return Ok(self.arguments.clone().into_object());
        }
        let listed =
            self.args.client.connect.within("`tools/list`", &self.target, connection.list_all_tools()).await;
        let tools = listed.unwrap_or_else(|failure| {
            // The call itself will show what is wrong with the server.
            tracing::debug!(%failure, "no list of tools, so arguments are texts");
            Vec::new()
        });
        let tool = tools.iter().find(|tool: &&Tool| tool.name == self.tool);
        let schema = tool.map(|tool| Value::Object(tool.input_schema.as_ref().clone()));
        let show = self.target.typed("tenure tools", self.tool);
        let arguments = self.arguments.clone().typed(&schema.unwrap_or_default());
        arguments.map_err(|failure| failure.hint(format!("`{show}` shows its arguments")))
    }

    async fn choose_session(&self, connection: &ServerConnection) -> Result<(), Failure> {
        let sessions = connection.sessions();
        if self.args.new {
            let made = sessions.create(None, None).await;
            made.map_err(|error| session_failure("cannot begin a new session", &error))?;
        } else if let Some(named) = &self.args.session {
            let id = self.known_id(named)?;
            let found = sessions.resume(id).await;
            found.map_err(|error| session_failure("cannot go on with that session", &error))?;
        }
        Ok(())
    }

    /// The id in the jar that begins with this text. Otherwise the text is a whole id that is not in the jar.
    fn known_id(&self, named: &str) -> Result<DataSessionId, Failure> {
        let args = self.args;
        let book = args
            .client
            .jar
            .open()?
            .read()
            .map_err(|error| Failure::new("cannot use the jar").caused_by(error))?;
        let key = self.target.server(args.client.jar.principal()).key();
        let found = super::jar::find(&book, key.as_deref(), named)?;
        Ok(found.map_or_else(|| DataSessionId::new(named), |(_, kept)| kept.cookie.id().clone()))
    }

    fn explain(&self, error: &ServiceError) -> Failure {
        let failure = unanswered(error, &format!("`{}`", self.tool), &self.target, &self.args.client.connect);
        let ServiceError::McpError(error) = error else { return failure };
        let reason = error.data.as_ref().and_then(|data| data.get("reason")).and_then(Value::as_str);
        // Without a transport session, the reasons begin with `data_session_`.
        match reason.map(|reason| reason.strip_prefix("data_").unwrap_or(reason)) {
            Some("session_required") if self.args.no_session => {
                failure.hint("call it without `--no-session`")
            }
            Some(
                reason @ ("session_not_found" | "session_expired" | "session_revoked" | "session_deleted"),
            ) => {
                let what = match reason {
                    "session_not_found" => "the server does not know the session",
                    _ => "the session is over, and its data are gone",
                };
                let again = match self.args.session {
                    Some(_) => "call without `--session`",
                    None => "call again",
                };
                failure.hint(format!("{what}; {again} to begin a new one"))
            }
            _ if error.message.to_lowercase().contains("unknown tool") => {
                failure.hint(format!("`{}` lists the tools", self.target.typed("tenure tools", "")))
            }
            _ => failure,
        }
    }
}

impl CallArgs {
    fn form(&self) -> PrintedPart {
        match (self.json, self.raw) {
            (true, _) => PrintedPart::Structured,
            (_, true) => PrintedPart::Whole,
            (false, false) => PrintedPart::Text,
        }
    }
}
