//! The job specification.
//!
//! Job files and compatibility front ends fill in a [`JobSpecBuilder`]. A [`JobSpec`] is a
//! validated builder, and the only form that the rest of the crate accepts: an invalid [`JobSpec`]
//! cannot exist.

mod cluster;
mod data;
mod dependencies;
mod elastic;
mod ignore;
mod image;
mod local;
mod policy;
mod role;
mod serve;
mod validate;

pub use cluster::{ClusterOptions, GpuAssignment, Keytab, MasterSpec, Mlflow, Placement};
pub use data::{ExistingPolicy, Input, InputForm, Output, OutputScope, split};
pub use ignore::is_ignored;
pub use image::{Image, Mount, Runtime};
pub use local::LocalOptions;
pub use policy::{
    Backoff, Completion, Gang, MemoryGrowth, NodeExclusion, ResizePolicy, Restart, RestartScope,
    Timeouts,
};
pub(crate) use role::one;
pub use role::{Command, Memory, Range, Resources, RoleSpec};
pub use serve::{Autoscale, RevisionSpec, Serve, ServeProtocol, UpdatePolicy};
pub(crate) use validate::check_added_env;
pub use validate::{MAX_TASKS, SpecIssue};

use crate::{
    framework::Framework,
    id::{RoleName, TaskId},
};
use alloc::{borrow::ToOwned, collections::BTreeMap, string::String, vec::Vec};
use core::ops::Deref;
use serde::{Deserialize, Serialize};

/// A job specification before validation. By default it has no name and no roles, and is invalid.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpecBuilder {
    /// Name of the job.
    pub name: String,
    /// Framework of its programs.
    pub framework: Framework,
    /// Pass the cluster in arguments, too, as programs of TensorFlow 1 require.
    #[serde(default)]
    pub cluster_flags: bool,
    /// Environment of the programs: `python` and `PATH`.
    pub environment: Environment,
    /// Files for every task's working directory.
    pub files: Vec<File>,
    /// Inputs, available before the programs start.
    pub inputs: Vec<Input>,
    /// Maximum disk space for the inputs of one task, in MiB; by default the free space.
    pub disk_mib: Option<u64>,
    /// Roles in the order of the job file, which is the order of ranks.
    pub roles: Vec<RoleSpec>,
    /// Outputs, uploaded from the working directory of a task.
    pub outputs: Vec<Output>,
    /// Environment variables of every role; a role's own variables take precedence.
    pub env: BTreeMap<String, String>,
    /// Gang scheduling.
    pub gang: Gang,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// Node exclusion.
    pub node_exclusion: NodeExclusion,
    /// Port range of the tasks.
    pub ports: PortRange,
    /// Options that apply only on a cluster.
    pub cluster_options: ClusterOptions,
    /// Options that apply only on one machine.
    #[serde(default)]
    pub local: LocalOptions,
}

/// Environment of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Environment {
    /// The system of the node.
    #[default]
    System,
    /// A directory with `bin`, such as a virtual environment.
    Directory(PackedEnvironment),
    /// A `requirements.txt` or `pyproject.toml`, from which an environment is built.
    Requirements(PackedEnvironment),
    /// A PEX file, which contains everything but the interpreter.
    Pex(PackedEnvironment),
    /// A packed environment: `.tar.gz`, `.tgz`, `.tar` or `.zip`, as a path or `hdfs://…`.
    Archive(String),
    /// A container image.
    Image(Image),
}

/// An environment that is packed at submit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedEnvironment {
    /// Source on the submitting machine.
    pub path: String,
    /// Source of its interpreter.
    pub interpreter: Interpreter,
}

/// Source of an environment's interpreter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Interpreter {
    /// The system interpreter is expected on every node; any other is bundled.
    #[default]
    Auto,
    /// The interpreter is bundled.
    Bundle,
    /// Every node provides the interpreter.
    Node,
}

/// A file or directory in the working directory of every task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Name in the working directory.
    pub name: String,
    /// Source: a path, or `hdfs://…`.
    pub source: String,
    /// True if it is an archive to be unpacked.
    pub unpack: bool,
    /// Patterns of files that are left out of a directory; see [`is_ignored`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<String>,
}

/// Port range from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortRange {
    /// Lowest port.
    pub first: u16,
    /// Highest port.
    pub last: u16,
}

impl Default for PortRange {
    /// Returns a range below the ephemeral ports of Linux (32768 and up), so that no outgoing
    /// connection takes a port between its assignment and its use.
    fn default() -> Self {
        PortRange { first: 20_000, last: 32_767 }
    }
}

/// A validated job specification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "JobSpecBuilder", into = "JobSpecBuilder")]
pub struct JobSpec(JobSpecBuilder);

impl JobSpecBuilder {
    /// Validates the specification and returns all issues, not only the first.
    pub fn build(self) -> Result<JobSpec, Vec<SpecIssue>> {
        let issues = validate::check(&self, 0);
        if issues.is_empty() { Ok(JobSpec(self)) } else { Err(issues) }
    }

    /// Validates the sizes of a running job, of whose tasks so many have ended.
    pub(crate) fn check_running(&self, ended: u64) -> Result<(), Vec<SpecIssue>> {
        let issues = validate::check(self, ended);
        if issues.is_empty() { Ok(()) } else { Err(issues) }
    }
}

impl JobSpec {
    /// Returns the role of that name.
    pub fn role(&self, name: &RoleName) -> Option<&RoleSpec> {
        self.roles.iter().find(|role| role.name == *name)
    }

    /// Returns the inputs of a role in the order of the job file.
    pub fn inputs_of<'a>(&'a self, role: &'a RoleSpec) -> impl Iterator<Item = &'a Input> {
        self.inputs.iter().filter(move |input| match input.roles.is_empty() {
            true => !role.is_auxiliary(),
            false => input.roles.contains(&role.name),
        })
    }

    /// Returns true if another task, or another output of the task, has the same destination.
    pub fn has_shared_destination(&self, output: &Output, task: &TaskId) -> bool {
        let place = |output: &Output, task: &TaskId| {
            let to = output.destination(None, task);
            to.trim_end_matches('/').to_owned()
        };
        let own = place(output, task);
        let is_other = |other: &Output, role: &RoleSpec, index: u32| {
            let one = TaskId { role: role.name.clone(), index };
            let itself = one == *task && other.from == output.from;
            !itself && other.is_produced_by(role, index) && place(other, &one) == own
        };
        let of_role = |other: &Output, role: &RoleSpec| {
            (0..role.max_instances()).any(|index| is_other(other, role, index))
        };
        let mut others = self.outputs.iter();
        others.any(|other| self.roles.iter().any(|role| of_role(other, role)))
    }

    /// Returns the number of tasks at the start of the job.
    pub fn task_count(&self) -> u64 {
        self.roles.iter().map(|role| u64::from(role.instances)).sum()
    }
}

impl Deref for JobSpec {
    type Target = JobSpecBuilder;
    fn deref(&self) -> &JobSpecBuilder {
        &self.0
    }
}

impl From<JobSpec> for JobSpecBuilder {
    fn from(spec: JobSpec) -> JobSpecBuilder {
        spec.0
    }
}

impl TryFrom<JobSpecBuilder> for JobSpec {
    type Error = SpecIssue;
    fn try_from(builder: JobSpecBuilder) -> Result<JobSpec, SpecIssue> {
        builder.build().map_err(|mut all| all.swap_remove(0))
    }
}
