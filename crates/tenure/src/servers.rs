//! Fingerprints of the servers behind, which tell one server from another.
//!
//! In: the configuration. Out: the fingerprints that sessions keep, and a word for a server. A fingerprint leaves versions out (`foo@1.2` is
//! `foo`), so that a newer version is the same server. It leaves out environment variables and headers, because they
//! hold secrets, and keeps only a hash of everything else, because people write secrets into arguments too.

use std::path::Path;

use tenure_session::Route;
use tenure_session::fingerprint::{Fingerprint, Fingerprints};

use crate::config::{ChildConfig, Config, UpstreamConfig};
use crate::url_text::public_part;

/// The fingerprints of the configured servers, by endpoint.
pub(crate) fn fingerprints(config: &Config) -> Fingerprints {
    let named = config
        .backends
        .iter()
        .filter_map(|behind| Some((Route::named(&behind.name), one(&behind.child, &behind.upstream)?)));
    named.chain(std::iter::once((Route::MAIN, main(config)))).collect()
}

/// Digests of the configured servers, for other nodes: no words of the configuration are in them.
pub(crate) fn digests(config: &Config) -> Vec<String> {
    let named = config.backends.iter().filter_map(|behind| one(&behind.child, &behind.upstream));
    let all = named.chain(std::iter::once(main(config)));
    all.filter_map(|fingerprint| fingerprint.digest).collect()
}

/// The fingerprint of an embedder's server. Only the name that the server gives itself tells it from others.
pub(crate) fn embedded() -> Fingerprints {
    std::iter::once((Route::MAIN, Fingerprint::unconfigured("a server in this program"))).collect()
}

/// Whether the configuration names a server; otherwise the demo is served.
pub(crate) fn are_named(config: &Config) -> bool {
    config.upstream.url.is_some() || !config.child.command.is_empty() || !config.backends.is_empty()
}

/// The server at the endpoint without a name.
pub(crate) fn main(config: &Config) -> Fingerprint {
    if let Some(one) = one(&config.child, &config.upstream) {
        return one;
    }
    if config.backends.is_empty() {
        return Fingerprint::of("the demo server", [&b"demo"[..]]);
    }
    Fingerprint::merged(config.backends.iter().map(|behind| behind.name.clone()))
}

fn one(child: &ChildConfig, upstream: &UpstreamConfig) -> Option<Fingerprint> {
    if let Some(url) = &upstream.url {
        return Some(Fingerprint::of(public_part(url), [&b"upstream"[..], url.as_bytes()]));
    }
    let program = child.command.first()?;
    let words = unversioned(&child.command);
    let folder = child.folder.clone().or_else(|| {
        // In another folder, a relative path names another file.
        let is_relative = child.command.iter().enumerate().any(|(index, word)| names_file(word, index == 0));
        is_relative.then(|| std::env::current_dir().ok())?
    });
    let folder = folder.map(|folder| std::path::absolute(&folder).unwrap_or(folder));
    let folder = folder.as_deref().map_or(&b""[..], |folder| folder.as_os_str().as_encoded_bytes());
    let parts = [&b"command"[..], folder].into_iter().chain(words.iter().map(|word| word.as_bytes()));
    Some(Fingerprint::of(file_name(program), parts))
}

/// Programs that run another one, which is the server.
const RUNNERS: [&str; 16] = [
    "npx", "bunx", "pnpm", "yarn", "npm", "node", "bun", "deno", "uvx", "uv", "pipx", "python", "python3",
    "docker", "podman", "env",
];

/// Words of such a program that come before the server's name.
const VERBS: [&str; 6] = ["run", "exec", "dlx", "tool", "x", "start"];

/// The word of a command that a person would use as the server's name.
pub(crate) fn title(command: &[String]) -> String {
    let words = unversioned(command);
    let program = words.first().map(|program| file_name(program)).unwrap_or_default();
    if !RUNNERS.contains(&program.as_str()) {
        return program;
    }
    let rest = words.iter().skip(1).filter(|word| !word.starts_with('-') && !word.contains('='));
    let found = rest.map(|word| file_name(word)).find(|word| !VERBS.contains(&word.as_str()));
    found.unwrap_or(program)
}

/// A command without the versions in its words.
fn unversioned(command: &[String]) -> Vec<String> {
    let runs_images =
        command.first().is_some_and(|program| ["docker", "podman"].contains(&file_name(program).as_str()));
    let one = |word: &String| {
        if word.contains("://") {
            return word.clone();
        }
        let marks: &[&str] = if runs_images { &["==", "@", ":"] } else { &["==", "@"] };
        let cut = marks.iter().find_map(|mark| {
            let at = word.rfind(mark).filter(|at| *at > 0)?;
            is_version(&word[at + mark.len()..]).then_some(at)
        });
        cut.map_or_else(|| word.clone(), |at| word[..at].to_owned())
    };
    command.iter().map(one).collect()
}

