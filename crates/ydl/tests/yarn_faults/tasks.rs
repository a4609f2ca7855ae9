//! Whole jobs on a real cluster of three nodes while programs are killed and nodes are lost: outcome and history.

use serde_json::json;
use std::{collections::BTreeSet, fs, path::PathBuf, sync::Once, time::Duration};
use testbed::{File, Lease, Options, Queue};
use yarn_native::types::AttemptState;
use ydl_testkit::yarn::{
    AttemptStart, ClusterJob, Program, WAIT_SCRIPT, application, exclusive,
    processes::{is_alive, kill_all, processes_in, signal, signal_remaining, tree},
    time_until, version, wait_for,
};

/// Heartbeat timeout of nodes and masters.
const EXPIRY: Duration = Duration::from_secs(10);

/// Returns the path of the cluster's list of nodes to decommission.
fn excluded_nodes() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("faults-excluded")
}

/// Leases a cluster of three nodes of 8 GiB with two queues exclusively. The test must repair what it breaks.
fn cluster() -> Lease {
    static EXCLUDED: Once = Once::new();
    EXCLUDED.call_once(|| fs::write(excluded_nodes(), "").expect("a file"));
    let options = Options {
        nodes: 3,
        queues: vec![Queue::new("default", 50), Queue::new("other", 50)],
        // Longer than programs take to exit after SIGTERM on a busy machine.
        preemption: Some(Duration::from_secs(20)),
        expiry: EXPIRY,
        ..Options::new(version())
    };
    let path = excluded_nodes().display().to_string();
    let options = options.set(File::Yarn, "yarn.resourcemanager.nodes.exclude-path", &path);
    let cluster = exclusive(options);
    fs::write(excluded_nodes(), "").expect("a file");
    // A test may leave its node dead, and a failed one may leave it excluded.
    for node in cluster.nodes() {
        if expect_ok(cluster.pid(&node.daemon)).is_none() {
            expect_ok(cluster.rm_admin(&["-refreshNodes"]));
            expect_ok(cluster.start_daemon(&node.daemon));
        }
    }
    expect_ok(cluster.wait_nodes(3));
    cluster
}

fn expect_ok<T>(outcome: Result<T, testbed::Error>) -> T {
    outcome.unwrap_or_else(|failure| panic!("{failure}"))
}

fn index(task: &str) -> u32 {
    let (_, index) = task.split_once(':').expect("a task");
    index.parse().expect("a number")
}

/// Returns the newest start of a task.
fn newest(started: &[AttemptStart], task: &str) -> AttemptStart {
    let mut of_task = started.iter().rev().filter(|it| it.task == task);
    of_task.next().cloned().expect("a start")
}

#[test]
fn killed_programs_restart_up_to_their_limit() {
    let cluster = &*cluster();
    let role = "memory: 128 MiB, tolerate: 1, restart: {limit: 1, backoff: {initial: 100ms}}";
    let job = ClusterJob::submit(cluster, 3, WAIT_SCRIPT, role, "");
    let first = job.programs(3);
    // The first task is killed twice, once more than allowed; the second once; the third never.
    signal("-9", &[first[0].pid, first[1].pid]);
    let second = job.program(0, 2);
    job.program(1, 2);
    assert!(!is_alive(first[0].pid));
    signal("-9", &[second]);
    let tolerated = job.wait_end("worker:0", 2);
    assert_eq!(tolerated.next, "tolerated");
    // The master learns of the start a moment later.
    let states = [("failed", 2), ("running", 2), ("running", 1)];
    let states = states.map(|(state, attempt)| (json!(state), json!(attempt)));
    wait_for(&format!("{states:?} of {}", job.describe()), || {
        let status = job.status();
        let tasks = status["view"]["tasks"].as_array()?.iter();
        let tasks = tasks.map(|it| (it["state"].clone(), it["attempt"].clone()));
        let failed = status["view"]["roles"][0]["failed"] == 1;
        (failed && tasks.eq(states.clone())).then_some(())
    });
    job.release();
    job.assert_succeeded_alone();

    for task in ["worker:0", "worker:1"] {
        let ended = job.wait_end(task, 1);
        assert_eq!(ended.ending, json!({"signalled": {"signal": 9}}));
        assert!(ended.next.get("retry").is_some(), "{ended:?}");
    }
    assert_eq!(job.programs(0).len(), 5);
    assert_eq!(job.starts().len(), 5);
}

