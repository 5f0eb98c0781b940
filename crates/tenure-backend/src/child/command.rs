//! What to run, and within which bounds.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

/// Variables that programs cannot do without: where things are, who the user is, how to write.
const ALWAYS: [&str; 11] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ", "LANG", "LC_ALL", "LC_CTYPE"];

/// What to run.
#[derive(Clone, Debug)]
pub struct ChildCommand {
    /// What the log calls it, where there are several servers.
    pub name: Option<String>,
    /// The program, looked for on the path if it is a name.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Variables that are set beside those that it inherits.
    pub environment: Vec<(String, String)>,
    /// Which variables of this process it inherits.
    pub inherit: Inherit,
    /// The folder it runs in; this process's by default.
    pub folder: Option<PathBuf>,
    /// Whether all sessions share one. Only for servers that keep nothing for a single client.
    pub is_shared: bool,
    /// Its bounds.
    pub limits: ChildLimits,
}

/// Which variables of this process a child inherits. None of them steers this process (`TENURE_…`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Inherit {
    /// All but these: secrets that are meant for others.
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

/// The bounds of a child.
#[derive(Clone, Debug)]
pub struct ChildLimits {
    /// Children that are started ahead, so that a session need not wait for one to come up.
    pub warm: usize,
    /// Children there may be at once, those that are leaving or were started ahead included.
    pub max: usize,
    /// How long one that is shared may take to come up, and to answer what is asked for all sessions. Should be less than
    /// whoever opens the link waits, so that a start that takes too long counts as failed, and not as given up. Of one
    /// that is not shared, whoever opens the link sees to that.
    pub start_timeout: Duration,
    /// The longest line it may write.
    pub max_line_bytes: usize,
    /// How long the one for requests without a session stays when there are none.
    pub idle: Duration,
    /// How long it may take to leave when its input is closed, and again when it is told to.
    pub grace: Duration,
    /// The most memory that it and each of its own children may map. `None`: no limit.
    pub max_memory: Option<u64>,
    /// The most files that it and each of its own children may have open. `None`: as many as this process may.
    pub max_files: Option<u64>,
    /// How many they may have open at first, until they ask for more. Programs that use `select` do not bear more than
    /// 1,024. `None`: as many as this process.
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
