//! Task runtime environment: directory, files, variables, logs.

use super::{
    bootstrap::{Bootstrap, MASTER_FILE, PROGRAM_CREDENTIALS, PROGRAM_TOKEN},
    devices::Devices,
    environment::{Activation, brought, compose, prefix},
    exec::PATH_DEFAULT,
    inputs::{InputFetch, InputPlan},
    network::interface_of,
    output::{OutputSpec, Rotation},
    outputs::{ReservationStore, Reservations},
    program::ProgramSpec,
};
use crate::{
    docker::{self, Container, Engine},
    gpus,
};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};
use ydl_core::{
    Framework, Run, Span, TaskId,
    framework::ProcessContext,
    spec::{Environment, ExistingPolicy, Image, Output, RoleSpec},
};
use ydl_os::env;
use ydl_proto::files::{JobDir, JobTarget, SubmittedJob};
use ydl_storage::hdfs::JobLayout;

/// Linux limits a variable to 128 KiB; a larger cluster description is passed in a file only.
const CLUSTER_BYTES_MAX: usize = 100 << 10;

/// Directories of one container.
#[derive(Debug)]
pub(super) struct TaskEnv {
    dir: PathBuf,
    job: JobDir,
    /// Task that ran here last, for the names of its outputs.
    task: Option<TaskId>,
}

/// Resources of the agent for the program it is about to start.
#[derive(Debug)]
pub(super) struct LaunchContext<'a> {
    /// Port of the rendezvous listener.
    pub(super) rendezvous_port: Option<u16>,
    /// Reserved ports.
    pub(super) ports: BTreeMap<String, u16>,
    /// Variables set by the master.
    pub(super) program_env: &'a BTreeMap<String, String>,
}

impl TaskEnv {
    pub(super) fn new(dir: PathBuf, job: JobDir) -> TaskEnv {
        TaskEnv { dir, job, task: None }
    }

    pub(super) fn job(&self) -> &JobDir {
        &self.job
    }

    pub(super) fn work(&self) -> PathBuf {
        self.dir.join("work")
    }

    /// Prepares the environment of `run`.
    pub(super) fn prepare(
        &mut self,
        bootstrap: &Bootstrap,
        devices: &Devices,
        submitted: &SubmittedJob,
        run: &Run,
        has: &LaunchContext<'_>,
    ) -> Result<(ProgramSpec, OutputSpec), String> {
        let spec = &submitted.spec;
        let role = spec.role(&run.task.role).ok_or("the job has no such role")?;
        self.task = Some(run.task.clone());
        self.link_files(spec).map_err(|e| format!("cannot lay out the job's files: {e}"))?;
        let plan = self.plan(submitted, &run.task)?;
        plan.link(&self.work()).map_err(|e| format!("cannot lay out the job's inputs: {e}"))?;
        let container = self.container(submitted, bootstrap, role, run)?;
        let mut env = self.variables(bootstrap, submitted, run)?;
        env.extend(has.program_env.clone());
        for (name, port) in &has.ports {
            let name = format!("{}{}", env::PORT_PREFIX, name.to_uppercase());
            env.insert(name, port.to_string());
        }
        let devices = devices.variables.iter();
        env.extend(devices.map(|(name, value)| ((*name).to_owned(), value.clone())));
        env.extend(plan.variables);
        // Sidecars are not framework ranks.
        let framework = match role.is_sidecar() {
            true => Framework::None,
            false => spec.framework,
        };
        let said = |name: &str| spec.env.contains_key(name) || role.env.contains_key(name);
        let own = |local| {
            let mut set_up = framework.configure(&ProcessContext {
                cluster: &run.cluster,
                task: &run.task,
                local,
                elastic: role.elastic.is_some(),
                attempt: run.attempt,
                rendezvous_port: has.rendezvous_port,
                flags: spec.cluster_flags,
            });
            let rank = run.cluster.first_process_rank(&run.task) + local;
            set_up.env.insert(env::RANK.to_owned(), rank.to_string());
            let name = env::LOCAL_RANK.to_owned();
            set_up.env.insert(name, local.to_string());
            // The user's variables take precedence.
            set_up.env.retain(|name, _| !said(name));
            set_up
        };
        let mut each: Vec<_> = (0..role.processes).map(|local| own(local).env).collect();
        let set_up = own(0);
        // Common variables are set once.
        for one in &mut each {
            one.retain(|name, value| set_up.env.get(name) != Some(value));
        }
        env.extend(set_up.env);
        env.extend(spec.env.clone());
        env.extend(role.env.clone());
        if said("PYTHONPATH") {
            self.add_modules(&mut env);
        }
        let threads = (role.resources.vcores / role.processes.max(1)).max(1);
        for name in framework.thread_variables() {
            let said = env.entry((*name).to_owned());
            said.or_insert_with(|| threads.to_string());
        }
        if let Some(interface) = interface_of(&bootstrap.host) {
            for name in framework.interface_variables() {
                let said = env.entry((*name).to_owned());
                said.or_insert_with(|| interface.clone());
            }
        }
        let mut argv = role.command.argv();
        argv.extend(set_up.arguments);
        let program = ProgramSpec {
            argv,
            env,
            each,
            cwd: self.work(),
            shim: this_program()?,
            container,
            grace: Duration::from_millis(spec.timeouts.grace.0),
        };
        let dir = self.job.attempt_logs(&run.task, run.attempt);
        Ok((program, OutputSpec { dir, rotation: Rotation::default() }))
    }