#[test]
fn a_node_with_failing_programs_is_excluded_and_later_readmitted() {
    let cluster = &*cluster();
    // A node has resources for two tasks. No task restarts before both failures are known.
    let role = "memory: 3 GiB, restart: {limit: 3, backoff: {initial: 2s, max: 2s}}";
    let more = "node_exclusion: {failures: 2, timeout: 15s}";
    let job = ClusterJob::submit(cluster, 4, WAIT_SCRIPT, role, more);
    job.programs(4);
    let started = job.wait_starts(4);
    let nodes: BTreeSet<_> = started.iter().map(|it| &it.node).collect();
    let on = |node: &String| {
        let on_node = started.iter().filter(|it| it.node == *node);
        on_node.collect::<Vec<_>>()
    };
    let bad = nodes.into_iter().find(|node| on(node).len() == 2);
    let bad = bad.expect("four tasks are on three nodes");
    let on_bad = on(bad).into_iter();
    let on_bad: Vec<_> = on_bad.map(|it| job.program(index(&it.task), 1)).collect();
    signal("-9", &on_bad);
    let again = job.wait_starts(6);
    assert!(again[4..].iter().all(|it| it.node != *bad), "{again:?}");
    // Two more tasks do not fit until the node is readmitted.
    job.scale(6);
    let all = job.wait_starts(8);
    job.release();
    job.assert_succeeded_alone();
    let history = job.history();
    let exclusions: Vec<_> =
        history.iter().filter_map(|(_, what)| what.get("node-excluded")).collect();
    let [exclusion] = &exclusions[..] else {
        panic!("{history:#?}");
    };
    assert_eq!(exclusion["node"], *bad);
    assert_eq!(exclusion["reason"], "2 programs failed there");
    let readmissions = history.iter().filter_map(|(at, what)| {
        let readmission = what.get("node-readmitted")?;
        Some((*at, readmission["node"].clone()))
    });
    let readmissions: Vec<_> = readmissions.collect();
    let until = exclusion["until"].as_u64().expect("a time");
    let [(at, node)] = &readmissions[..] else {
        panic!("{history:#?}");
    };
    assert!(*at >= until && *node == **bad, "{readmissions:?}, {exclusion}");
    for start in &all[6..] {
        assert!(start.node == *bad && start.at >= until, "{start:?}, {exclusion}");
    }
    for ended in job.ends().iter().filter(|it| it.next.get("retry").is_some()) {
        assert_eq!((&ended.node, &ended.ending), (bad, &json!({"signalled": {"signal": 9}})));
    }
}

#[test]
fn tasks_of_a_decommissioning_node_save_and_move() {
    let cluster = &*cluster();
    let script =
        format!("trap 'sleep 0.5; echo saved >> $SHARED/saved; exit 1' TERM; {WAIT_SCRIPT}");
    // The master's node has room for three tasks.
    let role = "memory: 2 GiB";
    let job = ClusterJob::submit(cluster, 4, &script, role, "restart: {limit: 0}");
    let before = job.programs(4);
    let started = job.wait_starts(4);
    let (number, on_node) = job.node_with_tasks(1, &started);
    let node = &on_node[0].node;
    fs::write(excluded_nodes(), node).expect("a file");
    expect_ok(cluster.rm_admin(&["-refreshNodes", "-g", "120", "-server"]));
    let all = job.wait_starts(4 + on_node.len());
    fs::write(excluded_nodes(), "").expect("a file");
    expect_ok(cluster.rm_admin(&["-refreshNodes"]));
    expect_ok(cluster.wait_node(&format!("nm{number}"), "RUNNING"));
    job.release();
    job.assert_succeeded_alone();
    assert_eq!(job.lines("saved").len(), on_node.len());
    for start in &on_node {
        let ended = job.wait_end(&start.task, 1);
        assert_eq!(ended.ending, "preempted", "{ended:?}");
        assert_ne!(newest(&all, &start.task).node, *node);
    }
    let moved: Vec<_> = on_node.iter().map(|it| index(&it.task)).collect();
    let after = job.programs(4 + on_node.len());
    assert_eq!(after.len(), 4 + on_node.len());
    let stayed = |all: &[Program]| {
        let stayed = all.iter().filter(|it| !moved.contains(&it.index));
        stayed.cloned().collect::<Vec<_>>()
    };
    assert_eq!(stayed(&before), stayed(&after));
}

