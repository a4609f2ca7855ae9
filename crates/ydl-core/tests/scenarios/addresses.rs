//! Configuration of frameworks that need only addresses: TensorFlow and JAX.

use expect_test::{Expect, expect};
use std::collections::BTreeMap;
use ydl_core::{
    Cluster, Endpoint, Framework, JobSpecBuilder, RoleMembers, RoleName,
    framework::{ProcessConfig, ProcessContext},
    spec::{Command, Completion, RestartScope},
};

fn cluster(port: &str, roles: &[(&str, u16)]) -> Cluster {
    let member = |(at, (role, count)): (usize, &(&str, u16))| RoleMembers {
        role: RoleName::from(*role),
        instances: u32::from(*count),
        processes: 1,
        indexes: Vec::new(),
        endpoints: (0..*count)
            .map(|index| Endpoint {
                host: format!("10.0.{at}.{index}"),
                ports: BTreeMap::from([(port.to_owned(), 20_000 + index)]),
            })
            .collect(),
    };
    Cluster { round: 1, roles: roles.iter().enumerate().map(member).collect() }
}

fn told(framework: Framework, cluster: &Cluster, task: &str, flags: bool) -> ProcessConfig {
    framework.configure(&ProcessContext {
        cluster,
        task: &task.parse().unwrap(),
        local: 0,
        elastic: false,
        attempt: 1,
        rendezvous_port: None,
        flags,
    })
}

