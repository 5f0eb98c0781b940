//! The server of a client command: at a URL, or started by a command.
//!
//! All client commands have the same form: the URL is the first word, or the command follows `--`.

use std::path::PathBuf;

use clap::Args;
use tenure_client::{Jar, JarServer};

use super::Failure;
use crate::operator::now;
use crate::url_text;

/// A server, as it was typed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Target {
    Url(String),
    Command { program: String, args: Vec<String> },
}

/// The server of a command that takes no other words.
#[derive(Args, Debug)]
pub(super) struct ServerArgs {
    /// The server's URL; left out if a command follows `--`.
    #[arg(value_name = "URL")]
    pub(super) words: Vec<String>,
    /// The command that starts the server, with its arguments.
    #[arg(last = true, value_name = "COMMAND")]
    pub(super) command: Vec<String>,
}

/// Where sessions are kept, and for whom.
#[derive(Args, Debug)]
pub(super) struct JarArgs {
    /// The file that keeps sessions. [default: `tenure/mcp-cookie.json` in the user's folder for data]
    #[arg(long, value_name = "FILE", env = "TENURE_JAR")]
    jar: Option<PathBuf>,
    /// On whose behalf: sessions for different names are kept apart.
    #[arg(long, value_name = "NAME")]
    principal: Option<String>,
}

impl Target {
    /// Separates the server from the other words that were typed.
    pub(super) fn split<'a>(
        words: &'a [String],
        command: &[String],
    ) -> Result<(Self, &'a [String]), Failure> {
        if let Some((program, args)) = command.split_first() {
            if let Some(url) = words.first().filter(|word| is_url(word)) {
                return Err(Failure::new(format!("two servers: `{url}`, and a command after `--`"))
                    .hint("leave out the URL, or the `--` and everything after it"));
            }
            return Ok((Self::Command { program: program.clone(), args: args.to_vec() }, words));
        }
        match words.split_first() {
            Some((url, rest)) if is_url(url) => Ok((Self::Url(url.trim().to_owned()), rest)),
            Some((word, _)) => Err(Failure::new(format!("`{word}` is not the URL of a server")).hint(
                "begin with a URL such as `http://127.0.0.1:8484/mcp`, \
                 or end with the command that starts the server, such as `-- tenure stdio`",
            )),
            None => Err(Failure::new("no server").hint(
                "name it by a URL such as `http://127.0.0.1:8484/mcp`, \
                 or by the command that starts it, such as `-- tenure stdio`",
            )),
        }
    }

    /// The server, for commands that take no other words.
    pub(super) fn alone(args: &ServerArgs) -> Result<Self, Failure> {
        match Self::split(&args.words, &args.command)? {
            (target, []) => Ok(target),
            (_, [word, ..]) => Err(Failure::new(format!("`{word}` is one word too many"))
                .hint("name one server, and nothing else")),
        }
    }

    /// The server as the jar identifies it.
    pub(super) fn server(&self, principal: Option<&str>) -> JarServer {
        let server = match self {
            Self::Url(url) => JarServer::url(url),
            Self::Command { program, args } => JarServer::command(program, args, None),
        };
        match principal {
            Some(principal) => server.with_principal(principal),
            None => server,
        }
    }

    /// A command line with this server, for hints.
    pub(super) fn typed(&self, before: &str, after: &str) -> String {
        let words = match self {
            Self::Url(url) => vec![before.to_owned(), url_text::marked(url), after.to_owned()],
            Self::Command { .. } => vec![before.to_owned(), after.to_owned(), format!("-- {self}")],
        };
        words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Url(url) => f.write_str(&url_text::marked(url)),
            Self::Command { program, args } => {
                f.write_str(program)?;
                args.iter().try_for_each(|arg| write!(f, " {arg}"))
            }
        }
    }
}

impl JarArgs {
    /// The jar. Fails at once if it cannot be read.
    pub(super) fn open(&self) -> Result<Jar, Failure> {
        let jar = match self.path() {
            Some(path) => Jar::at(path),
            None => Jar::of_user().map_err(|error| {
                Failure::new(error.to_string()).hint("name it with `--jar FILE` or `TENURE_JAR`")
            })?,
        };
        jar.read().map_err(|error| Failure::new("cannot use the jar").caused_by(error))?;
        Ok(jar)
    }

    /// Where it is.
    pub(super) fn path(&self) -> Option<PathBuf> {
        // As with all our variables, an empty value counts as not set.
        let named = self.jar.clone().filter(|path| !path.as_os_str().is_empty());
        named.or_else(Jar::user_path)
    }

    pub(super) fn principal(&self) -> Option<&str> {
        self.principal.as_deref()
    }
}

/// The time in the type that the jar uses.
pub(super) fn moment() -> time::OffsetDateTime {
    let nanoseconds = i128::from(now().0) * 1_000_000;
    time::OffsetDateTime::from_unix_timestamp_nanos(nanoseconds).unwrap_or(time::OffsetDateTime::UNIX_EPOCH)
}

fn is_url(word: &str) -> bool {
    let word = word.trim().to_ascii_lowercase();
    word.starts_with("http://") || word.starts_with("https://")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_server_is_the_first_word_or_what_follows_the_dashes() {
        let typed = words("http://localhost/mcp echo a=b");
        let (target, rest) = Target::split(&typed, &[]).unwrap();
        assert_eq!((target.to_string(), rest), ("http://localhost/mcp".to_owned(), &typed[1..]));
        assert_eq!(target.typed("tenure jar use", "ID"), "tenure jar use http://localhost/mcp ID");

        let typed = words("echo a=b");
        let (target, rest) = Target::split(&typed, &words("npx -y notes")).unwrap();
        assert_eq!((target.to_string(), rest), ("npx -y notes".to_owned(), &typed[..]));
        assert_eq!(target.typed("tenure jar use", "ID"), "tenure jar use ID -- npx -y notes");
        assert_eq!(target.server(None).key().as_deref(), Some("cmd:npx -y notes"));
    }

    #[test]
    fn no_server_and_two_servers_are_explained() {
        expect_test::expect![[r"
            error: `echo` is not the URL of a server

            hint: begin with a URL such as `http://127.0.0.1:8484/mcp`, or end with the command that starts the server, such as `-- tenure stdio`
        "]]
        .assert_eq(&Target::split(&words("echo a=b"), &[]).unwrap_err().to_string());
        expect_test::expect![[r"
            error: two servers: `http://localhost/mcp`, and a command after `--`

            hint: leave out the URL, or the `--` and everything after it
        "]]
        .assert_eq(&Target::split(&words("http://localhost/mcp echo"), &words("a")).unwrap_err().to_string());
    }
}
