//! A task's inputs come into its container before its program starts.
//!
//! A thread of its own brings them, with as many hands as it needs: the agent goes on beating meanwhile. Files lie in
//! the container's `inputs`, and the program's directory leads there; a program that starts again finds what it had.

use super::shipping::of_job;
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
use ydl_proto::files::{JobDir, Submitted};
use ydl_proto::usage::Fetching;
use ydl_storage::data::{Bring, Item, Listing, Near, Progress, Trouble, below};

/// Threads that read and compare checksums: more would be taken from the other tasks of the node.
const FETCH_THREADS: usize = 3;
/// What stays free of a disk where the job sets no limit of its own: a twentieth.
const FREE_SHARE: u64 = 20;

/// Inputs on their way. Dropped, nothing more comes.
#[derive(Debug)]
pub(super) struct InputFetch {
    pub(super) task: TaskId,
    progress: Arc<Progress>,
    done: oneshot::Receiver<Result<(), Trouble>>,
    /// The thread ends when this is gone.
    _held: oneshot::Sender<()>,
}

/// What a task gets, laid out on this node.
#[derive(Debug, Default)]
pub(super) struct InputPlan {
    items: Vec<Item>,
    near: Near,
    /// Directories that are there even if nothing is in them.
    dirs: Vec<PathBuf>,
    /// Files with the paths of an input's files.
    lists: Vec<(PathBuf, String)>,
    /// What is called how in the program's directory.
    links: Vec<(String, PathBuf)>,
    /// The program's variables.
    pub(super) variables: BTreeMap<String, String>,
}

