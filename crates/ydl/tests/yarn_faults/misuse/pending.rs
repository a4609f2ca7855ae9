//! Waiting jobs, and masters that do not respond.

use super::{exclusive_cluster, shared_cluster};
use std::process::Command;
use yarn_native::types::FinalStatus;
use ydl_testkit::yarn::{
    Workspace, application,
    attached::{AttachedSubmit, release, wait_started, waiting_job},
    digits::{processes, wait_cleaned_up},
    wait_finished, wait_for, wait_running,
};

#[test]
fn waiting_jobs_show_their_queue_position_and_missing_files_are_named() {
    let cluster = &*shared_cluster();
    let workspace = Workspace::new(cluster);
    // 819 MiB is a tenth of two nodes; a master takes 256.
    let full = waiting_job(&workspace, 1, "queue: tiny").replace("128 MiB", "384 MiB");
    let holder = workspace.detach(&full);
    wait_started(&workspace, 1);
    let next = "{queue: tiny, roles: {worker: {memory: 128 MiB, run: 'true'}}}";
    // Another user, whose files are not in the nodes' caches.
    let (second, gone) = AttachedSubmit::start(&Workspace::of(cluster, "careless"), next);
    wait_for("the second job to wait", || second.stderr().contains("waiting: ").then_some(()));
    let (third, late) = AttachedSubmit::start(&Workspace::new(cluster), next);
    wait_for("the position of the third job", || {
        let output = third.stderr();
        output.contains("waiting, behind 1 other job of its queue: ").then_some(())
    });
    // The files of the second job are deleted before its master starts.
    let content = "/user/careless/.ydl/content";
    cluster.fs(&["-rm", "-r", "-skipTrash", content]).expect("removed");
    release(&workspace);
    let ran = second.finish();
    assert_eq!(ran.code, 120, "{ran:#?}");
    let what = format!(
        "error: {gone} failed and left no result: the master's node could not fetch `{}{content}/",
        cluster.default_fs()
    );
    assert!(ran.stderr.contains(&what), "{ran:#?}");
    let what = ".file`: the file was deleted\n";
    assert!(ran.stderr.contains(what), "{ran:#?}");
    assert!(ran.stderr.contains("hint: submit the job again; `ydl logs "), "{ran:#?}");
    let ran = third.finish();
    assert_eq!(ran.code, 0, "{ran:#?}");
    wait_finished(cluster, &holder);
    for id in [&holder, &gone, &late] {
        wait_cleaned_up(cluster, id);
    }
}

#[test]
fn status_uses_the_resource_manager_if_the_master_does_not_respond() {
    let cluster = &*shared_cluster();
    let workspace = Workspace::new(cluster);
    let id = workspace.detach(&waiting_job(&workspace, 1, "name: paused"));
    wait_started(&workspace, 1);
    let master = processes(&id).into_iter().find(|(_, args)| args.starts_with("./ydl master"));
    let (pid, _) = master.expect("a master");
    let signal = |name: &str| {
        let sent = Command::new("kill").args([name, &pid.to_string()]).status();
        assert!(sent.expect("kill can be started").success());
    };
    signal("-STOP");
    let status = workspace.run(&["status", &id]);
    let scale = workspace.run(&["scale", &id, "worker=2"]);
    // `ydl kill` works without a response of the master.
    let kill = workspace.run(&["kill", &id]);
    assert_eq!(status.code, 122, "{status:#?}");
    for part in [
        "state      no-answer",
        "reason     the master is running but does not respond: ",
        "queue      root.default",
        "master     attempt 1",
        "containers 2, with ",
        "page       http",
    ] {
        assert!(status.stdout.contains(part), "{part}: {status:#?}");
    }
    assert_eq!(scale.code, 122, "{scale:#?}");
    assert!(scale.stderr.contains("error: the job's master: "), "{scale:#?}");
    assert_eq!(kill.code, 0, "{kill:#?}");
    let expected = format!("cannot stop {id} through its master (");
    assert!(kill.stderr.contains(&expected), "{kill:#?}");
    assert!(kill.stderr.contains(&format!("{id} ended: killed\n")), "{kill:#?}");
    wait_cleaned_up(cluster, &id);
}

#[test]
fn a_preempted_master_is_replaced() {
    let cluster = &*exclusive_cluster();
    // This master fills a node, more than its queue's guarantee. Only one job does so, because the scheduler counts a
    // second master against a limit that it does not raise again.
    let (workspace, other) = (Workspace::new(cluster), Workspace::new(cluster));
    let job =
        workspace.detach(&waiting_job(&workspace, 1, "queue: loan\nmaster: {memory: 3712 MiB}"));
    wait_started(&workspace, 1);
    // The other node is filled by a job within its queue's guarantee. Even the sum of the free memory of both nodes,
    // which the scheduler considers before a preemption, is less than the third job needs.
    let within_guarantee = other.detach(&waiting_job(&other, 1, "").replace("128 MiB", "3648 MiB"));
    wait_started(&other, 1);
    let ran = Workspace::new(cluster)
        .submit("{queue: tiny, roles: {worker: {memory: 512 MiB, run: 'true'}}}");
    assert_eq!(ran.code, 0, "{ran:#?}");
    wait_for("a second master", || {
        let report = application(cluster, &job);
        (report.attempt.is_some_and(|attempt| attempt.number == 2)).then_some(())
    });
    wait_running(cluster, &job);
    release(&workspace);
    release(&other);
    for id in [&job, &within_guarantee] {
        let report = wait_finished(cluster, id);
        assert_eq!(report.final_status, FinalStatus::Succeeded, "{report:?}");
    }
    let status = workspace.run(&["status", "--events", "1000", &job]);
    assert!(status.stdout.contains("a new master recovered "), "{status:#?}");
}

#[test]
fn a_task_over_its_virtual_memory_limit_names_that_limit() {
    let cluster = &*shared_cluster();
    let workspace = Workspace::new(cluster);
    workspace.write(
        "vast.py",
        "import mmap, time\nMAP_NORESERVE = 0x4000\n\
         m = mmap.mmap(-1, 16 << 30, flags=mmap.MAP_PRIVATE | MAP_NORESERVE)\ntime.sleep(600)\n",
    );
    let ran = workspace
        .submit("{files: [vast.py], roles: {worker: {memory: 128 MiB, run: python3 vast.py}}}");
    assert_eq!(ran.code, 137, "{ran:#?}");
    assert!(ran.stderr.contains(" of 2.5 GiB"), "{ran:#?}");
    assert!(
        ran.stderr.contains("hint: raise `memory` of role `worker`, or set its `memory_growth`; the limit applies to virtual memory"),
        "{ran:#?}"
    );
}