#[test]
fn a_preempted_container_has_time_for_a_checkpoint() {
    let cluster = &*cluster();
    let script =
        format!("trap 'sleep 0.5; echo $YDL_INDEX >> $SHARED/saved; exit 1' TERM; {WAIT_SCRIPT}");
    // Two tasks fill a node, one fills the master's node.
    let role = "memory: 4 GiB";
    let rich = ClusterJob::submit(cluster, 5, &script, role, "restart: {limit: 0}");
    rich.programs(5);
    let poor = ClusterJob::submit(cluster, 1, WAIT_SCRIPT, role, "queue: other");
    poor.programs(1);
    let status = rich.status();
    poor.release();
    rich.wait_starts(5 + rich.ends().len());
    rich.release();
    poor.assert_succeeded();
    rich.assert_succeeded_alone();
    let all = rich.starts();
    let mut preempted = rich.ends();
    preempted.retain(|ended| ended.ending != "succeeded");
    let restarted = preempted.iter().map(|ended| {
        assert_eq!(ended.ending, "preempted", "{ended:?}");
        assert!(ended.next.get("retry").is_some(), "{ended:?}");
        assert!(newest(&all, &ended.task).attempt > ended.attempt);
        index(&ended.task).to_string()
    });
    let restarted: BTreeSet<_> = restarted.collect();
    assert!(!restarted.is_empty(), "{preempted:?}");
    let saved: BTreeSet<_> = rich.lines("saved").into_iter().collect();
    assert_eq!(saved, restarted);
    let tasks = status["view"]["tasks"].to_string();
    assert!(tasks.contains("was preempted by the cluster"), "{tasks}");
}

#[test]
fn a_lost_node_causes_restarts_without_counting_failures() {
    let cluster = &*cluster();
    let role = "memory: 2 GiB, restart: {limit: 1, backoff: {initial: 100ms}}";
    let more = "timeouts: {heartbeat: 4s, grace: 1s, stop: 2s}";
    let job = ClusterJob::submit(cluster, 6, WAIT_SCRIPT, role, more);
    let before = job.programs(6);
    let started = job.wait_starts(6);
    // The master's node has room for three of them.
    let (number, on_node) = job.node_with_tasks(2, &started);
    let name = format!("nm{number}");
    let node = &on_node[0].node;
    // One of its agents is frozen; the others learn that they were replaced.
    let frozen = &on_node[0];
    let old = job.program(index(&frozen.task), 1);
    let mut processes = tree(&frozen.container);
    assert!(processes.contains(&old), "{processes:?}");
    // Parents first, so that they start no more children.
    processes.reverse();
    // Right after each other: the agent must be missed before its node.
    expect_ok(cluster.kill(&name));
    signal_remaining("-STOP", &processes);
    let all = job.wait_starts(6 + on_node.len());
    // The replacement tried to take what the frozen program holds.
    job.program(index(&frozen.task), 2);
    // The frozen agent continues after its replacement has started, learns that it was replaced, and exits.
    assert!(is_alive(old));
    signal_remaining("-CONT", &processes);
    let overlap = time_until("the end of the one that was frozen", || !is_alive(old));
    println!("both ran for {overlap:?}");
    // The frozen program could not release what it held.
    assert_eq!(job.lines("twice"), [index(&frozen.task).to_string()]);
    fs::remove_file(job.file("twice")).expect("the file");
    for start in &on_node {
        assert_ne!(newest(&all, &start.task).node, *node);
        assert!(!is_alive(job.program(index(&start.task), 1)));
    }
    for start in &on_node[1..] {
        let ended = job.wait_end(&start.task, 1);
        assert_eq!(ended.ending, "lost", "{ended:?}");
    }
    // Its heartbeats stopped before the cluster reported the node as lost, and the failure is charged to the node.
    let ended = job.wait_end(&frozen.task, 1);
    assert!(ended.ending.get("heartbeat-timeout").is_some(), "{ended:?}");
    assert_eq!(job.count("node-excluded"), 1);
    // The allowed failure is not used up.
    for start in &on_node[..2] {
        let index = index(&start.task);
        signal("-9", &[job.program(index, 2)]);
        job.program(index, 3);
    }
    job.release();
    job.assert_succeeded_alone();
    let moved: Vec<_> = on_node.iter().map(|it| index(&it.task)).collect();
    let stayed = |all: &[Program]| {
        let stayed = all.iter().filter(|it| !moved.contains(&it.index));
        stayed.cloned().collect::<Vec<_>>()
    };
    assert_eq!(stayed(&before), stayed(&job.programs(0)));
}

