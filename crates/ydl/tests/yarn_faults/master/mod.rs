//! Killed masters in containers of a real cluster: their successors keep containers and programs.

mod moments;

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    time::Duration,
};
use testbed::{File, Lease, Options};
use yarn_native::types::{AttemptState, FinalStatus};
use ydl_testkit::yarn::{
    ClusterJob, Program, WAIT_SCRIPT, Workspace, digits, exclusive,
    processes::{signal, start_time},
    shared, version, wait_finished, wait_for,
};

const SMALL: &str = "memory: 128 MiB";

fn options() -> Options {
    let options = Options { nodes: 2, ..Options::new(version()) };
    // The tests kill masters.
    let attempts = "yarn.resourcemanager.am.max-attempts";
    options.set(File::Yarn, attempts, "100")
}

/// Leases the shared cluster.
fn shared_cluster() -> Lease {
    shared(options())
}

/// Leases the cluster exclusively. The test must repair what it breaks.
fn exclusive_cluster() -> Lease {
    exclusive(options())
}

fn containers_of(programs: &[Program]) -> BTreeSet<String> {
    programs.iter().map(|it| it.container.clone()).collect()
}

/// Asserts that programs and containers are unchanged and that no other container was allocated.
fn assert_undisturbed(job: &ClusterJob, before: &[Program]) {
    let description = job.describe();
    assert_eq!(job.programs(0), before, "{description}: {:#?}", job.stored_history());
    let containers = containers_of(before);
    wait_for(&format!("the same containers of {description}"), || {
        (job.containers() == containers).then_some(())
    });
    assert_eq!(job.allocated_containers(), containers, "{description}");
}

#[test]
fn a_job_succeeds() {
    let cluster = &*shared_cluster();
    let job = ClusterJob::submit(cluster, 2, "echo done >> $SHARED/done", SMALL, "");
    job.assert_succeeded();
    let report = wait_finished(job.cluster, &job.id);
    assert_eq!(job.lines("done").len(), 2);
    let result = job.read(&job.place.result()).expect("a result");
    assert!(result.contains("succeeded"), "{result}");
    let logs = job.place.logs();
    assert_eq!(report.diagnostics, format!("the job succeeded; logs are in `{logs}`"));
}

#[test]
fn the_failure_of_a_job_is_in_the_diagnostics_of_its_application() {
    let cluster = &*shared_cluster();
    let job = ClusterJob::submit(cluster, 1, "exit 3", SMALL, "");
    let report = wait_finished(job.cluster, &job.id);
    assert_eq!(report.final_status, FinalStatus::Failed, "{report:?}");
    let started = job.starts();
    let (node, logs) = (&started[0].node, job.place.logs());
    assert_eq!(
        report.diagnostics,
        format!(
            "the job failed: worker:0 exited with code 3 on `{node}` (attempt 1); logs are in `{logs}`"
        )
    );
    assert_eq!(job.master_attempts().len(), 1, "another master was started");
}

#[test]
fn a_terminated_master_is_replaced() {
    let cluster = &*shared_cluster();
    let job = ClusterJob::submit(cluster, 2, WAIT_SCRIPT, SMALL, "");
    let before = job.programs(2);
    job.wait_starts(2);
    job.wait_reported_running(before.iter().map(|it| &it.container));
    signal("-TERM", &[job.master(1)]);
    job.wait_led_by(2);
    assert_undisturbed(&job, &before);
    job.release();
    job.assert_succeeded();
    assert_eq!(job.programs(0), before);
    // The master exited without ending the job, so YARN counts a failed attempt.
    assert_eq!(
        job.wait_masters_ended(),
        [AttemptState::Failed, AttemptState::Finished],
        "{:?}",
        job.master_attempts()
    );
}

#[test]
fn output_is_followed_while_masters_are_replaced() {
    let cluster = &*shared_cluster();
    let script = "echo 1; for n in 2 3 4; do until [ -e $SHARED/line.$n ]; do sleep 0.1; done; echo $n; done; \
                  until [ -e $SHARED/go ]; do sleep 0.1; done";
    let job = ClusterJob::submit(cluster, 1, script, SMALL, "");
    let mut follower = job.workspace.start(&["logs", "-f", &job.id, "worker:0"]);
    let mut lines = BufReader::new(follower.stdout.take().expect("a pipe")).lines();
    let mut next_line = || lines.next().expect("a line").expect("text");
    assert_eq!(next_line(), "1");
    // The program runs until after the last line, so each line was printed live.
    for attempt in 1..=3 {
        job.kill_master(attempt);
        job.wait_led_by(attempt + 1);
        let n = (attempt + 1).to_string();
        fs::write(job.file(&format!("line.{n}")), "").expect("a file");
        assert_eq!(next_line(), n);
    }
    job.release();
    job.assert_succeeded();
    assert!(follower.wait().expect("an end").success());
}

