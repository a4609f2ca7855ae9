//! `ydl fetch`: downloads the outputs and logs of a job.

mod record;

use super::follow::recorded_history;
use crate::{
    cli::{self, GlobalArgs},
    client::{
        cluster::configuration,
        jobs::{JobHandle, JobStatus},
        master_client::{MasterClient, block_on, settled_status},
        mirror::{CopySelection, Mirror},
        resolve::{ResolvedJob, resolve_job},
    },
    terminal::{self, counted_bytes},
};
use record::FetchRecord;
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::time::{Instant, MissedTickBehavior, interval};
use ydl_core::{HistoryKind, RoleName, spec::ExistingPolicy};
use ydl_os::report::{Exit, Report};
use ydl_proto::files::JobTarget;
use ydl_storage::{
    data::{
        DataError, Destinations, DownloadItem, Downloader, ListedFile, LocalMode, Progress,
        ReservationLog, below, is_temporary, list_source, numbered, pattern,
    },
    hdfs::{FileSystems, JobLayout},
    store::store_of,
};

/// Maximum time for the whole download.
const FETCH_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Maximum time for listing files.
const LIST_MAX: Duration = Duration::from_secs(600);
/// Maximum time for the master to report role sizes.
const VIEW_MAX: Duration = Duration::from_secs(5);
/// Redraw interval of the progress line.
const FRAME: Duration = Duration::from_millis(200);

/// File to fetch, and its name below the destination.
struct FetchItem {
    name: String,
    item: DownloadItem,
}

/// Downloads outputs and logs.
pub(crate) fn run(args: cli::FetchArgs, global: GlobalArgs) -> Result<Exit, Report> {
    let (job, pattern, dest) = match &args.operands[..] {
        [job, dest] => (job, "*", dest),
        [job, pattern, dest] => (job, pattern.as_str(), dest),
        _ => {
            return Err(Report::bad_input("the job or the destination is missing")
                .hint("write `ydl fetch JOB DEST` or `ydl fetch JOB PATTERN DEST`"));
        }
    };
    let dest = PathBuf::from(dest);
    block_on(async {
        let (job, mirror) = match resolve_job(Some(job), global).await? {
            ResolvedJob::Full(job, mirror) => (job, mirror),
            report_only @ ResolvedJob::ReportOnly { .. } => report_only.into_full()?,
        };
        let file_systems = match &mirror {
            Some(mirror) => Some(file_systems(mirror)),
            None => match configuration()? {
                Some(config) => Some(FileSystems::of(config)?),
                None => None,
            },
        };
        let mut items = outputs(&job, file_systems.as_ref(), &dest).await?;
        items.extend(logs(&job, mirror.as_ref(), &dest, pattern).await?);
        items.retain(|item| pattern::fits_anything(pattern.as_bytes(), item.name.as_bytes()));
        if items.is_empty() {
            let what = match pattern {
                "*" => format!("`{}` has no outputs or logs yet", job.id()),
                _ => format!("no file of `{}` matches `{pattern}`", job.id()),
            };
            let hint = "names look like `outputs/model/a.params` and `logs/worker/0/1/stdout.0`";
            return Err(Report::bad_input(what).hint(hint));
        }
        let record = FetchRecord::read(&dest, job.id());
        record.check(&items)?;
        record.plan(&items)?;
        download(items, file_systems, global, &dest).await
    })
}

fn file_systems(mirror: &Arc<Mirror>) -> FileSystems {
    let cluster = &mirror.cluster;
    FileSystems::new(cluster.config.clone(), cluster.identity.clone())
}

