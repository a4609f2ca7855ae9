//! Task runtime environment: directory, files, variables, logs.
//!
//! * `variables`: the environment variables. * `destinations`: outputs and checkpoints.

mod destinations;
mod variables;

pub(super) use destinations::{CHECKPOINT, CheckpointPaths, TaskOutput};

use super::{
    bootstrap::Bootstrap,
    container_logs::ContainerLogs,
    devices::Devices,
    inputs::{InputFetch, InputPlan},
    network::interface_of,
    output::{OutputSpec, Rotation},
    program::ProgramSpec,
};
use crate::docker::{self, Container, Engine};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};
use ydl_core::{
    AttemptRun, Framework, TaskId,
    framework::ProcessContext,
    spec::{Image, RoleSpec},
};
use ydl_os::env;
use ydl_proto::files::{JobDir, JobTarget, SubmittedJob};

/// Directories of one container.
#[derive(Debug)]
pub(super) struct TaskEnv {
    dir: PathBuf,
    job: JobDir,
    /// Log directory of the container, on a cluster.
    container_logs: Option<PathBuf>,
    /// Task that ran here last, for the names of its outputs.
    task: Option<TaskId>,
}

/// Resources of the agent for the program it is about to start.
#[derive(Debug)]
pub(super) struct ProgramContext<'a> {
    /// Port of the rendezvous listener.
    pub(super) rendezvous_port: Option<u16>,
    /// Reserved ports.
    pub(super) ports: BTreeMap<String, u16>,
    /// Variables set by the master.
    pub(super) program_env: &'a BTreeMap<String, String>,
}

impl TaskEnv {
    pub(super) fn new(dir: PathBuf, job: JobDir, container_logs: Option<PathBuf>) -> TaskEnv {
        TaskEnv { dir, job, container_logs, task: None }
    }

    pub(super) fn job(&self) -> &JobDir {
        &self.job
    }

    pub(super) fn work(&self) -> PathBuf {
        self.dir.join("work")
    }

    /// Returns the directory in which programs run.
    pub(super) fn program_dir(&self, submitted: &SubmittedJob) -> PathBuf {
        match shared_dir(submitted) {
            Some(dir) => dir.to_owned(),
            None => self.work(),
        }
    }

    /// Prepares the environment of `run`.
    pub(super) fn prepare(
        &mut self,
        bootstrap: &Bootstrap,
        devices: &Devices,
        submitted: &SubmittedJob,
        run: &AttemptRun,
        context: &ProgramContext<'_>,
    ) -> Result<(ProgramSpec, OutputSpec), String> {
        let spec = &submitted.spec;
        let role = spec.role(&run.task.role).ok_or("the job has no such role")?;
        self.task = Some(run.task.clone());
        self.link_files(spec).map_err(|e| format!("cannot link the job's files: {e}"))?;
        let plan = self.plan(submitted, &run.task)?;
        plan.link(&self.work()).map_err(|e| format!("cannot link the job's inputs: {e}"))?;
        let container = self.container(submitted, bootstrap, role, run)?;
        let mut env = self.variables(bootstrap, submitted, run)?;
        env.extend(context.program_env.clone());
        for (name, port) in &context.ports {
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
        let is_configured = |name: &str| {
            [&spec.env, &role.env, &run.env].iter().any(|variables| variables.contains_key(name))
        };
        let setup_of = |local| {
            let mut setup = framework.configure(&ProcessContext {
                cluster: &run.cluster,
                task: &run.task,
                local,
                elastic: role.elastic.is_some(),
                attempt: run.attempt,
                rendezvous_port: context.rendezvous_port,
                flags: spec.cluster_flags,
            });
            let rank = run.cluster.first_process_rank(&run.task) + local;
            setup.env.insert(env::RANK.to_owned(), rank.to_string());
            let name = env::LOCAL_RANK.to_owned();
            setup.env.insert(name, local.to_string());
            // The user's variables take precedence.
            setup.env.retain(|name, _| !is_configured(name));
            setup
        };
        let mut each: Vec<_> = (0..role.processes).map(|local| setup_of(local).env).collect();
        let setup = setup_of(0);
        // Common variables are set once.
        for variables in &mut each {
            variables.retain(|name, value| setup.env.get(name) != Some(value));
        }
        env.extend(setup.env);
        env.extend(spec.env.clone());
        env.extend(role.env.clone());
        env.extend(run.env.clone());
        if is_configured("PYTHONPATH") {
            self.add_modules(&mut env);
        }
        // Programs without limits use as many threads as they choose.
        let is_limited = !(is_local(submitted) && spec.local.oversubscribe);
        let threads = (role.resources.vcores / role.processes.max(1)).max(1);
        for name in framework.thread_variables().iter().filter(|_| is_limited) {
            let entry = env.entry((*name).to_owned());
            entry.or_insert_with(|| threads.to_string());
        }
        if let Some(interface) = interface_of(&bootstrap.host) {
            for name in framework.interface_variables() {
                let entry = env.entry((*name).to_owned());
                entry.or_insert_with(|| interface.clone());
            }
        }
        let mut argv = role.command.argv();
        argv.extend(setup.arguments);
        let program = ProgramSpec {
            argv,
            env,
            each,
            cwd: self.program_dir(submitted),
            shim: this_program()?,
            container,
            grace: Duration::from_millis(spec.timeouts.grace.0),
        };
        let dir = self.job.attempt_logs(&run.task, run.attempt);
        let container_logs = self.container_logs.as_deref();
        let container_logs =
            container_logs.map(|logs| ContainerLogs::new(logs, &run.task, run.attempt));
        Ok((program, OutputSpec { dir, container_logs, rotation: Rotation::default() }))
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

    /// Returns the container to run the program in; on a cluster the agent itself is in it.
    fn container(
        &self,
        submitted: &SubmittedJob,
        bootstrap: &Bootstrap,
        role: &RoleSpec,
        run: &AttemptRun,
    ) -> Result<Option<Container>, String> {
        let Some(image) = local_image(submitted, run) else {
            return Ok(None);
        };
        let engine = Engine::find().ok_or("there is no `docker` command in `PATH` any more")?;
        Ok(Some(Container {
            engine,
            name: docker::name(&submitted.id, bootstrap.container.as_str(), run.round),
            job: submitted.id.clone(),
            job_dir: self.job.path().to_owned(),
            dir: self.dir.clone(),
            binary: this_program()?,
            image: image.clone(),
            shared_dir: shared_dir(submitted).map(Path::to_owned),
            memory_mib: (!submitted.spec.local.oversubscribe).then_some(role.resources.memory_mib),
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

    /// Returns the container's directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the local log directory of an attempt.
    pub(super) fn logs(&self, task: &TaskId, attempt: u32) -> PathBuf {
        self.job.attempt_logs(task, attempt)
    }
}

fn is_local(submitted: &SubmittedJob) -> bool {
    matches!(submitted.target, JobTarget::Local(_))
}

/// Returns the directory in which all programs of a job on this machine run, if they share one.
fn shared_dir(submitted: &SubmittedJob) -> Option<&Path> {
    let dir = submitted.spec.local.directory.as_ref().filter(|_| is_local(submitted))?;
    Some(Path::new(dir))
}

/// Returns the image of a task on this machine.
fn local_image<'a>(submitted: &'a SubmittedJob, run: &AttemptRun) -> Option<&'a Image> {
    match submitted.target {
        JobTarget::Local(_) => submitted.spec.image_of(&run.task.role),
        JobTarget::Yarn(_) => None,
    }
}

fn this_program() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|e| format!("cannot find ydl itself: {e}"))
}
