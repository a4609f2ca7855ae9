//! Whole jobs on a real cluster of three nodes while programs die and nodes are taken away: the job ends right, and its
//! facts say why anything was started again.

use serde_json::json;
use std::{collections::BTreeSet, fs, path::PathBuf, sync::Once, time::Duration};
use testbed::{File, Lease, Options, Queue};
use yarn_native::types::AttemptState;
use ydl_testkit::yarn::{
    AttemptStart, ClusterJob, Program, WAIT_SCRIPT, application, exclusive,
    processes::{is_alive, kill_all, processes_in, signal, signal_remaining, tree},
    time_until, version, wait_for,
};

/// After so much silence the cluster takes a node or a master for lost.
const EXPIRY: Duration = Duration::from_secs(10);

/// The cluster's list of nodes that are to be drained.
fn excluded() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("faults-excluded")
}

/// Leases three nodes of 8 GiB with two queues for one test alone, which restores what it takes away.
fn cluster() -> Lease {
    static EXCLUDED: Once = Once::new();
    EXCLUDED.call_once(|| fs::write(excluded(), "").expect("a file"));
    let options = Options {
        nodes: 3,
        queues: vec![Queue::new("default", 50), Queue::new("other", 50)],
        // More than a busy machine takes to stop a program that ends when it is asked.
        preemption: Some(Duration::from_secs(20)),
        expiry: EXPIRY,
        ..Options::new(version())
    };
    let path = excluded().display().to_string();
    let options = options.set(File::Yarn, "yarn.resourcemanager.nodes.exclude-path", &path);
    let cluster = exclusive(options);
    fs::write(excluded(), "").expect("a file");
    // A test may leave its node dead, and a failed one may leave it excluded.
    for node in cluster.nodes() {
        if must(cluster.pid(&node.daemon)).is_none() {
            must(cluster.rm_admin(&["-refreshNodes"]));
            must(cluster.start_daemon(&node.daemon));
        }
    }
    must(cluster.wait_nodes(3));
    cluster
}

fn must<T>(outcome: Result<T, testbed::Error>) -> T {
    outcome.unwrap_or_else(|failure| panic!("{failure}"))
}

fn index(task: &str) -> u32 {
    let (_, index) = task.split_once(':').expect("a task");
    index.parse().expect("a number")
}

/// The newest start of that task.
fn newest(started: &[AttemptStart], task: &str) -> AttemptStart {
    let mut mine = started.iter().rev().filter(|it| it.task == task);
    mine.next().cloned().expect("a start")
}

