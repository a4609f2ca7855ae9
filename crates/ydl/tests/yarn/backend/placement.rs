//! Requests for containers: nodes, labels, devices and constraints.

use super::{
    cluster, host, job,
    job::{Job, JobOptions, size, small},
    version,
};
use std::collections::BTreeSet;
use testbed::{Cluster, Version};
use ydl::backend::Backend;
use ydl_core::{
    Event, NodeName, Outcome,
    spec::{Placement, Resources},
};

#[tokio::test]
async fn an_excluded_node_gets_no_containers_until_it_is_readmitted() {
    let cluster = &*cluster();
    let mut job = Job::new(cluster, JobOptions::new("avoid")).await;
    let first = host(cluster, 1);
    job.avoid(&[&first]);
    let grants = job.request("worker", 6, &small()).await;
    let second = host(cluster, 2);
    let hosts: BTreeSet<_> = grants.iter().map(|grant| grant.node.as_str()).collect();
    assert_eq!(hosts, BTreeSet::from([second.as_str()]));
    job.avoid(&[&second]);
    let grants = job.request("worker", 6, &small()).await;
    let hosts: BTreeSet<_> = grants.iter().map(|grant| grant.node.as_str()).collect();
    assert_eq!(hosts, BTreeSet::from([first.as_str()]));
    job.close(Outcome::Succeeded).await;
}

#[tokio::test]
async fn labels_and_devices_place_containers() {
    let cluster = &*cluster();
    let mut job_options = JobOptions::new("places");
    let labelled = Placement { node_label: Some("gpu".to_owned()), ..Placement::default() };
    job_options.roles.push(("trainer", labelled));
    let mut job = Job::new(cluster, job_options).await;
    let with_gpu = Resources { gpus: 1, ..small() };
    job.set_asks("worker", 4, &small());
    job.set_asks("trainer", 2, &with_gpu);
    let grants = job.granted(6).await;
    let third = host(cluster, 3);
    for grant in &grants {
        let labelled_node = grant.node.as_str() == third;
        let trains = grant.role.as_str() == "trainer";
        assert_eq!(labelled_node, trains, "{grants:?}");
        assert_eq!(grant.resources.gpus, u32::from(trains), "{grants:?}");
    }
    job.close(Outcome::Succeeded).await;
}

#[tokio::test]
async fn a_released_grant_is_requested_again() {
    let cluster = &*cluster();
    let mut job = Job::new(cluster, JobOptions::new("again")).await;
    let size = small();
    let asks = ydl_core::Asks {
        asks: vec![ydl_core::Ask { role: "worker".into(), resources: size, count: 1 }],
        avoid: Vec::new(),
    };
    // A released grant does not change the asks, so no new asks are sent.
    job.yarn.set_asks(asks);
    for _ in 0..3 {
        let container = loop {
            let event = tokio::time::timeout(job::WAIT, job.yarn.next()).await;
            if let Event::Granted { grants } = event.expect("an event").expect("not fenced") {
                assert_eq!(grants.len(), 1);
                break grants[0].container.clone();
            }
        };
        job.yarn.release(container);
    }
    job.close(Outcome::Succeeded).await;
}

#[tokio::test]
async fn constraints_spread_a_role_and_select_its_nodes() {
    let cluster = &*cluster();
    if version() == Version::V2_10_2 {
        return;
    }
    let mut job_options = JobOptions::new("constraints");
    let alone = Placement { max_per_node: Some(1), ..Placement::default() };
    let fast = Placement {
        attributes: [("disk".to_owned(), "fast".to_owned())].into(),
        ..Placement::default()
    };
    let labelled = Placement {
        node_label: Some("gpu".to_owned()),
        max_per_node: Some(2),
        ..Placement::default()
    };
    job_options.roles = vec![("alone", alone), ("fast", fast), ("labelled", labelled)];
    let mut job = Job::new(cluster, job_options).await;
    job.set_asks("alone", 2, &small());
    job.set_asks("fast", 3, &small());
    job.set_asks("labelled", 2, &small());
    let grants = job.granted(7).await;
    let on = |role: &str| {
        let of_role = grants.iter().filter(|grant| grant.role.as_str() == role);
        of_role.map(|grant| grant.node.to_string()).collect::<Vec<_>>()
    };
    let (first, second) = (host(cluster, 1), host(cluster, 2));
    let spread: BTreeSet<_> = on("alone").into_iter().collect();
    assert_eq!(spread, BTreeSet::from([first.clone(), second]));
    assert_eq!(on("fast"), [first.clone(), first.clone(), first]);
    assert_eq!(on("labelled"), [host(cluster, 3), host(cluster, 3)]);
    // An ended container is replaced, and cancelled asks are not granted.
    job.set_asks("alone", 2, &small());
    job.set_asks("fast", 1, &small());
    job.granted(1).await;
    job.cancel_asks();
    job.set_asks("fast", 1, &small());
    assert_eq!(job.granted(1).await[0].role.as_str(), "fast");
    job.close(Outcome::Succeeded).await;
}

