//! TensorBoard and a real MLflow server with jobs on a real cluster, while masters are killed and servers are
//! unavailable.

use serde_json::Value;
use std::{collections::BTreeSet, fs, path::Path, process::Child};
use testbed::{Cluster, Lease, Logs, Options};
use yarn_native::types::FinalStatus;
use ydl_testkit::{
    dashboards::{MlflowServer, PortForward, program},
    yarn::{ClusterJob, Workspace, shared, version, wait_finished, wait_for},
};

/// Leases a cluster whose container logs stay on the nodes.
fn cluster() -> Lease {
    shared(Options { nodes: 2, logs: Logs::Local, ..Options::new(version()) })
}

/// Returns the common keys of the jobs. Their programs find a Python with both dashboards, which all nodes have.
fn keys(name: &str, mlflow: &str) -> String {
    let bin = ydl_testkit::dashboards::dashboard_environment().join("bin");
    format!(
        "name: {name}\nmlflow: {{uri: 'http://{mlflow}', experiment: {name}}}\n\
         env: {{PATH: '{}:/usr/bin:/bin', PYTHONDONTWRITEBYTECODE: '1'}}\n",
        bin.display()
    )
}

/// Submits a job whose tasks wait for files of the test.
fn submit_training<'a>(cluster: &'a Cluster, at: &str) -> ClusterJob<'a> {
    let workspace = Workspace::new(cluster);
    for name in ["shown.py", "events.py"] {
        fs::copy(program(name), workspace.path().join(name)).expect("a program file");
    }
    // The `ydl` package, which reports to the current master.
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    let yaml = format!(
        "{}framework: pytorch\nfiles: [shown.py, events.py]\ntensorboard: {{memory: 512 MiB}}\n\
         roles: {{worker: {{instances: 2, memory: 256 MiB, \
         shell: 'PYTHONPATH=$PYTHONPATH:{} exec python shown.py {}'}}}}\n",
        keys("shown", at),
        package.canonicalize().expect("the package").display(),
        workspace.path().display()
    );
    let id = workspace.detach(&yaml);
    ClusterJob::of(workspace, id)
}

/// Waits until the only run of an experiment satisfies a condition while its job runs.
fn wait_for_run(
    server: &MlflowServer,
    experiment: &str,
    what: &str,
    is: impl Fn(&Value) -> bool,
) -> Value {
    wait_for(what, || {
        let runs = server.runs(experiment);
        assert!(runs.len() <= 1, "{runs:?}");
        let run = runs.into_iter().next()?;
        assert_eq!(run["info"]["status"], "RUNNING", "{run}");
        is(&run).then_some(run)
    })
}

/// Returns true if both workers have reported their losses, with this one as the first.
fn has_losses(run: &Value, loss: f64) -> bool {
    let metrics = run["data"]["metrics"].as_array();
    (0..2).all(|rank| {
        let (key, value) = (format!("worker/{rank}/loss"), loss + f64::from(rank));
        let mut metrics = metrics.into_iter().flatten();
        metrics.any(|it| it["key"] == key.as_str() && it["value"] == value)
    })
}

/// Waits until TensorBoard shows scalars.
fn wait_for_scalars(opened: &PortForward) {
    let tags = wait_for("the scalars of its training", || {
        let tags = opened.read("/data/plugin/scalars/tags").ok()?;
        tags.contains("loss").then_some(tags)
    });
    let tags: Value = serde_json::from_str(&tags).expect("JSON");
    assert!(tags["train"]["loss"].is_object(), "{tags}");
}

#[test]
fn dashboards_of_a_job_survive_the_death_of_its_master() {
    let cluster = &*cluster();
    let dir = tempfile::tempdir().expect("a directory");
    let server = MlflowServer::start(dir.path());
    let job = submit_training(cluster, &server.address);
    let workspace = Workspace::new(cluster);
    let waits = "shell: 'echo waits; sleep 600'";
    let other = workspace.detach(&format!(
        "{}roles: {{worker: {{memory: 64 MiB, {waits}}}}}\n",
        keys("stopped", &server.address)
    ));

    let before = wait_for_run(&server, "shown", "its first report", |run| has_losses(run, 0.5));
    let opened = PortForward::start(job.workspace.ydl(), &[&job.id]);
    wait_for_scalars(&opened);

    job.kill_master(1);
    // The other job is killed while the first one has no master.
    wait_for_run(&server, "stopped", "the run of the other job", |_| true);
    wait_for("output of the other job", || {
        let ran = workspace.run(&["logs", &other]);
        ran.stdout.contains("waits").then_some(())
    });
    let ran = workspace.run(&["kill", &other]);
    assert_eq!(ran.code, 0, "{ran:#?}");

    job.wait_led_by(2);
    // `ydl port-forward` reconnects to the new master, which continues the run.
    wait_for_scalars(&opened);
    fs::write(job.file("again"), "").expect("a file");
    let after = wait_for_run(&server, "shown", "its second report", |run| has_losses(run, 0.25));
    assert_eq!(after["info"]["run_id"], before["info"]["run_id"]);
    job.release();
    job.assert_succeeded();
    assert_eq!(job.master_attempts().len(), 2);
    drop(opened);
    assert_run_complete(&server);

    let report = wait_finished(cluster, &other);
    assert_eq!(report.final_status, FinalStatus::Killed, "{report:?}");
    let run = server.only_run("stopped");
    assert_eq!(run["info"]["status"], "KILLED", "{run}");
    assert!(run["info"]["end_time"].is_number(), "{run}");
    let id = run["info"]["run_id"].as_str().expect("an id");
    artifact(&server, id, "ydl/logs/worker-0/stdout.txt", "waits");
}

