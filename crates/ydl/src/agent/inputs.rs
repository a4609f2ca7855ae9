//! Fetches a task's inputs into its container before its program starts.
//!
//! A runtime with its own threads fetches them, so that the agent's heartbeat continues. Files are stored in the
//! container's `inputs`, with links in the program's directory; a restarted program reuses them.

use super::shipping::file_systems_of_job;
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};
use ydl_core::{
    TaskId,
    spec::{InputForm, Memory},
};
use ydl_proto::files::{JobDir, SubmittedJob};
use ydl_proto::usage::DownloadProgress;
use ydl_storage::data::{DataError, DownloadItem, Downloader, Listing, LocalMode, Progress, below};

/// Threads that read and compare checksums: more would slow down the node's other tasks.
const FETCH_THREADS: usize = 3;
/// Share of a disk that stays free if the job sets no limit: a twentieth.
const FREE_SHARE: u64 = 20;

/// Inputs being fetched. Dropping it cancels the fetch.
#[derive(Debug)]
pub(super) struct InputFetch {
    pub(super) task: TaskId,
    progress: Arc<Progress>,
    done: oneshot::Receiver<Result<(), DataError>>,
    /// The thread ends when this is dropped.
    _cancel: oneshot::Sender<()>,
}

/// Layout of a task's inputs on this node.
#[derive(Debug, Default)]
pub(super) struct InputPlan {
    items: Vec<DownloadItem>,
    local_mode: LocalMode,
    /// Directories to create even if they stay empty.
    dirs: Vec<PathBuf>,
    /// Files that list the paths of an input's files.
    lists: Vec<(PathBuf, String)>,
    /// Links in the program's directory: name and target.
    links: Vec<(String, PathBuf)>,
    /// Environment variables for the program.
    pub(super) variables: BTreeMap<String, String>,
}

impl InputPlan {
    /// Plans the inputs of a task in the container's directory `dir`.
    pub(super) fn of(
        submitted: &SubmittedJob,
        job: &JobDir,
        dir: &Path,
        task: &TaskId,
    ) -> Result<InputPlan, String> {
        let mut plan = InputPlan::default();
        // A container of an image on this machine cannot see files outside its mounts.
        if submitted.spec.image_of(&task.role).is_some() {
            plan.local_mode = LocalMode::Copy;
        }
        if submitted.spec.inputs.is_empty() {
            return Ok(plan);
        }
        let file = job.inputs_file();
        let listing =
            Listing::read(&file).map_err(|e| format!("cannot read `{}`: {e}", file.display()))?;
        if listing.inputs.len() != submitted.spec.inputs.len() {
            return Err(format!("`{}` does not hold the job's inputs", file.display()));
        }
        for (input, listed, files) in listing.of_task(&submitted.spec, task) {
            if files.is_empty() && !input.allow_empty {
                return Err(format!("no file of the input `{}` is left for this task", input.name));
            }
            let path = match input.form {
                InputForm::Copy | InputForm::Split => {
                    let root = dir.join("inputs").join(&input.name);
                    for file in files {
                        let to = match listed.single {
                            true => root.clone(),
                            false => below(&root, &file.name).ok_or_else(|| {
                                format!("`{}` cannot be the name of an input's file", file.name)
                            })?,
                        };
                        plan.items.push(DownloadItem {
                            url: file.url.clone(),
                            to,
                            bytes: file.bytes,
                            modified_ms: file.modified_ms,
                        });
                    }
                    if !listed.single {
                        plan.dirs.push(root.clone());
                    }
                    plan.links.push((input.name.clone(), root.clone()));
                    root
                }
                InputForm::List | InputForm::SplitList => {
                    let list_file = dir.join("lists").join(&input.name);
                    let lines = files.iter().map(|file| format!("{}\n", file.url));
                    plan.lists.push((list_file.clone(), lines.collect()));
                    list_file
                }
            };
            let path = path.to_string_lossy().into_owned();
            plan.variables.insert(input.env_variable(), path);
        }
        Ok(plan)
    }