impl InputPlan {
    /// What is this task's, in the container's directory `dir`.
    pub(super) fn of(
        submitted: &Submitted,
        job: &JobDir,
        dir: &Path,
        task: &TaskId,
    ) -> Result<InputPlan, String> {
        let mut plan = InputPlan::default();
        // A container of an image on this machine sees nothing of what is elsewhere on it.
        if submitted.spec.image_of(&task.role).is_some() {
            plan.near = Near::Copy;
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
                return Err(format!("there is no file of the input `{}` left for it", input.name));
            }
            let place = match input.form {
                InputForm::Copy | InputForm::Split => {
                    let root = dir.join("inputs").join(&input.name);
                    for file in files {
                        let to = match listed.single {
                            true => root.clone(),
                            false => below(&root, &file.name).ok_or_else(|| {
                                format!("`{}` cannot be the name of an input's file", file.name)
                            })?,
                        };
                        plan.items.push(Item {
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
                    let path = dir.join("lists").join(&input.name);
                    let lines = files.iter().map(|file| format!("{}\n", file.url));
                    plan.lists.push((path.clone(), lines.collect()));
                    path
                }
            };
            let place = place.to_string_lossy().into_owned();
            plan.variables.insert(input.env_variable(), place);
        }
        Ok(plan)
    }

    /// Whether anything must come.
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty() && self.dirs.is_empty() && self.lists.is_empty()
    }

    /// What the program finds in its directory.
    pub(super) fn link(&self, work: &Path) -> io::Result<()> {
        fs::create_dir_all(work)?;
        for (name, place) in &self.links {
            match std::os::unix::fs::symlink(place, work.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                // It is there from an earlier round, or the program has put something in its place.
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    fn bytes_missing(&self) -> u64 {
        let length = |path: &Path| fs::symlink_metadata(path).map(|about| about.len()).ok();
        let missing = |item: &Item| {
            let is_link = self.near == Near::Link && !item.url.contains("://");
            if is_link || length(&item.to) == Some(item.bytes) {
                return 0;
            }
            // What has come of it already has its room.
            item.bytes.saturating_sub(length(&item.part()).unwrap_or_default())
        };
        self.items.iter().map(missing).sum()
    }

    /// Whether there is room for what must come.
    fn check_room(&self, dir: &Path, limit_mib: Option<u64>) -> Result<(), Trouble> {
        let needed = self.bytes_missing();
        let here = |error: io::Error| Trouble::here(dir, &error);
        let about = rustix::fs::statvfs(dir).map_err(|error| here(error.into()))?;
        let free = about.f_bavail.saturating_mul(about.f_frsize);
        let (room, limit) = match limit_mib {
            Some(mib) => (free.min(mib << 20), mib << 20 < free),
            None => (free - free / FREE_SHARE, false),
        };
        if needed <= room {
            return Ok(());
        }
        let text = |bytes: u64| Memory(bytes.div_ceil(1 << 20));
        let what = match limit {
            true => format!("its inputs need {}, and `disk` allows {}", text(needed), text(room)),
            false => format!(
                "its inputs need {}, and `{}` has {} free",
                text(needed),
                dir.display(),
                text(free)
            ),
        };
        Err(Trouble::of_node(what))
    }

    fn write_lists(&self) -> Result<(), Trouble> {
        for dir in &self.dirs {
            fs::create_dir_all(dir).map_err(|error| Trouble::here(dir, &error))?;
        }
        for (path, text) in &self.lists {
            let here = |error: io::Error| Trouble::here(path, &error);
            if let Some(dir) = path.parent() {
                fs::create_dir_all(dir).map_err(here)?;
            }
            fs::write(path, text).map_err(here)?;
        }
        Ok(())
    }
}

impl InputFetch {
    /// Brings all of a plan, in a thread of its own.
    pub(super) fn start(
        plan: InputPlan,
        submitted: &Submitted,
        job: &JobDir,
        dir: &Path,
        task: TaskId,
    ) -> io::Result<InputFetch> {
        let (done, told) = oneshot::channel();
        let (held, dropped) = oneshot::channel::<()>();
        let progress = Arc::new(Progress::default());
        let (own, job, dir) = (progress.clone(), job.clone(), dir.to_owned());
        let limit = submitted.spec.disk_mib;
        let patience = Duration::from_millis(submitted.spec.timeouts.fetch.0);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(FETCH_THREADS)
            .enable_all()
            .build()?;
        let thread = thread::Builder::new().name("fetch".into());
        thread.spawn(move || {
            let brought = runtime.block_on(async {
                tokio::select! {
                    brought = bring(plan, own, &job, &dir, limit, patience) => Some(brought),
                    _ = dropped => None,
                }
            });
            runtime.shutdown_background();
            if let Some(brought) = brought {
                // Nobody listens when the agent has something else to do.
                let _ = done.send(brought);
            }
        })?;
        Ok(InputFetch { task, progress, done: told, _held: held })
    }

    /// Waits until all of it is there, or cannot be had. May be dropped and asked again until it has answered.
    pub(super) async fn wait(&mut self) -> Result<(), Trouble> {
        match (&mut self.done).await {
            Ok(brought) => brought,
            Err(_) => Err(Trouble::of_node("bringing its inputs failed")),
        }
    }

    pub(super) fn so_far(&self) -> Fetching {
        let (bytes, of) = self.progress.so_far();
        Fetching { bytes, of }
    }
}

async fn bring(
    plan: InputPlan,
    progress: Arc<Progress>,
    job: &JobDir,
    dir: &Path,
    limit_mib: Option<u64>,
    patience: Duration,
) -> Result<(), Trouble> {
    plan.check_room(dir, limit_mib)?;
    plan.write_lists()?;
    let far = plan.items.iter().any(|item| item.url.contains("://"));
    let ways = match far {
        true => Some(of_job(job)?),
        false => None,
    };
    let deadline = Instant::now() + patience;
    let bring = Bring::new(ways, plan.near, progress, deadline);
    match timeout_at(deadline, bring.all(plan.items)).await {
        Ok(brought) => brought,
        Err(_) => {
            let within = ydl_core::Span(patience.as_millis() as u64);
            let what = format!("its inputs did not come within {within} (`timeouts.fetch`)");
            Err(Trouble::of_node(what))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_that_a_disk_has_no_room_for_are_the_nodes_trouble_and_named_with_both_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let plan = |bytes: u64| InputPlan {
            items: vec![Item {
                url: "hdfs://nn/a".into(),
                to: dir.path().join("a"),
                bytes,
                modified_ms: 5,
            }],
            ..InputPlan::default()
        };
        let room = |bytes, limit| plan(bytes).check_room(dir.path(), limit);
        assert_eq!(room(2 << 20, Some(2)), Ok(()));
        let trouble = room(3 << 20, Some(2)).unwrap_err();
        assert_eq!(trouble.what, "its inputs need 3 MiB, and `disk` allows 2 MiB");
        assert!(trouble.of_node);
        let trouble = room(1 << 60, None).unwrap_err();
        assert!(trouble.what.starts_with("its inputs need "), "{trouble:?}");
        assert!(trouble.what.ends_with(" free"), "{trouble:?}");
        // What is there already needs no more room.
        fs::write(dir.path().join("a"), [0; 4096]).unwrap();
        assert_eq!(room(4096, Some(0)), Ok(()));
        let part = plan(3 << 20).items[0].part();
        fs::File::create(part).unwrap().set_len(1 << 20).unwrap();
        assert_eq!(room(3 << 20, Some(2)), Ok(()));
    }
}