/// Asserts that the run is complete although the master was killed.
fn assert_run_complete(server: &MlflowServer) {
    let run = server.only_run("shown");
    assert_eq!(run["info"]["status"], "FINISHED", "{run}");
    assert!(run["info"]["end_time"].is_number(), "{run}");
    let id = run["info"]["run_id"].as_str().expect("an id");
    let param = |key: &str| ydl_testkit::dashboards::value_of(&run["data"]["params"], key);
    assert_eq!(param("job.framework"), "pytorch");
    assert_eq!(param("worker.instances"), "2");
    assert_eq!(param("tensorboard.memory_mib"), "512");
    for rank in 0..2 {
        let metric = ydl_testkit::dashboards::value_of(
            &run["data"]["metrics"],
            &format!("worker/{rank}/loss"),
        );
        assert_eq!(metric, (0.25 + f64::from(rank)).to_string(), "{run}");
        // Both masters reported, and no value twice.
        let points = server.history(id, &format!("worker/{rank}/loss"));
        let steps: BTreeSet<_> = points.iter().map(|it| it["step"].as_u64()).collect();
        assert_eq!(steps, BTreeSet::from([Some(1), Some(2)]), "{points:?}");
        assert_eq!(points.len(), 2, "{points:?}");
        let log = format!("ydl/logs/worker-{rank}/stdout.txt");
        artifact(server, id, &log, &format!("run {id}"));
    }
    artifact(server, id, "ydl/job.json", "tensorboard");
    artifact(server, id, "ydl/history.jsonl", "master-recovered");
    artifact(server, id, "ydl/history.jsonl", "job-finished");
    artifact(server, id, "ydl/logs/tensorboard-0/stderr.txt", "TensorBoard");
}

fn artifact(server: &MlflowServer, run: &str, name: &str, part: &str) {
    let files = server.artifacts(run);
    let found = files.iter().find(|(path, _)| path.ends_with(name));
    let (_, text) = found.unwrap_or_else(|| panic!("no {name} in {files:?}"));
    assert!(text.contains(part), "`{part}` is not in {name}: {text}");
}

#[test]
fn a_missing_mlflow_server_is_logged_once_and_the_job_runs() {
    let cluster = &*cluster();
    // Port 1 has no listener and is not assigned to other programs.
    let at = "127.0.0.1:1";
    let workspace = Workspace::new(cluster);
    let script = "shell: 'echo at $MLFLOW_TRACKING_URI run $MLFLOW_RUN_ID.'";
    let ran = workspace
        .submit(&format!("{}roles: {{worker: {{memory: 64 MiB, {script}}}}}\n", keys("alone", at)));
    assert_eq!(ran.code, 0, "{ran:#?}");
    let line = format!("at http://{at} run .");
    assert!(ran.stdout.contains(&line), "{ran:#?}");
    let output = master_logs(cluster, &ydl_testkit::yarn::digits::job_id(&ran));
    let errors = output.matches("update failed").count();
    assert_eq!(errors, 1, "{output}");
    assert!(output.contains("connection refused"), "{output}");
}

/// Process that provides files for TensorBoard until the end of the test.
struct MirrorProcess(Child);

impl Drop for MirrorProcess {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn mirrored_tensorboard_files_follow_hdfs() {
    let cluster = &*cluster();
    let workspace = Workspace::new(cluster);
    let name = "run/events.stdout.tfevents.1.host";
    let put = |text: &str| {
        let file = workspace.write("file", text).display().to_string();
        let path = format!("/boards/{name}");
        let put = cluster.fs(&["-put", "-f", &file, &path]);
        put.expect("a file in HDFS");
    };
    let made = cluster.fs(&["-mkdir", "-p", "/boards/run", "/boards/checkpoint"]);
    made.expect("directories in HDFS");
    put("first");
    let mirror = workspace.path().join("mirror");
    let args = ["board", "--mirror", "hdfs:///boards", "--logdir"];
    let mut command = workspace.ydl();
    command.args(args).arg(&mirror);
    let _mirror = MirrorProcess(command.spawn().expect("ydl can be started"));
    let is = |text: Option<&str>| {
        wait_for(&format!("{text:?} of {name}"), || {
            let found = fs::read_to_string(mirror.join(name)).ok();
            (found.as_deref() == text).then_some(())
        });
    };
    is(Some("first"));
    put("first, and then more");
    is(Some("first, and then more"));
    // A replaced file is copied again, even with the same or a larger length.
    put("other, and longer than what was there before");
    is(Some("other, and longer than what was there before"));
    put("other, and longer than what was there after!");
    is(Some("other, and longer than what was there after!"));
    put("short");
    is(Some("short"));
    let removed = cluster.fs(&["-rm", "-r", "/boards/run"]);
    removed.expect("removed");
    is(None);
}

/// Returns the logs of the masters of a job.
fn master_logs(cluster: &Cluster, id: &str) -> String {
    let mut all = String::new();
    for node in 1..=cluster.nodes().len() {
        let path = cluster.directory().join(format!("nm{node}/containers/{id}"));
        for container in fs::read_dir(path).into_iter().flatten().flatten() {
            let log = container.path().join("master.stderr");
            all += &fs::read_to_string(log).unwrap_or_default();
        }
    }
    all
}
