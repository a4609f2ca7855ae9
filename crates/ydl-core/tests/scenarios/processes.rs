//! Tasks of several processes: ranks, and the frameworks that support them.

use ydl_core::{
    Cluster, Framework, TaskId,
    cluster::{Endpoint, RoleMembers},
    framework::ProcessContext,
};

fn cluster() -> Cluster {
    let member = |role: &str, instances: u32, processes: u32| RoleMembers {
        role: role.into(),
        instances,
        processes,
        indexes: Vec::new(),
        endpoints: vec![Endpoint::default(); instances as usize],
    };
    Cluster { round: 3, roles: vec![member("chief", 1, 1), member("worker", 2, 4)] }
}

#[test]
fn ranks_count_processes_in_the_order_of_their_tasks() {
    let cluster = cluster();
    assert_eq!((cluster.world_size(), cluster.process_count()), (3, 9));
    let first = |task: &str| cluster.first_process_rank(&task.parse().unwrap());
    assert_eq!([first("chief:0"), first("worker:0"), first("worker:1")], [0, 1, 5]);
}

#[test]
fn a_pytorch_process_knows_its_rank_in_task_role_and_job() {
    let (cluster, task): (_, TaskId) = (cluster(), "worker:1".parse().unwrap());
    let set_up = Framework::Pytorch.configure(&ProcessContext {
        cluster: &cluster,
        task: &task,
        local: 2,
        elastic: false,
        attempt: 1,
        rendezvous_port: Some(4711),
        flags: false,
    });
    let expected = [
        ("RANK", "7"),
        ("WORLD_SIZE", "9"),
        ("LOCAL_RANK", "2"),
        ("LOCAL_WORLD_SIZE", "4"),
        ("GROUP_RANK", "2"),
        ("GROUP_WORLD_SIZE", "3"),
        ("ROLE_RANK", "6"),
        ("ROLE_WORLD_SIZE", "8"),
        ("TORCHELASTIC_RESTART_COUNT", "2"),
    ];
    for (name, value) in expected {
        assert_eq!(set_up.env[name], value, "{name}");
    }
}
