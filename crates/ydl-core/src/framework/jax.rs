//! JAX: processes that connect to a coordinator in the process of rank 0.
//!
//! When a process fails its peers wait in a collective, and JAX itself takes a minute and a half to
//! detect it, so all of them restart in a new round.

use super::{FrameworkProfile, ProcessConfig, ProcessContext};
use alloc::{
    borrow::ToOwned,
    collections::BTreeMap,
    string::{String, ToString},
    vec,
    vec::Vec,
};

const PORT: &str = "jax";

pub(super) struct Jax;

impl FrameworkProfile for Jax {
    fn label(&self) -> &'static str {
        "JAX's processes"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["flax"]
    }

    fn supports_processes(&self) -> bool {
        true
    }

    fn interface_variables(&self) -> &'static [&'static str] {
        &["NCCL_SOCKET_IFNAME"]
    }

    fn ports(&self, _role: &str) -> Vec<(String, bool)> {
        // gRPC sets SO_REUSEADDR, so the port can stay held while the coordinator listens on it.
        vec![(PORT.to_owned(), true)]
    }

    fn configure(&self, context: &ProcessContext<'_>) -> ProcessConfig {
        let ProcessContext { cluster, task, local, .. } = context;
        let mut env = BTreeMap::new();
        let mut set = |name: &str, value: String| {
            env.insert(name.to_owned(), value);
        };
        let rank = cluster.first_process_rank(task) + local;
        set("JAX_NUM_PROCESSES", cluster.process_count().to_string());
        set("JAX_PROCESS_ID", rank.to_string());
        let mut all = cluster.roles.iter().flat_map(|member| &member.endpoints);
        if let Some(address) = all.next().and_then(|first| first.address(PORT)) {
            if rank == 0 {
                // By default it would listen on every address, where the coordinator of another job
                // may listen, too: gRPC would allow both, and connect a process to either.
                set("JAX_COORDINATOR_BIND_ADDRESS", address.clone());
            }
            set("JAX_COORDINATOR_ADDRESS", address);
        }
        ProcessConfig { env, arguments: Vec::new() }
    }
}
