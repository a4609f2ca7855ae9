//! GPUs of tasks. If the cluster schedules GPUs, containers are requested with them and nodes may isolate them.
//! Otherwise they are requested without. In both cases the agent makes sure that no two tasks of a node share a
//! GPU.

use crate::agent::bootstrap::GpuRequest;
use std::collections::BTreeMap;
use ydl_core::{Asks, JobSpec, RoleName, spec::GpuAssignment};

#[derive(Clone, Debug, Default)]
pub(super) struct GpuAsks {
    counted: bool,
    by_role: BTreeMap<RoleName, u32>,
}

impl GpuAsks {
    pub(super) fn of(spec: &JobSpec) -> GpuAsks {
        let roles = spec.roles.iter();
        let roles = roles.map(|role| (role.name.clone(), role.resources.gpus));
        GpuAsks {
            counted: spec.cluster_options.gpu_assignment == GpuAssignment::Cluster,
            by_role: roles.collect(),
        }
    }

    /// Removes GPUs from asks to a cluster that does not schedule them.
    pub(super) fn filter(&self, mut asks: Asks) -> Asks {
        if !self.counted {
            for ask in &mut asks.asks {
                ask.resources.gpus = 0;
            }
        }
        asks
    }

    /// Returns how the agent of a task finds its GPUs.
    pub(super) fn for_role(&self, role: &RoleName) -> GpuRequest {
        GpuRequest { count: self.by_role.get(role).copied().unwrap_or(0), counted: self.counted }
    }
}
