//! Which server a cookie belongs to, and the key under which it is kept.
//!
//! A key decides which cookies are sent where, so nothing that a server says about itself may lead to
//! cookies that another one gave.

use std::{fmt, path::Path};

/// A server, as the jar knows it: by where it is, else by what it calls itself, else by the user's name for it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Server {
    pub(super) target: Option<String>,
    pub(super) identity: Option<String>,
    pub(super) name: Option<String>,
    pub(super) principal: Option<String>,
}

/// What the keys of targets and of principals begin with.
const RESERVED: [&str; 4] = ["url:", "cmd:", "principal:", "identity:"];

impl Server {
    /// A server behind a URL.
    pub fn url(url: &str) -> Self {
        Self { target: Some(format!("url:{}", url.trim())), ..Self::default() }
    }

    /// A server that is started by a command.
    pub fn command(program: &str, args: &[String], cwd: Option<&Path>) -> Self {
        let mut target = format!("cmd:{}", program.trim());
        for arg in args {
            target.push(' ');
            target.push_str(arg);
        }
        if let Some(cwd) = cwd {
            target.push_str(" @ ");
            target.push_str(&cwd.to_string_lossy());
        }
        Self { target: Some(target), ..Self::default() }
    }

    /// A server whose place is not known, by the user's name for it.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..Self::default() }
    }

    /// Adds the user's name for it, which people see in the jar.
    #[must_use]
    pub fn with_name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Adds on whose behalf the server is used, so that two users of one machine do not share a session.
    #[must_use]
    pub fn with_principal(self, principal: impl Into<String>) -> Self {
        Self { principal: Some(principal.into()), ..self }
    }

    /// Adds what the server calls itself.
    #[must_use]
    pub fn with_identity(self, identity: impl Into<String>) -> Self {
        Self { identity: Some(identity.into()), ..self }
    }

    /// The key under which its cookies are kept; `None` if nothing is known about it.
    pub fn key(&self) -> Option<String> {
        let known = |text: &Option<String>| {
            text.as_deref().map(str::trim).filter(|t| !t.is_empty()).map(str::to_owned)
        };
        let key = known(&self.target)
            .or_else(|| known(&self.identity).or_else(|| known(&self.name)).map(|text| escape(&text)))?;
        Some(match known(&self.principal) {
            // The length tells where the principal ends, whatever it is made of.
            Some(principal) => format!("principal:{}:{principal}|{key}", principal.len()),
            None => key,
        })
    }
}

/// A server may call itself `url:https://elsewhere`, and must not get the cookies of elsewhere.
fn escape(text: &str) -> String {
    if RESERVED.iter().any(|prefix| text.starts_with(prefix)) {
        format!("identity:{text}")
    } else {
        text.to_owned()
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // URLs and arguments may hold tokens.
        let kind = self.target.as_deref().and_then(|target| target.split(':').next()).unwrap_or("named");
        f.debug_struct("Server")
            .field("kind", &kind)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Server;

    #[test]
    fn keys() {
        let args = ["-y".to_owned(), "notes".to_owned()];
        let url = Server::url("https://example.com/mcp");
        for (server, key) in [
            (url.clone(), "url:https://example.com/mcp"),
            (url.clone().with_identity("notes").with_name("n"), "url:https://example.com/mcp"),
            (Server::command("npx", &args, None), "cmd:npx -y notes"),
            (Server::command("npx", &args, Some(Path::new("/srv"))), "cmd:npx -y notes @ /srv"),
            (Server::named("n").with_identity("notes"), "notes"),
            (Server::named("n"), "n"),
            (Server::named("n").with_identity(" "), "n"),
            (url.clone().with_principal("alice"), "principal:5:alice|url:https://example.com/mcp"),
            (url.with_principal(" "), "url:https://example.com/mcp"),
        ] {
            assert_eq!(server.key().as_deref(), Some(key));
        }
        assert_eq!(Server::default().key(), None);
    }

    #[test]
    fn a_server_cannot_name_itself_into_the_cookies_of_another() {
        let victims = [
            Server::url("https://bank.example/mcp"),
            Server::command("bank", &[], None),
            Server::url("https://bank.example/mcp").with_principal("alice"),
            Server::named("x").with_identity("url:https://bank.example/mcp"),
        ];
        for victim in &victims {
            let stolen = Server::named("x").with_identity(victim.key().unwrap());
            assert_ne!(stolen.key(), victim.key());
        }
    }

    #[test]
    fn debug_shows_no_url() {
        let text = format!("{:?}", Server::url("https://example.com/?token=geheim").with_principal("alice"));
        assert!(!text.contains("geheim") && !text.contains("alice"), "{text}");
    }
}
