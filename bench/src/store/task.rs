//! What a worker of this benchmark can do.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::{append, fill, lookup, open, stalls, wake};
use crate::worker::tell;

/// The command that starts a worker.
pub(super) const WORKER: &str = "store-worker";

/// What a worker can do.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Task {
    Fill(fill::Fill),
    Append(append::AppendJob),
    Lookup(lookup::LookupJob),
    Cold(lookup::Cold),
    Wake(wake::WakeJob),
    Open(open::OpenJob),
    /// Writes until it is killed.
    Churn(open::Churn),
    Stalls(stalls::StallsJob),
}

impl Task {
    pub(super) async fn run(self) -> Result<()> {
        match self {
            Task::Fill(job) => tell(&job.run().await?),
            Task::Append(job) => tell(&job.run().await?),
            Task::Lookup(job) => tell(&job.run().await?),
            Task::Cold(job) => tell(&job.run().await?),
            Task::Wake(job) => tell(&job.run().await?),
            Task::Open(job) => tell(&job.run().await?),
            Task::Churn(job) => job.run().await,
            Task::Stalls(job) => tell(&job.run().await?),
        }
    }
}