    /// Plans the inputs of a task.
    pub(super) fn plan(
        &self,
        submitted: &SubmittedJob,
        task: &TaskId,
    ) -> Result<InputPlan, String> {
        InputPlan::of(submitted, &self.job, &self.dir, task)
    }

    /// Starts the fetch of inputs.
    pub(super) fn fetch(
        &self,
        plan: InputPlan,
        submitted: &SubmittedJob,
        task: TaskId,
    ) -> io::Result<InputFetch> {
        InputFetch::start(plan, submitted, &self.job, &self.dir, task)
    }

    /// Returns the node's own variables, then the environment's, then ydl's.
    fn variables(
        &self,
        bootstrap: &Bootstrap,
        submitted: &SubmittedJob,
        run: &Run,
    ) -> Result<BTreeMap<String, String>, String> {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        // In a container the program gets the image's variables, and of this node's those about its GPUs.
        let contained = local_image(submitted, run).is_some();
        let gpus = gpus::variables(&[]).map(|(name, _)| name);
        let theirs = |name: &str| match contained {
            true => gpus.contains(&name),
            false => !name.starts_with("YDL_"),
        };
        let inherited = std::env::vars_os().filter_map(text).filter(|(name, _)| theirs(name));
        let mut all: BTreeMap<_, _> = inherited.collect();
        if !contained {
            with_path(&mut all);
        }
        if let Some(activation) = self.environment(submitted, &run.task)? {
            activation.apply(&mut all);
        }
        if let Some(own) = self.own_program().filter(|_| !contained) {
            // Appended, so that another installed `ydl` takes precedence.
            let path = all.entry("PATH".to_owned()).or_default();
            *path += &format!(":{}", own.display());
        }
        // Makes the job's own code importable from any directory.
        let work = self.work().to_string_lossy().into_owned();
        let paths = match all.get("PYTHONPATH").filter(|old| !old.is_empty()) {
            Some(old) => format!("{work}:{old}"),
            None => work,
        };
        all.insert("PYTHONPATH".to_owned(), paths);
        let credentials = self.dir.join(PROGRAM_CREDENTIALS);
        if credentials.exists() {
            let name = env::HADOOP_TOKEN_FILE_LOCATION.to_owned();
            all.insert(name, credentials.to_string_lossy().into_owned());
        }
        if let (JobTarget::Yarn(_), Some(user)) = (&submitted.target, all.get(env::USER).cloned()) {
            // Processes may belong to the NodeManager's user; the files they use belong to the job's.
            all.entry(env::HADOOP_USER_NAME.to_owned()).or_insert(user);
        }
        let path = |path: PathBuf| path.to_string_lossy().into_owned();
        let CheckpointPaths { dir: checkpoint, url } = self.checkpoint(submitted);
        fs::create_dir_all(&checkpoint)
            .map_err(|e| format!("cannot make `{}`: {e}", checkpoint.display()))?;
        let cluster = serde_json::to_string(&*run.cluster)
            .map_err(|e| format!("cannot write the cluster: {e}"))?;
        let mut set = |name: &str, value: String| {
            all.insert(name.to_owned(), value);
        };
        set(env::JOB, submitted.id.clone());
        set(env::ROLE, run.task.role.to_string());
        set(env::INDEX, run.task.index.to_string());
        set(env::ATTEMPT, run.attempt.to_string());
        set(env::ROUND, run.round.to_string());
        set(env::WORLD_SIZE, run.cluster.process_count().to_string());
        let role = run.cluster.role(run.task.role.as_str());
        let each = role.map_or(1, |member| member.processes);
        set(env::LOCAL_WORLD_SIZE, each.to_string());
        set(env::MASTER, format!("https://{}", bootstrap.master));
        let written = bootstrap.write_master_address(&self.dir);
        written.map_err(|e| format!("cannot write the master's address: {e}"))?;
        set(env::MASTER_FILE, path(self.dir.join(MASTER_FILE)));
        set(env::TOKEN_FILE, path(self.dir.join(PROGRAM_TOKEN)));
        set(env::CERTIFICATE_FILE, path(self.job.certificate_file()));
        set(env::CHECKPOINT, path(checkpoint));
        if let Some(url) = url {
            set(env::CHECKPOINT_URL, url);
        }
        set(env::BINARY, path(this_program()?));
        set(env::CONTAINER, bootstrap.container.to_string());
        let file = self.dir.join("cluster.json");
        fs::write(&file, &cluster)
            .map_err(|e| format!("cannot write `{}`: {e}", file.display()))?;
        set(env::CLUSTER_FILE, path(file));
        if cluster.len() <= CLUSTER_BYTES_MAX {
            set(env::CLUSTER, cluster);
        }
        Ok(all)
    }

