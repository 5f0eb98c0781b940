//! `tenure prompts`: the prompts of a server, and one of them filled in.

use clap::Args;
use rmcp::model::{GetPromptRequest, GetPromptRequestParams, JsonObject};
use serde_json::{Value, json};
use tenure_client::{Create, SessionOptions};

use super::call::{arguments, part};
use super::connect::{ConnectArgs, ServerConnection, as_json, block_on, close, lines, offers, unanswered};
use super::paint::{Paint, Tone};
use super::table::{Cell, Side, table};
use super::target::{JarArgs, Target};
use super::words::short;
use super::{Failure, note, say, schema};
use crate::foreign::plain;

/// Letters of a description that are shown.
const DESCRIPTION: usize = 70;

#[derive(Args, Debug)]
pub(super) struct PromptsArgs {
    /// The server's URL (left out if a command follows `--`); to get one, the prompt and its arguments as `key=text`.
    #[arg(value_name = "WORD")]
    words: Vec<String>,
    /// The command that starts the server, with its arguments.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// Print JSON: one prompt a line, or the messages of the one.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    jar: JarArgs,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub(super) fn run(args: &PromptsArgs) -> Result<(), Failure> {
    let (target, rest) = Target::split(&args.words, &args.command)?;
    let wanted = match rest.split_first() {
        Some((name, given)) => Some((name.as_str(), texts(arguments::read(given)?.into_object()))),
        None => None,
    };
    block_on(run_at(args, &target, wanted))
}

async fn run_at(
    args: &PromptsArgs,
    target: &Target,
    wanted: Option<(&str, JsonObject)>,
) -> Result<(), Failure> {
    let listener = args.connect.listener();
    let options = SessionOptions { create: Create::WhenRequired, ..SessionOptions::new(args.jar.open()?) };
    let connecting = args.connect.connect(target, args.jar.principal(), listener.clone(), options);
    let connection = connecting.await?;
    let said = match wanted {
        None => list(args, target, &connection).await,
        Some((name, given)) => {
            let request = GetPromptRequest::new(GetPromptRequestParams::new(name).with_arguments(given));
            let answer = connection.request(request, &args.connect.call_options(&listener)).await;
            listener.finish();
            match answer {
                Ok(result) => show(&json!(result), args.json),
                Err(error) => {
                    let list = target.typed("tenure prompts", "");
                    let failure = unanswered(&error, &format!("`{}`", plain(name)), target, &args.connect);
                    Err(failure.or_hint(format!("`{list}` lists the prompts and what they take")))
                }
            }
        }
    };
    close(connection).await;
    said
}

async fn list(args: &PromptsArgs, target: &Target, connection: &ServerConnection) -> Result<(), Failure> {
    let prompts = if offers(connection, |offered| offered.prompts.is_some()) {
        args.connect.within("`prompts/list`", target, connection.list_all_prompts()).await?
    } else {
        Vec::new()
    };
    let prompts = as_json(&prompts);
    if args.json {
        return say(&lines(&prompts));
    }
    if prompts.is_empty() {
        note("no prompts");
        return Ok(());
    }
    say(&render(&prompts, Paint::stdout()))
}

fn show(result: &Value, is_json: bool) -> Result<(), Failure> {
    if is_json {
        return say(&format!("{:#}\n", result["messages"]));
    }
    say(&super::call::for_stdout(&messages(result)))
}

fn messages(result: &Value) -> String {
    let message = |message: &Value| {
        let role = message["role"].as_str().unwrap_or("user");
        format!("{role}: {}\n", part(&message["content"]).trim_end_matches('\n'))
    };
    result["messages"].as_array().into_iter().flatten().map(message).collect()
}

/// The arguments of a prompt are texts, whatever they look like.
fn texts(given: JsonObject) -> JsonObject {
    given.into_iter().map(|(key, value)| (key, Value::from(schema::written(&value)))).collect()
}

fn render(prompts: &[Value], paint: Paint) -> String {
    let titles = [("PROMPT", Side::Left), ("ARGUMENTS", Side::Left), ("DESCRIPTION", Side::Left)];
    let argument = |argument: &Value| {
        let name = plain(argument["name"].as_str().unwrap_or_default());
        if argument["required"] == true { name } else { format!("[{name}]") }
    };
    let row = |prompt: &Value| {
        let text = |key: &str| prompt[key].as_str().filter(|text| !text.trim().is_empty());
        let taken: Vec<_> = prompt["arguments"].as_array().into_iter().flatten().map(argument).collect();
        let about = text("description").or(text("title")).unwrap_or_default();
        let about = about.trim().lines().next().unwrap_or_default();
        vec![
            Cell::new(text("name").unwrap_or_default()).tone(Tone::Title),
            Cell::new(if taken.is_empty() { "-".to_owned() } else { taken.join(" ") }),
            Cell::new(short(&plain(about), DESCRIPTION)),
        ]
    };
    table(&titles, &prompts.iter().map(row).collect::<Vec<_>>(), paint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_shown_with_what_they_take() {
        let prompts = [
            json!({ "name": "review", "description": "Reviews code",
                "arguments": [{ "name": "code", "required": true }, { "name": "style" }] }),
            json!({ "name": "hello", "title": "Hello" }),
        ];
        expect_test::expect![[r"
            PROMPT  ARGUMENTS     DESCRIPTION
            review  code [style]  Reviews code
            hello   -             Hello
        "]]
        .assert_eq(&render(&prompts, Paint::of(false)));
    }

    #[test]
    fn a_prompt_is_its_messages() {
        let result = json!({ "messages": [
            { "role": "user", "content": { "type": "text", "text": "Review this:\nx" } },
            { "role": "assistant", "content": { "type": "image", "mimeType": "image/png", "data": "" } },
        ] });
        expect_test::expect![[r"
            user: Review this:
            x
            assistant: [image image/png; `--raw` shows it]
        "]]
        .assert_eq(&messages(&result));
    }
}
