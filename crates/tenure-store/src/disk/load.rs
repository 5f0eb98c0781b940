//! Fills a fresh store with entries that come in order, as a repair and a backup do.
//!
//! The entries go straight into tables, without a journal and without a second pass. An unfinished store has no
//! counters, and lies in a folder where no store is looked for.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use fjall::{Keyspace, PersistMode, Slice};
use foldhash::fast::RandomState;
use tenure_session::port::clock::Time;
use tenure_session::port::store::RecordKey;

use super::check::Sink;
use super::error::DiskError;
use super::layout::{self, Keyspaces};
use super::open::open_data;

/// Takes one entry after the other; `None` finishes the table.
type Ingest<'a> = Box<dyn FnMut(Option<(&Slice, &Slice)>) -> Result<(), fjall::Error> + 'a>;

pub(super) struct Load<'a> {
    folder: PathBuf,
    keyspaces: &'a Keyspaces,
    current: Option<(&'static str, Ingest<'a>)>,
}

impl<'a> Load<'a> {
    /// Makes an empty engine in a new folder.
    pub(super) fn make(data: &Path) -> Result<Keyspaces, DiskError> {
        open_data(data.parent().unwrap_or(data), data, None)
    }

    pub(super) fn new(folder: &Path, keyspaces: &'a Keyspaces) -> Self {
        Self { folder: folder.to_owned(), keyspaces, current: None }
    }

    /// Makes the index of deadlines.
    pub(super) fn index(
        &mut self,
        deadlines: &HashMap<RecordKey, Time, RandomState>,
    ) -> Result<(), DiskError> {
        let mut keys: Vec<_> = deadlines.iter().map(|(key, at)| layout::deadline_key(*at, *key)).collect();
        keys.sort_unstable();
        let empty = Slice::from([]);
        keys.into_iter().try_for_each(|key| self.take("deadlines", &Slice::from(key), &empty))
    }

    /// Writes the counters and syncs everything.
    pub(super) fn finish(mut self, sequence: u64, batch: u64) -> Result<(), DiskError> {
        self.close()?;
        let meta = &self.keyspaces.meta;
        let mut counters = self.keyspaces.database.batch().durability(Some(PersistMode::SyncAll));
        counters.insert(meta, layout::META_SEQUENCE, sequence.to_be_bytes());
        counters.insert(meta, layout::META_BATCH, batch.to_be_bytes());
        counters.commit().map_err(|cause| DiskError::engine(&self.folder, cause))
    }

    fn close(&mut self) -> Result<(), DiskError> {
        match self.current.take() {
            Some((_, mut ingest)) => ingest(None).map_err(|cause| DiskError::engine(&self.folder, cause)),
            None => Ok(()),
        }
    }
}

impl Sink for Load<'_> {
    fn take(&mut self, keyspace: &'static str, key: &Slice, value: &Slice) -> Result<(), DiskError> {
        if self.current.as_ref().is_none_or(|(name, _)| *name != keyspace) {
            self.close()?;
        }
        let engine = |cause| DiskError::engine(&self.folder, cause);
        let ingest = match &mut self.current {
            Some((_, ingest)) => ingest,
            none => {
                let named = layout::NAMES.iter().position(|name| *name == keyspace);
                let found = self.keyspaces.all()[named.unwrap_or_default()];
                &mut none.insert((keyspace, ingest(found).map_err(engine)?)).1
            }
        };
        ingest(Some((key, value))).map_err(engine)
    }
}

fn ingest(keyspace: &Keyspace) -> Result<Ingest<'_>, fjall::Error> {
    let mut ingestion = Some(keyspace.start_ingestion()?);
    Ok(Box::new(move |entry| match (entry, &mut ingestion) {
        (Some((key, value)), Some(ingestion)) => ingestion.write(key.clone(), value.clone()),
        (None, _) => ingestion.take().map_or(Ok(()), |ingestion| ingestion.finish()),
        (Some(_), None) => Ok(()),
    }))
}
