//! Operations on a running container.

use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use yarn_native::scheduler::{AllocateRequest, Ask, Update, UpdateKind};
use yarn_native::types::{ExecutionType, ExitStatus, LaunchContext, LocalResourceKind, Visibility};

use super::{cluster, local_resource};
use crate::support::master::{Master, scratch, small, soon, wait_then_exit};

/// Returns a launch context that records its name and directory, and runs until a file exists.
fn recording_launch(name: &str, directory: &Path, code: i32) -> LaunchContext {
    let directory = directory.display();
    LaunchContext::command(format!(
        "pwd > {directory}/place; echo {name} >> {directory}/marks; \
         for i in {{1..2000}}; do test -e {directory}/go && exit {code}; sleep 0.1; done"
    ))
}

/// Waits until these processes have been started in the container, in this order.
async fn until_marks(directory: &Path, names: &[&str]) {
    let deadline = soon();
    loop {
        let marks = std::fs::read_to_string(directory.join("marks")).unwrap_or_default();
        if marks.lines().eq(names.iter().copied()) {
            return;
        }
        assert!(Instant::now() < deadline, "{marks:?} is not {names:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_container_can_be_localised_reinitialised_rolled_back_and_committed() {
    let mut master = Master::new(cluster(), "anew").await;
    let directory = scratch(cluster(), "anew");
    let container = master.obtain(1, small()).await.remove(0);
    let (node, id) = (container.node.clone(), container.id);
    master.start(&container, &recording_launch("first", &directory, 1)).await;
    until_marks(&directory, &["first"]).await;
    master.until_running(&container).await;
    let nodes = master.nodes.clone();

    let path = directory.join("late.txt");
    std::fs::write(&path, "late\n").expect("a file");
    let late = local_resource(&path, LocalResourceKind::File, Visibility::Application);
    let localised = nodes.localise(&node, id, [("late", &late)], soon()).await;
    localised.expect("localised");
    let place = std::fs::read_to_string(directory.join("place")).expect("a place");
    let (link, deadline) = (Path::new(place.trim()).join("late"), soon());
    while std::fs::read_to_string(&link).ok().as_deref() != Some("late\n") {
        assert!(Instant::now() < deadline, "{} is not there", link.display());
        sleep(Duration::from_millis(50)).await;
    }

    let second = recording_launch("second", &directory, 2);
    let reinitialised = nodes.reinitialise(&node, id, &second, false, soon()).await;
    reinitialised.expect("reinitialised");
    until_marks(&directory, &["first", "second"]).await;
    master.until_running(&container).await;
    let back = nodes.roll_back(&node, id, soon()).await;
    back.expect("rolled back");
    until_marks(&directory, &["first", "second", "first"]).await;
    master.until_running(&container).await;

    let third = recording_launch("third", &directory, 3);
    let reinitialised = nodes.reinitialise(&node, id, &third, false, soon()).await;
    reinitialised.expect("reinitialised");
    until_marks(&directory, &["first", "second", "first", "third"]).await;
    master.until_running(&container).await;
    nodes.commit(&node, id, soon()).await.expect("committed");
    let back = nodes.roll_back(&node, id, soon()).await;
    assert!(back.is_err(), "a committed process stays");
    nodes.restart(&node, id, soon()).await.expect("restarted");
    until_marks(&directory, &["first", "second", "first", "third", "third"]).await;
    std::fs::write(directory.join("go"), "").expect("a file");
    let end = master.end_of(id).await;
    assert_eq!(end.exit, ExitStatus::Exited(3), "{end:?}");
    master.finish().await;
}

#[tokio::test]
async fn an_opportunistic_container_can_be_promoted() {
    let mut master = Master::new(cluster(), "promoted").await;
    let id = master.fresh_id();
    let ask = Ask {
        execution: ExecutionType::Opportunistic,
        enforce_execution: true,
        ..Ask::anywhere(id, small(), 1)
    };
    let container = master.obtain_by(vec![ask], 1).await.remove(0);
    assert_eq!(container.execution, ExecutionType::Opportunistic);
    let go = scratch(cluster(), "promoted").join("go");
    master.start(&container, &wait_then_exit(&go, 9)).await;
    master.until_running(&container).await;
    let status = master.status(&container.node, container.id).await;
    assert_eq!(status.execution, ExecutionType::Opportunistic);

    let update = Update {
        container: container.id,
        version: container.version,
        kind: UpdateKind::Promote,
        resource: None,
    };
    let request = AllocateRequest { updates: vec![update], ..AllocateRequest::default() };
    master.heartbeat(request).await.expect("a heartbeat");
    let promoted = master
        .until("the promotion", |master| {
            let refused = master.answers.iter().flat_map(|answer| &answer.update_errors);
            assert_eq!(refused.collect::<Vec<_>>(), Vec::<&_>::new());
            let mut updated = master.answers.iter().flat_map(|answer| &answer.updated);
            updated.next().cloned()
        })
        .await;
    assert_eq!(promoted.kind, UpdateKind::Promote);
    let promoted = promoted.container;
    assert_eq!(promoted.execution, ExecutionType::Guaranteed);
    assert_eq!(promoted.version, container.version + 1);
    let updated = master.nodes.update(&promoted.node, &[&promoted], soon()).await;
    updated.expect("an answer")[0].1.as_ref().expect("updated");
    let deadline = soon();
    while master.status(&promoted.node, promoted.id).await.execution != ExecutionType::Guaranteed {
        assert!(Instant::now() < deadline, "the node did not apply the update");
        sleep(Duration::from_millis(50)).await;
    }
    std::fs::write(go, "").expect("a file");
    let end = master.end_of(container.id).await;
    assert_eq!(end.exit, ExitStatus::Exited(9), "{end:?}");
    master.finish().await;
}