/// Waits until the last reported required nodes are these.
async fn wait_for_required_nodes(job: &mut Job, cluster: &Cluster, hosts: &[usize]) {
    let mut nodes: Vec<NodeName> =
        hosts.iter().map(|number| NodeName::from(host(cluster, *number).as_str())).collect();
    nodes.sort();
    job.wait_for("needed nodes", |job| {
        let reported = job.events.iter().rev().find_map(|event| match event {
            Event::NodesRequired { nodes } => Some(nodes.clone()),
            _ => None,
        });
        (reported.unwrap_or_default() == nodes).then_some(())
    })
    .await;
}

/// One of three nodes has an exclusive label: roles without the label can choose between two nodes, roles with it
/// cannot.
#[tokio::test]
async fn nodes_required_by_a_role_are_reported() {
    let cluster = &*cluster();
    let labelled = Placement { node_label: Some("gpu".to_owned()), ..Placement::default() };
    let mut job_options = JobOptions::new("needed");
    job_options.roles = vec![("worker", Placement::default()), ("labelled", labelled)];
    let mut job = Job::new(cluster, job_options).await;
    let (first, second) = (host(cluster, 1), host(cluster, 2));
    job.avoid(&[&first]);
    let grant = job.request("worker", 1, &small()).await.remove(0);
    assert_eq!(grant.node.as_str(), second);
    wait_for_required_nodes(&mut job, cluster, &[]).await;
    job.avoid(&[&first, &second]);
    wait_for_required_nodes(&mut job, cluster, &[1, 2]).await;
    job.avoid(&[]);
    wait_for_required_nodes(&mut job, cluster, &[]).await;
    let grant = job.request("labelled", 1, &small()).await.remove(0);
    assert_eq!(grant.node.as_str(), host(cluster, 3));
    wait_for_required_nodes(&mut job, cluster, &[3]).await;
    job.close(Outcome::Succeeded).await;
}

#[tokio::test]
async fn an_unsatisfiable_request_is_reported_with_numbers() {
    let cluster = &*cluster();
    let mut job = Job::new(cluster, JobOptions::new("giant")).await;
    job.set_asks("worker", 1, &size(1 << 20));
    let reason = job
        .wait_for("refusal", |job| {
            job.events.iter().find_map(|event| match event {
                Event::RequestUnsatisfiable { reason } => Some(reason.clone()),
                _ => None,
            })
        })
        .await;
    let expected = "a task of role `worker` needs 1024 GiB of memory, but the cluster's largest container has 8 GiB";
    assert_eq!(reason, expected);
    job.cancel_asks();
    let grants = job.request("worker", 1, &small()).await;
    assert_eq!(grants.len(), 1);
    job.close(Outcome::Succeeded).await;
}

#[tokio::test]
async fn a_label_not_allowed_in_the_queue_is_rejected_by_the_resource_manager() {
    let cluster = &*cluster();
    let mut job_options = JobOptions::new("no-label");
    job_options.cluster_options.node_label = Some("no_such".to_owned());
    let mut job = Job::new(cluster, job_options).await;
    job.set_asks("worker", 1, &small());
    let reason = job
        .wait_for("refusal", |job| {
            job.events.iter().find_map(|event| match event {
                Event::RequestUnsatisfiable { reason } => Some(reason.clone()),
                _ => None,
            })
        })
        .await;
    assert!(reason.contains("no_such"), "{reason}");
    job.close(Outcome::Succeeded).await;
}
