//! A master and its containers on a real cluster of three nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use super::cluster;
use crate::support::master::{
    Master, process_started, registration, scheduler_client, scratch, small, soon, version,
    wait_then_exit,
};
use testbed::Version;
use tokio::time::sleep;
use yarn_native::client::Submission;
use yarn_native::node::{ContainerErrorKind, NmClient, NmClientOptions, NodeError, Start};
use yarn_native::scheduler::{
    AllocateRequest, Ask, Constraint, PlacementScope, SchedulerError, SchedulingRequest, Update,
    UpdateKind,
};
use yarn_native::types::{
    ApplicationState, ContainerState, ExecutionType, ExitStatus, FinalStatus, LaunchContext,
    LocalResource, LocalResourceKind, Resource, Retry, RetryOn, Signal, Visibility,
};

#[tokio::test]
async fn containers_on_three_nodes_run_a_command_and_report_their_exit_codes() {
    let mut master = Master::new(cluster(), "three nodes").await;
    let response = &master.registered;
    assert!(response.capability_max.memory_mib >= 1024, "{response:?}");
    assert!(response.queue.ends_with("default"), "{response:?}");
    assert_eq!(response.recovered, []);
    let directory = scratch(cluster(), "three");
    let mut containers = Vec::new();
    for (node, code) in cluster().nodes().iter().zip([0, 3, 77]) {
        let container = master.obtain_on(&node.address.ip().to_string()).await;
        assert_eq!(container.node.to_string(), node.address.to_string());
        let file = directory.join(container.node.host.clone());
        let launch = LaunchContext::command(format!(
            "echo $NM_HOST > {}; echo trouble >&2; exit {code}",
            file.display()
        ));
        master.start(&container, &launch).await;
        containers.push((container, file, code));
    }
    for (container, file, code) in containers {
        let end = master.end_of(container.id).await;
        assert_eq!(end.exit, ExitStatus::Exited(code));
        assert_eq!(end.state, ContainerState::Complete);
        if code != 0 {
            let words = format!("exit code {code}");
            assert!(end.diagnostics.contains(&words), "{}", end.diagnostics);
        }
        let host = std::fs::read_to_string(file).expect("the container wrote it");
        assert_eq!(host.trim(), container.node.host);
    }
    master.finish().await;
    let report = master.report_when_over().await;
    assert_eq!(report.state, ApplicationState::Finished);
    assert_eq!(report.final_status, FinalStatus::Succeeded);
    assert_eq!(report.diagnostics, "all is well");
    assert!(report.unmanaged);
}

#[tokio::test]
async fn each_way_to_end_a_container_has_its_exit_status() {
    let mut master = Master::new(cluster(), "ends").await;
    let never = scratch(cluster(), "ends").join("never");
    let stay = wait_then_exit(&never, 0);
    let containers = master.obtain(5, small()).await;
    let [killed, stopped, released, signalled, unused] = &containers[..] else {
        panic!("{containers:?}");
    };
    let kill = LaunchContext::command("kill -9 $$; true");
    master.start(killed, &kill).await;
    for container in [stopped, released, signalled] {
        master.start(container, &stay).await;
    }
    for container in [stopped, signalled] {
        process_started(&never, container.id).await;
    }
    let stop = [stopped.id];
    let each = master.nodes.stop(&stopped.node, &stop, soon()).await;
    assert_eq!(each, Ok(vec![(stopped.id, Ok(()))]));
    let releases = vec![released.id, unused.id];
    let request = AllocateRequest { releases, ..AllocateRequest::default() };
    master.heartbeat(request).await.expect("a heartbeat");
    assert_eq!(master.end_of(killed.id).await.exit, ExitStatus::Exited(137));
    let end = master.end_of(stopped.id).await;
    assert!(matches!(end.exit, ExitStatus::KilledByMaster | ExitStatus::Exited(143)), "{end:?}");
    for container in [released, unused] {
        let end = master.end_of(container.id).await;
        assert_eq!(end.exit, ExitStatus::Aborted, "{end:?}");
    }
    let signal = Signal::Terminate;
    let (node, id) = (&signalled.node, signalled.id);
    let result = master.nodes.signal(node, id, signal, soon()).await;
    assert_eq!(result, Ok(()));
    assert_eq!(master.end_of(id).await.exit, ExitStatus::Exited(143));
    master.finish().await;
}