#[test]
fn a_checkpoint_survives_its_node_and_all_tasks_resume_from_it() {
    let cluster = &*cluster();
    let script = "cd $YDL_CHECKPOINT; echo $YDL_INDEX $YDL_ROUND $(cat steps.* 2>/dev/null) >> $SHARED/began; \
        if [ $YDL_ROUND = 1 ]; then \
        echo $((7 + YDL_INDEX)) > .new; mv .new steps.$YDL_INDEX; sleep 1000; fi; \
        rm steps.$YDL_INDEX; until [ -e $SHARED/go ]; do sleep 0.1; done";
    let role = "memory: 3 GiB, placement: {max_per_node: 1}, restart: {scope: job, limit: 0}";
    let more = "gang: true\ntimeouts: {grace: 1s, stop: 4s}";
    let job = ClusterJob::submit(cluster, 2, script, role, more);
    let started = job.wait_starts(2);
    let saved = || job.names_in(&job.place.checkpoint());
    wait_for("both checkpoints", || (saved() == ["steps.0", "steps.1"]).then_some(()));
    // The whole node fails, so no process can save a checkpoint.
    let (_, masters) = masters_node(&job);
    let victim = started.iter().find(|it| it.node != masters);
    let victim = victim.expect("two workers are on two nodes");
    let mut nodes = cluster.nodes().iter();
    let node = nodes.find(|node| node.address.ip().to_string() == victim.node);
    expect_ok(cluster.kill(&node.expect("its node").daemon));
    signal_remaining("-9", &tree(&victim.container));
    let all = job.wait_starts(4);
    assert_ne!(newest(&all, &victim.task).node, victim.node);
    let mut began = wait_for("the second round", || {
        let began = job.lines("began");
        (began.len() == 4).then_some(began)
    });
    began.sort_unstable();
    assert_eq!(began, ["0 1", "0 2 7 8", "1 1", "1 2 7 8"]);
    // Removed checkpoints are removed in HDFS, too.
    wait_for("no checkpoint", || saved().is_empty().then_some(()));
    job.release();
    job.assert_succeeded_alone();
}

/// Returns the daemon and the host of the master's node.
fn masters_node(job: &ClusterJob) -> (String, String) {
    let host = application(job.cluster, &job.id).host;
    let mut nodes = job.cluster.nodes().iter();
    let node = nodes.find(|node| node.address.ip().to_string() == host);
    (node.expect("a node").daemon.clone(), host)
}

