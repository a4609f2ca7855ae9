//! PyTorch: processes that connect to a store (c10d). The master runs the store, and each program
//! reaches it on a port of its own agent, so every rank is a client and no rank is special.
//!
//! When a process fails its peers fail at once or wait in a collective, so all of them restart in a
//! new round.

use super::{FrameworkProfile, ProcessConfig, ProcessContext};
use crate::spec::{ResizePolicy, RoleSpec};
use alloc::{
    borrow::ToOwned,
    collections::BTreeMap,
    string::{String, ToString},
    vec::Vec,
};

pub(super) struct Pytorch;

impl FrameworkProfile for Pytorch {
    fn label(&self) -> &'static str {
        "PyTorch's processes"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["torch", "torchrun", "ddp", "fsdp", "lightning", "pytorch-lightning"]
    }

    fn supports_processes(&self) -> bool {
        true
    }

    fn interface_variables(&self) -> &'static [&'static str] {
        &["GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME"]
    }

    fn resize_policy(&self) -> Option<ResizePolicy> {
        Some(ResizePolicy::Restart)
    }

    fn uses_rendezvous(&self, _roles: &[RoleSpec]) -> bool {
        true
    }

    fn configure(&self, context: &ProcessContext<'_>) -> ProcessConfig {
        let ProcessContext { cluster, task, local, rendezvous_port, .. } = context;
        let (first, group) = (cluster.first_process_rank(task), cluster.rank(task));
        let role = cluster.role(task.role.as_str());
        let (instances, each) = role.map_or((0, 1), |member| (member.instances, member.processes));
        let mut env = BTreeMap::new();
        let mut set = |name: &str, value: String| {
            env.insert(name.to_owned(), value);
        };
        set("RANK", (first + local).to_string());
        set("WORLD_SIZE", cluster.process_count().to_string());
        set("LOCAL_RANK", local.to_string());
        set("LOCAL_WORLD_SIZE", each.to_string());
        // A torch group is a task.
        set("GROUP_RANK", group.to_string());
        set("GROUP_WORLD_SIZE", cluster.world_size().to_string());
        set("ROLE_NAME", task.role.to_string());
        set("ROLE_RANK", (cluster.role_rank(task) * each + local).to_string());
        set("ROLE_WORLD_SIZE", (instances * each).to_string());
        if let Some(port) = rendezvous_port {
            set("MASTER_ADDR", "127.0.0.1".to_owned());
            set("MASTER_PORT", port.to_string());
            // torch compares with this exact text; otherwise rank 0 would run the store.
            set("TORCHELASTIC_USE_AGENT_STORE", "True".to_owned());
        }
        // Older versions require it, with the same value for all: it is part of their keys.
        let round = cluster.round.saturating_sub(1);
        set("TORCHELASTIC_RESTART_COUNT", round.to_string());
        ProcessConfig { env, arguments: Vec::new() }
    }
}