fn check(framework: Framework, cluster: &Cluster, task: &str, flags: bool, expected: Expect) {
    let ProcessConfig { env, arguments } = told(framework, cluster, task, flags);
    let env = env.iter().map(|(name, value)| format!("{name}={value}"));
    let lines: Vec<_> = env.chain(arguments).collect();
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn tensorflows_cluster_excludes_evaluator_and_tensorboard() {
    let trains = [("chief", 1), ("worker", 2), ("ps", 1)];
    let roles = [&trains[..], &[("evaluator", 1), ("tensorboard", 1)]].concat();
    let cluster = cluster("tf", &roles);
    check(
        Framework::Tensorflow,
        &cluster,
        "worker:1",
        false,
        expect![[
            r#"TF_CONFIG={"cluster": {"chief": ["10.0.0.0:20000"], "worker": ["10.0.1.0:20000", "10.0.1.1:20001"], "ps": ["10.0.2.0:20000"]}, "task": {"type": "worker", "index": 1}}"#
        ]],
    );
    let evaluator = &told(Framework::Tensorflow, &cluster, "evaluator:0", false).env["TF_CONFIG"];
    let own = r#""task": {"type": "evaluator", "index": 0}"#;
    assert!(evaluator.contains(own) && !evaluator.contains(r#""evaluator": ["#));
    let parsed: serde_json::Value = serde_json::from_str(evaluator).unwrap();
    assert_eq!(parsed["cluster"]["ps"][0], "10.0.2.0:20000");
}

#[test]
fn tensorflow_1_flags_follow_the_programs_own() {
    check(
        Framework::Tensorflow,
        &cluster("tf", &[("ps", 2), ("worker", 1)]),
        "ps:1",
        true,
        expect![[r#"
            TF_CONFIG={"cluster": {"ps": ["10.0.0.0:20000", "10.0.0.1:20001"], "worker": ["10.0.1.0:20000"]}, "task": {"type": "ps", "index": 1}}
            --ps_hosts=10.0.0.0:20000,10.0.0.1:20001
            --worker_hosts=10.0.1.0:20000
            --job_name=ps
            --task_index=1"#]],
    );
}

#[test]
fn the_jax_coordinator_is_in_the_first_process() {
    let cluster = cluster("jax", &[("worker", 3)]);
    let first = expect![[r#"
        JAX_COORDINATOR_ADDRESS=10.0.0.0:20000
        JAX_COORDINATOR_BIND_ADDRESS=10.0.0.0:20000
        JAX_NUM_PROCESSES=3
        JAX_PROCESS_ID=0"#]];
    check(Framework::Jax, &cluster, "worker:0", false, first);
    let last = expect![[r#"
        JAX_COORDINATOR_ADDRESS=10.0.0.0:20000
        JAX_NUM_PROCESSES=3
        JAX_PROCESS_ID=2"#]];
    check(Framework::Jax, &cluster, "worker:2", false, last);
}

#[test]
fn an_ipv6_address_is_put_in_brackets() {
    let endpoint =
        Endpoint { host: "fd00::7".to_owned(), ports: BTreeMap::from([("tf".to_owned(), 4711)]) };
    assert_eq!(endpoint.address("tf").as_deref(), Some("[fd00::7]:4711"));
    assert_eq!(endpoint.address("jax"), None);
}

#[test]
fn completion_defaults_follow_from_the_roles() {
    use Completion::{All, Follows, Service};
    let of = |role: &str, roles: &[&str]| Framework::Tensorflow.role_defaults(role, roles);
    for (role, roles, completion) in [
        ("worker", &["worker"][..], All),
        ("worker", &["chief", "worker"], All),
        ("worker", &["worker", "ps"], All),
        ("worker", &["chief", "worker", "ps"], Service),
        ("worker", &["master", "worker", "ps"], Service),
        ("ps", &["worker", "ps"], Service),
        ("chief", &["chief", "worker", "ps"], All),
        ("evaluator", &["chief", "worker", "ps", "evaluator"], Follows),
        ("evaluator", &["evaluator", "tensorboard"], All),
        ("tensorboard", &["evaluator", "tensorboard"], Follows),
    ] {
        assert_eq!(of(role, roles).completion, completion, "{role} of {roles:?}");
    }
    assert_eq!(of("evaluator", &[]).scope, RestartScope::Task);
    assert_eq!(of("ps", &[]).scope, RestartScope::Job);
}

fn builder(roles: &[(&str, u32)]) -> JobSpecBuilder {
    crate::builder::builder(Framework::Tensorflow, roles)
}

fn complaints(builder: JobSpecBuilder) -> String {
    let all = builder.build().err().unwrap_or_default();
    let lines = all.iter().map(ToString::to_string);
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_tensorflow_job_has_only_its_roles() {
    for well in [
        &[("worker", 2)][..],
        &[("chief", 1)],
        &[("chief", 1), ("worker", 2), ("ps", 2), ("evaluator", 1)],
        &[("master", 1), ("worker", 1), ("ps", 1)],
        &[("chief", 1), ("tensorboard", 1)],
        &[("evaluator", 1)],
    ] {
        assert_eq!(complaints(builder(well)), "", "{well:?}");
    }
    expect![[r#"
        `roles`: a TensorFlow job needs the role `worker`, `chief` or `evaluator`
        `roles.tensorboard.instances`: a TensorFlow job has one tensorboard, not 2
        `roles.server`: TensorFlow has no role `server`"#]]
    .assert_eq(&complaints(builder(&[("tensorboard", 2), ("server", 1)])));
    expect![[r#"
        `roles.chief.instances`: a TensorFlow job has one chief, not 3
        `roles.master`: `master` is an older name of `chief`: a job has one of them"#]]
    .assert_eq(&complaints(builder(&[("chief", 3), ("master", 1)])));
}

#[test]
fn flags_are_for_programs_of_tensorflow_with_workers_and_servers() {
    let flagged = |roles: &[(&str, u32)]| JobSpecBuilder { cluster_flags: true, ..builder(roles) };
    assert_eq!(complaints(flagged(&[("worker", 2), ("ps", 1)])), "");
    let mut script = flagged(&[("chief", 1), ("worker", 1)]);
    script.roles[1].command = Command::Shell("python train.py".into());
    expect![[r#"
        `roles.chief`: flags support only `ps` and `worker`, not `chief`
        `roles.worker.shell`: a script gets no flags"#]]
    .assert_eq(&complaints(script));
    let foreign = JobSpecBuilder { framework: Framework::None, ..flagged(&[("worker", 1)]) };
    expect!["`cluster_flags`: only TensorFlow programs have such flags"]
        .assert_eq(&complaints(foreign));
}
