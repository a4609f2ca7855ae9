//! Destinations of a task's outputs and checkpoints.

use super::TaskEnv;
use crate::agent::outputs::Reservations;
use std::path::PathBuf;
use ydl_core::{
    Span, TaskId,
    spec::{ExistingPolicy, Output},
};
use ydl_proto::files::{JobTarget, SubmittedJob};
use ydl_storage::{hdfs::JobLayout, store::is_local};

/// Name of the checkpoint directory in a container's directory.
pub(in crate::agent) const CHECKPOINT: &str = "checkpoint";

/// Location of checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::agent) struct CheckpointPaths {
    /// Directory of the program.
    pub(in crate::agent) dir: PathBuf,
    /// URL for uploads, unless the directory outlives its container.
    pub(in crate::agent) url: Option<String>,
}

/// Output of a task with its resolved destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::agent) struct TaskOutput {
    /// Path below the working directory.
    pub(in crate::agent) from: String,
    /// Path on this node, or URL in HDFS.
    pub(in crate::agent) to: String,
    /// Policy for an existing destination.
    pub(in crate::agent) existing: ExistingPolicy,
    pub(in crate::agent) every: Option<Span>,
    /// Set if other tasks of the job write to the same destination.
    pub(in crate::agent) shared: bool,
}

/// Resolves the destination of an output or a checkpoint: a path on this node, or a URL in HDFS.
fn destination(submitted: &SubmittedJob, to: &str) -> String {
    if let Some(path) = to.strip_prefix("file://") {
        return path.to_owned();
    }
    match &submitted.target {
        _ if !is_local(to) => to.to_owned(),
        JobTarget::Yarn(staged) if !to.starts_with('/') => {
            format!("{}/{to}", staged.home.trim_end_matches('/'))
        }
        JobTarget::Yarn(_) | JobTarget::Local(_) => {
            submitted.from.join(to).to_string_lossy().into_owned()
        }
    }
}

impl TaskEnv {
    /// Returns the paths of the task's checkpoint.
    pub(in crate::agent) fn checkpoint(&self, submitted: &SubmittedJob) -> CheckpointPaths {
        let remote = |url| CheckpointPaths { dir: self.dir.join(CHECKPOINT), url: Some(url) };
        let local = |dir| CheckpointPaths { dir, url: None };
        let configured = submitted.spec.cluster_options.checkpoint.as_ref();
        let configured =
            configured.map(|to| destination(submitted, &to.replace("{job}", &submitted.id)));
        match (configured, &submitted.target) {
            (Some(path), _) if is_local(&path) => local(path.into()),
            (Some(url), _) => remote(url),
            (None, JobTarget::Local(_)) => local(self.job.checkpoint()),
            (None, JobTarget::Yarn(staged)) => {
                remote(JobLayout::at(staged.dir.clone()).checkpoint())
            }
        }
    }

    /// Returns the outputs of this task.
    pub(in crate::agent) fn outputs(&self, submitted: &SubmittedJob) -> Vec<TaskOutput> {
        let Some(task) = &self.task else {
            return Vec::new();
        };
        let Some(role) = submitted.spec.role(&task.role) else {
            return Vec::new();
        };
        let outputs = &submitted.spec.outputs;
        let own = outputs.iter().filter(|output| output.is_produced_by(role, task.index));
        let resolve = |output: &Output| {
            let to = destination(submitted, &output.destination(Some(&submitted.id), task));
            let existing = match &submitted.target {
                // Local disks of cluster nodes are not checked at submit.
                JobTarget::Yarn(_) if is_local(&to) => ExistingPolicy::Overwrite,
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
        own.map(resolve).collect()
    }

    /// Returns the task's reservations of destinations.
    pub(in crate::agent) fn reservations(&self, submitted: &SubmittedJob) -> Reservations {
        let dir = match &submitted.target {
            JobTarget::Local(_) => self.job.reservations().to_string_lossy().into_owned(),
            JobTarget::Yarn(staged) => JobLayout::at(staged.dir.clone()).reservations(),
        };
        Reservations {
            dir,
            job: submitted.id.clone(),
            task: self.task.as_ref().map(TaskId::to_string).unwrap_or_default(),
        }
    }

    /// Returns an identifier of the last task, unique among all tasks of all jobs.
    pub(in crate::agent) fn owner_id(&self, submitted: &SubmittedJob) -> String {
        let task = self.task.as_ref();
        let task = task.map(|task| format!("-{}={}", task.role, task.index));
        format!("{}{}", submitted.id, task.unwrap_or_default())
    }
}
