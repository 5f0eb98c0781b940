//! Simulates a loss of power: after a kill, all unsynced data of the server is gone.
//!
//! The server runs with a preloaded library that keeps a shadow of the store with only the synced data (`shim.c` says
//! how). After a kill the shadow takes the place of the store. Only the store's folder is replaced: the log and the
//! address stay, and the control socket and the lock in the folder belong to no process any more.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::process::Command;

const SHIM: &str = include_str!("../../crates/tenure-store/tests/power/shim.c");

/// How long a sync takes. Without a delay, a kill would hardly ever come between a write and its sync.
const SYNC: Duration = Duration::from_millis(2);

/// The preloaded library, and the folders it works on.
#[derive(Debug)]
pub(crate) struct Power {
    library: PathBuf,
    store: PathBuf,
    /// The synced data of the running process, in the same filesystem as the store.
    shadow: PathBuf,
}

impl Power {
    /// Compiles the library into the work folder, and makes the folder of the store, which the library needs.
    pub(crate) fn prepare(folder: &Path, store: &Path) -> Result<Power> {
        let (source, library) = (folder.join("shim.c"), folder.join("shim.so"));
        std::fs::write(&source, SHIM).with_context(|| format!("write `{}`", source.display()))?;
        let built = std::process::Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &source])
            .args(["-ldl", "-lpthread"])
            .output();
        match built {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                bail!("there is no `cc`\n\nhint: install a C compiler, or leave `--power` out")
            }
            Err(error) => return Err(error).context("run `cc`"),
            Ok(built) if !built.status.success() => {
                bail!("`cc` failed with {}:\n{}", built.status, String::from_utf8_lossy(&built.stderr))
            }
            Ok(_) => {}
        }
        std::fs::create_dir(store).with_context(|| format!("make `{}`", store.display()))?;
        Ok(Power { library, store: store.to_owned(), shadow: beside(store, "shadow") })
    }

    /// Makes a server run with the library.
    pub(crate) fn wire(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("TENURE_POWER_ROOT", &self.store)
            .env("TENURE_POWER_SHADOW", &self.shadow)
            .env("TENURE_POWER_SYNC_US", SYNC.as_micros().to_string());
    }

    /// Whether a started server runs with the library. A statically linked one does not, and would lose nothing.
    pub(crate) fn is_wired(&self) -> bool {
        self.shadow.is_dir()
    }

    /// Drops the unsynced data of the server, which must be dead.
    pub(crate) fn cut(&self) -> Result<()> {
        if self.is_wired() {
            remove(&self.store)?;
            std::fs::rename(&self.shadow, &self.store).context("put the shadow in the store's place")?;
        }
        // A shadow that exists is complete; without one the server was killed before it wrote anything. Remove the
        // other folders of the library, so that the next process begins with a new copy and the disk does not fill
        // up. The files of the store are links into them, so they stay.
        remove(&beside(&self.shadow, "new"))?;
        remove(&beside(&self.shadow, "files"))
    }
}

/// A path with a suffix added to its name.
fn beside(path: &Path, what: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{what}"));
    name.into()
}

/// Removes a folder, if there is one.
fn remove(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove `{}`", folder.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;
    use tokio::process::Command;

    use super::Power;

    /// Runs a command in the store's folder, with the library.
    async fn run(power: &Power, words: &[&str]) {
        let mut command = Command::new(words[0]);
        power.wire(command.args(&words[1..]).current_dir(&power.store));
        assert!(command.status().await.unwrap().success());
        assert!(power.is_wired());
    }

    #[tokio::test]
    async fn only_what_was_synced_is_left() {
        let folder = TempDir::new().unwrap();
        let store = folder.path().join("store");
        let power = Power::prepare(folder.path(), &store).unwrap();
        let read = |name: &str| std::fs::read_to_string(store.join(name)).ok();
        let append = ["dd", "if=../text", "of=kept", "oflag=append", "conv=notrunc", "status=none"];
        let and_sync = [&append[..], &["conv=fsync"]].concat();
        std::fs::write(folder.path().join("text"), "text ").unwrap();

        run(&power, &and_sync).await;
        run(&power, &["sync", "."]).await;
        run(&power, &append).await;
        run(&power, &["dd", "if=../text", "of=lost", "conv=fsync", "status=none"]).await;
        assert_eq!((read("kept").as_deref(), read("lost").as_deref()), (Some("text text "), Some("text ")));
        power.cut().unwrap();
        assert_eq!((read("kept").as_deref(), read("lost")), (Some("text "), None), "its name was not synced");

        run(&power, &and_sync).await;
        power.cut().unwrap();
        assert_eq!(read("kept").as_deref(), Some("text text "), "it goes on with what is left");

        power.cut().unwrap();
        assert_eq!(read("kept").as_deref(), Some("text text "), "who has written nothing loses nothing");
        let names = std::fs::read_dir(folder.path()).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["shim.c", "shim.so", "store", "text"], "nothing piles up");
    }
}
