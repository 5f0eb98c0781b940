//! The control sockets of servers that keep their sessions in memory. Their names are made of server and process id,
//! and they are in a folder that only this user may open. One server may run in several processes.

use std::fs::Permissions;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;

use super::ControlClient;
use crate::config::Config;
use crate::stores;

/// A running server that keeps its sessions in memory.
#[derive(Debug)]
pub(crate) struct MemoryServer {
    /// What `--name` calls it.
    pub(crate) name: String,
    pub(crate) client: ControlClient,
}

/// The path of this process's socket; `None` if the user has no folder for it.
pub(crate) fn memory_socket(config: &Config) -> Option<PathBuf> {
    let folder = stores::running_folder()?;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    // An existing folder may have been open to other users.
    let made = made.and_then(|()| std::fs::set_permissions(&folder, Permissions::from_mode(0o700)));
    if let Err(error) = made {
        tracing::debug!(folder = %folder.display(), %error, "no folder for a control socket");
        return None;
    }
    Some(folder.join(format!("{}-{}.sock", stores::server_name(config), std::process::id())))
}

/// The running servers that keep their sessions in memory. Removes the sockets of killed ones.
pub(crate) async fn memory_servers() -> Vec<MemoryServer> {
    let mut servers = Vec::new();
    let entries = stores::running_folder().and_then(|folder| std::fs::read_dir(folder).ok());
    for entry in entries.into_iter().flatten().flatten() {
        let path = entry.path();
        let Some(name) = path.file_stem().and_then(|name| name.to_str()).map(str::to_owned) else { continue };
        if path.extension().is_none_or(|extension| extension != "sock") {
            continue;
        }
        match ControlClient::at(path.clone()).await {
            Ok(client) => servers.push(MemoryServer { name, client }),
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

impl MemoryServer {
    /// Whether a person means this server: by its whole name, or by the name without the process id.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.name == name || self.name.rsplit_once('-').is_some_and(|(server, _)| server == name)
    }
}
