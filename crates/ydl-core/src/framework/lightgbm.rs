//! LightGBM: workers that know each other's addresses from the start and need no rendezvous.
//!
//! When a worker fails the others fail at once, so all of them restart in a new round.

use super::{FrameworkProfile, ProcessConfig, ProcessContext};
use crate::cluster::Endpoint;
use alloc::{
    borrow::ToOwned,
    collections::BTreeMap,
    format,
    string::{String, ToString},
    vec,
    vec::Vec,
};

const PORT: &str = "lightgbm";

pub(super) struct Lightgbm;

impl FrameworkProfile for Lightgbm {
    fn label(&self) -> &'static str {
        "LightGBM's workers"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["lgbm", "lgb"]
    }

    fn ports(&self, _role: &str) -> Vec<(String, bool)> {
        // It binds exclusively, so the port is released when the program starts.
        vec![(PORT.to_owned(), false)]
    }

    fn configure(&self, context: &ProcessContext<'_>) -> ProcessConfig {
        let ProcessContext { cluster, task, .. } = context;
        let port = |endpoint: &Endpoint| endpoint.ports.get(PORT).copied().unwrap_or(0);
        let all = cluster.roles.iter().flat_map(|member| &member.endpoints);
        let machines: Vec<_> =
            all.map(|endpoint| format!("{}:{}", endpoint.host, port(endpoint))).collect();
        let own = cluster.endpoint(task).map_or(0, port);
        // Named after the parameters to which the program passes them.
        let env = [
            ("machines", machines.join(",")),
            ("local_listen_port", own.to_string()),
            ("num_machines", cluster.world_size().to_string()),
        ];
        ProcessConfig {
            env: BTreeMap::from(env.map(|(name, value)| (name.to_owned(), value))),
            arguments: Vec::new(),
        }
    }
}
