//! Removal of partial uploads of a failed job: its agents may have been killed during an upload.

use super::{destinations::Destinations, pattern::is_temporary, temporary::remove_abandoned};
use crate::hdfs::{FileSystems, Hdfs, url_path};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};
use tokio::time::Instant;
use ydl_core::JobSpec;

/// Maximum number of directories searched.
const DIRS_MAX: usize = 1000;

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
        match (place.contains("://"), ways) {
            (true, Some(ways)) => {
                if let Ok(hdfs) = ways.to(place, deadline).await {
                    let dirs = [parent, place].map(|dir| hdfs.url(url_path(dir)));
                    afar(&hdfs, id, dirs, &mut left, deadline).await;
                }
            }
            // On a cluster such a path is on the nodes.
            (false, _) if home.is_none() => {
                let dirs = [parent, place].map(PathBuf::from);
                let (id, most) = (id.to_owned(), left);
                let swept = tokio::task::spawn_blocking(move || here(&id, dirs, most));
                left = swept.await.unwrap_or_default();
            }
            _ => {}
        }
    }
}

/// Cleans a directory, and another one recursively. Returns the number of directories that may still be searched.
fn here(id: &str, [beside, below]: [PathBuf; 2], mut left: usize) -> usize {
    let mut dirs = vec![(beside, false), (below, true)];
    while let Some((dir, deep)) = dirs.pop() {
        if left == 0 {
            break;
        }
        left -= 1;
        remove_abandoned(&dir);
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            let is_reservation = |path: &Path| {
                let short = fs::metadata(path).is_ok_and(|about| about.len() == id.len() as u64);
                short && fs::read(path).is_ok_and(|text| text == id.as_bytes())
            };
            if kind.is_dir() && deep {
                dirs.push((entry.path(), true));
            } else if entry.file_name().to_str().is_some_and(is_temporary)
                && kind.is_file()
                && is_reservation(&entry.path())
            {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
    left
}

async fn afar(
    hdfs: &Hdfs,
    id: &str,
    [beside, below]: [String; 2],
    left: &mut usize,
    deadline: Instant,
) {
    let mut dirs = vec![(beside, false), (below, true)];
    while let Some((dir, deep)) = dirs.pop() {
        if *left == 0 {
            break;
        }
        *left -= 1;
        for entry in hdfs.list(&dir, deadline).await.unwrap_or_default() {
            let name = entry.name();
            let ours = match name.starts_with(".aside-for-") {
                true => {
                    let held = hdfs.read_if_exists(&entry.url, 1 << 10, deadline).await;
                    held.is_ok_and(|held| held.is_some_and(|held| held.as_ref() == id.as_bytes()))
                }
                false => name.starts_with(".aside-") && name.contains(&format!("{id}-")),
            };
            if ours {
                if let Err(error) = hdfs.delete(&entry.url, deadline).await {
                    tracing::warn!("something is left behind: {error}");
                }
            } else if entry.directory && deep {
                dirs.push((entry.url, true));
            }
        }
    }
}
