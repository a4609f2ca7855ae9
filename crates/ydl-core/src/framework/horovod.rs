//! Horovod: equal processes that find each other at a store and then use Gloo. The master runs the
//! store, and each program reaches it on a port of its own agent.
//!
//! Each task is a Horovod host, whatever node it runs on: the local rank is the number of a process
//! among those that share the task's devices, and a container sees no others.
//!
//! When a process fails the others fail within a second. In a job with elastic roles they
//! rendezvous again without it, and newcomers join them; otherwise all of them restart in a new
//! round.

use super::{FrameworkProfile, ProcessConfig, ProcessContext};
use crate::{
    cluster::RoleMembers,
    spec::{ResizePolicy, RoleSpec},
};
use alloc::{
    borrow::ToOwned,
    collections::BTreeMap,
    format,
    string::{String, ToString},
    vec::Vec,
};

/// Horovod's default of 30 s is too short if a process loads its data first, or during a master
/// recovery. ydl reports failed processes itself; processes that continue without a peer must
/// detect the loss themselves.
const TIMEOUT_SECONDS: u32 = 300;

pub(super) struct Horovod;

impl FrameworkProfile for Horovod {
    fn label(&self) -> &'static str {
        "Horovod's processes"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["hvd"]
    }

    fn supports_processes(&self) -> bool {
        true
    }

    fn interface_variables(&self) -> &'static [&'static str] {
        &["HOROVOD_GLOO_IFACE", "NCCL_SOCKET_IFNAME"]
    }

    fn resize_policy(&self) -> Option<ResizePolicy> {
        Some(ResizePolicy::Notify)
    }

    fn uses_rendezvous(&self, _roles: &[RoleSpec]) -> bool {
        true
    }

    fn configure(&self, context: &ProcessContext<'_>) -> ProcessConfig {
        let ProcessContext { cluster, task, local, elastic, rendezvous_port, .. } = context;
        let role = cluster.role(task.role.as_str());
        let each = role.map_or(1, |member| member.processes);
        // Processes with this local rank, one of each task that has enough processes.
        let across = |member: &RoleMembers| match member.processes > *local {
            true => member.instances,
            false => 0,
        };
        let before = cluster.preceding_roles(task).map(across).sum::<u32>();
        let cross = before + cluster.role_rank(task);
        let mut env = BTreeMap::new();
        let mut set = |name: &str, value: String| {
            env.insert(format!("HOROVOD_{name}"), value);
        };
        set("RANK", (cluster.first_process_rank(task) + local).to_string());
        set("SIZE", cluster.process_count().to_string());
        set("LOCAL_RANK", local.to_string());
        set("LOCAL_SIZE", each.to_string());
        set("CROSS_RANK", cross.to_string());
        let all: u32 = cluster.roles.iter().map(across).sum();
        set("CROSS_SIZE", all.to_string());
        set("HOSTNAME", format!("{}-{}", task.role, task.index));
        set("CONTROLLER", "gloo".to_owned());
        set("CPU_OPERATIONS", "gloo".to_owned());
        match elastic {
            true => set("ELASTIC", "1".to_owned()),
            false => set("GLOO_TIMEOUT_SECONDS", TIMEOUT_SECONDS.to_string()),
        }
        if let Some(port) = rendezvous_port {
            set("GLOO_RENDEZVOUS_ADDR", "127.0.0.1".to_owned());
            set("GLOO_RENDEZVOUS_PORT", port.to_string());
        }
        ProcessConfig { env, arguments: Vec::new() }
    }
}
