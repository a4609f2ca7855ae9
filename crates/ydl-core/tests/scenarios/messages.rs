//! Names, times and sizes as people read and write them, and every complaint about a job.

mod elastic;
mod issues;
mod serving;

use std::collections::BTreeMap;
use ydl_core::{
    Cluster, Endpoint, Framework, RoleMembers, RoleName, Span, TaskId, Time,
    spec::{Backoff, Memory, Resources},
};

#[test]
fn a_span_is_formatted_in_its_two_largest_units() {
    let told = |ms: u64| Span(ms).to_string();
    assert_eq!(told(0), "0s");
    assert_eq!(told(340), "340ms");
    assert_eq!(told(12_000), "12s");
    assert_eq!(told(12_345), "12s");
    assert_eq!(told(60_000), "1m");
    assert_eq!(told(61_000), "1m 1s");
    assert_eq!(told(3_600_000 + 5 * 60_000 + 59_000), "1h 5m");
    assert_eq!(told(3_600_000 + 59_000), "1h 59s");
    assert_eq!(told(2 * 86_400_000), "2d");
    assert_eq!(format!("[{:>6}]", Span::seconds(5)), "[    5s]");
}

#[test]
fn time_neither_overflows_nor_becomes_negative() {
    assert_eq!(Time(u64::MAX) + Span::hours(1), Time(u64::MAX));
    assert_eq!(Time(1) - Time(5), Span(0));
    assert_eq!(Span(u64::MAX) + Span(1), Span(u64::MAX));
}

#[test]
fn a_task_id_round_trips() {
    let task: TaskId = "worker:3".parse().unwrap();
    assert_eq!(task.role, RoleName::from("worker"));
    assert_eq!(task.index, 3);
    assert_eq!(task.to_string(), "worker:3");
    assert_eq!(serde_json::to_string(&task).unwrap(), "\"worker:3\"");
    assert_eq!(serde_json::from_str::<TaskId>("\"worker:3\"").unwrap(), task);
}

#[test]
fn an_invalid_task_id_is_rejected_with_an_example() {
    for text in ["worker", ":3", "worker:", "worker:x", "worker:-1", "worker:4294967296", ""] {
        let complaint = text.parse::<TaskId>().unwrap_err();
        let expected = format!("invalid task `{text}`: expected a task such as `worker:3`");
        assert_eq!(complaint, expected);
    }
}

#[test]
fn a_size_is_formatted_with_a_suitable_unit() {
    let told = |mib: u64| Memory(mib).to_string();
    assert_eq!(told(512), "512 MiB");
    assert_eq!(told(1024), "1 GiB");
    assert_eq!(told(4300), "4.1 GiB");
    let resources = Resources {
        memory_mib: 2048,
        vcores: 2,
        gpus: 1,
        other: BTreeMap::from([("yarn.io/fpga".into(), 3)]),
    };
    assert_eq!(resources.to_string(), "2 GiB, 2 vcores, 1 GPU, 3 `yarn.io/fpga`");
}

#[test]
fn a_backoff_doubles_up_to_its_maximum_and_never_overflows() {
    let backoff = Backoff { initial: Span::seconds(1), max: Span::minutes(1) };
    assert_eq!(backoff.delay(1), Span::seconds(1));
    assert_eq!(backoff.delay(4), Span::seconds(8));
    assert_eq!(backoff.delay(7), Span::minutes(1));
    assert_eq!(backoff.delay(u32::MAX), Span::minutes(1));
}

#[test]
fn an_unknown_framework_is_rejected_with_the_known_ones() {
    assert_eq!("mxnet".parse(), Ok(Framework::Mxnet));
    let complaint = "tensorflow1".parse::<Framework>().unwrap_err();
    assert!(complaint.starts_with("unknown framework `tensorflow1`: expected one of `none`"));
}

#[test]
fn ranks_have_no_gaps_when_tasks_are_missing() {
    let endpoint = |host: &str| Endpoint { host: host.into(), ..Endpoint::default() };
    let cluster = Cluster {
        round: 3,
        roles: vec![
            RoleMembers {
                role: RoleName::from("chief"),
                instances: 1,
                processes: 1,
                indexes: Vec::new(),
                endpoints: vec![endpoint("a")],
            },
            RoleMembers {
                role: RoleName::from("worker"),
                instances: 3,
                processes: 1,
                indexes: vec![0, 2, 3],
                endpoints: vec![endpoint("b"), endpoint("c"), endpoint("d")],
            },
        ],
    };
    let told = cluster.tasks().map(|task| {
        let host = &cluster.endpoint(&task).expect("it is in the round").host;
        format!("{task} {} {host}", cluster.rank(&task))
    });
    let told: Vec<_> = told.collect();
    assert_eq!(told, ["chief:0 0 a", "worker:0 1 b", "worker:2 2 c", "worker:3 3 d"]);
    assert_eq!(cluster.world_size(), 4);
    assert_eq!(cluster.endpoint(&"worker:1".parse().unwrap()), None);
    let text = serde_json::to_string(&cluster).unwrap();
    assert_eq!(serde_json::from_str::<Cluster>(&text).unwrap(), cluster);
    assert_eq!(text.matches("indexes").count(), 1, "{text}");
}
