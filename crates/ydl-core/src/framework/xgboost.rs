//! XGBoost, and any client of a Rabit tracker: workers that connect to the tracker and then reduce
//! among themselves. The master is the tracker, of both generations.
//!
//! When a worker fails the others fail or are notified at once, so all of them restart in a new
//! round.

use super::{FrameworkProfile, ProcessConfig, ProcessContext};
use crate::spec::RoleSpec;
use alloc::{
    borrow::ToOwned,
    collections::BTreeMap,
    string::{String, ToString},
    vec::Vec,
};

pub(super) struct Xgboost;

impl FrameworkProfile for Xgboost {
    fn label(&self) -> &'static str {
        "XGBoost's workers"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["xgb", "rabit"]
    }

    fn uses_rendezvous(&self, _roles: &[RoleSpec]) -> bool {
        true
    }

    fn configure(&self, context: &ProcessContext<'_>) -> ProcessConfig {
        let ProcessContext { cluster, task, attempt, rendezvous_port, .. } = context;
        let mut env = BTreeMap::new();
        let mut set = |name: &str, value: String| {
            env.insert(name.to_owned(), value);
        };
        // Older programs read the uppercase names from the environment. Newer ones take the
        // lowercase ones as arguments, which programs read from here.
        let rank = cluster.rank(task).to_string();
        set("DMLC_TASK_ID", rank.clone());
        set("dmlc_task_id", rank);
        if let Some(port) = rendezvous_port {
            for (uri, number) in [
                ("DMLC_TRACKER_URI", "DMLC_TRACKER_PORT"),
                ("dmlc_tracker_uri", "dmlc_tracker_port"),
            ] {
                set(uri, "127.0.0.1".to_owned());
                set(number, port.to_string());
            }
        }
        // Rabit has no other role.
        set("DMLC_ROLE", "worker".to_owned());
        set("DMLC_NUM_WORKER", cluster.world_size().to_string());
        set("DMLC_NUM_SERVER", "0".to_owned());
        set("DMLC_NUM_ATTEMPT", attempt.saturating_sub(1).to_string());
        set("DMLC_JOB_CLUSTER", "ydl".to_owned());
        if let Some(own) = cluster.endpoint(task) {
            set("DMLC_NODE_HOST", own.host.clone());
        }
        ProcessConfig { env, arguments: Vec::new() }
    }
}
