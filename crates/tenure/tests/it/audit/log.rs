//! A log in a folder of its own.

use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;

use crate::cli::process::{Said, run};

/// The folder of a log.
pub(crate) struct Log {
    folder: TempDir,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("audit.jsonl")
    }

    /// A file beside it.
    pub(crate) fn beside(&self, end: &str) -> PathBuf {
        self.folder.path().join(format!("audit.jsonl{end}"))
    }

    pub(crate) fn setting(&self) -> String {
        format!("audit.file={}", self.path().display())
    }

    /// Everything in all files of the log.
    pub(crate) fn text(&self) -> String {
        self.files().iter().map(|file| std::fs::read_to_string(file).unwrap()).collect()
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<_> =
            std::fs::read_dir(self.folder.path()).unwrap().map(|file| file.unwrap().path()).collect();
        files.retain(|file| file.extension().is_none_or(|end| end != "key" && end != "head"));
        files
    }

    /// The records of these events.
    pub(crate) fn records(&self, events: &[&str]) -> Vec<Value> {
        let text = self.text();
        let records = text.lines().map(|line| serde_json::from_str::<Value>(line).expect(line));
        records.filter(|record| events.iter().any(|event| record["event"] == *event)).collect()
    }

    /// The records of these events as short texts of these members.
    pub(crate) fn shown(&self, events: &[&str], members: &[&str]) -> Vec<String> {
        let show = |record: &Value| {
            let member = |name: &&str| match record.pointer(&format!("/{name}")) {
                None => "-".to_owned(),
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
            };
            members.iter().map(member).collect::<Vec<_>>().join(" ")
        };
        self.records(events).iter().map(show).collect()
    }

    /// What `tenure audit verify` says of all its files.
    pub(crate) async fn verified(&self) -> Said {
        let files: Vec<_> = self.files().iter().map(|file| file.display().to_string()).collect();
        let arguments: Vec<&str> =
            ["audit", "verify"].into_iter().chain(files.iter().map(String::as_str)).collect();
        run(&arguments).await
    }
}
