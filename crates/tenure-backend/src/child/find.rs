//! Looks up a command in the same way as starting it would, so that a typo is reported before a session needs it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::command::ChildCommand;

/// The search path if `PATH` is not set.
const USUAL: &str = "/bin:/usr/bin";

/// Why a command cannot be run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotFound {
    /// Its working folder does not exist.
    NoFolder(PathBuf),
    /// There is no file of that name.
    Nothing,
    /// This file exists, but is not executable.
    NotExecutable(PathBuf),
    /// This path exists, but is a folder.
    IsFolder(PathBuf),
}

impl ChildCommand {
    /// The file that would be run: the program itself if it contains a slash, else the first match in the child's
    /// `PATH`. Relative paths start at the child's working folder.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn find(&self) -> Result<PathBuf, NotFound> {
        let folder = self.folder.clone().unwrap_or_else(|| PathBuf::from("."));
        if !folder.is_dir() {
            return Err(NotFound::NoFolder(folder));
        }
        if self.program.as_os_str().is_empty() {
            return Err(NotFound::Nothing);
        }
        if self.program.as_os_str().as_encoded_bytes().contains(&b'/') {
            return look_at(folder.join(&self.program));
        }
        let mut best = NotFound::Nothing;
        for place in std::env::split_paths(&self.path()) {
            match look_at(folder.join(place).join(&self.program)) {
                Ok(found) => return Ok(found),
                // Keep searching, but report this one if there is no better match.
                Err(found) if best == NotFound::Nothing => best = found,
                Err(_) => {}
            }
        }
        Err(best)
    }

    fn path(&self) -> OsString {
        let own = self.environment.iter().rev().find(|(name, _)| name == "PATH");
        own.map(|(_, path)| path.into()).or_else(|| std::env::var_os("PATH")).unwrap_or_else(|| USUAL.into())
    }
}

fn look_at(file: PathBuf) -> Result<PathBuf, NotFound> {
    let is_runnable = |file: &Path| access(file, Access::EXEC_OK).is_ok();
    match std::fs::metadata(&file) {
        Err(_) => Err(NotFound::Nothing),
        Ok(about) if about.is_dir() => Err(NotFound::IsFolder(file)),
        Ok(_) if !is_runnable(&file) => Err(NotFound::NotExecutable(file)),
        Ok(_) => Ok(file),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn command(program: &str, folder: &Path, path: &str) -> ChildCommand {
        ChildCommand {
            folder: Some(folder.to_owned()),
            environment: vec![("PATH".to_owned(), path.to_owned())],
            ..ChildCommand::new(program, [""; 0])
        }
    }

    #[test]
    fn a_command_is_looked_for_as_the_child_would_be() {
        let folder = std::env::temp_dir().join(format!("tenure-find-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("bin/folder")).unwrap();
        for (name, mode) in [("bin/runs", 0o755), ("bin/reads", 0o644)] {
            std::fs::write(folder.join(name), "#!/bin/sh\n").unwrap();
            std::fs::set_permissions(folder.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let find = |program: &str, path: &str| command(program, &folder, path).find();
        let bin = folder.join("bin").display().to_string();
        // With a slash it is a path, without one it is searched in `PATH`. Relative paths of both start at the folder.
        assert_eq!(find("bin/runs", "/nowhere"), Ok(folder.join("bin/runs")));
        assert_eq!(find("./bin/runs", ""), Ok(folder.join("./bin/runs")));
        assert_eq!(find("runs", &format!("/nowhere:{bin}")), Ok(folder.join("bin/runs")));
        assert_eq!(find("runs", "bin"), Ok(folder.join("bin/runs")));
        assert_eq!(find("runs", "/nowhere"), Err(NotFound::Nothing));
        assert_eq!(find("bin/none", &bin), Err(NotFound::Nothing));
        assert_eq!(find("", &bin), Err(NotFound::Nothing));
        assert_eq!(find("reads", &bin), Err(NotFound::NotExecutable(folder.join("bin/reads"))));
        assert_eq!(find("bin/folder", &bin), Err(NotFound::IsFolder(folder.join("bin/folder"))));
        // One that may be run further along the path is what counts.
        assert!(command("sh", &folder, &format!("{bin}:/bin:/usr/bin")).find().is_ok());
        let gone = command("sh", &folder.join("gone"), "/bin");
        assert_eq!(gone.find(), Err(NotFound::NoFolder(folder.join("gone"))));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
