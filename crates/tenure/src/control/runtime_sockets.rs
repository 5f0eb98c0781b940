//! The control sockets of servers whose store is not a folder: it is in memory, or on an engine that several nodes share.
//!
//! They are where `control.path` says, or in a folder of the user's that only this user may open, under names made of server and
//! process id. One server may run in several processes.

use std::fs::Permissions;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::ControlClient;
use crate::config::{Config, is_shared};
use crate::stores;
use crate::wire::Engine;

/// The end of the names of nodes' sockets, in front of `.sock`.
const ENGINE: &str = ".engine";

/// A running server whose store is no folder.
#[derive(Debug)]
pub(crate) struct RunningServer {
    /// Its name for `--name`.
    pub(crate) name: String,
    /// Whether its sessions are on an engine, and not in its memory.
    pub(crate) is_node: bool,
    pub(crate) client: ControlClient,
}

/// The path of this process's socket; `None` if its store is a folder, or the user has no folder for it.
pub(crate) fn runtime_socket(config: &Config) -> Option<PathBuf> {
    let ending = match config.store.as_str() {
        "memory:" => "",
        store if is_shared(store) => ENGINE,
        _ => return None,
    };
    if let Some(path) = &config.control_path {
        return Some(path.clone());
    }
    let folder = stores::running_folder()?;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    // An existing folder may have been open to other users.
    let made = made.and_then(|()| std::fs::set_permissions(&folder, Permissions::from_mode(0o700)));
    if let Err(error) = made {
        tracing::debug!(folder = %folder.display(), %error, "no folder for a control socket");
        return None;
    }
    Some(folder.join(format!("{}-{}{ending}.sock", stores::server_name(config), std::process::id())))
}

/// The server at the path that is configured for its socket, if it runs.
pub(crate) async fn configured_server(config: &Config) -> Option<ControlClient> {
    let path = config.control_path.clone()?;
    ControlClient::at(path).await.ok()
}

/// The running servers whose store is no folder. Removes the sockets of killed ones.
pub(crate) async fn running_servers() -> Vec<RunningServer> {
    let mut servers = Vec::new();
    let entries = stores::running_folder().and_then(|folder| std::fs::read_dir(folder).ok());
    for entry in entries.into_iter().flatten().flatten() {
        let path = entry.path();
        let Some((name, is_node)) = name_of(&path) else { continue };
        match ControlClient::at(path.clone()).await {
            Ok(client) => servers.push(RunningServer { name, is_node, client }),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                tracing::debug!(socket = %path.display(), "removed the socket of a killed server");
                let _ = std::fs::remove_file(&path);
            }
            Err(error) => tracing::debug!(socket = %path.display(), %error, "no server there"),
        }
    }
    servers.sort_by(|one, other| one.name.cmp(&other.name));
    servers
}

/// A running node of the cluster on this engine, if there is one on this machine.
pub(crate) async fn node_of(engine: &Engine) -> Option<ControlClient> {
    for server in running_servers().await.into_iter().filter(|server| server.is_node) {
        match server.client.engine().await {
            Ok(Some(of_server)) if of_server.is_same(engine) => return Some(server.client),
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(server = server.name, %error, "a server did not say what its store is")
            }
        }
    }
    None
}

/// The name of the server of a socket, and whether it is a node.
fn name_of(path: &Path) -> Option<(String, bool)> {
    if path.extension().is_none_or(|extension| extension != "sock") {
        return None;
    }
    let name = path.file_stem()?.to_str()?;
    Some(match name.strip_suffix(ENGINE) {
        Some(name) => (name.to_owned(), true),
        None => (name.to_owned(), false),
    })
}

impl RunningServer {
    /// Whether a person means this server: by its whole name, or by the name without the process id.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.name == name || self.name.rsplit_once('-').is_some_and(|(server, _)| server == name)
    }
}
