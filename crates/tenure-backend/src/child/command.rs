//! The command of a child server, and its limits.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

/// Variables that programs cannot do without: paths, the user, the terminal, time zone and language.
const ALWAYS: [&str; 11] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ", "LANG", "LC_ALL", "LC_CTYPE"];

/// The command of a child server.
#[derive(Clone, Debug)]
pub struct ChildCommand {
    /// The server's name in the log, if there are several servers.
    pub name: Option<String>,
    /// The program. A name without a slash is looked up in `PATH`.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Variables that are set in addition to the inherited ones.
    pub environment: Vec<(String, String)>,
    /// Which variables of this process it inherits.
    pub inherit: Inherit,
    /// The folder it runs in; this process's by default.
    pub folder: Option<PathBuf>,
    /// Whether all sessions share one child. Only for servers that keep no data for a single client.
    pub is_shared: bool,
    /// Whether the child of a session is told who its session belongs to, by `TENURE_PRINCIPAL` and `TENURE_CLIENT` in its
    /// environment. Such a child is started for its session alone, never ahead, and a shared child is told nothing.
    pub tells_principal: bool,
    /// Its limits.
    pub limits: ChildLimits,
}

/// Which variables of this process a child inherits. Variables that configure this process (`TENURE_…`) are never
/// inherited.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Inherit {
    /// All but these, which are secrets for other programs.
    AllBut(Vec<String>),
    /// These, and the few that programs cannot do without, such as `PATH` and `HOME`.
    Only(Vec<String>),
}

impl Inherit {
    /// Whether a variable is inherited.
    pub(super) fn has(&self, name: &OsStr) -> bool {
        let is_among = |names: &[String]| names.iter().any(|one| name == one.as_str());
        let is_ours = name.as_encoded_bytes().starts_with(b"TENURE_");
        let is_inherited = match self {
            Self::AllBut(secrets) => !is_among(secrets),
            Self::Only(names) => is_among(names) || ALWAYS.iter().any(|one| name == *one),
        };
        is_inherited && !is_ours
    }
}

/// The limits of a child.
#[derive(Clone, Debug)]
pub struct ChildLimits {
    /// Children that are started ahead, so that a session need not wait for the start.
    pub warm: usize,
    /// Most children at once, including those that are ending or were started ahead.
    pub max: usize,
    /// How long a shared child may take to start, and to answer our own requests on behalf of all sessions. Should be
    /// less than the session's own timeout for opening a link, so that a slow start counts as failed and not as given
    /// up. For a child that is not shared, only the session's timeout applies.
    pub start_timeout: Duration,
    /// The longest line it may write.
    pub max_line_bytes: usize,
    /// How long the child for requests without a session lives without requests.
    pub idle: Duration,
    /// How long a child may take to end after its input is closed, and again after SIGTERM.
    pub grace: Duration,
    /// The most memory that the child and each of its own children may map. `None`: no limit.
    pub max_memory: Option<u64>,
    /// The most files that the child and each of its own children may have open. `None`: the limit of this process.
    pub max_files: Option<u64>,
    /// The soft limit of open files, which they may raise. Programs that use `select` cannot handle more than 1,024.
    /// `None`: the soft limit of this process.
    pub first_files: Option<u64>,
}

impl Default for ChildLimits {
    fn default() -> Self {
        Self {
            warm: 1,
            max: 256,
            start_timeout: Duration::from_secs(60),
            max_line_bytes: 16 << 20,
            idle: Duration::from_secs(300),
            grace: Duration::from_secs(2),
            max_memory: None,
            max_files: None,
            first_files: None,
        }
    }
}

impl ChildCommand {
    /// Runs a program with these arguments.
    pub fn new(program: impl Into<PathBuf>, arguments: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            name: None,
            program: program.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            environment: Vec::new(),
            inherit: Inherit::AllBut(Vec::new()),
            folder: None,
            is_shared: false,
            tells_principal: false,
            limits: ChildLimits::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_inherits_what_it_may_and_never_what_steers_us() {
        let of = |inherit: &Inherit| {
            let all = ["PATH", "HOME", "API_KEY", "OTHER", "TENURE_STORE"];
            all.into_iter().filter(|name| inherit.has(OsStr::new(name))).collect::<Vec<_>>()
        };
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(of(&Inherit::AllBut(names(&[]))), ["PATH", "HOME", "API_KEY", "OTHER"]);
        assert_eq!(of(&Inherit::AllBut(names(&["API_KEY"]))), ["PATH", "HOME", "OTHER"]);
        assert_eq!(of(&Inherit::Only(names(&[]))), ["PATH", "HOME"]);
        assert_eq!(of(&Inherit::Only(names(&["API_KEY", "TENURE_STORE"]))), ["PATH", "HOME", "API_KEY"]);
    }
}