#[test]
fn a_program_that_is_killed_starts_again_and_that_counts() {
    let cluster = &*cluster();
    let role = "memory: 128 MiB, tolerate: 1, restart: {limit: 1, backoff: {initial: 100ms}}";
    let job = ClusterJob::submit(cluster, 3, WAIT_SCRIPT, role, "");
    let first = job.programs(3);
    // One dies twice, which is once too often; one once; one never.
    signal("-9", &[first[0].pid, first[1].pid]);
    let second = job.program(0, 2);
    job.program(1, 2);
    assert!(!is_alive(first[0].pid));
    signal("-9", &[second]);
    let gone_on = job.wait_end("worker:0", 2);
    assert_eq!(gone_on.next, "tolerated");
    // That a program runs is known to itself first.
    let shown = [("failed", 2), ("running", 2), ("running", 1)];
    let shown = shown.map(|(state, attempt)| (json!(state), json!(attempt)));
    wait_for(&format!("{shown:?} of {}", job.describe()), || {
        let status = job.status();
        let tasks = status["view"]["tasks"].as_array()?.iter();
        let tasks = tasks.map(|it| (it["state"].clone(), it["attempt"].clone()));
        let failed = status["view"]["roles"][0]["failed"] == 1;
        (failed && tasks.eq(shown.clone())).then_some(())
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
fn a_node_where_programs_die_is_avoided_and_later_forgiven() {
    let cluster = &*cluster();
    // A node has resources for two tasks. No task restarts before both failures are known.
    let role = "memory: 3 GiB, restart: {limit: 3, backoff: {initial: 2s, max: 2s}}";
    let more = "node_exclusion: {failures: 2, timeout: 15s}";
    let job = ClusterJob::submit(cluster, 4, WAIT_SCRIPT, role, more);
    job.programs(4);
    let started = job.wait_starts(4);
    let nodes: BTreeSet<_> = started.iter().map(|it| &it.node).collect();
    let on = |node: &String| {
        let there = started.iter().filter(|it| it.node == *node);
        there.collect::<Vec<_>>()
    };
    let bad = nodes.into_iter().find(|node| on(node).len() == 2);
    let bad = bad.expect("four tasks are on three nodes");
    let there = on(bad).into_iter();
    let there: Vec<_> = there.map(|it| job.program(index(&it.task), 1)).collect();
    signal("-9", &there);
    let again = job.wait_starts(6);
    assert!(again[4..].iter().all(|it| it.node != *bad), "{again:?}");
    // There is no room for two more until the node is forgiven.
    job.scale(6);
    let all = job.wait_starts(8);
    job.release();
    job.assert_succeeded_alone();
    let facts = job.history();
    let blamed: Vec<_> = facts.iter().filter_map(|(_, what)| what.get("node-excluded")).collect();
    let [blamed] = &blamed[..] else {
        panic!("{facts:#?}");
    };
    assert_eq!(blamed["node"], *bad);
    assert_eq!(blamed["reason"], "2 programs failed there");
    let forgiven = facts.iter().filter_map(|(at, what)| {
        let forgiven = what.get("node-readmitted")?;
        Some((*at, forgiven["node"].clone()))
    });
    let forgiven: Vec<_> = forgiven.collect();
    let until = blamed["until"].as_u64().expect("a time");
    let [(at, node)] = &forgiven[..] else {
        panic!("{facts:#?}");
    };
    assert!(*at >= until && *node == **bad, "{forgiven:?}, {blamed}");
    for start in &all[6..] {
        assert!(start.node == *bad && start.at >= until, "{start:?}, {blamed}");
    }
    for ended in job.ends().iter().filter(|it| it.next.get("retry").is_some()) {
        assert_eq!((&ended.node, &ended.ending), (bad, &json!({"signalled": {"signal": 9}})));
    }
}

#[test]
fn a_node_that_is_drained_gives_its_tasks_time_and_they_go_elsewhere() {
    let cluster = &*cluster();
    let script =
        format!("trap 'sleep 0.5; echo saved >> $SHARED/saved; exit 1' TERM; {WAIT_SCRIPT}");
    // At most three are beside the master.
    let role = "memory: 2 GiB";
    let job = ClusterJob::submit(cluster, 4, &script, role, "restart: {limit: 0}");
    let before = job.programs(4);
    let started = job.wait_starts(4);
    let (number, there) = job.node_with_tasks(1, &started);
    let node = &there[0].node;
    fs::write(excluded(), node).expect("a file");
    must(cluster.rm_admin(&["-refreshNodes", "-g", "120", "-server"]));
    let all = job.wait_starts(4 + there.len());
    fs::write(excluded(), "").expect("a file");
    must(cluster.rm_admin(&["-refreshNodes"]));
    must(cluster.wait_node(&format!("nm{number}"), "RUNNING"));
    job.release();
    job.assert_succeeded_alone();
    assert_eq!(job.lines("saved").len(), there.len());
    for start in &there {
        let ended = job.wait_end(&start.task, 1);
        assert_eq!(ended.ending, "preempted", "{ended:?}");
        assert_ne!(newest(&all, &start.task).node, *node);
    }
    let moved: Vec<_> = there.iter().map(|it| index(&it.task)).collect();
    let after = job.programs(4 + there.len());
    assert_eq!(after.len(), 4 + there.len());
    let stayed = |all: &[Program]| {
        let stayed = all.iter().filter(|it| !moved.contains(&it.index));
        stayed.cloned().collect::<Vec<_>>()
    };
    assert_eq!(stayed(&before), stayed(&after));
}

#[test]
fn a_container_that_another_queue_takes_has_time_for_a_checkpoint() {
    let cluster = &*cluster();
    let script =
        format!("trap 'sleep 0.5; echo $YDL_INDEX >> $SHARED/saved; exit 1' TERM; {WAIT_SCRIPT}");
    // Two fill a node, and one that of the master.
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
    let mut taken = rich.ends();
    taken.retain(|ended| ended.ending != "succeeded");
    let again = taken.iter().map(|ended| {
        assert_eq!(ended.ending, "preempted", "{ended:?}");
        assert!(ended.next.get("retry").is_some(), "{ended:?}");
        assert!(newest(&all, &ended.task).attempt > ended.attempt);
        index(&ended.task).to_string()
    });
    let again: BTreeSet<_> = again.collect();
    assert!(!again.is_empty(), "{taken:?}");
    let saved: BTreeSet<_> = rich.lines("saved").into_iter().collect();
    assert_eq!(saved, again);
    let words = status["view"]["tasks"].to_string();
    assert!(words.contains("was preempted by the cluster"), "{words}");
}

#[test]
fn a_node_that_is_lost_for_good_costs_a_restart_and_no_failure() {
    let cluster = &*cluster();
    let role = "memory: 2 GiB, restart: {limit: 1, backoff: {initial: 100ms}}";
    let more = "timeouts: {heartbeat: 4s, grace: 1s, stop: 2s}";
    let job = ClusterJob::submit(cluster, 6, WAIT_SCRIPT, role, more);
    let before = job.programs(6);
    let started = job.wait_starts(6);
    // The master's node has room for three of them.
    let (number, there) = job.node_with_tasks(2, &started);
    let name = format!("nm{number}");
    let node = &there[0].node;
    // One of its tasks is frozen with it; the others can be told that they are given up.
    let frozen = &there[0];
    let old = job.program(index(&frozen.task), 1);
    let mut ice = tree(&frozen.container);
    assert!(ice.contains(&old), "{ice:?}");
    // Parents first: they have no more children then.
    ice.reverse();
    // One right after the other: it is to be missed before its node is.
    must(cluster.kill(&name));
    signal_remaining("-STOP", &ice);
    let all = job.wait_starts(6 + there.len());
    // The other has tried to take what it holds.
    job.program(index(&frozen.task), 2);
    // The frozen agent continues after its replacement has started, learns that it was replaced, and exits.
    assert!(is_alive(old));
    signal_remaining("-CONT", &ice);
    let both = time_until("the end of the one that was frozen", || !is_alive(old));
    println!("both ran for {both:?}");
    // While it was frozen it could not let go of what it held.
    assert_eq!(job.lines("twice"), [index(&frozen.task).to_string()]);
    fs::remove_file(job.file("twice")).expect("it is there");
    for start in &there {
        assert_ne!(newest(&all, &start.task).node, *node);
        assert!(!is_alive(job.program(index(&start.task), 1)));
    }
    for start in &there[1..] {
        let ended = job.wait_end(&start.task, 1);
        assert_eq!(ended.ending, "lost", "{ended:?}");
    }
    // It fell silent before the cluster called its node lost, and that is laid at the node's door.
    let ended = job.wait_end(&frozen.task, 1);
    assert!(ended.ending.get("heartbeat-timeout").is_some(), "{ended:?}");
    assert_eq!(job.count("node-excluded"), 1);
    // The one failure that is allowed has not been used up.
    for unlucky in &there[..2] {
        let index = index(&unlucky.task);
        signal("-9", &[job.program(index, 2)]);
        job.program(index, 3);
    }
    job.release();
    job.assert_succeeded_alone();
    let moved: Vec<_> = there.iter().map(|it| index(&it.task)).collect();
    let stayed = |all: &[Program]| {
        let stayed = all.iter().filter(|it| !moved.contains(&it.index));
        stayed.cloned().collect::<Vec<_>>()
    };
    assert_eq!(stayed(&before), stayed(&job.programs(0)));
}

#[test]
fn a_checkpoint_outlives_its_node_and_everybody_goes_on_from_it_elsewhere() {
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
    must(cluster.kill(&node.expect("its node").daemon));
    signal_remaining("-9", &tree(&victim.container));
    let all = job.wait_starts(4);
    assert_ne!(newest(&all, &victim.task).node, victim.node);
    let mut began = wait_for("the second round", || {
        let began = job.lines("began");
        (began.len() == 4).then_some(began)
    });
    began.sort_unstable();
    assert_eq!(began, ["0 1", "0 2 7 8", "1 1", "1 2 7 8"]);
    // What a program removes is not there for the next one.
    wait_for("no checkpoint", || saved().is_empty().then_some(()));
    job.release();
    job.assert_succeeded_alone();
}

/// The daemon of the node where the job's master is.
fn masters_node(job: &ClusterJob) -> (String, String) {
    let host = application(job.cluster, &job.id).host;
    let mut nodes = job.cluster.nodes().iter();
    let node = nodes.find(|node| node.address.ip().to_string() == host);
    (node.expect("a node").daemon.clone(), host)
}

/// So many masters have died before the one that came to the end.
fn had_deaths(job: &ClusterJob, deaths: usize) {
    let mut states = job.wait_masters_ended();
    let attempts = job.master_attempts();
    assert_eq!(states.pop(), Some(AttemptState::Finished), "{attempts:#?}");
    assert_eq!(states, vec![AttemptState::Failed; deaths], "{attempts:#?}");
}

#[test]
fn a_master_whose_node_is_taken_out_of_service_is_followed_and_no_attempt_is_used_up() {
    let cluster = &*cluster();
    let more = "master: {attempts: 2}\nrestart: {limit: 0}";
    let job = ClusterJob::submit(cluster, 4, WAIT_SCRIPT, "memory: 2 GiB", more);
    let before = job.programs(4);
    let started = job.wait_starts(4);
    job.wait_reported_running(started.iter().map(|it| &it.container));
    let (daemon, host) = masters_node(&job);
    let master = job.master(1);
    // Not gracefully: its containers get SIGTERM at once.
    fs::write(excluded(), &host).expect("a file");
    must(cluster.rm_admin(&["-refreshNodes"]));
    job.wait_led_by(2);
    // The cluster does not wait for its end, which is the node's affair.
    wait_for("the end of the first master", || (!is_alive(master)).then_some(()));
    let gone: Vec<_> = started.iter().filter(|it| it.node == host).collect();
    job.wait_starts(4 + gone.len());
    fs::write(excluded(), "").expect("a file");
    must(cluster.rm_admin(&["-refreshNodes"]));
    let diagnostics = job.master_attempts()[0].diagnostics.clone();
    assert!(diagnostics.contains("exitCode: -100"), "{diagnostics}");
    // This is the first of the two deaths that are allowed.
    job.kill_master(2);
    job.wait_led_by(3);
    job.release();
    job.assert_succeeded();
    had_deaths(&job, 2);
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
    // A NodeManager that is told to go ends by itself.
    wait_for("the end of the node's daemon", || must(cluster.pid(&daemon)).is_none().then_some(()));
}

#[test]
fn a_master_that_dies_with_its_node_is_followed_elsewhere() {
    let cluster = &*cluster();
    let job = ClusterJob::submit(cluster, 4, WAIT_SCRIPT, "memory: 2 GiB", "restart: {limit: 0}");
    let before = job.programs(4);
    let started = job.wait_starts(4);
    job.wait_reported_running(started.iter().map(|it| &it.container));
    let (daemon, host) = masters_node(&job);
    let there: Vec<_> = started.iter().filter(|it| it.node == host).collect();
    // As when the power goes: the daemon first, so that it cannot tell of the others.
    must(cluster.kill(&daemon));
    for start in &there {
        kill_all(&tree(&start.container));
    }
    signal("-9", &[job.master(1)]);
    // The cluster counts the failure depending on which timeout it notices first: of the master or of the node.
    job.wait_led_by(2);
    job.wait_starts(4 + there.len());
    job.release();
    job.assert_succeeded();
    had_deaths(&job, 1);
    let moved: BTreeSet<_> = there.iter().map(|it| index(&it.task)).collect();
    for program in before.iter().filter(|it| !moved.contains(&it.index)) {
        let all = job.programs(0);
        let mine: Vec<_> = all.iter().filter(|it| it.index == program.index).collect();
        assert_eq!(mine, [program], "it was not disturbed");
    }
    for start in &there {
        let ended = job.wait_end(&start.task, 1);
        assert_eq!(ended.ending, "lost", "{ended:?}");
        assert!(processes_in(&start.container).is_empty());
    }
}