    /// Keeps the job's own code importable, after the user's own paths. An empty `PYTHONPATH` stays empty.
    fn add_modules(&self, env: &mut BTreeMap<String, String>) {
        if let Some(paths) = env.get_mut("PYTHONPATH").filter(|paths| !paths.is_empty()) {
            *paths += &format!(":{}", self.work().display());
        }
    }

    /// Creates a directory that contains only `ydl`, for scripts that use the job's key-value store. Optional for
    /// programs.
    fn own_program(&self) -> Option<PathBuf> {
        let bin = self.dir.join("bin");
        let link = bin.join("ydl");
        if !link.exists() {
            fs::create_dir_all(&bin).ok()?;
            std::os::unix::fs::symlink(this_program().ok()?, &link).ok()?;
        }
        Some(bin)
    }

    /// Returns the activation of the task's Python environment.
    fn environment(
        &self,
        submitted: &SubmittedJob,
        task: &TaskId,
    ) -> Result<Option<Activation>, String> {
        let brought = brought(self.job.path());
        let environment = submitted.spec.environment_of(&task.role);
        let activation = match (environment, &submitted.target) {
            (Environment::System | Environment::Image(_), _) => return Ok(None),
            // On the machine where it was built it is used in place.
            (
                Environment::Directory(from)
                | Environment::Requirements(from)
                | Environment::Pex(from),
                JobTarget::Local(_),
            ) => Activation::of(from.path.clone().into()),
            (Environment::Archive(_), _) => Activation::of(unpacked(&brought)?),
            (
                Environment::Directory(_) | Environment::Requirements(_) | Environment::Pex(_),
                JobTarget::Yarn(_),
            ) => compose(&brought, &prefix(&self.dir))?,
        };
        Ok(Some(activation))
    }

