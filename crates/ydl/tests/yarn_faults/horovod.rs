//! Elastic Horovod on a real cluster: workers join and leave while masters fail. The remaining processes keep running.

use std::{fs, path::Path};
use testbed::{Cluster, File, Lease, Options};
use yarn_native::types::FinalStatus;
use ydl_testkit::{
    example_environment,
    yarn::{ClusterJob, Workspace, digits, shared, version, wait_finished, wait_for},
};

fn cluster() -> Lease {
    let options = Options { nodes: 2, ..Options::new(version()) };
    let attempts = "yarn.resourcemanager.am.max-attempts";
    shared(options.set(File::Yarn, attempts, "100"))
}

/// Submits two workers that exit after a world of three and then of two.
fn submit<'a>(cluster: &'a Cluster) -> ClusterJob<'a> {
    let workspace = Workspace::new(cluster);
    let program = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../ydl-rendezvous/tests/real_frameworks/horovod/elastic.py");
    fs::copy(program, workspace.path().join("elastic.py")).expect("the program");
    let python = example_environment("horovod").join("bin/python");
    let (python, seen) = (python.display(), workspace.path().display());
    let id = workspace.detach(&format!(
        "name: elastic\nframework: horovod\nfiles: [elastic.py]\ngang: {{settle: 1s}}\n\
         env: {{OMP_NUM_THREADS: '1', WORLDS: '3'}}\n\
         roles: {{worker: {{instances: {{min: 2, max: 3, start: 2}}, memory: 512 MiB, shell: '{python} elastic.py \
         >> {seen}/worker.$YDL_INDEX'}}}}\n"
    ));
    ClusterJob::of(workspace, id)
}

fn wait_for_world(job: &ClusterJob, size: u32, workers: u32) {
    for worker in 0..workers {
        let line = format!("world of {size} as rank {worker}");
        wait_for(&format!("`{line}` of {}", job.describe()), || {
            let lines = job.lines(&format!("worker.{worker}"));
            lines.contains(&line).then_some(())
        });
    }
}

fn scale(job: &ClusterJob, role: &str) {
    let ran = job.workspace.run(&["scale", &job.id, role]);
    assert_eq!(ran.code, 0, "{ran:#?}");
}

#[test]
fn workers_join_and_leave_while_masters_are_killed() {
    let cluster = &*cluster();
    let job = submit(cluster);
    wait_for_world(&job, 2, 2);
    job.kill_master(1);
    job.wait_led_by(2);
    scale(&job, "worker=3");
    wait_for("the third worker", || (job.count("attempt-started") == 3).then_some(()));
    let started = job.starts();
    job.wait_reported_running(started.iter().map(|it| &it.container));
    // The new worker is loading or waiting for the others. The next master must know of it.
    job.kill_master(2);
    wait_for_world(&job, 3, 3);
    job.wait_led_by(3);
    scale(&job, "worker=2");
    let report = wait_finished(job.cluster, &job.id);
    assert_eq!(report.final_status, FinalStatus::Succeeded, "{report:?}");
    digits::wait_cleaned_up(job.cluster, &job.id);
    assert_eq!(job.count("round-started"), 1, "{:#?}", job.stored_history());
    assert_eq!(job.count("members-changed"), 2, "{:#?}", job.stored_history());
    assert_eq!(job.count("attempt-started"), 3, "{:#?}", job.stored_history());
    let ends: Vec<_> = (0..2).map(|worker| job.lines(&format!("worker.{worker}")).pop()).collect();
    let end = ends[0].as_deref().unwrap_or_default();
    assert!(end.starts_with("worlds [2, 3, 2] batch "), "{end}");
    assert_eq!(ends[0], ends[1]);
}
