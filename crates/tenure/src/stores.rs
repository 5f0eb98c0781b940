//! The default place of sessions: one of the user's folders for each server.
//!
//! A folder from the service manager (`STATE_DIRECTORY`) wins. Otherwise a store is in `tenure/stores/NAME` in the
//! user's data folder. `NAME` is configured, or made of a word that a person would use for the server and the beginning
//! of its fingerprint's hash: the same command finds its sessions again, also in a newer version, and another command
//! does not find them. Earlier versions had one store for all servers, in `tenure` itself; it is found too.

use std::path::{Path, PathBuf};

use tenure_session::fingerprint::Fingerprint;

use crate::config::Config;
use crate::failure::Failure;
use crate::servers;
use crate::url_text;

/// A store in one of the user's own folders.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct OwnStore {
    /// Its name for `--name`; `None` for the one store of earlier versions.
    pub(crate) name: Option<String>,
    pub(crate) folder: PathBuf,
}

/// The folder that a service manager has made for this service's state.
pub(crate) fn given_folder() -> Option<PathBuf> {
    std::env::var_os("STATE_DIRECTORY").filter(|name| !name.is_empty()).map(PathBuf::from)
}

/// The folder for the sessions of the configured server, if the configuration names no store.
pub(crate) fn own_folder(config: &Config) -> Result<PathBuf, Failure> {
    if let Some(folder) = given_folder() {
        return Ok(folder);
    }
    // The path has to be valid text, because it becomes part of a store's URL.
    let base = base().filter(|base| base.to_str().is_some()).ok_or_else(|| {
        Failure::new("cannot tell where to keep sessions: the user has no folder for data")
            .hint("name a folder with `--store disk:PATH`")
    })?;
    Ok(own_folder_in(&base, config))
}

fn own_folder_in(base: &Path, config: &Config) -> PathBuf {
    let folder = base.join(STORES).join(folder_name(config));
    let is_demo = config.name.is_none() && !servers::are_named(config);
    // A plain `tenure serve` goes on with the sessions that it kept with an earlier version.
    if is_demo && is_store(base) && !is_store(&folder) { base.to_owned() } else { folder }
}

/// The store of earlier versions, if it exists and `folder` is a new one, so that its sessions are not used.
pub(crate) fn passed_over(folder: &Path) -> Option<PathBuf> {
    let base = base()?;
    (folder.starts_with(base.join(STORES)) && !is_store(folder) && is_store(&base)).then_some(base)
}

/// Every store in the user's own folders, by name.
pub(crate) fn own_stores() -> Vec<OwnStore> {
    base().map_or_else(Vec::new, |base| own_stores_in(&base))
}

