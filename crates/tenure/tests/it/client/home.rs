//! A user's home: a jar of their own, servers on a store of their own, and commands that they type.

use std::path::PathBuf;

use serde_json::Value;
use tokio::process::Command;

use crate::cli::process::{Said, Server, finish, tenure};
use crate::operator::place::Place;

/// Somebody who types commands.
pub(super) struct Home {
    pub(super) place: Place,
    jar: &'static str,
}

impl Home {
    pub(super) fn new() -> Self {
        Self { place: Place::new(), jar: "jar.json" }
    }

    pub(super) fn jar(&self) -> PathBuf {
        self.place.beside(self.jar)
    }

    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = tenure(arguments);
        command.env("TENURE_JAR", self.jar()).current_dir(self.place.path());
        command
    }

    pub(super) async fn run(&self, arguments: &[&str]) -> Said {
        finish(self.command(arguments)).await
    }

    /// What a command says that succeeds without a complaint.
    pub(super) async fn told(&self, arguments: &[&str]) -> String {
        let said = self.run(arguments).await;
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{arguments:?}");
        said.out
    }

    /// What a command says that fails, without what differs from run to run.
    pub(super) async fn refused(&self, arguments: &[&str]) -> String {
        let said = self.run(arguments).await;
        assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{arguments:?}: {}", said.err);
        self.plain(&said.err)
    }

    /// A text without the names of folders, ports and sessions.
    pub(super) fn plain(&self, text: &str) -> String {
        let text = text.replace(&self.place.path().display().to_string(), "DIR");
        let text = text.replace(env!("CARGO_BIN_EXE_tenure"), "tenure");
        let text = cut(&text, "127.0.0.1:", |_| "PORT".to_owned(), |letter| letter.is_ascii_digit());
        // As long as they were, so that tables stay tables.
        cut(&text, "sess-", |id| "x".repeat(id.len()), |letter| letter.is_ascii_hexdigit())
    }

    /// Calls a tool that answers with structured content.
    pub(super) async fn call(&self, arguments: &[&str]) -> Value {
        let out = self.told(&[&["call", "--json"], arguments].concat()).await;
        serde_json::from_str(&out).unwrap()
    }

    /// What `jar list --json` shows, with these arguments.
    pub(super) async fn sessions(&self, arguments: &[&str]) -> Vec<Value> {
        let out = self.told(&[&["jar", "list", "--json"], arguments].concat()).await;
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The whole ids in the jar, the last changed first.
    pub(super) async fn ids(&self, arguments: &[&str]) -> Vec<String> {
        let rows = self.sessions(&[&["--show-secrets"], arguments].concat()).await;
        rows.iter().map(|row| row["session"].as_str().unwrap().to_owned()).collect()
    }

    /// A server on the store.
    pub(super) async fn serve(&self, arguments: &[&str]) -> Server {
        self.place.serve_with(arguments).await
    }

    /// The command of a server over pipes on the store, as it is typed after `--`.
    pub(super) fn stdio(&self) -> Vec<String> {
        let store = self.place.url();
        let words =
            ["--", env!("CARGO_BIN_EXE_tenure"), "stdio", "--store", store.as_str(), "--log-level", "warn"];
        words.map(str::to_owned).to_vec()
    }

    /// Somebody else who has got hold of this jar, with the same place.
    pub(super) fn copy(self) -> (Self, Self) {
        let copied = Place::new();
        std::fs::copy(self.jar(), copied.beside(self.jar)).unwrap();
        let jar = self.jar;
        (self, Self { place: copied, jar })
    }
}

/// Replaces what follows a mark, as far as its letters are of a kind.
fn cut(text: &str, mark: &str, name: impl Fn(&str) -> String, is_part: impl Fn(char) -> bool) -> String {
    let mut parts = text.split(mark);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let rest = part.trim_start_matches(&is_part);
        let found = &part[..part.len() - rest.len()];
        let name = if found.is_empty() { String::new() } else { name(found) };
        format!("{text}{mark}{name}{rest}")
    })
}