    /// Returns true if there is nothing to fetch.
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty() && self.dirs.is_empty() && self.lists.is_empty()
    }

    /// Creates the links in the program's directory.
    pub(super) fn link(&self, work: &Path) -> io::Result<()> {
        fs::create_dir_all(work)?;
        for (name, target) in &self.links {
            match std::os::unix::fs::symlink(target, work.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                // It exists from an earlier round, or the program has replaced it.
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    fn bytes_missing(&self) -> u64 {
        let length_of =
            |path: &Path| fs::symlink_metadata(path).map(|metadata| metadata.len()).ok();
        let missing = |item: &DownloadItem| {
            let is_link = self.local_mode == LocalMode::Link && !item.url.contains("://");
            if is_link || length_of(&item.to) == Some(item.bytes) {
                return 0;
            }
            // Partial downloads already occupy their space.
            item.bytes.saturating_sub(length_of(&item.part()).unwrap_or_default())
        };
        self.items.iter().map(missing).sum()
    }

    /// Checks that the disk has space for the remaining data.
    fn check_space(&self, dir: &Path, limit_mib: Option<u64>) -> Result<(), DataError> {
        let needed = self.bytes_missing();
        let write_error = |error: io::Error| DataError::local_write(dir, &error);
        let statistics = rustix::fs::statvfs(dir).map_err(|error| write_error(error.into()))?;
        let free = statistics.f_bavail.saturating_mul(statistics.f_frsize);
        let (space, limit) = match limit_mib {
            Some(mib) => (free.min(mib << 20), mib << 20 < free),
            None => (free - free / FREE_SHARE, false),
        };
        if needed <= space {
            return Ok(());
        }
        let format_size = |bytes: u64| Memory(bytes.div_ceil(1 << 20));
        let what = match limit {
            true => format!(
                "its inputs need {}, and `disk` allows {}",
                format_size(needed),
                format_size(space)
            ),
            false => format!(
                "its inputs need {}, and `{}` has {} free",
                format_size(needed),
                dir.display(),
                format_size(free)
            ),
        };
        Err(DataError::of_this_node(what))
    }

    fn write_lists(&self) -> Result<(), DataError> {
        for dir in &self.dirs {
            fs::create_dir_all(dir).map_err(|error| DataError::local_write(dir, &error))?;
        }
        for (path, text) in &self.lists {
            let write_error = |error: io::Error| DataError::local_write(path, &error);
            if let Some(dir) = path.parent() {
                fs::create_dir_all(dir).map_err(write_error)?;
            }
            fs::write(path, text).map_err(write_error)?;
        }
        Ok(())
    }
}

impl InputFetch {
    /// Fetches all inputs of a plan in a thread of its own.
    pub(super) fn start(
        plan: InputPlan,
        submitted: &SubmittedJob,
        job: &JobDir,
        dir: &Path,
        task: TaskId,
    ) -> io::Result<InputFetch> {
        let (done, result) = oneshot::channel();
        let (cancel, cancelled) = oneshot::channel::<()>();
        let progress = Arc::new(Progress::default());
        let (own, job, dir) = (progress.clone(), job.clone(), dir.to_owned());
        let limit = submitted.spec.disk_mib;
        let timeout = Duration::from_millis(submitted.spec.timeouts.fetch.0);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(FETCH_THREADS)
            .enable_all()
            .build()?;
        let thread = thread::Builder::new().name("fetch".into());
        thread.spawn(move || {
            let fetched = runtime.block_on(async {
                tokio::select! {
                    fetched = fetch(plan, own, &job, &dir, limit, timeout) => Some(fetched),
                    _ = cancelled => None,
                }
            });
            runtime.shutdown_background();
            if let Some(fetched) = fetched {
                // The receiver is gone if the agent was given another order.
                let _ = done.send(fetched);
            }
        })?;
        Ok(InputFetch { task, progress, done: result, _cancel: cancel })
    }

    /// Waits until the fetch succeeds or fails. Cancel-safe until it returns.
    pub(super) async fn wait(&mut self) -> Result<(), DataError> {
        match (&mut self.done).await {
            Ok(fetched) => fetched,
            Err(_) => Err(DataError::of_this_node("fetching its inputs failed")),
        }
    }

    pub(super) fn progress(&self) -> DownloadProgress {
        let (bytes, total) = self.progress.bytes();
        DownloadProgress { bytes, total }
    }
}

async fn fetch(
    plan: InputPlan,
    progress: Arc<Progress>,
    job: &JobDir,
    dir: &Path,
    limit_mib: Option<u64>,
    timeout: Duration,
) -> Result<(), DataError> {
    plan.check_space(dir, limit_mib)?;
    plan.write_lists()?;
    let has_remote = plan.items.iter().any(|item| item.url.contains("://"));
    let file_systems = match has_remote {
        true => Some(file_systems_of_job(job)?),
        false => None,
    };
    let deadline = Instant::now() + timeout;
    let downloader = Downloader::new(file_systems, plan.local_mode, progress, deadline);
    match timeout_at(deadline, downloader.all(plan.items)).await {
        Ok(fetched) => fetched,
        Err(_) => {
            let within = ydl_core::Span(timeout.as_millis() as u64);
            let what = format!("fetching its inputs timed out after {within} (`timeouts.fetch`)");
            Err(DataError::of_this_node(what))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_a_node_error_that_names_required_and_free_space() {
        let dir = tempfile::tempdir().unwrap();
        let plan = |bytes: u64| InputPlan {
            items: vec![DownloadItem {
                url: "hdfs://nn/a".into(),
                to: dir.path().join("a"),
                bytes,
                modified_ms: 5,
            }],
            ..InputPlan::default()
        };
        let space = |bytes, limit| plan(bytes).check_space(dir.path(), limit);
        assert_eq!(space(2 << 20, Some(2)), Ok(()));
        let error = space(3 << 20, Some(2)).unwrap_err();
        assert_eq!(error.what, "its inputs need 3 MiB, and `disk` allows 2 MiB");
        assert!(error.of_node);
        let error = space(1 << 60, None).unwrap_err();
        assert!(error.what.starts_with("its inputs need "), "{error:?}");
        assert!(error.what.ends_with(" free"), "{error:?}");
        // Existing data needs no more space.
        fs::write(dir.path().join("a"), [0; 4096]).unwrap();
        assert_eq!(space(4096, Some(0)), Ok(()));
        let part = plan(3 << 20).items[0].part();
        fs::File::create(part).unwrap().set_len(1 << 20).unwrap();
        assert_eq!(space(3 << 20, Some(2)), Ok(()));
    }
}