/// Whether the text after a mark is a version: `1.2.3`, `v2`, `^4`, `latest`. The end of an address such as
/// `me@example.com` is not a version.
fn is_version(text: &str) -> bool {
    const TAGS: [&str; 9] = ["latest", "next", "stable", "beta", "alpha", "canary", "rc", "dev", "nightly"];
    let number = text.trim_start_matches(['^', '~', '=', '>', '<', 'v']);
    let is_plain = text.chars().all(|letter| letter.is_ascii_alphanumeric() || "^~=><.+-_".contains(letter));
    is_plain && (number.starts_with(|letter: char| letter.is_ascii_digit()) || TAGS.contains(&text))
}

/// Whether a word names a file relative to the folder that the command runs in.
fn names_file(word: &str, is_program: bool) -> bool {
    const SCRIPTS: [&str; 10] = ["js", "mjs", "cjs", "ts", "mts", "py", "rb", "sh", "jar", "php"];
    if word.starts_with(['/', '-']) || word.contains("://") {
        return false;
    }
    let is_script =
        Path::new(word).extension().and_then(|it| it.to_str()).is_some_and(|it| SCRIPTS.contains(&it));
    is_script
        || (is_program && word.contains('/'))
        || word == "."
        || word == ".."
        || word.starts_with("./")
        || word.starts_with("../")
}

fn file_name(word: &str) -> String {
    Path::new(word).file_name().map_or_else(|| word.to_owned(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
pub(crate) mod examples {
    use crate::config::{ChildConfig, Config, UpstreamConfig};

    pub(crate) fn running(words: &str) -> Config {
        let command = words.split(' ').map(str::to_owned).collect();
        Config { child: ChildConfig { command, ..ChildConfig::default() }, ..Config::default() }
    }

    pub(crate) fn at(url: &str) -> Config {
        Config {
            upstream: UpstreamConfig { url: Some(url.to_owned()), ..UpstreamConfig::default() },
            ..Config::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::examples::{at, running};
    use super::*;

    fn digest(config: &Config) -> String {
        let fingerprints = fingerprints(config);
        fingerprints.at(&Route::MAIN).unwrap().digest.clone().unwrap()
    }

    #[test]
    fn a_newer_version_is_the_same_server_and_another_argument_is_not() {
        let same = [
            ("npx -y foo@1.2", "npx -y foo@1.10.0-rc.1"),
            ("npx -y foo", "npx -y foo@latest"),
            ("npx -y @scope/foo@^1", "npx -y @scope/foo@~2"),
            ("uvx foo==1", "uvx foo==2"),
            ("docker run foo:1", "docker run foo:2"),
        ];
        for (one, other) in same {
            assert_eq!(digest(&running(one)), digest(&running(other)), "{one} and {other}");
        }
        let different = [
            ("npx -y foo /a", "npx -y foo /b"),
            ("npx -y @scope/foo", "npx -y @other/foo"),
            ("npx foo me@work.example", "npx foo me@home.example"),
            ("npx mcp-remote http://localhost:1/", "npx mcp-remote http://localhost:2/"),
            ("npx mcp-remote localhost:1", "npx mcp-remote localhost:2"),
        ];
        for (one, other) in different {
            assert_ne!(digest(&running(one)), digest(&running(other)), "{one} and {other}");
        }
        assert_ne!(digest(&at("http://localhost:1/mcp")), digest(&at("http://localhost:2/mcp")));
    }

    #[test]
    fn a_relative_path_is_another_server_in_another_folder() {
        for (words, expected) in [
            ("node server.js", true),
            ("./server", true),
            ("bin/server", true),
            ("npx foo .", true),
            ("npx foo ../data", true),
            ("npx -y @scope/foo", false),
            ("node /srv/server.js", false),
            ("npx foo --file=./x", false),
            ("npx mcp-remote http://localhost/x.js", false),
        ] {
            let found = words.split(' ').enumerate().any(|(index, word)| names_file(word, index == 0));
            assert_eq!(found, expected, "{words}");
        }
        let elsewhere = |folder: &str| {
            let mut config = running("node server.js");
            config.child.folder = Some(folder.into());
            digest(&config)
        };
        assert_ne!(elsewhere("/a"), elsewhere("/b"));
    }

    #[test]
    fn what_people_are_shown_has_no_secrets() {
        let shown = |config: &Config| fingerprints(config).at(&Route::MAIN).unwrap().shown.clone();
        assert_eq!(shown(&at("https://me:secret@host.example/mcp?token=secret")), "https://host.example/mcp");
        assert_eq!(shown(&running("/usr/bin/npx foo --key=secret")), "npx");
    }
}
