//! The settings of the audit log.

use std::path::PathBuf;

/// The audit log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditConfig {
    /// The file of the log; nothing is recorded without one.
    pub file: Option<PathBuf>,
    /// Whether a call that cannot be recorded is carried out.
    pub durability: AuditDurability,
    /// The file with the key that signs the log; beside the log without one.
    pub key_file: Option<PathBuf>,
    /// Where the newest signed head is kept too; beside the log without it.
    pub head_file: Option<PathBuf>,
    /// The tools whose arguments are recorded.
    pub arguments: Vec<String>,
    /// JSON pointers to parts of arguments that are left out.
    pub redact: Vec<String>,
    /// The size at which a file is put aside.
    pub max_bytes: usize,
}

/// Whether a call that cannot be recorded is carried out.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum AuditDurability {
    /// It is; the log says later how many records are missing.
    #[default]
    BestEffort,
    /// It is not.
    Required,
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self {
            file: None,
            durability: AuditDurability::BestEffort,
            key_file: None,
            head_file: None,
            arguments: Vec::new(),
            redact: Vec::new(),
            max_bytes: 256 << 20,
        }
    }
}
