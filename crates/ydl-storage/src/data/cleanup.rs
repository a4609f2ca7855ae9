//! Removal of partial uploads of a failed job: its agents may have been killed during an upload.

use super::{destinations::Destinations, pattern::is_temporary, reservation::RESERVATION_PREFIX};
use crate::{
    hdfs::FileSystems,
    store::{FileEntry, FileStore, is_local, store_of},
};
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;
use ydl_core::JobSpec;

/// Maximum number of directories searched.
const DIRS_MAX: usize = 1000;
/// Maximum length of a job's id, which is the content of a reservation.
const ID_BYTES_MAX: u64 = 1 << 10;

/// Removes partial uploads once all uploads have ended. Failures are ignored: a leftover does no harm.
pub async fn remove_partial_uploads(
    spec: &JobSpec,
    id: &str,
    home: Option<&str>,
    ways: Option<&FileSystems>,
    deadline: Instant,
) {
    let aim = Destinations { id: Some(id), home };
    let each = spec.outputs.iter();
    let places = each.flat_map(|output| aim.destinations(spec, &BTreeMap::new(), output));
    let places: BTreeSet<String> = places.collect();
    let mut left = DIRS_MAX;
    for place in places {
        let place = place.trim_end_matches('/');
        let Some((parent, _)) = place.rsplit_once('/') else {
            continue;
        };
        // On a cluster such a path is on the nodes.
        if is_local(place) && home.is_some() {
            continue;
        }
        if let Ok(store) = store_of(place, ways, deadline).await {
            clean(&*store, id, [parent, place], &mut left, deadline).await;
        }
    }
}

/// Cleans a directory, and another one recursively.
async fn clean(
    store: &dyn FileStore,
    id: &str,
    [beside, below]: [&str; 2],
    left: &mut usize,
    deadline: Instant,
) {
    let mut dirs = vec![(beside.to_owned(), false), (below.to_owned(), true)];
    while let Some((dir, deep)) = dirs.pop() {
        if *left == 0 {
            break;
        }
        *left -= 1;
        for entry in store.list(&dir, deadline).await.unwrap_or_default() {
            if is_of_job(store, &entry, id, deadline).await {
                if let Err(error) = store.delete(&entry.path, deadline).await {
                    tracing::warn!("something is left behind: {}", error.what);
                }
            } else if entry.directory && !entry.link && deep {
                dirs.push((entry.path, true));
            }
        }
    }
}

/// Returns true for a partial upload or a reservation of the job, and for an abandoned temporary file.
async fn is_of_job(store: &dyn FileStore, entry: &FileEntry, id: &str, deadline: Instant) -> bool {
    let name = entry.name();
    if name.starts_with(RESERVATION_PREFIX) {
        let held = store.read(&entry.path, ID_BYTES_MAX, deadline).await;
        return held.is_ok_and(|held| held.is_some_and(|held| held == id.as_bytes()));
    }
    is_temporary(name) && (name.contains(&format!("{id}-")) || store.is_abandoned(entry, id))
}
