//! Container logs aggregated by YARN: the only ones of containers that failed before their agent started.

use crate::{
    cli::GlobalArgs,
    client::cluster::ClusterClient,
    terminal::{self, LinePrefixer},
};
use std::{io, time::Duration};
use tokio::time::{Instant, sleep};
use yarn_native::{
    logs::{LogEntry, LogFile, Source},
    types::{ApplicationReport, LogState},
};
use ydl_os::report::{Exit, Report};
use ydl_storage::hdfs::{Hdfs, Reader};

/// Maximum wait for log aggregation, which begins when an application ends.
const AGGREGATION_MAX: Duration = Duration::from_secs(20);
/// Poll interval of log aggregation.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum time for one call to HDFS.
const CALL_MAX: Duration = Duration::from_secs(30);
/// Bytes printed from the end of each file.
const TAIL_BYTES: u64 = 1 << 20;
/// Files that NodeManagers write themselves, without output of the program.
const SKIPPED_FILES: [&str; 3] = ["prelaunch.out", "launch_container.sh", "directory.info"];

/// Prints all aggregated logs.
pub(crate) async fn print(
    cluster: &ClusterClient,
    report: &ApplicationReport,
    global: GlobalArgs,
) -> Result<Exit, Report> {
    let id = report.id.to_string();
    if !report.state.is_over() {
        terminal::message(format!("{id} has no output yet"));
        return Ok(Exit::Success);
    }
    let files = list_files(cluster, report).await?;
    if files.is_empty() {
        terminal::message(format!("job {id} has no logs: no task printed anything"));
        let logs = report.logs;
        if matches!(logs, Some(LogState::Disabled) | None) {
            terminal::message(
                "hint: log aggregation is off on this cluster; the logs may still be on the nodes",
            );
        }
        return Ok(Exit::Success);
    }
    for (name, reader) in files {
        if let Err(why) = print_file(AggregatedFile(reader), global).await? {
            terminal::message(format!("note: cannot read `{name}`: {why}"));
        }
    }
    Ok(Exit::Success)
}

/// Lists the files of all nodes once the cluster has finished aggregating them.
async fn list_files(
    cluster: &ClusterClient,
    report: &ApplicationReport,
) -> Result<Vec<(String, Reader)>, Report> {
    let end = Instant::now() + AGGREGATION_MAX;
    let deadline = || Instant::now() + CALL_MAX;
    let directories = cluster
        .config
        .log_directories(&report.user, &report.id.to_string())
        .map_err(|error| Report::bad_input(error.to_string()))?;
    let hdfs = Hdfs::connect(&cluster.config, None, &cluster.identity, deadline()).await?;
    loop {
        let current = cluster.rm.application(report.id, deadline()).await;
        let state = current.ok().and_then(|report| report.logs);
        let is_running = matches!(
            state,
            Some(LogState::NotStarted | LogState::Running | LogState::RunningWithFailure)
        );
        if !is_running || Instant::now() > end {
            break;
        }
        sleep(POLL_INTERVAL).await;
    }
    let mut files = Vec::new();
    let mut list_error = None;
    for directory in directories {
        // Most of these directories do not exist: Hadoop versions lay them out differently.
        let entries = match hdfs.list(&directory, deadline()).await {
            Ok(entries) => entries,
            Err(error) => {
                list_error = Some(error);
                continue;
            }
        };
        for entry in entries {
            if entry.directory || entry.name().ends_with(".tmp") {
                continue;
            }
            files.push((entry.url.clone(), hdfs.open(&entry.url, deadline()).await?));
        }
    }
    match list_error {
        // A directory that cannot be listed may hold logs.
        Some(error) if files.is_empty() => Err(error.into()),
        _ => Ok(files),
    }
}

/// Aggregated log file in HDFS.
struct AggregatedFile(Reader);

impl Source for AggregatedFile {
    fn length(&self) -> u64 {
        self.0.length()
    }

    async fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let read = self.0.read_at(offset, length, Instant::now() + CALL_MAX);
        let bytes = read.await.map_err(io::Error::other)?;
        Ok(bytes.to_vec())
    }
}

/// Prints one node's file. The inner error means that the file is unreadable or corrupt.
async fn print_file(
    source: AggregatedFile,
    global: GlobalArgs,
) -> Result<Result<(), String>, Report> {
    let mut file = match LogFile::open(source).await {
        Ok(file) => file,
        Err(error) => return Ok(Err(error.to_string())),
    };
    loop {
        let entry = match file.next().await {
            Ok(Some(entry)) => entry,
            Ok(None) => return Ok(Ok(())),
            Err(error) => return Ok(Err(error.to_string())),
        };
        if entry.length == 0 || SKIPPED_FILES.contains(&entry.file.as_str()) {
            continue;
        }
        if let Err(error) = file.skip(entry.length.saturating_sub(TAIL_BYTES)).await {
            return Ok(Err(error.to_string()));
        }
        let mut lines = LinePrefixer::new(format!("{}/{}", entry.container, entry.file));
        let mut out = Vec::new();
        loop {
            match file.piece().await {
                Ok(Some(piece)) => match global.json {
                    true => out.extend(piece),
                    false => lines.push(&piece, &mut out),
                },
                Ok(None) => break,
                Err(error) => return Ok(Err(error.to_string())),
            }
        }
        if global.json {
            print_objects(&entry, &out)?;
        } else {
            lines.finish(&mut out);
            terminal::print(out)?;
        }
    }
}

fn print_objects(entry: &LogEntry, text: &[u8]) -> Result<(), Report> {
    for line in String::from_utf8_lossy(text).lines() {
        terminal::print_json(&serde_json::json!({ "output": {
            "container": entry.container, "file": entry.file, "line": line,
        }}))?;
    }
    Ok(())
}