#[tokio::test]
async fn several_containers_start_in_one_call_and_a_second_start_is_rejected() {
    let mut master = Master::new(cluster(), "several").await;
    let host = cluster().nodes()[0].address.ip().to_string();
    let first = master.obtain_on(&host).await;
    let second = master.obtain_on(&host).await;
    let go = scratch(cluster(), "several").join("go");
    let launch = wait_then_exit(&go, 5);
    let starts = [&first, &second].map(|container| Start { container, launch: &launch });
    let outcome = master.nodes.start(&first.node, &starts, soon()).await;
    let mut started = outcome.expect("an answer").started;
    started.sort();
    assert_eq!(started, [first.id, second.id]);
    let again = master.try_start(&first, &launch).await;
    assert_eq!(again.failed[0].1.kind, ContainerErrorKind::AlreadyStarted);
    std::fs::write(go, "").expect("a file");
    for container in [&first, &second] {
        let end = master.end_of(container.id).await;
        assert_eq!(end.exit, ExitStatus::Exited(5));
    }
    master.finish().await;
}

#[tokio::test]
async fn an_excluded_node_gets_no_containers_until_it_is_readmitted() {
    let mut master = Master::new(cluster(), "blacklist").await;
    let excluded = cluster().nodes()[1].address.ip().to_string();
    let request = AllocateRequest { exclude: vec![excluded.clone()], ..AllocateRequest::default() };
    master.heartbeat(request).await.expect("a heartbeat");
    let containers = master.obtain(9, small()).await;
    let hosts: BTreeSet<_> = containers.iter().map(|c| c.node.host.clone()).collect();
    assert!(!hosts.contains(&excluded), "{hosts:?}");
    let request = AllocateRequest {
        readmit: vec![excluded.clone()],
        releases: containers.iter().map(|container| container.id).collect(),
        ..AllocateRequest::default()
    };
    master.heartbeat(request).await.expect("a heartbeat");
    let there = master.obtain_on(&excluded).await;
    assert_eq!(there.node.host, excluded);
    master.finish().await;
}

#[tokio::test]
async fn an_unsatisfiable_ask_is_rejected_and_the_master_continues() {
    let mut master = Master::new(cluster(), "too large").await;
    let giant = Ask::anywhere(1, Resource::new(1 << 30, 1), 1);
    let rejected =
        master.heartbeat(AllocateRequest { asks: vec![giant], ..AllocateRequest::default() });
    let rejected = rejected.await;
    assert!(matches!(rejected, Err(SchedulerError::Rejected { .. })), "{rejected:?}");
    let end = master.run(&LaunchContext::command("exit 4")).await;
    assert_eq!(end.exit, ExitStatus::Exited(4));
    master.finish().await;
}

