//! What each framework needs: a pure function from cluster and task to environment and arguments.
//!
//! A framework is a line in [`Framework`] and a file here, with what differs from the usual [`FrameworkProfile`]. Nothing else in
//! the crate asks which one it is.

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

/// A framework is called as its file is: rustfmt finds the files by the lines above, and would not in here.
macro_rules! frameworks {
    ($($(#[$what:meta])* $framework:ident = $file:ident,)*) => {
        /// The frameworks whose rendezvous ydl does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    None = none,
    /// MXNet's parameter servers.
    Mxnet = mxnet,
    /// PyTorch's process groups.
    Pytorch = pytorch,
    /// Horovod's processes.
    Horovod = horovod,
    /// XGBoost's workers, and others that meet at a Rabit tracker.
    Xgboost = xgboost,
    /// LightGBM's workers.
    Lightgbm = lightgbm,
    /// TensorFlow's strategies and parameter servers.
    Tensorflow = tensorflow,
    /// JAX's processes.
    Jax = jax,
}

/// What a program's variables are made of.
#[derive(Clone, Copy, Debug)]
pub struct ProcessContext<'a> {
    /// Everybody in its round.
    pub cluster: &'a Cluster,
    /// Which of them it is.
    pub task: &'a TaskId,
    /// Which of the task's processes, from 0.
    pub local: u32,
    /// Whether others come and go while it runs.
    pub elastic: bool,
    /// The number of its attempt, from 1.
    pub attempt: u32,
    /// The port of the loopback interface where its agent passes on what it says to the framework's rendezvous.
    pub rendezvous_port: Option<u16>,
    /// Whether the program wants to be told by arguments, too, where its framework has such.
    pub flags: bool,
}

/// What a program gets beside its own command and environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessConfig {
    /// Variables.
    pub env: BTreeMap<String, String>,
    /// Arguments, after its own.
    pub arguments: Vec<String>,
}

/// What a role is unless the user says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleDefaults {
    /// What its end means.
    pub completion: Completion,
    /// Who starts again with it.
    pub scope: RestartScope,
}

/// Roles of processes that work together as equals: when one dies the others can do nothing, and all begin anew.
const PEERS: RoleDefaults = RoleDefaults { completion: Completion::All, scope: RestartScope::Job };

/// What a framework needs, where it differs from equal processes that start together and are told nothing.
trait FrameworkProfile {
    /// What its programs are called, for people.
    fn label(&self) -> &'static str;

    /// What else people call it, in small letters.
    fn aliases(&self) -> &'static [&'static str] {
        &[]
    }

    /// What the task's program gets.
    fn configure(&self, context: &ProcessContext<'_>) -> ProcessConfig;

    fn starts_together(&self) -> bool {
        true
    }

    fn supports_processes(&self) -> bool {
        false
    }

    fn supports_flags(&self) -> bool {
        false
    }

    fn thread_variables(&self) -> &'static [&'static str] {
        // OpenBLAS and MKL ask for it, too.
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
    /// What else people call it, in small letters: for a hint, since one name is enough in a job file.
    pub fn aliases(self) -> &'static [&'static str] {
        self.profile().aliases()
    }

    /// Whether its tasks start together unless the user says otherwise.
    pub fn starts_together(self) -> bool {
        self.profile().starts_together()
    }

    /// Whether a task may be several processes of its command. Whoever meets at a scheduler or tracker has one place
    /// there for each task, and a port of a framework's is one process's.
    pub fn supports_processes(self) -> bool {
        self.profile().supports_processes()
    }

    /// The variables that say how many threads a process may use: its share of its task's virtual cores, where neither
    /// the user nor the node says anything else.
    pub fn thread_variables(self) -> &'static [&'static str] {
        self.profile().thread_variables()
    }

    /// The variables that name the interface through which others reach a process. Without them some libraries look
    /// up the node's own name, which on many nodes leads to themselves.
    pub fn interface_variables(self) -> &'static [&'static str] {
        self.profile().interface_variables()
    }

    /// What happens to those who run when the number of tasks changes, in a job of elastic roles. Nothing where it cannot
    /// change: then such roles are refused.
    ///
    /// With [`ResizePolicy::Told`] the core lets those who stay run on and says [`Action::Changed`](crate::Action::Changed)
    /// for the rendezvous; with [`ResizePolicy::Restart`] everybody starts again in a new round.
    pub fn resize_policy(self) -> Option<ResizePolicy> {
        self.profile().resize_policy()
    }

    /// Whether the master serves the rendezvous of a job with these roles, and programs need a door to it.
    pub fn uses_rendezvous(self, roles: &[RoleSpec]) -> bool {
        self.profile().uses_rendezvous(roles)
    }

    /// What a role of that name is among these unless the user says otherwise.
    pub fn role_defaults(self, role: &str, roles: &[&str]) -> RoleDefaults {
        self.profile().role_defaults(role, roles)
    }

    /// The roles whose command a role of that name runs when it has none of its own, best first.
    pub fn command_fallbacks(self, role: &str) -> &'static [&'static str] {
        self.profile().command_fallbacks(role)
    }

    /// What is wrong with a job of this framework.
    pub fn issues(self, draft: &JobSpecBuilder) -> Vec<SpecIssue> {
        let needs = self.profile();
        let mut own = draft.clone();
        own.roles.retain(|role| !role.is_sidecar());
        let draft = &own;
        let complaint = |key: &str, what: String, hint: &str| SpecIssue {
            key: key.to_owned(),
            message: what,
            hint: Some(hint.to_owned()),
        };
        let mut all = Vec::new();
        for role in &draft.roles {
            if role.processes > 1 && !needs.supports_processes() {
                let key = format!("roles.{}.processes", role.name);
                let what = format!("a task of framework `{self}` is one process");
                all.push(complaint(&key, what, "raise `instances` instead"));
            }
        }
        all.extend(needs.issues(draft));
        if needs.starts_together() && !draft.gang.together {
            let what = format!("{} must start together", needs.label());
            let hint = "leave `gang` out, or set `together: true`";
            all.push(complaint("gang", what, hint));
        }
        if draft.cluster_flags && !needs.supports_flags() {
            let what = "only programs of TensorFlow have such flags".to_owned();
            let hint = "leave it out, or set `framework: tensorflow`";
            all.push(complaint("cluster_flags", what, hint));
        }
        let mut elastic = draft.roles.iter().filter(|role| role.elastic.is_some());
        if let (Option::None, Some(role)) = (needs.resize_policy(), elastic.next()) {
            let key = format!("roles.{}.instances", role.name);
            let what = format!("the number of {} cannot change while they run", needs.label());
            all.push(complaint(&key, what, "write one number of `instances`"));
        }
        all
    }

    /// The ports an agent holds for a role, by name; `true` where the program can bind one that is still held.
    pub fn ports(self, role: &RoleSpec) -> Vec<(String, bool)> {
        let mut ports = match role.is_sidecar() {
            true => Vec::new(),
            false => self.profile().ports(role.name.as_str()),
        };
        ports.extend(role.ports.iter().map(|name| (name.clone(), false)));
        ports
    }

    /// Whether the framework numbers its peers by port, so that ports must ascend with the index.
    pub fn needs_ascending_ports(self) -> bool {
        self.profile().needs_ascending_ports()
    }

    /// What the task's program gets.
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
            format!("`{text}` is not a framework that ydl knows; it knows {}", known.join(", "))
        })
    }
}
