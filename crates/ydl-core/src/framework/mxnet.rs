//! MXNet 1.x: a scheduler, servers and workers that all run the same program (ps-lite).
//!
//! ps-lite watches nobody: when one process dies the others wait for ever, so every role restarts with the job.
//! Its scheduler numbers the nodes of a role by host, then by port, whatever `DMLC_RANK` says. Ports are handed
//! out in ascending order of index and every node binds the one in `PORT`, so on one host a worker's rank is its
//! index, in every round.

use super::{Given, RoleDefaults, SetUp};
use crate::{
    cluster::{Cluster, Endpoint},
    id::RoleName,
    spec::{Complaint, Completion, Draft, Resources, RoleSpec, Scope},
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
/// Importing MXNet takes about 130 MiB; the scheduler does little else.
const SCHEDULER_MEMORY_MIB: u64 = 512;

pub(super) fn role_defaults(role: &str) -> RoleDefaults {
    let completion = match role {
        SCHEDULER | SERVER => Completion::Service,
        _ => Completion::All,
    };
    RoleDefaults {
        completion,
        scope: Scope::Job,
    }
}

pub(super) fn command_of(role: &str) -> Option<&'static str> {
    matches!(role, SCHEDULER | SERVER).then_some(WORKER)
}

/// The scheduler is a task like any other, one that the user need not write down.
pub(super) fn add_roles(roles: &mut Vec<RoleSpec>) {
    if roles.iter().any(|role| role.name.as_str() == SCHEDULER) {
        return;
    }
    let Some(worker) = roles.iter().find(|role| role.name.as_str() == WORKER) else {
        return;
    };
    let scheduler = RoleSpec {
        name: RoleName::from(SCHEDULER),
        instances: 1,
        resources: Resources {
            memory_mib: SCHEDULER_MEMORY_MIB,
            vcores: 1,
            ..Resources::default()
        },
        command: worker.command.clone(),
        environment: worker.environment.clone(),
        env: worker.env.clone(),
        restart: worker.restart,
        completion: Completion::Service,
        tolerate: 0,
        memory_growth: None,
        ports: Vec::new(),
        placement: Default::default(),
    };
    roles.push(scheduler);
}

pub(super) fn complaints(draft: &Draft) -> Vec<Complaint> {
    let mut all = Vec::new();
    let count = |name: &str| {
        draft
            .roles
            .iter()
            .find(|role| role.name.as_str() == name)
            .map_or(0, |role| role.instances)
    };
    let mut add = |key: &str, what: String, hint: &str| {
        all.push(Complaint {
            key: key.to_owned(),
            what,
            hint: Some(hint.to_owned()),
        });
    };
    if count(WORKER) == 0 {
        let what = "an MXNet job needs the role `worker`".to_string();
        add(
            "roles",
            what,
            "roles: {worker: {instances: 2, run: …}, server: {instances: 2}}",
        );
    }
    if count(SERVER) == 0 {
        let what = "an MXNet job needs the role `server`".to_string();
        add(
            "roles",
            what,
            "add `server: {instances: 1}`; it runs the worker's command",
        );
    }
    if count(SCHEDULER) > 1 {
        let what = format!("an MXNet job has one scheduler, not {}", count(SCHEDULER));
        add(
            "roles.scheduler.instances",
            what,
            "leave the role out: ydl adds it",
        );
    }
    if !draft.gang.together {
        let what = "MXNet's processes must start together".to_string();
        add("gang", what, "leave `gang` out, or set `together: true`");
    }
    for role in &draft.roles {
        let known = [WORKER, SERVER, SCHEDULER].contains(&role.name.as_str());
        if !known {
            let what = format!("MXNet knows no role `{}`", role.name);
            add(
                &format!("roles.{}", role.name),
                what,
                "its roles are `worker` and `server`",
            );
        }
    }
    all
}

pub(super) fn ports(_role: &str) -> Vec<(String, bool)> {
    // ZeroMQ sets SO_REUSEADDR, so the port can stay held while the program listens on it.
    vec![(PORT.to_owned(), true)]
}

fn instances(cluster: &Cluster, role: &str) -> String {
    cluster
        .role(role)
        .map_or(0, |member| member.instances)
        .to_string()
}

pub(super) fn set_up(given: &Given<'_>) -> SetUp {
    let Given {
        cluster,
        task,
        attempt,
        ..
    } = given;
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
    if let Some(root) = cluster
        .role(SCHEDULER)
        .and_then(|member| member.endpoints.first())
    {
        set("DMLC_PS_ROOT_URI", root.host.clone());
        set("DMLC_PS_ROOT_PORT", port(root));
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
    SetUp {
        env,
        arguments: Vec::new(),
    }
}