#[tokio::test]
async fn all_fields_of_a_launch_context_take_effect() {
    let mut master = Master::new(cluster(), "launch").await;
    let directory = scratch(cluster(), "launch");
    let file = |name: &str, bytes: &[u8]| {
        let path = directory.join(name);
        std::fs::write(&path, bytes).expect("a file");
        path
    };
    let plain = file("plain.txt", b"plain\n");
    let script = file("script.sh", b"#!/bin/bash\ntest \"$GREETING\" = 'good day'\n");
    let inside = file("inside.txt", b"inside\n");
    let archive = directory.join("packed.tar.gz");
    let made = std::process::Command::new("tar")
        .arg("-czf")
        .arg(&archive)
        .arg("-C")
        .arg(&directory)
        .arg(inside.file_name().expect("a name"))
        .status();
    assert!(made.expect("tar").success());
    let mut launch = LaunchContext::command(
        "cat plain && ./script && cat packed/inside.txt && cat public \
         && test -s $HADOOP_TOKEN_FILE_LOCATION && exit 42",
    );
    let resource = |path: &Path, kind, visibility| local_resource(path, kind, visibility);
    launch.resources = BTreeMap::from([
        ("plain".to_owned(), resource(&plain, LocalResourceKind::File, Visibility::Application)),
        ("script".to_owned(), resource(&script, LocalResourceKind::File, Visibility::Private)),
        ("packed".to_owned(), resource(&archive, LocalResourceKind::Archive, Visibility::Private)),
        (
            // World-readable, in world-readable directories, on every machine.
            "public".to_owned(),
            resource(Path::new("/etc/passwd"), LocalResourceKind::File, Visibility::Public),
        ),
    ]);
    launch.environment.insert("GREETING".into(), "good day".into());
    // A credentials file without tokens and with the secret `sk`.
    let credentials = [b"HDTS\0\0\x01\x02sk\x03".as_slice(), &[1, 2, 3]].concat();
    launch.credentials = Some(credentials.into());
    let container = master.obtain(1, small()).await.remove(0);
    master.start(&container, &launch).await;
    let deadline = soon();
    let names = loop {
        let (node, ids) = (&container.node, [container.id]);
        let files = master.nodes.localisation(node, &ids, deadline).await;
        if version() == Version::V2_10_2 {
            assert!(matches!(files, Err(NodeError::Unsupported { .. })), "{files:?}");
            break Vec::new();
        }
        let (_, files) = files.expect("an answer").remove(0);
        let files = files.expect("files");
        if !files.is_empty() {
            break files.into_iter().map(|file| file.name).collect();
        }
        sleep(Duration::from_millis(20)).await;
    };
    assert!(names.iter().all(|name| launch.resources.contains_key(name)), "{names:?}");
    let end = master.end_of(container.id).await;
    assert_eq!(end.exit, ExitStatus::Exited(42), "{}", end.diagnostics);

    launch.resources = BTreeMap::from([("plain".to_owned(), {
        let mut stale = resource(&plain, LocalResourceKind::File, Visibility::Application);
        stale.modified += 1;
        stale
    })]);
    let end = master.run(&launch).await;
    assert!(!end.exit.is_success(), "{end:?}");
    assert!(end.diagnostics.contains("changed on src"), "{end:?}");
    master.finish().await;
}

fn local_resource(path: &Path, kind: LocalResourceKind, visibility: Visibility) -> LocalResource {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(path).expect("a file");
    LocalResource {
        location: format!("file://{}", path.display()).parse().expect("a path"),
        bytes: metadata.len(),
        modified: metadata.mtime() * 1000 + metadata.mtime_nsec() / 1_000_000,
        kind,
        visibility,
    }
}

#[tokio::test]
async fn a_node_without_the_auxiliary_service_rejects_the_container() {
    let mut master = Master::new(cluster(), "service").await;
    let mut launch = LaunchContext::command("true");
    launch.service_data.insert("no_such".into(), vec![1]);
    let container = master.obtain(1, small()).await.remove(0);
    let outcome = master.try_start(&container, &launch).await;
    let kind = outcome.failed.first().map(|(_, refusal)| refusal.kind);
    assert_eq!(kind, Some(ContainerErrorKind::NoSuchService), "{outcome:?}");
    master.finish().await;
}

#[tokio::test]
async fn a_node_retries_a_container_by_its_retry_policy() {
    let mut master = Master::new(cluster(), "retry").await;
    let marks = scratch(cluster(), "retry").join("marks");
    let marks = marks.display();
    let mut launch = LaunchContext::command(format!(
        "echo x >> {marks}; test $(wc -l < {marks}) -ge 3 && exit 0; exit 9"
    ));
    launch.retry = Some(Retry {
        on: RetryOn::Codes(vec![9]),
        max_retries: Some(5),
        interval: Duration::from_millis(1),
        window: None,
    });
    let end = master.run(&launch).await;
    assert_eq!(end.exit, ExitStatus::Exited(0), "{}", end.diagnostics);
    master.finish().await;
}

#[tokio::test]
async fn a_placement_constraint_spreads_containers_over_nodes() {
    let mut master = Master::new(cluster(), "spread").await;
    let ask = SchedulingRequest {
        priority: 5,
        request_id: 500,
        tags: BTreeSet::from(["worker".to_owned()]),
        resource: small(),
        // One more than can be placed.
        count: 4,
        constraint: Some(Constraint::anti_affinity(PlacementScope::Node, ["worker"])),
        execution: ExecutionType::Guaranteed,
    };
    let request = AllocateRequest { scheduling_requests: vec![ask], ..AllocateRequest::default() };
    master.heartbeat(request).await.expect("a heartbeat");
    if version() == Version::V2_10_2 {
        // Version 2.10 ignores the unknown field; plain asks still work.
        let end = master.run(&LaunchContext::command("exit 6")).await;
        assert_eq!(end.exit, ExitStatus::Exited(6));
        assert_eq!(master.granted, []);
    } else {
        let containers = master.of_request(500, 3).await;
        let hosts: BTreeSet<_> = containers.iter().map(|c| &c.node.host).collect();
        assert_eq!((containers.len(), hosts.len()), (3, 3), "{hosts:?}");
        // A later ask is granted, and the fourth container is not.
        let after = Ask { priority: 9, ..Ask::anywhere(501, small(), 1) };
        master.obtain_by(vec![after], 1).await;
        assert_eq!(master.granted, []);
        assert!(containers.iter().all(|c| c.tags == ["worker"]));
    }
    master.finish().await;
}

