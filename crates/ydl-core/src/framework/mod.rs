//! What each framework needs: a pure function from cluster and task to environment and arguments.
//!
//! A framework is a line in [`Framework`] and a file here. Nothing else in the crate asks which one it is.

mod horovod;
mod lightgbm;
mod mxnet;
mod none;
mod pytorch;
mod xgboost;

use crate::{
    cluster::Cluster,
    id::TaskId,
    spec::{Complaint, Completion, Draft, RoleSpec, Scope},
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
}

/// What a program's variables are made of.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// Everybody in its round.
    pub cluster: &'a Cluster,
    /// Which of them it is.
    pub task: &'a TaskId,
    /// The number of its attempt, from 1.
    pub attempt: u32,
    /// The port of the loopback interface where its agent passes on what it says to the framework's rendezvous.
    pub door: Option<u16>,
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
    pub const ALL: [Framework; 6] = [
        Framework::None,
        Framework::Mxnet,
        Framework::Pytorch,
        Framework::Horovod,
        Framework::Xgboost,
        Framework::Lightgbm,
    ];

    /// Whether its tasks start together unless the user says otherwise.
    pub fn together(self) -> bool {
        match self {
            Framework::None => false,
            Framework::Mxnet
            | Framework::Pytorch
            | Framework::Horovod
            | Framework::Xgboost
            | Framework::Lightgbm => true,
        }
    }

    /// Whether the master serves the rendezvous of a job with these roles, and programs need a door to it.
    pub fn has_door(self, roles: &[RoleSpec]) -> bool {
        match self {
            Framework::None | Framework::Lightgbm => false,
            Framework::Mxnet => mxnet::has_door(roles),
            Framework::Pytorch | Framework::Horovod | Framework::Xgboost => true,
        }
    }

    /// What a role of that name is unless the user says otherwise.
    pub fn role_defaults(self, role: &str) -> RoleDefaults {
        match self {
            Framework::None => none::ROLE_DEFAULTS,
            Framework::Mxnet => mxnet::role_defaults(role),
            Framework::Pytorch | Framework::Horovod | Framework::Xgboost | Framework::Lightgbm => {
                PEERS
            }
        }
    }

    /// The role whose command a role of that name runs when it has none of its own.
    pub fn command_of(self, role: &str) -> Option<&'static str> {
        match self {
            Framework::None
            | Framework::Pytorch
            | Framework::Horovod
            | Framework::Xgboost
            | Framework::Lightgbm => None,
            Framework::Mxnet => mxnet::command_of(role),
        }
    }

    /// What is wrong with a job of this framework.
    pub fn complaints(self, draft: &Draft) -> Vec<Complaint> {
        let (mut all, who) = match self {
            Framework::None => return Vec::new(),
            Framework::Mxnet => (mxnet::complaints(draft), "MXNet's processes"),
            Framework::Pytorch => (Vec::new(), "PyTorch's processes"),
            Framework::Horovod => (Vec::new(), "Horovod's processes"),
            Framework::Xgboost => (Vec::new(), "XGBoost's workers"),
            Framework::Lightgbm => (Vec::new(), "LightGBM's workers"),
        };
        if self.together() && !draft.gang.together {
            all.push(Complaint {
                key: "gang".to_owned(),
                what: format!("{who} must start together"),
                hint: Some("leave `gang` out, or set `together: true`".to_owned()),
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
            | Framework::Lightgbm => false,
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
