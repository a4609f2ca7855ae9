//! Which GPUs a task has. Where the cluster counts them, containers are asked for with them, and nodes may wall off those
//! of others; where it does not, they are asked for without. Either way the agent sees to it that no two tasks of a node
//! use the same one.

use crate::agent::setting::FindGpus;
use std::collections::BTreeMap;
use ydl_core::{Asks, JobSpec, RoleName, spec::GpuAssignment};

#[derive(Clone, Debug, Default)]
pub(super) struct Gpus {
    counted: bool,
    of_roles: BTreeMap<RoleName, u32>,
}

impl Gpus {
    pub(super) fn of(spec: &JobSpec) -> Gpus {
        let roles = spec.roles.iter();
        let roles = roles.map(|role| (role.name.clone(), role.resources.gpus));
        Gpus {
            counted: spec.cluster_options.gpu_assignment == GpuAssignment::Cluster,
            of_roles: roles.collect(),
        }
    }

    /// What the cluster is asked for.
    pub(super) fn asked(&self, mut asks: Asks) -> Asks {
        if !self.counted {
            for ask in &mut asks.asks {
                ask.resources.gpus = 0;
            }
        }
        asks
    }

    /// What the agent of a task is told.
    pub(super) fn of_role(&self, role: &RoleName) -> FindGpus {
        FindGpus { count: self.of_roles.get(role).copied().unwrap_or(0), counted: self.counted }
    }
}
