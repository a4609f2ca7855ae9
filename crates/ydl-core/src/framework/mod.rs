//! What each framework needs: a pure function from cluster and task to environment and arguments.
//!
//! A framework is a line in [`Framework`] and a file here. Nothing else in the crate asks which one it is.

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
    spec::{Complaint, Completion, Draft, Reform, RoleSpec, Scope},
};
use alloc::{
    borrow::ToOwned,
    collections::BTreeMap,
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::{fmt, str::FromStr};
use serde::{Deserialize, Serialize};

/// The frameworks whose rendezvous ydl does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Framework {
    /// Any command.
    None,
    /// MXNet's parameter servers.
    Mxnet,
    /// PyTorch's process groups.
    Pytorch,
    /// Horovod's processes.
    Horovod,
    /// XGBoost's workers, and others that meet at a Rabit tracker.
    Xgboost,
    /// LightGBM's workers.
    Lightgbm,
    /// TensorFlow's strategies and parameter servers.
    Tensorflow,
    /// JAX's processes.
    Jax,
}

/// What a program's variables are made of.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// Everybody in its round.
    pub cluster: &'a Cluster,
    /// Which of them it is.
    pub task: &'a TaskId,
    /// Which of the task's processes, from 0.
    pub local: u32,
    /// The number of its attempt, from 1.
    pub attempt: u32,
    /// The port of the loopback interface where its agent passes on what it says to the framework's rendezvous.
    pub door: Option<u16>,
    /// Whether the program wants to be told by arguments, too, where its framework has such.
    pub flags: bool,
}

/// What a program gets beside its own command and environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetUp {
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
    pub scope: Scope,
}

/// Roles of processes that work together as equals: when one dies the others can do nothing, and all begin anew.
const PEERS: RoleDefaults = RoleDefaults {
    completion: Completion::All,
    scope: Scope::Job,
};

impl Framework {
    /// Every framework, in the order of the documentation.
    pub const ALL: [Framework; 8] = [
        Framework::None,
        Framework::Mxnet,
        Framework::Pytorch,
        Framework::Horovod,
        Framework::Xgboost,
        Framework::Lightgbm,
        Framework::Tensorflow,
        Framework::Jax,
    ];

    /// Whether its tasks start together unless the user says otherwise.
    pub fn together(self) -> bool {
        match self {
            Framework::None => false,
            Framework::Mxnet
            | Framework::Pytorch
            | Framework::Horovod
            | Framework::Xgboost
            | Framework::Lightgbm
            | Framework::Tensorflow
            | Framework::Jax => true,
        }
    }

    /// Whether a task may be several processes of its command.
    pub fn has_processes(self) -> bool {
        match self {
            // Any command, which finds its number among its variables.
            Framework::None | Framework::Pytorch | Framework::Horovod | Framework::Jax => true,
            // Whoever meets at a scheduler or tracker has one place there for each task; LightGBM and TensorFlow have one
            // port.
            Framework::Mxnet | Framework::Xgboost | Framework::Lightgbm | Framework::Tensorflow => {
                false
            }
        }
    }