/// Lists the files at the destinations of the job's outputs.
async fn outputs(
    job: &JobHandle,
    file_systems: Option<&FileSystems>,
    dest: &Path,
) -> Result<Vec<FetchItem>, Report> {
    let deadline = Instant::now() + LIST_MAX;
    let submitted = &job.submitted;
    let destinations = Destinations {
        id: Some(&submitted.id),
        home: match &submitted.target {
            JobTarget::Yarn(staged) => Some(&staged.home),
            JobTarget::Local(_) => None,
        },
    };
    let (reservations, sizes) =
        (reservations(job, file_systems, deadline).await?, sizes(job).await);
    let over = matches!(settled_status(job).await, JobStatus::Finished(_) | JobStatus::NoResult(_));
    let mut items = Vec::new();
    let mut roots = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for output in &submitted.spec.outputs {
        let root = root_of(&output.to);
        let mut name = root.clone();
        let mut number = 1;
        // Outputs whose destinations end in the same name get numbered directories.
        while !roots.insert(name.clone()) {
            number += 1;
            name = numbered(&root, number);
        }
        for to in destinations.destinations(&submitted.spec, &sizes, output) {
            let on_nodes = destinations.home.is_some() && !to.contains("://");
            if on_nodes || to.starts_with("file://") {
                terminal::message(format!("note: `{to}` is on the nodes and is not fetched"));
                // The same applies to the other tasks of this output.
                break;
            }
            let reserved = match output.existing {
                ExistingPolicy::Overwrite => None,
                // A viewer of the job may lack access to these files.
                ExistingPolicy::Fail | ExistingPolicy::Number => {
                    match reservations.read(&to, deadline).await {
                        Ok(reserved) => reserved,
                        Err(error) if error.is_denied() => {
                            terminal::message(format!(
                                "note: reading `{to}`: only the job's owner can see whether the output \
                                 was written to a numbered directory instead"
                            ));
                            None
                        }
                        Err(error) => return Err(data_error_report(error)),
                    }
                }
            };
            let to = reserved.unwrap_or(to);
            let listed = list_source(to.trim_end_matches('/'), file_systems, deadline).await?;
            if !listed.there && over {
                terminal::message(format!(
                    "note: output `{}` is missing: nothing at `{to}`",
                    output.from
                ));
            }
            let tail = tail_of(&output.to, &to);
            for file in listed.files {
                if file.name.split('/').any(is_temporary) || !seen.insert(file.url.clone()) {
                    continue;
                }
                let own = match listed.single {
                    true => String::new(),
                    false => format!("/{}", file.name),
                };
                let name = format!("outputs/{name}{tail}{own}");
                items.push(fetch_item(name, dest, file)?);
            }
        }
    }
    Ok(items)
}

fn data_error_report(error: DataError) -> Report {
    let report = Report::internal(error.what);
    match error.hint {
        Some(hint) => report.hint(hint),
        None => report,
    }
}

/// Returns the largest size that each role has had, as far as it is known. Roles may have been scaled.
async fn sizes(job: &JobHandle) -> BTreeMap<RoleName, u32> {
    let mut sizes = BTreeMap::new();
    let mut record_size = |role: &RoleName, instances: u32| {
        let max = sizes.entry(role.clone()).or_insert(0);
        *max = instances.max(*max);
    };
    for event in recorded_history(job, 0) {
        if let Some((role, instances)) = size_in(&event.kind) {
            record_size(role, instances);
        }
    }
    let snapshot = match settled_status(job).await {
        JobStatus::Finished(snapshot) => Some(*snapshot),
        JobStatus::Running(address) => match MasterClient::to(&job.dir, &address) {
            // Without a token for the master, the recorded size counts.
            Ok(master) => master.view(0, VIEW_MAX).await.ok().flatten(),
            Err(_) => None,
        },
        JobStatus::Starting | JobStatus::Lost | JobStatus::NoResult(_) => None,
    };
    for role in snapshot.iter().flat_map(|snapshot| &snapshot.view.roles) {
        record_size(&role.role, role.instances);
    }
    sizes
}

/// Returns the number of tasks that a role has at least had according to an event. Tasks that were stopped on request have
/// an index and are no part of the role's size.
fn size_in(kind: &HistoryKind) -> Option<(&RoleName, u32)> {
    match kind {
        HistoryKind::RoleScaled { role, to, .. } => Some((role, *to)),
        HistoryKind::AttemptStarted { task, .. } => Some((&task.role, task.index + 1)),
        _ => None,
    }
}

/// Returns the job's log of reserved destinations.
async fn reservations(
    job: &JobHandle,
    file_systems: Option<&FileSystems>,
    deadline: Instant,
) -> Result<ReservationLog, Report> {
    match &job.submitted.target {
        JobTarget::Yarn(staged) if file_systems.is_some() => {
            let dir = JobLayout::at(staged.dir.clone()).reservations();
            Ok(ReservationLog::new(store_of(&dir, file_systems, deadline).await?, dir))
        }
        _ => Ok(ReservationLog::local(&job.dir.reservations())),
    }
}

fn fetch_item(name: String, dest: &Path, file: ListedFile) -> Result<FetchItem, Report> {
    let escapes = || Report::internal(format!("`{name}` is a path outside of the destination"));
    let item = DownloadItem {
        to: below(dest, &name).ok_or_else(escapes)?,
        url: file.url,
        bytes: file.bytes,
        modified_ms: file.modified_ms,
    };
    Ok(FetchItem { name, item })
}

/// Returns the last component of a destination before its first variable.
fn root_of(to: &str) -> String {
    let parts = to.trim_end_matches('/').split('/');
    let fixed: Vec<&str> = parts.take_while(|part| !part.contains('{')).collect();
    match fixed.last() {
        Some(last) if !last.is_empty() && !last.ends_with(':') => (*last).to_owned(),
        _ => "out".to_owned(),
    }
}

/// Returns the components of the expanded destination from the first variable on, each after a `/`.
fn tail_of(to: &str, expanded: &str) -> String {
    let parts = to.trim_end_matches('/').split('/');
    let tail_length = parts.skip_while(|part| !part.contains('{')).count();
    let expanded: Vec<&str> = expanded.trim_end_matches('/').split('/').collect();
    let tail = &expanded[expanded.len().saturating_sub(tail_length)..];
    tail.iter().map(|part| format!("/{part}")).collect()
}