    /// Returns the container to run the program in; on a cluster the agent itself is in it.
    fn container(
        &self,
        submitted: &SubmittedJob,
        bootstrap: &Bootstrap,
        role: &RoleSpec,
        run: &Run,
    ) -> Result<Option<Container>, String> {
        let Some(image) = local_image(submitted, run) else {
            return Ok(None);
        };
        let engine = Engine::find().ok_or("the `docker` command is gone")?;
        Ok(Some(Container {
            engine,
            name: docker::name(&submitted.id, bootstrap.container.as_str(), run.round),
            job: submitted.id.clone(),
            job_dir: self.job.path().to_owned(),
            dir: self.dir.clone(),
            binary: this_program()?,
            image: image.clone(),
            memory_mib: role.resources.memory_mib,
            gpus: role.resources.gpus > 0,
        }))
    }

    /// Links the job's files: all tasks share one copy, taken at submit.
    fn link_files(&self, spec: &ydl_core::JobSpec) -> io::Result<()> {
        let work = self.work();
        fs::create_dir_all(&work)?;
        for file in &spec.files {
            let link = work.join(&file.name);
            match std::os::unix::fs::symlink(self.job.files().join(&file.name), &link) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                // It exists from an earlier round, or the program has replaced it.
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Returns the paths of the task's checkpoint.
    pub(super) fn checkpoint(&self, submitted: &SubmittedJob) -> CheckpointPaths {
        let far = |url| CheckpointPaths { dir: self.dir.join(CHECKPOINT), url: Some(url) };
        let here = |dir| CheckpointPaths { dir, url: None };
        let said = submitted.spec.cluster_options.checkpoint.as_ref();
        let said = said.map(|to| destination(submitted, &to.replace("{job}", &submitted.id)));
        match (said, &submitted.target) {
            (Some(Destination::Local(path)), _) => here(path),
            (Some(Destination::Hdfs(url)), _) => far(url),
            (None, JobTarget::Local(_)) => here(self.job.checkpoint()),
            (None, JobTarget::Yarn(staged)) => far(JobLayout::at(staged.dir.clone()).checkpoint()),
        }
    }

    /// Returns the container's directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the outputs of this task.
    pub(super) fn outputs(&self, submitted: &SubmittedJob) -> Vec<TaskOutput> {
        let Some(task) = &self.task else {
            return Vec::new();
        };
        let Some(role) = submitted.spec.role(&task.role) else {
            return Vec::new();
        };
        let outputs = &submitted.spec.outputs;
        let own = outputs.iter().filter(|output| output.is_produced_by(role, task.index));
        let leaving = |output: &Output| {
            let to = destination(submitted, &output.destination(Some(&submitted.id), task));
            let existing = match (&submitted.target, &to) {
                // Local disks of cluster nodes are not checked at submit.
                (JobTarget::Yarn(_), Destination::Local(_)) => ExistingPolicy::Overwrite,
                _ => output.existing,
            };
            TaskOutput {
                from: output.from.clone(),
                to,
                existing,
                every: output.every,
                shared: submitted.spec.has_shared_destination(output, task),
            }
        };
        own.map(leaving).collect()
    }

    /// Returns the task's reservations of destinations.
    pub(super) fn claims(&self, submitted: &SubmittedJob) -> Reservations {
        let ledger = match &submitted.target {
            JobTarget::Local(_) => ReservationStore::Local(self.job.reservations()),
            JobTarget::Yarn(staged) => {
                ReservationStore::Hdfs(JobLayout::at(staged.dir.clone()).reservations())
            }
        };
        Reservations {
            ledger,
            job: submitted.id.clone(),
            task: self.task.as_ref().map(TaskId::to_string).unwrap_or_default(),
        }
    }

    /// Returns an identifier of the last task, unique among all tasks of all jobs.
    pub(super) fn whose(&self, submitted: &SubmittedJob) -> String {
        let task = self.task.as_ref();
        let task = task.map(|task| format!("-{}={}", task.role, task.index));
        format!("{}{}", submitted.id, task.unwrap_or_default())
    }

    /// Returns the local log directory of an attempt.
    pub(super) fn logs(&self, task: &TaskId, attempt: u32) -> PathBuf {
        self.job.attempt_logs(task, attempt)
    }
}

/// Returns the image of a task on this machine.
fn local_image<'a>(submitted: &'a SubmittedJob, run: &Run) -> Option<&'a Image> {
    match submitted.target {
        JobTarget::Local(_) => submitted.spec.image_of(&run.task.role),
        JobTarget::Yarn(_) => None,
    }
}