fn own_stores_in(base: &Path) -> Vec<OwnStore> {
    let mut found = Vec::new();
    if is_store(base) {
        found.push(OwnStore { name: None, folder: base.to_owned() });
    }
    // A missing folder has no stores.
    for entry in std::fs::read_dir(base.join(STORES)).into_iter().flatten().flatten() {
        let folder = entry.path();
        if is_store(&folder) {
            found.push(OwnStore { name: Some(entry.file_name().to_string_lossy().into_owned()), folder });
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

/// Whether a folder contains a store, also one whose repair was interrupted. Opening would create a store, so this only
/// looks at file names.
pub(crate) fn is_store(folder: &Path) -> bool {
    ["data", "high-water"].iter().any(|name| folder.join(name).exists())
}

/// The folder of stores in the user's folder for Tenure.
const STORES: &str = "stores";

/// The user's folder for the control sockets of servers that keep their sessions in memory.
pub(crate) fn running_folder() -> Option<PathBuf> {
    let runtime = dirs::runtime_dir().map(|folder| folder.join("tenure"));
    Some(runtime.or_else(base)?.join("running"))
}

/// The name of the configured server among this user's servers.
pub(crate) fn server_name(config: &Config) -> String {
    folder_name(config)
}

fn base() -> Option<PathBuf> {
    Some(dirs::data_local_dir()?.join("tenure"))
}

/// The name of the folder for the sessions of the configured server.
fn folder_name(config: &Config) -> String {
    if let Some(name) = &config.name {
        return name.clone();
    }
    let fingerprint = servers::main(config);
    if !fingerprint.members.is_empty() {
        // By the file, not by its servers: adding a server must not lose the sessions of the others.
        return match &config.file {
            Some(file) => {
                let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
                let named = Fingerprint::of("", [&b"file"[..], file.as_os_str().as_encoded_bytes()]);
                let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
                format!("{}-{}", tidy(&stem.unwrap_or_default()), named.short())
            }
            None => format!("{}-{}", tidy(&fingerprint.members.join("-")), fingerprint.short()),
        };
    }
    let title = match (&config.upstream.url, &config.child.command[..]) {
        (Some(url), _) => url_text::host(url).to_owned(),
        (None, []) => return "demo".to_owned(),
        (None, command) => servers::title(command),
    };
    format!("{}-{}", tidy(&title), fingerprint.short())
}

/// A title with only the characters that file names may have on every system. Short, because the path of a socket in
/// that folder has an upper limit.
fn tidy(title: &str) -> String {
    const MOST: usize = 24;
    let plain = title.chars().map(|letter| match letter {
        'a'..='z' | '0'..='9' | '.' | '_' => letter,
        'A'..='Z' => letter.to_ascii_lowercase(),
        _ => '-',
    });
    let plain: String = plain.take(MOST).collect();
    let plain = plain.trim_matches(['-', '.']);
    if plain.is_empty() { "server".to_owned() } else { plain.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Behind, UpstreamConfig};
    use crate::servers::examples::{at, running};

    /// The name without its hash.
    fn title_of(config: &Config) -> String {
        let name = folder_name(config);
        name.rsplit_once('-').map_or(name.clone(), |(title, hash)| {
            assert_eq!(hash.len(), 8, "{name}");
            title.to_owned()
        })
    }

    #[test]
    fn a_folder_is_called_by_what_a_person_calls_the_server() {
        let table = [
            ("npx -y @modelcontextprotocol/server-everything stdio", "server-everything"),
            ("npx -y some-mcp-server@1.2.3", "some-mcp-server"),
            ("uvx mcp-server-git==0.6", "mcp-server-git"),
            ("uv run server.py", "server.py"),
            ("docker run -i --rm mcp/fetch:1.2", "fetch"),
            ("node /srv/notes/index.js", "index.js"),
            ("python -m", "python"),
            ("/opt/Notes/bin/Notes --port 1", "notes"),
            ("a-program-with-a-name-that-never-ends", "a-program-with-a-name-th"),
            ("…", "server"),
        ];
        for (command, expected) in table {
            assert_eq!(title_of(&running(command)), expected, "{command}");
        }
        assert_eq!(title_of(&at("https://key@mcp.example.com:8080/mcp?token=1")), "mcp.example.com-8080");
        assert_eq!(folder_name(&Config::default()), "demo");
        assert_eq!(folder_name(&Config { name: Some("mine".to_owned()), ..running("npx foo") }), "mine");
    }

    #[test]
    fn the_servers_of_a_file_share_a_folder_that_is_called_by_the_file() {
        let behind = |name: &str| Behind {
            name: name.to_owned(),
            prefix: String::new(),
            child: running(name).child,
            upstream: UpstreamConfig::default(),
        };
        let several = |names: &[&str], file: Option<&str>| Config {
            backends: names.iter().map(|name| behind(name)).collect(),
            file: file.map(PathBuf::from),
            ..Config::default()
        };
        let of_file = folder_name(&several(&["a", "b"], Some("/etc/tenure/Notes.toml")));
        assert!(of_file.starts_with("notes-"), "{of_file}");
        assert_eq!(of_file, folder_name(&several(&["a", "b", "c"], Some("/etc/tenure/Notes.toml"))));
        assert_ne!(of_file, folder_name(&several(&["a", "b"], Some("/etc/other/notes.toml"))));
        assert_eq!(title_of(&several(&["a", "b"], None)), "a-b");
    }

    fn make_store(folder: &Path) {
        std::fs::create_dir_all(folder.join("data")).unwrap();
    }

    #[test]
    fn the_one_store_of_earlier_versions_is_the_demo_s_until_that_has_its_own() {
        let base = tempfile::TempDir::new().unwrap();
        let base = base.path();
        let (demo, other) = (Config::default(), running("npx foo"));
        assert_eq!(own_folder_in(base, &demo), base.join("stores/demo"));
        make_store(base);
        assert_eq!(own_folder_in(base, &demo), base);
        assert!(own_folder_in(base, &other).starts_with(base.join("stores")));
        let named = Config { name: Some("mine".to_owned()), ..demo.clone() };
        assert_eq!(own_folder_in(base, &named), base.join("stores/mine"));
        make_store(&base.join("stores/demo"));
        assert_eq!(own_folder_in(base, &demo), base.join("stores/demo"));
    }

    #[test]
    fn only_folders_with_a_store_in_them_are_listed() {
        let base = tempfile::TempDir::new().unwrap();
        let base = base.path();
        assert_eq!(own_stores_in(base), []);
        make_store(&base.join("stores/two"));
        make_store(&base.join("stores/one"));
        std::fs::create_dir_all(base.join("stores/empty")).unwrap();
        let names = |found: Vec<OwnStore>| found.into_iter().map(|store| store.name).collect::<Vec<_>>();
        assert_eq!(names(own_stores_in(base)), [Some("one".to_owned()), Some("two".to_owned())]);
        make_store(base);
        assert_eq!(names(own_stores_in(base)), [None, Some("one".to_owned()), Some("two".to_owned())]);
    }
}
