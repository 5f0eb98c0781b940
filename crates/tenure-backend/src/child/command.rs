//! What to run, and within which bounds.

use std::path::PathBuf;
use std::time::Duration;

/// What to run.
#[derive(Clone, Debug)]
pub struct ChildCommand {
    /// What the log calls it, where there are several servers.
    pub name: Option<String>,
    /// The program, looked for on the path if it is a name.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Variables that are set beside those of this process.
    pub environment: Vec<(String, String)>,
    /// The folder it runs in; this process's by default.
    pub folder: Option<PathBuf>,
    /// Whether all sessions share one. Only for servers that keep nothing for a single client.
    pub is_shared: bool,
    /// Its bounds.
    pub limits: ChildLimits,
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
            folder: None,
            is_shared: false,
            limits: ChildLimits::default(),
        }
    }
}