#[tokio::test]
async fn a_running_container_can_be_enlarged() {
    let mut master = Master::new(cluster(), "growth").await;
    let go = scratch(cluster(), "growth").join("go");
    let container = master.obtain(1, small()).await.remove(0);
    master.start(&container, &wait_then_exit(&go, 8)).await;
    let larger = loop {
        let update = Update {
            container: container.id,
            version: container.version,
            kind: UpdateKind::Increase,
            resource: Some(Resource::new(256, 1)),
        };
        let request = AllocateRequest { updates: vec![update], ..AllocateRequest::default() };
        master.answers.clear();
        master.heartbeat(request).await.expect("a heartbeat");
        let changed = master
            .until("the larger container", |master| {
                let mut answers = master.answers.iter();
                let changed = answers.find_map(|answer| answer.updated.first());
                let rejected = master.answers.iter().any(|a| !a.update_errors.is_empty());
                match changed {
                    Some(changed) => Some(Some(changed.container.clone())),
                    None => rejected.then_some(None),
                }
            })
            .await;
        // The update is rejected until the node has reported the container as running.
        if let Some(changed) = changed {
            break changed;
        }
    };
    assert_eq!(larger.resource.memory_mib, 256);
    assert_eq!(larger.version, container.version + 1);
    let result = master.nodes.update(&larger.node, &[&larger], soon()).await;
    assert_eq!(result, Ok(vec![(larger.id, Ok(()))]));
    std::fs::write(go, "").expect("a file");
    let end = master.end_of(container.id).await;
    assert_eq!(end.exit, ExitStatus::Exited(8));
    master.finish().await;
}

#[tokio::test]
async fn the_master_of_a_killed_application_gets_attempt_ended() {
    let mut master = Master::new(cluster(), "killed").await;
    let deadline = soon();
    while !master.client.kill(master.id, deadline).await.expect("killing") {
        sleep(Duration::from_millis(50)).await;
    }
    let result = loop {
        match master.heartbeat(AllocateRequest::default()).await {
            Ok(()) => assert!(tokio::time::Instant::now() < deadline),
            Err(error) => break error,
        }
    };
    assert!(matches!(result, SchedulerError::AttemptEnded { .. }), "{result:?}");
    let report = master.report_when_over().await;
    assert_eq!(report.state, ApplicationState::Killed);
}

#[tokio::test]
async fn a_restarted_unmanaged_master_recovers_its_containers() {
    let submission = |id| Submission { keep_containers: true, ..Submission::new(id, "twice") };
    let mut master = Master::submit(cluster(), submission).await;
    let go = scratch(cluster(), "twice").join("go");
    let container = master.obtain(1, small()).await.remove(0);
    master.start(&container, &wait_then_exit(&go, 21)).await;
    master.scheduler = scheduler_client(cluster(), master.token.clone());
    master.nodes = NmClient::new(NmClientOptions::default());
    let again = master.scheduler.register(&registration(), soon()).await;
    let again = again.expect("registered");
    let recovered: Vec<_> = again.recovered.iter().map(|container| container.id).collect();
    assert_eq!(recovered, [container.id]);
    assert_eq!(again.recovered[0].request_id, container.request_id);
    master.nodes.add_tokens(again.node_tokens);
    let status = master.status(&container.node, container.id).await;
    assert_eq!(status.state, ContainerState::Running);
    std::fs::write(go, "").expect("a file");
    let end = master.end_of(container.id).await;
    assert_eq!(end.exit, ExitStatus::Exited(21));
    master.finish().await;
}
