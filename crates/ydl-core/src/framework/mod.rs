//! Frameworks: a pure function from cluster and task to environment and arguments.
//!
//! A framework is a line in [`Framework`] and a file here that implements [`FrameworkProfile`]. No
//! other module depends on the concrete framework.

mod horovod;
mod jax;
mod lightgbm;
mod mxnet;
mod none;
mod pytorch;
mod tensorflow;
mod xgboost;

use crate::{
    cluster::Cluster,
    id::TaskId,
    spec::{Completion, JobSpecBuilder, ResizePolicy, RestartScope, RoleSpec, SpecIssue},
};
use alloc::{borrow::ToOwned, collections::BTreeMap, format, string::String, vec::Vec};
use core::{fmt, str::FromStr};
use serde::{Deserialize, Serialize};

/// A framework has the name of its file; rustfmt finds the files by the `mod` lines above.
macro_rules! frameworks {
    ($($(#[$what:meta])* $framework:ident = $file:ident,)*) => {
        /// Supported frameworks.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Framework {
            $($(#[$what])* $framework,)*
        }

        impl Framework {
            /// Every framework, in the order of the documentation.
            pub const ALL: &[Framework] = &[$(Framework::$framework),*];

            fn name(self) -> &'static str {
                match self {
                    $(Framework::$framework => stringify!($file),)*
                }
            }

            fn profile(self) -> &'static dyn FrameworkProfile {
                match self {
                    $(Framework::$framework => &$file::$framework,)*
                }
            }
        }
    };
}

frameworks! {
    /// Any command.
    #[default]
    None = none,
    /// MXNet parameter servers.
    Mxnet = mxnet,
    /// PyTorch process groups.
    Pytorch = pytorch,
    /// Horovod processes.
    Horovod = horovod,
    /// XGBoost workers, and other clients of a Rabit tracker.
    Xgboost = xgboost,
    /// LightGBM workers.
    Lightgbm = lightgbm,
    /// TensorFlow strategies and parameter servers.
    Tensorflow = tensorflow,
    /// JAX processes.
    Jax = jax,
}

/// Context of a process, from which its configuration is derived.
#[derive(Clone, Copy, Debug)]
pub struct ProcessContext<'a> {
    /// Members of its round.
    pub cluster: &'a Cluster,
    /// Task of the process.
    pub task: &'a TaskId,
    /// Index of the process in the task, from 0.
    pub local: u32,
    /// True if members may join and leave while it runs.
    pub elastic: bool,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Loopback port on which the agent forwards to the rendezvous.
    pub rendezvous_port: Option<u16>,
    /// Pass the cluster in arguments, too, if the framework supports it.
    pub flags: bool,
}

/// Configuration of a process in addition to its own command and environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessConfig {
    /// Environment variables.
    pub env: BTreeMap<String, String>,
    /// Arguments, appended to its own.
    pub arguments: Vec<String>,
}

/// Defaults of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleDefaults {
    /// Default completion.
    pub completion: Completion,
    /// Default restart scope.
    pub scope: RestartScope,
}

/// Defaults for equal peers: when one fails, all restart.
const PEERS: RoleDefaults = RoleDefaults { completion: Completion::All, scope: RestartScope::Job };

/// Properties of a framework. The defaults describe equal processes that start together without
/// configuration.
trait FrameworkProfile {
    /// Name of its programs in messages.
    fn label(&self) -> &'static str;

    /// Lowercase aliases.
    fn aliases(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the configuration of a process.
    fn configure(&self, context: &ProcessContext<'_>) -> ProcessConfig;

    fn starts_together(&self) -> bool {
        true
    }

    /// Returns true if a task may consist of several processes. A scheduler or tracker has one slot
    /// for each task, and a framework's port belongs to one process.
    fn supports_processes(&self) -> bool {
        false
    }

    fn supports_flags(&self) -> bool {
        false
    }

    fn thread_variables(&self) -> &'static [&'static str] {
        // OpenBLAS and MKL read it, too.
        &["OMP_NUM_THREADS"]
    }

    fn interface_variables(&self) -> &'static [&'static str] {
        &[]
    }

    fn resize_policy(&self) -> Option<ResizePolicy> {
        None
    }

    fn uses_rendezvous(&self, _roles: &[RoleSpec]) -> bool {
        false
    }

    fn role_defaults(&self, _role: &str, _roles: &[&str]) -> RoleDefaults {
        PEERS
    }

    fn command_fallbacks(&self, _role: &str) -> &'static [&'static str] {
        &[]
    }

    fn issues(&self, _draft: &JobSpecBuilder) -> Vec<SpecIssue> {
        Vec::new()
    }

    fn ports(&self, _role: &str) -> Vec<(String, bool)> {
        Vec::new()
    }

    fn needs_ascending_ports(&self) -> bool {
        false
    }
}