    /// The variables that say how many threads a process may use: its share of its task's virtual cores, where neither
    /// the user nor the node says anything else. Nothing is known of what any command does with its cores.
    pub fn threads(self) -> &'static [&'static str] {
        match self {
            Framework::None => &[],
            // OpenBLAS and MKL ask for it, too.
            Framework::Mxnet
            | Framework::Pytorch
            | Framework::Horovod
            | Framework::Xgboost
            | Framework::Lightgbm
            | Framework::Jax => &["OMP_NUM_THREADS"],
            Framework::Tensorflow => &["OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"],
        }
    }

    /// The variables that name the interface through which others reach a process. Without them these libraries look
    /// up the node's own name, which on many nodes leads to themselves.
    pub fn interfaces(self) -> &'static [&'static str] {
        match self {
            Framework::None | Framework::Mxnet | Framework::Xgboost | Framework::Lightgbm => &[],
            Framework::Pytorch => &[
                "GLOO_SOCKET_IFNAME",
                "NCCL_SOCKET_IFNAME",
                "TP_SOCKET_IFNAME",
            ],
            Framework::Horovod => &["HOROVOD_GLOO_IFACE", "NCCL_SOCKET_IFNAME"],
            Framework::Tensorflow | Framework::Jax => &["NCCL_SOCKET_IFNAME"],
        }
    }

    /// What happens to those who run when the number of tasks changes, in a job of elastic roles. Nothing where it cannot
    /// change: then such roles are refused.
    ///
    /// With [`Reform::Told`] the core lets those who stay run on and says [`Action::Changed`](crate::Action::Changed)
    /// for the rendezvous; with [`Reform::Restart`] everybody starts again in a new round.
    pub fn on_change(self) -> Option<Reform> {
        match self {
            Framework::None | Framework::Pytorch => Some(Reform::Restart),
            Framework::Mxnet
            | Framework::Tensorflow
            | Framework::Horovod
            | Framework::Xgboost
            | Framework::Lightgbm
            | Framework::Jax => None,
        }
    }

    /// Whether the master serves the rendezvous of a job with these roles, and programs need a door to it.
    pub fn has_door(self, roles: &[RoleSpec]) -> bool {
        match self {
            Framework::None | Framework::Lightgbm | Framework::Tensorflow | Framework::Jax => false,
            Framework::Mxnet => mxnet::has_door(roles),
            Framework::Pytorch | Framework::Horovod | Framework::Xgboost => true,
        }
    }

    /// What a role of that name is among these unless the user says otherwise.
    pub fn role_defaults(self, role: &str, roles: &[&str]) -> RoleDefaults {
        match self {
            Framework::None => none::ROLE_DEFAULTS,
            Framework::Mxnet => mxnet::role_defaults(role),
            Framework::Tensorflow => tensorflow::role_defaults(role, roles),
            Framework::Pytorch
            | Framework::Horovod
            | Framework::Xgboost
            | Framework::Lightgbm
            | Framework::Jax => PEERS,
        }
    }

    /// The roles whose command a role of that name runs when it has none of its own, best first.
    pub fn commands_of(self, role: &str) -> &'static [&'static str] {
        match self {
            Framework::None
            | Framework::Pytorch
            | Framework::Horovod
            | Framework::Xgboost
            | Framework::Lightgbm
            | Framework::Jax => &[],
            Framework::Mxnet => mxnet::commands_of(role),
            Framework::Tensorflow => tensorflow::commands_of(role),
        }
    }

    /// What is wrong with a job of this framework.
    pub fn complaints(self, draft: &Draft) -> Vec<Complaint> {
        let mut all = Vec::new();
        for role in &draft.roles {
            if role.processes > 1 && !self.has_processes() {
                all.push(Complaint {
                    key: format!("roles.{}.processes", role.name),
                    what: format!("a task of framework `{self}` is one process"),
                    hint: Some("raise `instances` instead".to_owned()),
                });
            }
        }
        let (own, who) = match self {
            Framework::None => (Vec::new(), "programs"),
            Framework::Mxnet => (mxnet::complaints(draft), "MXNet's processes"),
            Framework::Pytorch => (Vec::new(), "PyTorch's processes"),
            Framework::Horovod => (Vec::new(), "Horovod's processes"),
            Framework::Xgboost => (Vec::new(), "XGBoost's workers"),
            Framework::Lightgbm => (Vec::new(), "LightGBM's workers"),
            Framework::Tensorflow => (tensorflow::complaints(draft), "TensorFlow's processes"),
            Framework::Jax => (Vec::new(), "JAX's processes"),
        };
        all.extend(own);
        if self.together() && !draft.gang.together {
            all.push(Complaint {
                key: "gang".to_owned(),
                what: format!("{who} must start together"),
                hint: Some("leave `gang` out, or set `together: true`".to_owned()),
            });
        }
        if draft.cluster_flags && self != Framework::Tensorflow {
            all.push(Complaint {
                key: "cluster_flags".to_owned(),
                what: "only programs of TensorFlow have such flags".to_owned(),
                hint: Some("leave it out, or set `framework: tensorflow`".to_owned()),
            });
        }
        let mut elastic = draft.roles.iter().filter(|role| role.elastic.is_some());
        if let (None, Some(role)) = (self.on_change(), elastic.next()) {
            all.push(Complaint {
                key: format!("roles.{}.instances", role.name),
                what: format!("the number of {who} cannot change while they run"),
                hint: Some("write one number of `instances`".to_owned()),
            });
        }
        all
    }

    /// The ports an agent holds for a role, by name; `true` where the program can bind one that is still held.
    pub fn ports(self, role: &RoleSpec) -> Vec<(String, bool)> {
        let mut ports = match self {
            Framework::None | Framework::Pytorch | Framework::Horovod | Framework::Xgboost => {
                Vec::new()
            }
            Framework::Lightgbm => lightgbm::ports(),
            Framework::Tensorflow => tensorflow::ports(role.name.as_str()),
            Framework::Jax => jax::ports(),
            Framework::Mxnet => mxnet::ports(role.name.as_str()),
        };
        ports.extend(role.ports.iter().map(|name| (name.clone(), false)));
        ports
    }

    /// Whether the framework numbers its peers by port, so that ports must ascend with the index.
    pub fn ports_ascend(self) -> bool {
        match self {
            Framework::None
            | Framework::Pytorch
            | Framework::Horovod
            | Framework::Xgboost
            | Framework::Lightgbm
            | Framework::Tensorflow
            | Framework::Jax => false,
            Framework::Mxnet => true,
        }
    }

    /// What the task's program gets.
    pub fn set_up(self, given: &Given<'_>) -> SetUp {
        match self {
            Framework::None => SetUp::default(),
            Framework::Mxnet => mxnet::set_up(given),
            Framework::Pytorch => pytorch::set_up(given),
            Framework::Horovod => horovod::set_up(given),
            Framework::Xgboost => xgboost::set_up(given),
            Framework::Lightgbm => lightgbm::set_up(given),
            Framework::Tensorflow => tensorflow::set_up(given),
            Framework::Jax => jax::set_up(given),
        }
    }
}

impl fmt::Display for Framework {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Framework::None => "none",
            Framework::Mxnet => "mxnet",
            Framework::Pytorch => "pytorch",
            Framework::Horovod => "horovod",
            Framework::Xgboost => "xgboost",
            Framework::Lightgbm => "lightgbm",
            Framework::Tensorflow => "tensorflow",
            Framework::Jax => "jax",
        })
    }
}

impl FromStr for Framework {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Framework::ALL
            .into_iter()
            .find(|framework| framework.to_string() == text);
        found.ok_or_else(|| {
            let known: Vec<_> = Framework::ALL.iter().map(|f| format!("`{f}`")).collect();
            format!(
                "`{text}` is not a framework that ydl knows; it knows {}",
                known.join(", ")
            )
        })
    }
}