/// Sets the default `PATH` if it is empty: a prefix or suffix alone would hide the system's programs.
fn with_path(all: &mut BTreeMap<String, String>) {
    let path = all.entry("PATH".to_owned()).or_default();
    if path.is_empty() {
        *path = PATH_DEFAULT.to_owned();
    }
}

fn this_program() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|e| format!("cannot find ydl itself: {e}"))
}

/// Name of the checkpoint directory in a container's directory.
pub(super) const CHECKPOINT: &str = "checkpoint";

/// Location of checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CheckpointPaths {
    /// Directory of the program.
    pub(super) dir: PathBuf,
    /// URL for uploads, unless the directory outlives its container.
    pub(super) url: Option<String>,
}

/// Output of a task with its resolved destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TaskOutput {
    pub(super) from: String,
    pub(super) to: Destination,
    /// Policy for an existing destination.
    pub(super) existing: ExistingPolicy,
    pub(super) every: Option<Span>,
    /// Set if other tasks of the job write to the same destination.
    pub(super) shared: bool,
}

/// Destination of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// Path on this node.
    Local(PathBuf),
    /// URL in HDFS.
    Hdfs(String),
}

fn destination(submitted: &SubmittedJob, to: &str) -> Destination {
    if let Some(path) = to.strip_prefix("file://") {
        return Destination::Local(path.into());
    }
    match &submitted.target {
        _ if to.contains("://") => Destination::Hdfs(to.to_owned()),
        JobTarget::Yarn(staged) if !to.starts_with('/') => {
            Destination::Hdfs(format!("{}/{to}", staged.home.trim_end_matches('/')))
        }
        JobTarget::Yarn(_) | JobTarget::Local(_) => Destination::Local(submitted.from.join(to)),
    }
}

/// Returns the directory with `bin` in an unpacked environment. Some archives contain a top-level directory.
fn unpacked(dir: &Path) -> Result<PathBuf, String> {
    let has_bin = |dir: &PathBuf| dir.join("bin").is_dir();
    let inside = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut inside: Vec<_> = inside.map(|entry| entry.path()).filter(has_bin).collect();
    inside.sort();
    let mut candidates = std::iter::once(dir.to_owned()).filter(has_bin).chain(inside);
    candidates
        .next()
        .ok_or_else(|| format!("the environment `{}` has no `bin` directory", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_is_found_at_its_top_or_one_level_down() {
        let dir = tempfile::tempdir().unwrap();
        let error = unpacked(dir.path()).unwrap_err();
        assert!(error.ends_with("has no `bin` directory"));
        fs::create_dir_all(dir.path().join("venv-1.2/bin")).unwrap();
        fs::create_dir_all(dir.path().join("other/lib")).unwrap();
        assert_eq!(unpacked(dir.path()).unwrap(), dir.path().join("venv-1.2"));
        fs::create_dir(dir.path().join("bin")).unwrap();
        assert_eq!(unpacked(dir.path()).unwrap(), dir.path());
    }
}