impl Framework {
    /// Returns lowercase aliases, used in hints; a job file accepts only one name.
    pub fn aliases(self) -> &'static [&'static str] {
        self.profile().aliases()
    }

    /// Returns true if its tasks start together by default.
    pub fn starts_together(self) -> bool {
        self.profile().starts_together()
    }

    /// Returns the variables that limit the threads of a process: its share of the task's virtual
    /// cores, unless the user or the node sets them.
    pub fn thread_variables(self) -> &'static [&'static str] {
        self.profile().thread_variables()
    }

    /// Returns the variables that name the network interface of a process. Without them some
    /// libraries resolve the node's own name, which often yields a loopback address.
    pub fn interface_variables(self) -> &'static [&'static str] {
        self.profile().interface_variables()
    }

    /// Returns the reaction of running tasks to a resize of an elastic role. None if the framework
    /// does not support elastic roles.
    ///
    /// With [`ResizePolicy::Notify`] the core emits
    /// [`Action::MembersChanged`](crate::Action::MembersChanged) for the rendezvous; with
    /// [`ResizePolicy::Restart`] all tasks restart in a new round.
    pub fn resize_policy(self) -> Option<ResizePolicy> {
        self.profile().resize_policy()
    }

    /// Returns true if the master serves the rendezvous of a job with these roles.
    pub fn uses_rendezvous(self, roles: &[RoleSpec]) -> bool {
        self.profile().uses_rendezvous(roles)
    }

    /// Returns the defaults of a role of that name.
    pub fn role_defaults(self, role: &str, roles: &[&str]) -> RoleDefaults {
        self.profile().role_defaults(role, roles)
    }

    /// Returns the roles whose command a role without a command runs, best first.
    pub fn command_fallbacks(self, role: &str) -> &'static [&'static str] {
        self.profile().command_fallbacks(role)
    }

    /// Validates a job for this framework.
    pub fn issues(self, builder: &JobSpecBuilder) -> Vec<SpecIssue> {
        let needs = self.profile();
        let mut own = builder.clone();
        own.roles.retain(|role| !role.is_sidecar());
        let builder = &own;
        let issue = |key: &str, message: String, hint: &str| SpecIssue {
            key: key.to_owned(),
            message,
            hint: Some(hint.to_owned()),
        };
        let mut all = Vec::new();
        for role in &builder.roles {
            if role.processes > 1 && !needs.supports_processes() {
                let key = format!("roles.{}.processes", role.name);
                let message = format!("a task of framework `{self}` is one process");
                all.push(issue(&key, message, "raise `instances` instead"));
            }
        }
        all.extend(needs.issues(builder));
        if needs.starts_together() && !builder.gang.together {
            let message = format!("{} must start together", needs.label());
            let hint = "leave `gang` out, or set `together: true`";
            all.push(issue("gang", message, hint));
        }
        if builder.cluster_flags && !needs.supports_flags() {
            let message = "only TensorFlow programs have such flags".to_owned();
            let hint = "leave it out, or set `framework: tensorflow`";
            all.push(issue("cluster_flags", message, hint));
        }
        let mut elastic = builder.roles.iter().filter(|role| role.elastic.is_some());
        if let (Option::None, Some(role)) = (needs.resize_policy(), elastic.next()) {
            let key = format!("roles.{}.instances", role.name);
            let message = format!("the number of {} cannot change while they run", needs.label());
            all.push(issue(&key, message, "set `instances` to one number"));
        }
        all
    }

    /// Returns the ports an agent holds for a role; `true` if the program can bind a port that is
    /// still held.
    pub fn ports(self, role: &RoleSpec) -> Vec<(String, bool)> {
        let mut ports = match role.is_sidecar() {
            true => Vec::new(),
            false => self.profile().ports(role.name.as_str()),
        };
        ports.extend(role.ports.iter().map(|name| (name.clone(), false)));
        ports
    }

    /// Returns true if the framework ranks its peers by port, so that ports must ascend with the
    /// index.
    pub(crate) fn needs_ascending_ports(self) -> bool {
        self.profile().needs_ascending_ports()
    }

    /// Returns the configuration of a process.
    pub fn configure(self, context: &ProcessContext<'_>) -> ProcessConfig {
        self.profile().configure(context)
    }
}

impl fmt::Display for Framework {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Framework {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Framework::ALL.iter().find(|framework| framework.name() == text);
        found.copied().ok_or_else(|| {
            let known: Vec<_> = Framework::ALL.iter().map(|f| format!("`{f}`")).collect();
            format!("unknown framework `{text}`: expected one of {}", known.join(", "))
        })
    }
}