/// Asserts the number of failed masters before the successful one.
fn assert_failed_masters(job: &ClusterJob, failed: usize) {
    let mut states = job.wait_masters_ended();
    let attempts = job.master_attempts();
    assert_eq!(states.pop(), Some(AttemptState::Finished), "{attempts:#?}");
    assert_eq!(states, vec![AttemptState::Failed; failed], "{attempts:#?}");
}

#[test]
fn a_master_on_a_decommissioned_node_is_replaced_without_using_an_attempt() {
    let cluster = &*cluster();
    let more = "master: {attempts: 2}\nrestart: {limit: 0}";
    let job = ClusterJob::submit(cluster, 4, WAIT_SCRIPT, "memory: 2 GiB", more);
    let before = job.programs(4);
    let started = job.wait_starts(4);
    job.wait_reported_running(started.iter().map(|it| &it.container));
    let (daemon, host) = masters_node(&job);
    let master = job.master(1);
    // Not gracefully: containers get SIGTERM at once.
    fs::write(excluded_nodes(), &host).expect("a file");
    expect_ok(cluster.rm_admin(&["-refreshNodes"]));
    job.wait_led_by(2);
    // The cluster does not wait until the node has ended the master.
    wait_for("the end of the first master", || (!is_alive(master)).then_some(()));
    let gone: Vec<_> = started.iter().filter(|it| it.node == host).collect();
    job.wait_starts(4 + gone.len());
    fs::write(excluded_nodes(), "").expect("a file");
    expect_ok(cluster.rm_admin(&["-refreshNodes"]));
    let diagnostics = job.master_attempts()[0].diagnostics.clone();
    assert!(diagnostics.contains("exitCode: -100"), "{diagnostics}");
    // This is the first of two allowed failures.
    job.kill_master(2);
    job.wait_led_by(3);
    job.release();
    job.assert_succeeded();
    assert_failed_masters(&job, 2);
    for start in &gone {
        let ended = job.wait_end(&start.task, 1);
        assert_eq!(ended.ending, "lost", "{ended:?}");
    }
    let after = job.programs(0);
    let moved = |it: &&Program| gone.iter().any(|start| index(&start.task) == it.index);
    let stayed = |all: &[Program]| {
        let stayed = all.iter().filter(|it| !moved(it));
        stayed.cloned().collect::<Vec<_>>()
    };
    assert_eq!(stayed(&before), stayed(&after));
    // A decommissioned NodeManager exits by itself.
    wait_for("the end of the node's daemon", || {
        expect_ok(cluster.pid(&daemon)).is_none().then_some(())
    });
}

#[test]
fn a_master_killed_with_its_node_is_replaced_elsewhere() {
    let cluster = &*cluster();
    let job = ClusterJob::submit(cluster, 4, WAIT_SCRIPT, "memory: 2 GiB", "restart: {limit: 0}");
    let before = job.programs(4);
    let started = job.wait_starts(4);
    job.wait_reported_running(started.iter().map(|it| &it.container));
    let (daemon, host) = masters_node(&job);
    let on_node: Vec<_> = started.iter().filter(|it| it.node == host).collect();
    // Like a power failure: the daemon first, so that it cannot report the others.
    expect_ok(cluster.kill(&daemon));
    for start in &on_node {
        kill_all(&tree(&start.container));
    }
    signal("-9", &[job.master(1)]);
    // The cluster counts this failure if the timeout of the master expires before that of the node.
    job.wait_led_by(2);
    job.wait_starts(4 + on_node.len());
    job.release();
    job.assert_succeeded();
    assert_failed_masters(&job, 1);
    let moved: BTreeSet<_> = on_node.iter().map(|it| index(&it.task)).collect();
    for program in before.iter().filter(|it| !moved.contains(&it.index)) {
        let all = job.programs(0);
        let programs: Vec<_> = all.iter().filter(|it| it.index == program.index).collect();
        assert_eq!(programs, [program], "the program was disturbed");
    }
    for start in &on_node {
        let ended = job.wait_end(&start.task, 1);
        assert_eq!(ended.ending, "lost", "{ended:?}");
        assert!(processes_in(&start.container).is_empty());
    }
}
