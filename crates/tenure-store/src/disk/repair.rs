//! Copies everything readable of a damaged store into a fresh one, and puts that in its place.
//!
//! The damaged data is not changed: it stays beside the new data under another name. Versions, positions and epochs are
//! kept. If something is lost, the sequence continues far above every number that can have been given out, so that no
//! number ever means two things. The index of deadlines is rebuilt from the records.

use std::path::{Path, PathBuf};

use tenure_session::port::clock::{Clock, SystemClock};

use super::check::{Nowhere, Walked, check, walk};
use super::error::DiskError;
use super::guard::{self, REPAIRING};
use super::load::Load;
use super::mark::Mark;
use super::open::sync_folder;
use super::private;
use super::raw::{ByteProgress, Files};
use super::report::{DamageKind, Report};

/// How far the sequence leaps after a loss: more numbers than a journal can hold.
const LEAP: u64 = 1 << 32;

/// Repairs the store in a folder, if it is damaged. The store must not be open. Reports its progress to `progress`.
///
/// # Errors
/// When it is in use, of another layout, not there, or the disk fails or is full. Then the store is unchanged.
pub fn repair(folder: &Path, progress: impl FnMut(ByteProgress)) -> Result<Report, DiskError> {
    let io = DiskError::io(folder);
    let exposed = private::exposed(folder).map_err(&io)?;
    let report = mend(folder, progress)?;
    private::close(folder).map_err(&io)?;
    Ok(Report { exposed, ..report })
}

fn mend(folder: &Path, mut progress: impl FnMut(ByteProgress)) -> Result<Report, DiskError> {
    let io = DiskError::io(folder);
    let (data, fresh) = (folder.join("data"), folder.join(REPAIRING));
    if !data.exists() && fresh.exists() {
        // The last repair was cut short just before its last rename.
        std::fs::rename(&fresh, &data).and_then(|()| sync_folder(folder)).map_err(&io)?;
        return check(folder, progress);
    }
    let _lock = guard::lock(folder)?;
    let mut mark = Mark::open(folder).map_err(&io)?;
    let files = Files::read(&data, &mut progress).map_err(&io)?;
    let walked = walk(folder, &files, &mark, &mut Nowhere)?;
    if walked.report.is_sound() {
        return Ok(walked.report);
    }
    if walked.report.is_sound_but_for(|damage| damage.kind == DamageKind::Mark) {
        mark.set(walked.batch).map_err(&io)?;
        return Ok(walked.report);
    }
    if fresh.exists() {
        std::fs::remove_dir_all(&fresh).map_err(&io)?;
    }
    let Walked { mut report, batch, .. } = save(folder, &fresh, &files, &mark)?;
    let kept = place_for_damaged(folder);
    // This order leaves at every moment either the old data, or the new data with a mark that fits it.
    std::fs::rename(&data, &kept).map_err(&io)?;
    mark.set(batch).map_err(&io)?;
    std::fs::rename(&fresh, &data).map_err(&io)?;
    sync_folder(folder).map_err(&io)?;
    report.kept = Some(kept);
    Ok(report)
}

fn save(folder: &Path, fresh: &Path, files: &Files, mark: &Mark) -> Result<Walked, DiskError> {
    let keyspaces = Load::make(fresh)?;
    let mut load = Load::new(folder, &keyspaces);
    let walked = walk(folder, files, mark, &mut load)?;
    load.index(&walked.deadlines)?;
    let leap = if walked.report.has_lost() { LEAP } else { 0 };
    load.finish(walked.sequence + leap, walked.batch)?;
    Ok(walked)
}

/// A free name for the damaged data, made from the time of day.
fn place_for_damaged(folder: &Path) -> PathBuf {
    let mut seconds = SystemClock.now().0 / 1000;
    loop {
        let path = folder.join(format!("data.damaged-{seconds}"));
        if !path.exists() {
            return path;
        }
        seconds += 1;
    }
}
