//! What the user asked for.
//!
//! [`JobSpecBuilder`] is what a job file or a door fills in; [`JobSpec`] is a draft that was checked, and the only thing
//! the rest of the crate accepts. Nobody can hold an invalid [`JobSpec`].

mod cluster;
mod data;
mod dependencies;
mod elastic;
mod image;
mod policy;
mod role;
mod validate;

pub use cluster::{ClusterOptions, GpuAssignment, Keytab, MasterSpec, Mlflow, Placement};
pub use data::{ExistingPolicy, Input, InputForm, Output, OutputScope, split};
pub use image::{Image, Mount, Runtime};
pub use policy::{
    Backoff, Completion, Gang, MemoryGrowth, NodeExclusion, ResizePolicy, Restart, RestartScope,
    SETTLE, Timeouts,
};
pub(crate) use role::one;
pub use role::{Command, Memory, Range, Resources, RoleSpec};
pub use validate::{MAX_TASKS, SpecIssue};

use crate::{
    framework::Framework,
    id::{RoleName, TaskId},
};
use alloc::{borrow::ToOwned, collections::BTreeMap, string::String, vec::Vec};
use core::ops::Deref;
use serde::{Deserialize, Serialize};

/// A job as written, before it was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpecBuilder {
    /// What people call it.
    pub name: String,
    /// Whose rendezvous it needs.
    pub framework: Framework,
    /// Whether programs are told of each other by arguments, too, as those of TensorFlow 1 want it.
    #[serde(default)]
    pub cluster_flags: bool,
    /// What `python` and the rest of `PATH` mean inside a task.
    pub environment: Environment,
    /// Files that lie in every task's working directory.
    pub files: Vec<File>,
    /// Data that comes to tasks before their programs start.
    pub inputs: Vec<Input>,
    /// How much of a node's disk the inputs of one task may take, in MiB; else what is free decides.
    pub disk_mib: Option<u64>,
    /// The roles in the order of the job file; ranks follow this order.
    pub roles: Vec<RoleSpec>,
    /// What is copied out of a task's working directory when it is over.
    pub outputs: Vec<Output>,
    /// Variables of every role; a role's own win.
    pub env: BTreeMap<String, String>,
    /// Whether tasks start together, and what happens while they cannot.
    pub gang: Gang,
    /// How long each wait may take.
    pub timeouts: Timeouts,
    /// When a node is avoided, and for how long.
    pub node_exclusion: NodeExclusion,
    /// Where tasks find free ports.
    pub ports: PortRange,
    /// What only a cluster understands.
    pub cluster_options: ClusterOptions,
}

/// What a task's `PATH` begins with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Environment {
    /// Whatever the node has.
    System,
    /// A directory with `bin` in it, such as a virtual environment.
    Directory(PackedEnvironment),
    /// Packages by name: a `requirements.txt` or `pyproject.toml`, from which an environment is made.
    Requirements(PackedEnvironment),
    /// One file with everything but the interpreter in it.
    Pex(PackedEnvironment),
    /// The same, packed: `.tar.gz`, `.tgz`, `.tar` or `.zip`, here or as `hdfs://…`.
    Archive(String),
    /// Everything is in an image, and programs run in containers of it.
    Image(Image),
}

/// An environment that is packed before it travels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedEnvironment {
    /// What it is made of, on the submitter's machine.
    pub path: String,
    /// Whether its interpreter travels, too.
    pub interpreter: Interpreter,
}

/// Where the interpreter of an environment comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Interpreter {
    /// The system's is expected on every node; any other travels.
    #[default]
    Auto,
    /// It travels.
    Bundle,
    /// Every node has it.
    Node,
}

/// A file or directory that every task finds in its working directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Its name there.
    pub name: String,
    /// Where it comes from: a path, or `hdfs://…`.
    pub source: String,
    /// Whether it is an archive that is to be unpacked.
    pub unpack: bool,
}

/// Ports from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortRange {
    /// The lowest port taken.
    pub first: u16,
    /// The highest port taken.
    pub last: u16,
}

impl Default for PortRange {
    /// Below the ports that Linux hands to outgoing connections (32768 and up): nothing takes a port from under
    /// a task between the moment it was promised and the moment the program binds it.
    fn default() -> Self {
        PortRange { first: 20_000, last: 32_767 }
    }
}

/// A job that can be run: a [`JobSpecBuilder`] that passed every check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "JobSpecBuilder", into = "JobSpecBuilder")]
pub struct JobSpec(JobSpecBuilder);

impl JobSpec {
    /// Checks a draft; every complaint is returned, not only the first.
    pub fn new(draft: JobSpecBuilder) -> Result<JobSpec, Vec<SpecIssue>> {
        let complaints = validate::complaints(&draft);
        if complaints.is_empty() { Ok(JobSpec(draft)) } else { Err(complaints) }
    }

    /// The role of that name.
    pub fn role(&self, name: &RoleName) -> Option<&RoleSpec> {
        self.roles.iter().find(|role| role.name == *name)
    }

    /// What the tasks of a role get, in the order of the job file.
    pub fn inputs_of<'a>(&'a self, role: &'a RoleSpec) -> impl Iterator<Item = &'a Input> {
        self.inputs.iter().filter(move |input| match input.roles.is_empty() {
            true => !role.is_auxiliary(),
            false => input.roles.contains(&role.name),
        })
    }

    /// Whether other tasks send something to the place where this one's output goes, or the task itself another output.
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

    /// How many tasks the job starts with.
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
    fn try_from(draft: JobSpecBuilder) -> Result<JobSpec, SpecIssue> {
        JobSpec::new(draft).map_err(|mut all| all.swap_remove(0))
    }
}
