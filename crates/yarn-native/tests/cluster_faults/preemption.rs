//! Preemption by the scheduler on a real cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::master::{Master, cluster_lock, options, scratch, wait_then_exit};
use testbed::{Cluster, Options, Queue};
use yarn_native::client::Submission;
use yarn_native::scheduler::{AllocateRequest, Ask};
use yarn_native::types::{ContainerId, ExitStatus, Resource};

#[tokio::test]
async fn a_queue_reclaims_its_share_after_a_preemption_notice() {
    let _lock = cluster_lock().await;
    let cluster = Cluster::start(Options {
        nodes: 1,
        queues: vec![Queue::new("default", 50), Queue::new("other", 50)],
        preemption: Some(Duration::from_secs(2)),
        ..options()
    });
    let cluster = cluster.unwrap_or_else(|failure| panic!("{failure}"));
    let size = Resource::new(1024, 1);
    let mut rich = Master::new(&cluster, "rich").await;
    let go = scratch(&cluster, "preemption").join("go");
    let containers = rich.obtain(8, size.clone()).await;
    for container in &containers {
        rich.start(container, &wait_then_exit(&go, 0)).await;
    }
    let submission = |id| Submission { queue: "other".into(), ..Submission::new(id, "poor") };
    let mut poor = Master::submit(&cluster, submission).await;
    let request =
        AllocateRequest { asks: vec![Ask::anywhere(1, size, 2)], ..AllocateRequest::default() };
    poor.heartbeat(request).await.expect("a heartbeat");
    let named: BTreeSet<ContainerId> = rich
        .until("a notice", |rich| {
            let notices = rich.answers.iter().flat_map(|answer| &answer.preemption);
            let named = notices.flat_map(|notice| notice.strict.iter().chain(&notice.negotiable));
            let named: BTreeSet<ContainerId> = named.copied().collect();
            (!named.is_empty()).then_some(named)
        })
        .await;
    let ours: BTreeSet<ContainerId> = containers.iter().map(|container| container.id).collect();
    assert!(named.is_subset(&ours), "{named:?}");
    rich.until("the end of two", |rich| (rich.ended.len() >= 2).then_some(())).await;
    for end in rich.ended.values() {
        assert_eq!(end.exit, ExitStatus::Preempted, "{end:?}");
    }
    assert_eq!(poor.of_request(1, 2).await.len(), 2);
    poor.finish().await;
    rich.finish().await;
}