#[test]
fn the_mxnet_example_survives_killed_masters() {
    let cluster = &*shared_cluster();
    let workspace = Workspace::new(cluster);
    digits::copy_example(&workspace);
    let job = workspace.path().join("job.yaml");
    let yaml = fs::read_to_string(&job).expect("the example's job");
    // Slower, with output in a local file. The tasks wait for the file `go`, so the job does not end during an outage.
    let seen = workspace.path().display();
    let slow = format!(
        "shell: python train.py --epochs 12 --pause 0.1 | tee -a {seen}/$YDL_ROLE.$YDL_INDEX; \
         until test -e {seen}/go; do sleep 0.1; done}}"
    );
    let slow = yaml.replace("run: python train.py --epochs 12}", &slow);
    assert_ne!(slow, yaml);
    let id = workspace.detach(&slow);
    let job = ClusterJob::of(workspace, id);

    let printed = |worker: u32| {
        let seen = job.file(&format!("worker.{worker}"));
        fs::read_to_string(seen).unwrap_or_default()
    };
    let wait_epoch = |epoch: u32| {
        wait_for(&format!("epoch {epoch} of {}", job.describe()), || {
            let line = format!("epoch {epoch} accuracy");
            printed(0).contains(&line).then_some(())
        });
    };
    let training = || {
        let all = digits::processes(&job.id).into_iter();
        // Without the shells, which start other processes.
        let training = all.filter(|(_, it)| it.contains("train.py") && !it.contains(" -c "));
        let each = training.filter_map(|(pid, _)| Some((pid, start_time(pid as i32)?)));
        each.collect::<BTreeSet<_>>()
    };
    wait_epoch(1);
    let before = training();
    assert!(before.len() >= digits::TASKS.len(), "{before:?}");
    job.kill_master(1);
    job.wait_led_by(2);
    // Some programs may have ended, and none has restarted.
    let after = training();
    assert!(after.is_subset(&before), "{after:?} after {before:?}");
    wait_epoch(6);
    job.kill_master(2);
    job.wait_led_by(3);
    job.release();
    let report = wait_finished(job.cluster, &job.id);
    assert_eq!(report.final_status, FinalStatus::Succeeded, "{report:?}");
    digits::wait_cleaned_up(job.cluster, &job.id);

    for worker in 0..2 {
        let text = printed(worker);
        let rank = format!("rank {worker} of 2, from epoch 1\n");
        assert!(text.contains(&rank), "{text}");
        for epoch in 1..=12 {
            let line = format!("epoch {epoch} accuracy");
            assert_eq!(text.matches(&line).count(), 1, "{text}");
        }
        let attempts = job.names_in(&format!("{}/worker/{worker}", job.place.logs()));
        assert_eq!(attempts, ["1"]);
    }
    assert_eq!(job.count("round-started"), 1, "{:#?}", job.stored_history());
    assert_eq!(job.count("attempt-started"), digits::TASKS.len());
    assert!(job.count("master-recovered") >= 1);
    assert_eq!(job.allocated_containers().len(), digits::TASKS.len());
}

#[test]
fn a_master_killed_with_the_resource_manager_is_replaced() {
    let cluster = &*exclusive_cluster();
    let job = ClusterJob::submit(cluster, 2, WAIT_SCRIPT, SMALL, "");
    let before = job.programs(2);
    job.wait_led_by(1);
    job.cluster.kill("rm").expect("killed");
    job.kill_master(1);
    job.cluster.start_daemon("rm").expect("started");
    job.cluster.wait_nodes(2).expect("all nodes are back");
    job.wait_led_by(2);
    assert_undisturbed(&job, &before);
    job.release();
    job.assert_succeeded();
    assert_eq!(job.programs(0), before, "{}", job.describe());
}

#[test]
fn a_master_killed_during_an_hdfs_outage_is_replaced() {
    let cluster = &*exclusive_cluster();
    let job = ClusterJob::submit(cluster, 2, WAIT_SCRIPT, SMALL, "");
    let before = job.programs(2);
    job.wait_led_by(1);
    job.wait_reported_running(before.iter().map(|it| &it.container));
    job.cluster.kill("nn").expect("killed");
    job.kill_master(1);
    // Duration of the simulated outage, not a wait for a condition.
    std::thread::sleep(Duration::from_secs(20));
    job.cluster.start_daemon("nn").expect("started");
    job.cluster.wait_hdfs().expect("files can be written");
    let what = format!("another master of {}", job.describe());
    // During the outage further masters may give up.
    wait_for(&what, || (2..10).any(|it| job.is_registered(it)).then_some(()));
    assert_undisturbed(&job, &before);
    job.release();
    job.assert_succeeded();
    assert_eq!(job.programs(0), before, "{}", job.describe());
}
