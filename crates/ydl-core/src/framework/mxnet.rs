//! MXNet 1.x: servers and workers that run the same program and connect to a scheduler (ps-lite).
//!
//! The master is the scheduler, unless the job has a scheduler role. The master assigns each node
//! the number of its task, so a worker's rank is its index. MXNet's own scheduler ranks the nodes
//! of a role by host, then by port, whatever `DMLC_RANK` says: for it ports ascend with the index,
//! and on one host the rank is the index too.
//!
//! ps-lite does not detect failures: when one process dies the others wait forever, so every role
//! restarts with the job. A single worker can be replaced if the user enables it: it gets its rank
//! back and the state of the servers, and servers of `dist_async` do not wait for it. The state of
//! a failed server is lost.

use super::{FrameworkProfile, ProcessConfig, ProcessContext, RoleDefaults};
use crate::{
    cluster::{Cluster, Endpoint},
    spec::{Completion, JobSpecBuilder, RestartScope, RoleSpec, SpecIssue},
};
use alloc::{
    borrow::ToOwned,
    collections::BTreeMap,
    format,
    string::{String, ToString},
    vec,
    vec::Vec,
};

const PORT: &str = "ps";
const SCHEDULER: &str = "scheduler";
const SERVER: &str = "server";
const WORKER: &str = "worker";

pub(super) struct Mxnet;

impl FrameworkProfile for Mxnet {
    fn label(&self) -> &'static str {
        "MXNet's processes"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["mx", "gluon", "ps-lite"]
    }

    fn role_defaults(&self, role: &str, _roles: &[&str]) -> RoleDefaults {
        let completion = match role {
            SCHEDULER | SERVER => Completion::Service,
            _ => Completion::All,
        };
        RoleDefaults { completion, scope: RestartScope::Job }
    }

    fn command_fallbacks(&self, role: &str) -> &'static [&'static str] {
        match role {
            SCHEDULER | SERVER => &[WORKER],
            _ => &[],
        }
    }

    /// Returns true if the master is the scheduler.
    fn uses_rendezvous(&self, roles: &[RoleSpec]) -> bool {
        roles.iter().all(|role| role.name.as_str() != SCHEDULER)
    }

    fn issues(&self, builder: &JobSpecBuilder) -> Vec<SpecIssue> {
        let mut all = Vec::new();
        let count = |name: &str| {
            builder
                .roles
                .iter()
                .find(|role| role.name.as_str() == name)
                .map_or(0, |role| role.instances)
        };
        let mut add = |key: &str, message: String, hint: &str| {
            all.push(SpecIssue { key: key.to_owned(), message, hint: Some(hint.to_owned()) });
        };
        if count(WORKER) == 0 {
            let message = "an MXNet job needs the role `worker`".to_string();
            add(
                "roles",
                message,
                "roles: {worker: {instances: 2, run: …}, server: {instances: 2}}",
            );
        }
        if count(SERVER) == 0 {
            let message = "an MXNet job needs the role `server`".to_string();
            add("roles", message, "add `server: {instances: 1}`; it runs the worker's command");
        }
        if count(SCHEDULER) > 1 {
            let message = format!("an MXNet job has one scheduler, not {}", count(SCHEDULER));
            add("roles.scheduler.instances", message, "leave the role out: ydl is the scheduler");
        }
        for role in &builder.roles {
            let known = [WORKER, SERVER, SCHEDULER].contains(&role.name.as_str());
            if !known {
                let message = format!("MXNet has no role `{}`", role.name);
                add(
                    &format!("roles.{}", role.name),
                    message,
                    "its roles are `worker` and `server`",
                );
            }
            let key = format!("roles.{}.restart.scope", role.name);
            match (role.restart.scope, role.name.as_str()) {
                (RestartScope::Job, _) => {}
                // MXNet's own scheduler is not notified of failures.
                (RestartScope::Task, WORKER) if count(SCHEDULER) == 0 => {}
                (RestartScope::Task, WORKER) => add(
                    &key,
                    "MXNet's own scheduler does not readmit a worker".to_owned(),
                    "leave out the role `scheduler`: ydl's does",
                ),
                (RestartScope::Task, _) => add(
                    &key,
                    format!("the state of an MXNet {} is lost with it", role.name),
                    "`scope: task` is for the role `worker` alone, and for `dist_async`",
                ),
                (RestartScope::Role, _) => add(
                    &key,
                    "MXNet's processes must restart together".to_owned(),
                    "`scope: job`, or `scope: task` for workers of `dist_async`",
                ),
            }
        }
        all
    }

    fn ports(&self, _role: &str) -> Vec<(String, bool)> {
        // ZeroMQ sets SO_REUSEADDR, so the port can stay held while the program listens on it.
        vec![(PORT.to_owned(), true)]
    }

    fn configure(&self, context: &ProcessContext<'_>) -> ProcessConfig {
        let ProcessContext { cluster, task, attempt, rendezvous_port, .. } = context;
        let port = |endpoint: &Endpoint| endpoint.ports.get(PORT).copied().unwrap_or(0).to_string();
        let mut env = BTreeMap::new();
        let mut set = |name: &str, value: String| {
            env.insert(name.to_owned(), value);
        };
        set("DMLC_ROLE", task.role.to_string());
        set("DMLC_NUM_WORKER", instances(cluster, WORKER));
        set("DMLC_NUM_SERVER", instances(cluster, SERVER));
        set("DMLC_NUM_ATTEMPT", attempt.saturating_sub(1).to_string());
        set("DMLC_JOB_CLUSTER", "ydl".to_owned());
        // Rank within the role: there is a worker 0 and a server 0.
        set("DMLC_TASK_ID", task.index.to_string());
        let root = cluster.role(SCHEDULER).and_then(|member| member.endpoints.first());
        if let Some(root) = root {
            set("DMLC_PS_ROOT_URI", root.host.clone());
            set("DMLC_PS_ROOT_PORT", port(root));
        } else if let Some(rendezvous_port) = rendezvous_port {
            set("DMLC_PS_ROOT_URI", "127.0.0.1".to_owned());
            set("DMLC_PS_ROOT_PORT", rendezvous_port.to_string());
        }
        if let Some(own) = cluster.endpoint(task) {
            set("DMLC_NODE_HOST", own.host.clone());
            if task.role.as_str() != SCHEDULER {
                set("PORT", port(own));
            }
        }
        match task.role.as_str() {
            SERVER => set("DMLC_SERVER_ID", task.index.to_string()),
            WORKER => set("DMLC_WORKER_ID", task.index.to_string()),
            _ => {}
        }
        ProcessConfig { env, arguments: Vec::new() }
    }

    fn needs_ascending_ports(&self) -> bool {
        true
    }
}

fn instances(cluster: &Cluster, role: &str) -> String {
    cluster.role(role).map_or(0, |member| member.instances).to_string()
}
