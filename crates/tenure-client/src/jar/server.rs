//! The server that a cookie belongs to, and the key under which the jar keeps its cookies.
//!
//! The key decides which server gets which cookies, so a server must not be able to choose a name that gives it the
//! cookies of another one.

use std::{fmt, path::Path};

/// A server in the jar: known by its URL or command, else by its own name, else by the user's name for it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct JarServer {
    pub(super) target: Option<String>,
    pub(super) identity: Option<String>,
    pub(super) name: Option<String>,
    pub(super) principal: Option<String>,
}

/// The prefixes of keys; a server's own name with such a prefix is escaped.
const RESERVED: [&str; 4] = ["url:", "cmd:", "principal:", "identity:"];

impl JarServer {
    /// A server at a URL.
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

    /// A server without a known URL or command, by the user's name for it.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..Self::default() }
    }

    /// Adds the user's name for it, which people see in the jar.
    #[must_use]
    pub fn with_name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Adds the user of the server, so that two users of one machine do not share a session.
    #[must_use]
    pub fn with_principal(self, principal: impl Into<String>) -> Self {
        Self { principal: Some(principal.into()), ..self }
    }

    /// Adds the server's own name.
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
            // The length makes the key unambiguous, even if the principal contains `|` or `:`.
            Some(principal) => format!("principal:{}:{principal}|{key}", principal.len()),
            None => key,
        })
    }
}

/// A server may name itself `url:https://elsewhere`, and must not get the cookies of that URL.
fn escape(text: &str) -> String {
    if RESERVED.iter().any(|prefix| text.starts_with(prefix)) {
        format!("identity:{text}")
    } else {
        text.to_owned()
    }
}

impl fmt::Debug for JarServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // URLs and arguments may hold tokens.
        let kind = self.target.as_deref().and_then(|target| target.split(':').next()).unwrap_or("named");
        f.debug_struct("JarServer")
            .field("kind", &kind)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::JarServer;

    #[test]
    fn keys() {
        let args = ["-y".to_owned(), "notes".to_owned()];
        let url = JarServer::url("https://example.com/mcp");
        for (server, key) in [
            (url.clone(), "url:https://example.com/mcp"),
            (url.clone().with_identity("notes").with_name("n"), "url:https://example.com/mcp"),
            (JarServer::command("npx", &args, None), "cmd:npx -y notes"),
            (JarServer::command("npx", &args, Some(Path::new("/srv"))), "cmd:npx -y notes @ /srv"),
            (JarServer::named("n").with_identity("notes"), "notes"),
            (JarServer::named("n"), "n"),
            (JarServer::named("n").with_identity(" "), "n"),
            (url.clone().with_principal("alice"), "principal:5:alice|url:https://example.com/mcp"),
            (url.with_principal(" "), "url:https://example.com/mcp"),
        ] {
            assert_eq!(server.key().as_deref(), Some(key));
        }
        assert_eq!(JarServer::default().key(), None);
    }

    #[test]
    fn a_server_cannot_name_itself_into_the_cookies_of_another() {
        let victims = [
            JarServer::url("https://bank.example/mcp"),
            JarServer::command("bank", &[], None),
            JarServer::url("https://bank.example/mcp").with_principal("alice"),
            JarServer::named("x").with_identity("url:https://bank.example/mcp"),
        ];
        for victim in &victims {
            let stolen = JarServer::named("x").with_identity(victim.key().unwrap());
            assert_ne!(stolen.key(), victim.key());
        }
    }

    #[test]
    fn debug_shows_no_url() {
        let text =
            format!("{:?}", JarServer::url("https://example.com/?token=geheim").with_principal("alice"));
        assert!(!text.contains("geheim") && !text.contains("alice"), "{text}");
    }
}
