//! Better messages than clap's for command lines that it cannot read.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::{Failure, note};

/// Ends the process with clap's message, or with a better one.
pub(super) fn exit(error: &clap::Error) -> ! {
    let typed: Vec<_> = std::env::args().skip(1).collect();
    let wrong = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) if error.kind() == ErrorKind::UnknownArgument => Some(word.as_str()),
        _ => None,
    };
    if let Some(failure) = wrong.and_then(|word| without_dashes(&typed, word)) {
        note(failure.to_string().trim_end());
        // The exit status that clap has for usage errors.
        std::process::exit(2);
    }
    error.exit()
}

/// `tenure serve npx -y foo`: a command whose `--` was forgotten.
fn without_dashes(typed: &[String], wrong: &str) -> Option<Failure> {
    let serves = typed.first().is_some_and(|command| command == "serve" || command == "stdio");
    let at = typed.iter().position(|word| word == wrong).filter(|_| serves && !wrong.starts_with('-'))?;
    let (before, command) = typed.split_at(at);
    let words: Vec<_> =
        before.iter().map(String::as_str).chain(["--"]).chain(command.iter().map(String::as_str)).collect();
    Some(
        Failure::new(format!("`{wrong}` is not an option of `tenure {}`", typed[0]))
            .hint(format!("did you mean `tenure {}`?", words.join(" "))),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(line: &str, wrong: &str) -> Option<String> {
        let typed: Vec<_> = line.split(' ').map(str::to_owned).collect();
        without_dashes(&typed, wrong).map(|failure| failure.to_string())
    }

    #[test]
    fn forgotten_dashes_are_put_where_they_belong() {
        expect_test::expect![[r"
            error: `npx` is not an option of `tenure serve`

            hint: did you mean `tenure serve --port 9000 -- npx -y foo`?
        "]]
        .assert_eq(&hint("serve --port 9000 npx -y foo", "npx").unwrap());
        assert_eq!(hint("serve --nonsense", "--nonsense"), None);
        assert_eq!(hint("tools npx", "npx"), None);
    }
}
