//! Configuration of MXNet programs.

use expect_test::{Expect, expect};
use std::collections::BTreeMap;
use ydl_core::{
    Cluster, Endpoint, Framework, JobSpecBuilder, RoleMembers, RoleName, TaskId,
    framework::ProcessContext, spec::RestartScope,
};

fn cluster() -> Cluster {
    let endpoints = |first: u16, count: u16| {
        let each = (0..count).map(|at| Endpoint {
            host: format!("10.0.0.{}", at + 1),
            ports: BTreeMap::from([("ps".to_string(), first + at)]),
        });
        each.collect::<Vec<_>>()
    };
    let member = |role: &str, first: u16, count: u16| RoleMembers {
        role: RoleName::from(role),
        instances: u32::from(count),
        processes: 1,
        indexes: Vec::new(),
        endpoints: endpoints(first, count),
    };
    Cluster {
        round: 2,
        roles: vec![
            member("worker", 20_000, 3),
            member("server", 21_000, 2),
            member("scheduler", 22_000, 1),
        ],
    }
}

fn check(task: &str, attempt: u32, expected: Expect) {
    let task: TaskId = task.parse().unwrap();
    let set_up = Framework::Mxnet.configure(&ProcessContext {
        cluster: &cluster(),
        task: &task,
        local: 0,
        elastic: false,
        attempt,
        rendezvous_port: None,
        flags: false,
    });
    assert!(set_up.arguments.is_empty());
    let lines = set_up.env.iter().map(|(name, value)| format!("{name}={value}"));
    expected.assert_eq(&lines.collect::<Vec<_>>().join("\n"));
}

#[test]
fn a_worker_knows_the_scheduler_and_itself() {
    check(
        "worker:2",
        1,
        expect![[r#"
            DMLC_JOB_CLUSTER=ydl
            DMLC_NODE_HOST=10.0.0.3
            DMLC_NUM_ATTEMPT=0
            DMLC_NUM_SERVER=2
            DMLC_NUM_WORKER=3
            DMLC_PS_ROOT_PORT=22000
            DMLC_PS_ROOT_URI=10.0.0.1
            DMLC_ROLE=worker
            DMLC_TASK_ID=2
            DMLC_WORKER_ID=2
            PORT=20002"#]],
    );
}

#[test]
fn the_masters_scheduler_is_reached_through_the_agent() {
    let mut cluster = cluster();
    cluster.roles.pop();
    let set_up = Framework::Mxnet.configure(&ProcessContext {
        cluster: &cluster,
        task: &"worker:1".parse().unwrap(),
        local: 0,
        elastic: false,
        attempt: 1,
        rendezvous_port: Some(4711),
        flags: false,
    });
    assert_eq!(set_up.env["DMLC_PS_ROOT_URI"], "127.0.0.1");
    assert_eq!(set_up.env["DMLC_PS_ROOT_PORT"], "4711");
    assert_eq!(set_up.env["DMLC_NODE_HOST"], "10.0.0.2");
}

#[test]
fn a_server_knows_the_scheduler_and_itself() {
    check(
        "server:1",
        3,
        expect![[r#"
            DMLC_JOB_CLUSTER=ydl
            DMLC_NODE_HOST=10.0.0.2
            DMLC_NUM_ATTEMPT=2
            DMLC_NUM_SERVER=2
            DMLC_NUM_WORKER=3
            DMLC_PS_ROOT_PORT=22000
            DMLC_PS_ROOT_URI=10.0.0.1
            DMLC_ROLE=server
            DMLC_SERVER_ID=1
            DMLC_TASK_ID=1
            PORT=21001"#]],
    );
}

#[test]
fn the_scheduler_listens_at_the_announced_address() {
    check(
        "scheduler:0",
        1,
        expect![[r#"
            DMLC_JOB_CLUSTER=ydl
            DMLC_NODE_HOST=10.0.0.1
            DMLC_NUM_ATTEMPT=0
            DMLC_NUM_SERVER=2
            DMLC_NUM_WORKER=3
            DMLC_PS_ROOT_PORT=22000
            DMLC_PS_ROOT_URI=10.0.0.1
            DMLC_ROLE=scheduler
            DMLC_TASK_ID=0"#]],
    );
}

#[test]
fn ranks_follow_the_order_of_the_roles() {
    let cluster = cluster();
    assert_eq!(cluster.world_size(), 6);
    assert_eq!(cluster.rank(&"worker:2".parse().unwrap()), 2);
    assert_eq!(cluster.rank(&"server:1".parse().unwrap()), 4);
    assert_eq!(cluster.rank(&"scheduler:0".parse().unwrap()), 5);
}

fn builder(roles: &[&str]) -> JobSpecBuilder {
    let roles: Vec<_> = roles.iter().map(|name| (*name, 1)).collect();
    crate::builder::builder(Framework::Mxnet, &roles)
}

fn complaints(builder: JobSpecBuilder) -> String {
    let all = builder.build().err().unwrap_or_default();
    let lines = all.iter().map(ToString::to_string);
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_job_uses_the_masters_scheduler_or_its_own() {
    for (roles, door) in
        [(&["worker", "server"][..], true), (&["worker", "server", "scheduler"], false)]
    {
        let builder = builder(roles);
        assert_eq!(Framework::Mxnet.uses_rendezvous(&builder.roles), door);
        assert_eq!(complaints(builder), "");
    }
}

#[test]
fn a_job_needs_workers_and_servers_only() {
    expect![[r#"
        `roles`: an MXNet job needs the role `server`
        `roles.chief`: MXNet has no role `chief`"#]]
    .assert_eq(&complaints(builder(&["worker", "chief"])));
    expect!["`roles`: an MXNet job needs the role `worker`"]
        .assert_eq(&complaints(builder(&["server"])));
}

#[test]
fn a_job_has_one_scheduler_and_starts_together() {
    let mut builder = builder(&["worker", "server", "scheduler"]);
    builder.roles[2].instances = 2;
    builder.gang.together = false;
    expect![[r#"
        `roles.scheduler.instances`: an MXNet job has one scheduler, not 2
        `gang`: MXNet's processes must start together"#]]
    .assert_eq(&complaints(builder));
}

#[test]
fn only_a_worker_is_replaced_alone() {
    let mut job = builder(&["worker", "server"]);
    job.roles[0].restart.scope = RestartScope::Task;
    assert_eq!(complaints(job.clone()), "");
    job.roles[1].restart.scope = RestartScope::Task;
    expect!["`roles.server.restart.scope`: the state of an MXNet server is lost with it"]
        .assert_eq(&complaints(job.clone()));
    job.roles[0].restart.scope = RestartScope::Role;
    job.roles[1].restart.scope = RestartScope::Job;
    expect!["`roles.worker.restart.scope`: MXNet's processes must restart together"]
        .assert_eq(&complaints(job));
    let mut own = builder(&["worker", "server", "scheduler"]);
    own.roles[0].restart.scope = RestartScope::Task;
    expect!["`roles.worker.restart.scope`: MXNet's own scheduler does not readmit a worker"]
        .assert_eq(&complaints(own));
}
