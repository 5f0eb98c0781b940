//! `tenure prompts`: the prompts of a server, and one of them filled in.

use clap::Args;
use rmcp::model::{GetPromptRequest, GetPromptRequestParams, JsonObject};
use serde_json::{Value, json};
use tenure_client::Create;

use super::call::{arguments, part};
use super::connect::{ClientArgs, ServerConnection, as_json, block_on, close, offers, unanswered};
use super::paint::Tone;
use super::rows::print_rows;
use super::table::{Cell, Column, known, left};
use super::target::Target;
use super::words::about;
use super::{Failure, say, schema};
use crate::escape::plain;

/// Letters of a description that are shown.
const DESCRIPTION: usize = 70;

#[derive(Args, Debug)]
pub(super) struct PromptsArgs {
    /// The server's URL (left out if a command follows `--`); to get one, the prompt and its arguments as `key=text`.
    #[arg(value_name = "WORD")]
    words: Vec<String>,
    /// Print JSON: one prompt a line, or the messages of the one.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: ClientArgs,
}

pub(super) fn run(args: &PromptsArgs) -> Result<(), Failure> {
    let (target, rest) = args.client.split(&args.words)?;
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
    let connect = &args.client.connect;
    let listener = connect.listener();
    let connection = args.client.open(target, listener.clone(), Create::WhenRequired).await?;
    let said = match wanted {
        None => list(args, target, &connection).await,
        Some((name, given)) => {
            let request = GetPromptRequest::new(GetPromptRequestParams::new(name).with_arguments(given));
            let answer = connection.request(request, &connect.call_options(&listener)).await;
            listener.finish();
            match answer {
                Ok(result) => show(&json!(result), args.json),
                Err(error) => {
                    let list = target.typed("tenure prompts", "");
                    let failure = unanswered(&error, &format!("`{}`", plain(name)), target, connect);
                    Err(failure.or_hint(format!("`{list}` lists the prompts and their arguments")))
                }
            }
        }
    };
    close(connection).await;
    said
}

async fn list(args: &PromptsArgs, target: &Target, connection: &ServerConnection) -> Result<(), Failure> {
    let prompts = if offers(connection, |offered| offered.prompts.is_some()) {
        args.client.connect.within("`prompts/list`", target, connection.list_all_prompts()).await?
    } else {
        Vec::new()
    };
    print_rows(&as_json(&prompts), args.json, &columns(), "no prompts")
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

fn columns() -> [Column<'static, Value>; 3] {
    let argument = |argument: &Value| {
        let name = plain(argument["name"].as_str().unwrap_or_default());
        if argument["required"] == true { name } else { format!("[{name}]") }
    };
    let taken = move |prompt: &Value| {
        let taken: Vec<_> = prompt["arguments"].as_array().into_iter().flatten().map(argument).collect();
        known((!taken.is_empty()).then(|| taken.join(" ")))
    };
    [
        left("PROMPT", |prompt: &Value| {
            Cell::new(prompt["name"].as_str().unwrap_or_default()).tone(Tone::Title)
        }),
        left("ARGUMENTS", taken),
        left("DESCRIPTION", |prompt: &Value| about(prompt, &["description", "title"], DESCRIPTION)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::paint::Paint;
    use crate::cli::table::table;

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
        .assert_eq(&table(&columns(), &prompts, Paint::of(false)));
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
