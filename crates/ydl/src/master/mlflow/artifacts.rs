//! Artifacts of a finished job: its specification, its history, and the end of its output.

use hyper::body::Bytes;
use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::Path,
};
use tokio::time::Instant;
use ydl_core::{JobSpec, JobSpecBuilder, TaskId};
use ydl_proto::{files::JobDir, messages::JobSnapshot};
use ydl_storage::hdfs::{Hdfs, JobLayout};

/// Maximum bytes of each stream and of the history.
const LOG_BYTES: u64 = 64 << 10;
const HISTORY_BYTES: u64 = 4 << 20;
/// Maximum number of tasks with logs.
const TASKS_MAX: usize = 64;
const STREAMS: [&str; 2] = ["stdout", "stderr"];

/// Artifacts: names and contents.
pub(in crate::master) type Artifacts = Vec<(String, Bytes)>;

/// Collects logs of a job on this machine.
pub(in crate::master) fn local_logs(dir: &JobDir, last: &JobSnapshot) -> Artifacts {
    let mut logs = Vec::new();
    for (task, attempt) in tasks(last) {
        let attempt_dir = dir.attempt_logs(&task, attempt);
        let entries = fs::read_dir(&attempt_dir).into_iter().flatten().flatten();
        let names: Vec<_> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        for (stream, name) in newest(&names) {
            if let Ok(bytes) = end_of(&attempt_dir.join(name), LOG_BYTES) {
                logs.push((artifact_name(&task, stream), bytes.into()));
            }
        }
    }
    logs
}

/// Collects logs of a job on a cluster, as far as time permits.
pub(in crate::master) async fn yarn_logs(
    hdfs: &Hdfs,
    layout: &JobLayout,
    last: &JobSnapshot,
    deadline: Instant,
) -> Artifacts {
    let mut logs = Vec::new();
    for (task, attempt) in tasks(last) {
        let dir = layout.attempt_logs(&task, attempt);
        // A task that never ran has none.
        let Ok(entries) = hdfs.list(&dir, deadline).await else {
            continue;
        };
        let names: Vec<_> = entries.iter().map(|entry| entry.name().to_owned()).collect();
        for (stream, name) in newest(&names) {
            let reading = async {
                let reader = hdfs.open(&format!("{dir}/{name}"), deadline).await.ok()?;
                let from = reader.length().saturating_sub(LOG_BYTES);
                let bytes = reader.read_at(from, LOG_BYTES as usize, deadline).await;
                bytes.ok()
            };
            if let Some(bytes) = reading.await {
                logs.push((artifact_name(&task, stream), bytes));
            }
        }
    }
    logs
}

/// Returns the job specification without the values of its variables, and the history.
pub(super) fn job_files(spec: &JobSpec, dir: &JobDir) -> Artifacts {
    let mut draft = JobSpecBuilder::from(spec.clone());
    let hide = |value: &mut String| *value = "…".to_owned();
    draft.env.values_mut().for_each(hide);
    for role in &mut draft.roles {
        role.env.values_mut().for_each(hide);
    }
    let job = serde_json::to_vec_pretty(&draft).unwrap_or_default();
    let mut all = vec![("ydl/job.json".to_owned(), job.into())];
    if let Ok(history) = end_of(&dir.history_file(), HISTORY_BYTES) {
        all.push(("ydl/history.jsonl".to_owned(), history.into()));
    }
    all
}

fn tasks(last: &JobSnapshot) -> impl Iterator<Item = (TaskId, u32)> {
    let tasks = last.view.tasks.iter().take(TASKS_MAX);
    tasks.map(|it| (it.task.clone(), it.attempt))
}

fn artifact_name(task: &TaskId, stream: &str) -> String {
    format!("ydl/logs/{}-{}/{stream}.txt", task.role, task.index)
}

/// Returns the last segment of each stream.
fn newest(names: &[String]) -> impl Iterator<Item = (&'static str, &str)> {
    STREAMS.into_iter().filter_map(|stream| {
        let number_of = |name: &&String| {
            let number = name.strip_prefix(stream)?.strip_prefix('.')?;
            number.parse::<u64>().ok()
        };
        let last = names.iter().filter(|name| number_of(name).is_some()).max_by_key(number_of)?;
        Some((stream, last.as_str()))
    })
}

fn end_of(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let from = length.saturating_sub(bytes_max);
    let mut bytes = vec![0; (length - from) as usize];
    file.read_exact_at(&mut bytes, from)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_segment_of_each_stream_is_uploaded() {
        let names = ["stdout.9", "stdout.10", "stderr.0", "exit.json", "stdout.x"];
        let names = names.map(str::to_owned);
        let found: Vec<_> = newest(&names).collect();
        assert_eq!(found, [("stdout", "stdout.10"), ("stderr", "stderr.0")]);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        fs::write(&path, "0123456789").unwrap();
        assert_eq!(end_of(&path, 4).unwrap(), b"6789");
        assert_eq!(end_of(&path, 40).unwrap(), b"0123456789");
    }
}