/// Lists the tasks' logs.
async fn logs(
    job: &JobHandle,
    mirror: Option<&Arc<Mirror>>,
    dest: &Path,
    pattern: &str,
) -> Result<Vec<FetchItem>, Report> {
    let literal = pattern.split(['*', '?']).next().unwrap_or_default();
    if !"logs/".starts_with(literal) && !literal.starts_with("logs/") {
        return Ok(Vec::new());
    }
    if let Some(mirror) = mirror {
        // Without a token for the master, only HDFS is read.
        let master = match settled_status(job).await {
            JobStatus::Running(address) => MasterClient::to(&job.dir, &address).ok(),
            _ => None,
        };
        let master = master.map(|master| master.client());
        for failure in mirror.copy_logs(&CopySelection::default(), master).await {
            terminal::message(format!("note: {failure}"));
        }
    }
    let root = job.dir.logs();
    let listed = list_source(&root.to_string_lossy(), None, Instant::now() + LIST_MAX).await?;
    let files = listed.files.into_iter();
    files.map(|file| fetch_item(format!("logs/{}", file.name), dest, file)).collect()
}

async fn download(
    items: Vec<FetchItem>,
    file_systems: Option<FileSystems>,
    global: GlobalArgs,
    dest: &Path,
) -> Result<Exit, Report> {
    let files = items.len();
    let downloads: Vec<DownloadItem> = items.into_iter().map(|item| item.item).collect();
    let bytes: u64 = downloads.iter().map(|item| item.bytes).sum();
    let progress = Arc::new(Progress::default());
    let downloader = Downloader::new(
        file_systems,
        LocalMode::Copy,
        progress.clone(),
        Instant::now() + FETCH_MAX,
    );
    let mut download = std::pin::pin!(downloader.all(downloads));
    let shows_progress = io::stderr().is_terminal() && !global.json;
    let mut frame = interval(FRAME);
    frame.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let result = loop {
        tokio::select! {
            result = &mut download => break result,
            _ = frame.tick() => if shows_progress {
                let (done, all) = progress.bytes();
                let text = format!("\r\x1b[Kfetching {} of {}", counted_bytes(done), counted_bytes(all));
                // A closed terminal shows no progress.
                let _ = io::stderr().lock().write_all(text.as_bytes());
            },
        }
    };
    if shows_progress {
        let _ = io::stderr().lock().write_all(b"\r\x1b[K");
    }
    result.map_err(|error| match (&error.hint, error.is_transient()) {
        (Some(_), _) => data_error_report(error),
        (None, true) => data_error_report(error)
            .hint("run the same command again: it continues where this one stopped"),
        // An error of the local disk, or a file that was removed.
        (None, false) => data_error_report(error).hint(
            "resolve this and run the same command again: it continues where this one stopped",
        ),
    })?;
    match global.json {
        true => terminal::print_json(&serde_json::json!({
            "files": files, "bytes": bytes, "directory": dest,
        }))?,
        false => terminal::message(format!(
            "{} with {} {} in `{}`",
            if files == 1 { "1 file".to_owned() } else { format!("{files} files") },
            counted_bytes(bytes),
            if files == 1 { "is" } else { "are" },
            dest.display()
        )),
    }
    Ok(Exit::Success)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ydl_core::{ContainerId, NodeName, TaskId};

    #[test]
    fn tasks_beyond_the_size_of_their_role_are_fetched() {
        let role = RoleName::from("worker");
        let scaled = HistoryKind::RoleScaled { role: role.clone(), from: 3, to: 4, reason: None };
        assert_eq!(size_in(&scaled), Some((&role, 4)));
        // `worker:1` was stopped before.
        let started = HistoryKind::AttemptStarted {
            task: TaskId { role: role.clone(), index: 4 },
            attempt: 1,
            round: 1,
            container: ContainerId::from("c5"),
            node: NodeName::from("n1"),
        };
        assert_eq!(size_in(&started), Some((&role, 5)));
    }

    #[test]
    fn fetched_files_are_named_after_the_end_of_their_destination() {
        for (to, expanded, root, tail) in [
            ("out", "out", "out", ""),
            ("hdfs:///user/me/model/", "hdfs:///user/me/model/", "model", ""),
            ("a/out/{index}", "hdfs://nn/user/me/a/out/3", "out", "/3"),
            ("/r/{role}-{index}/m", "/r/worker-0/m", "r", "/worker-0/m"),
            ("hdfs:///{job}/m", "hdfs:///j1/m", "out", "/j1/m"),
        ] {
            assert_eq!(root_of(to), root, "{to}");
            assert_eq!(tail_of(to, expanded), tail, "{to}");
        }
    }
}
