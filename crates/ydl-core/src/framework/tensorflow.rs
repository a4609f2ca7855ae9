//! TensorFlow 1 and 2: processes that know each other's addresses from the start (`TF_CONFIG`, or
//! flags), each with a gRPC server of its own, without a rendezvous.
//!
//! Addresses cannot change while programs run, and when a process fails its peers fail or wait: all
//! restart in a new round. Only the evaluator and TensorBoard, which have no clients, restart
//! alone.

use super::{FrameworkProfile, ProcessConfig, ProcessContext, RoleDefaults};
use crate::{
    cluster::{Cluster, RoleMembers},
    spec::{Command, Completion, JobSpecBuilder, RestartScope, SpecIssue},
};
use alloc::{borrow::ToOwned, collections::BTreeMap, format, string::String, vec, vec::Vec};

const PORT: &str = "tf";
const CHIEF: &str = "chief";
/// Early TensorFlow 1 name of the chief.
const MASTER: &str = "master";
const WORKER: &str = "worker";
const PS: &str = "ps";
const EVALUATOR: &str = "evaluator";
/// Reads the files of the others and connects to none of them.
const TENSORBOARD: &str = "tensorboard";
const ROLES: [&str; 6] = [CHIEF, MASTER, WORKER, PS, EVALUATOR, TENSORBOARD];

pub(super) struct Tensorflow;

impl FrameworkProfile for Tensorflow {
    fn label(&self) -> &'static str {
        "TensorFlow's processes"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["tf", "keras", "estimator"]
    }

    fn supports_flags(&self) -> bool {
        true
    }

    fn thread_variables(&self) -> &'static [&'static str] {
        &["OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"]
    }

    fn interface_variables(&self) -> &'static [&'static str] {
        &["NCCL_SOCKET_IFNAME"]
    }

    fn role_defaults(&self, role: &str, roles: &[&str]) -> RoleDefaults {
        let has = |name: &str| roles.contains(&name);
        // With parameter servers and a chief, the chief's program is the training: workers wait for
        // its requests until they are stopped. Without a chief the workers themselves train and
        // end.
        let led = has(PS) && (has(CHIEF) || has(MASTER));
        let trains = has(WORKER) || has(CHIEF) || has(MASTER);
        let completion = match role {
            PS => Completion::Service,
            WORKER if led => Completion::Service,
            // An Estimator's evaluator ends after the last checkpoint, if it knows which that is.
            EVALUATOR if trains => Completion::Follows,
            TENSORBOARD => Completion::Follows,
            _ => Completion::All,
        };
        let scope = match role {
            EVALUATOR | TENSORBOARD => RestartScope::Task,
            _ => RestartScope::Job,
        };
        RoleDefaults { completion, scope }
    }

    fn command_fallbacks(&self, role: &str) -> &'static [&'static str] {
        match role {
            PS | EVALUATOR => &[WORKER, CHIEF, MASTER],
            CHIEF | MASTER => &[WORKER],
            _ => &[],
        }
    }

    fn issues(&self, builder: &JobSpecBuilder) -> Vec<SpecIssue> {
        let mut all = Vec::new();
        let count = |name: &str| {
            let mut roles = builder.roles.iter();
            let role = roles.find(|role| role.name.as_str() == name);
            role.map_or(0, |role| role.instances)
        };
        let mut add = |key: &str, message: String, hint: &str| {
            all.push(SpecIssue { key: key.to_owned(), message, hint: Some(hint.to_owned()) });
        };
        if [WORKER, CHIEF, MASTER, EVALUATOR].into_iter().all(|name| count(name) == 0) {
            let message =
                "a TensorFlow job needs the role `worker`, `chief` or `evaluator`".to_owned();
            add("roles", message, "roles: {worker: {instances: 2, run: …}}");
        }
        for name in [CHIEF, MASTER, EVALUATOR, TENSORBOARD] {
            if count(name) > 1 {
                let message = format!("a TensorFlow job has one {name}, not {}", count(name));
                let hint = match name {
                    EVALUATOR | TENSORBOARD => "leave `instances` out",
                    _ => "leave `instances` out; the others are workers",
                };
                add(&format!("roles.{name}.instances"), message, hint);
            }
        }
        if count(CHIEF) > 0 && count(MASTER) > 0 {
            let message = "`master` is an older name of `chief`: a job has one of them".to_owned();
            add("roles.master", message, "leave out one of the two roles");
        }
        let flagged = builder.cluster_flags;
        for role in &builder.roles {
            let name = role.name.as_str();
            let key = format!("roles.{name}");
            if !ROLES.contains(&name) {
                let message = format!("TensorFlow has no role `{name}`");
                let hint = "its roles are `chief`, `worker`, `ps`, `evaluator` and `tensorboard`";
                add(&key, message, hint);
            } else if flagged && ![PS, WORKER].contains(&name) {
                let message = format!("flags support only `ps` and `worker`, not `{name}`");
                add(&key, message, "leave `cluster_flags` out: `TF_CONFIG` names all roles");
            }
            if flagged && matches!(role.command, Command::Shell(_)) {
                let message = "a script gets no flags".to_owned();
                add(&format!("{key}.shell"), message, "use `run`");
            }
        }
        all
    }

    fn ports(&self, role: &str) -> Vec<(String, bool)> {
        match role {
            // They have no clients.
            EVALUATOR | TENSORBOARD => Vec::new(),
            // gRPC sets SO_REUSEADDR, so the port can stay held while the program listens on it.
            _ => vec![(PORT.to_owned(), true)],
        }
    }

    fn configure(&self, context: &ProcessContext<'_>) -> ProcessConfig {
        let ProcessContext { cluster, task, .. } = context;
        let mut arguments = Vec::new();
        if context.flags {
            let of = |role| cluster.role(role).map(addresses).unwrap_or_default();
            arguments = vec![
                format!("--ps_hosts={}", of(PS).join(",")),
                format!("--worker_hosts={}", of(WORKER).join(",")),
                format!("--job_name={}", task.role),
                format!("--task_index={}", task.index),
            ];
        }
        let config = format!(
            r#"{{"cluster": {{{}}}, "task": {{"type": "{}", "index": {}}}}}"#,
            members(cluster).join(", "),
            task.role,
            task.index,
        );
        ProcessConfig { env: BTreeMap::from([("TF_CONFIG".to_owned(), config)]), arguments }
    }
}

/// Returns the addresses of a role.
fn addresses(member: &RoleMembers) -> Vec<String> {
    let endpoints = member.endpoints.iter();
    endpoints.map(|endpoint| endpoint.address(PORT).unwrap_or_default()).collect()
}

/// Returns every role as JSON without evaluator and TensorBoard: TensorFlow rejects a cluster with
/// them.
fn members(cluster: &Cluster) -> Vec<String> {
    let inside = |member: &&RoleMembers| ![EVALUATOR, TENSORBOARD].contains(&member.role.as_str());
    let one = |member: &RoleMembers| {
        let addresses: Vec<_> =
            addresses(member).iter().map(|address| format!(r#""{address}""#)).collect();
        format!(r#""{}": [{}]"#, member.role, addresses.join(", "))
    };
    cluster.roles.iter().filter(inside).map(one).collect()
}
