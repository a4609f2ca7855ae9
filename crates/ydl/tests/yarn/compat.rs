//! Examples of older systems on a real cluster, by their command lines.

use crate::common_cluster;
use std::{fs, path::Path, process::Command};
use testbed::Cluster;
use ydl_testkit::{
    CommandOutput, example_environment, mxnet_environment, requirements_environment,
    yarn::{ClusterJob, Workspace, digits},
};

/// Returns a workspace with files of an example.
fn example_workspace<'a>(cluster: &'a Cluster, example: &str, files: &[&str]) -> Workspace<'a> {
    let workspace = Workspace::new(cluster);
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for name in files {
        let from = from.join(example).join(name);
        fs::copy(from, workspace.path().join(name)).expect("the example's file");
    }
    workspace
}

/// Runs a compat command, which must succeed.
fn ran(workspace: &Workspace, args: &[&str]) -> CommandOutput {
    let ran = workspace.run(args);
    assert_eq!(ran.code, 0, "{ran:#?}");
    ran
}

/// Returns the accuracy that each worker has printed.
fn accuracies(ran: &CommandOutput, workers: u32) -> Vec<f64> {
    let of = |worker| {
        let prefix = format!("worker:{worker} | test accuracy ");
        let mut lines = ran.stdout.lines();
        let found = lines.find_map(|line| line.strip_prefix(&prefix));
        let found = found.unwrap_or_else(|| panic!("no `{prefix}` in {ran:#?}"));
        found.parse().expect("a number")
    };
    (0..workers).map(of).collect()
}

/// Returns the Python of an environment of this machine, which all nodes have.
fn python(environment: &Path) -> String {
    environment.join("bin/python").display().to_string()
}

#[test]
fn dmlc_yarn_trains_mxnet_although_a_container_fails_and_avoids_its_node() {
    let cluster = &*common_cluster();
    let workspace = example_workspace(cluster, "mxnet-digits", &["train.py"]);
    workspace.write(
        "once.py",
        "import os, runpy, sys\n\
         me = [os.environ[f'DMLC_{it}'] for it in ('ROLE', 'TASK_ID', 'NUM_ATTEMPT', 'JOB_CLUSTER', 'NUM_WORKER')]\n\
         print(*me, os.environ['DMLC_WORKER_MEMORY_MB'], flush=True)\n\
         if me[:3] == ['worker', '1', '0']:\n    sys.exit(3)\n\
         runpy.run_path('train.py', run_name='__main__')\n",
    );
    let python = python(mxnet_environment());
    let args = [
        "dmlc-yarn",
        "-hip",
        "192.168.1.1",
        "-n",
        "2",
        "-s",
        "1",
        "--yarn-scripts",
        "dmlc-core/yarn/",
        "--files",
        "train.py",
        "--env",
        "OMP_NUM_THREADS=1",
        &python,
        "once.py",
        "--epochs",
        "12",
    ];
    let ran = ran(&workspace, &args);
    assert!(ran.stderr.contains("note: `-hip` has no effect"), "{ran:#?}");
    assert!(ran.stdout.contains("worker:1 | worker 1 0 yarn 2 1024"), "{ran:#?}");
    assert!(ran.stdout.contains("worker:1 | worker 1 1 yarn 2 1024"), "{ran:#?}");
    assert!(accuracies(&ran, 2).iter().all(|it| *it >= 0.95), "{ran:#?}");
    let id = digits::job_id(&ran);
    let job = ClusterJob::of(workspace, id);
    let ended = job.wait_end("worker:1", 1);
    let started = job.starts();
    let again = |it: &&ydl_testkit::yarn::AttemptStart| it.task == "worker:1" && it.attempt == 2;
    let again = started.iter().find(again).expect("another attempt");
    assert_ne!(again.node, ended.node, "{started:#?}");
    assert_eq!(job.count("node-excluded"), 1, "{:#?}", job.history());
    digits::wait_cleaned_up(job.cluster, &job.id);
}

#[test]
fn modules_beside_a_script_are_shipped_and_a_missing_one_is_named() {
    let cluster = &*common_cluster();
    let workspace = Workspace::new(cluster);
    fs::create_dir_all(workspace.path().join("app/common")).expect("a directory");
    workspace.write("app/train.py", "from common import fit\nprint('learned', fit.NAME)\n");
    workspace.write("app/common/fit.py", "NAME = 'digits'\n");
    workspace.write("app/common/old.ckpt", "");
    workspace.write("app/.ydlignore", "*.ckpt\n");
    let args = ["dmlc-yarn", "-n", "2", "python3", "app/train.py"];
    let found = ran(&workspace, &args);
    let note = "note: modules beside `app/train.py` are shipped: `common/` (1 file, ";
    assert!(found.stderr.contains(note), "{found:#?}");
    assert_eq!(found.stdout.matches(" | learned digits").count(), 2, "{found:#?}");
    digits::wait_cleaned_up(workspace.cluster, &digits::job_id(&found));
    workspace.write("app/.ydlignore", "common\n");
    let missing = workspace.run(&[&args[..2], &["1", "--max-attempts", "1"], &args[3..]].concat());
    assert_eq!(missing.code, 1, "{missing:#?}");
    let hint = "/app/common` was not shipped with the job: add it to `files` of the job file, or add `--files ";
    assert!(missing.stderr.contains(hint), "{missing:#?}");
    digits::wait_cleaned_up(workspace.cluster, &digits::job_id(&missing));
}

#[test]
fn ydl_mx_trains_with_one_server_per_worker_and_downloads_results_and_logs() {
    let cluster = &*common_cluster();
    let workspace = example_workspace(cluster, "mxnet-digits", &["train.py"]);
    // The flags of MXNet's own examples.
    workspace.write(
        "train_mnist.py",
        "import runpy, sys\n\
         at = sys.argv.index('--kv-store') + 1\n\
         sys.argv[at] = 'dist_' + sys.argv[at]\n\
         at = sys.argv.index('--data-dir')\n\
         assert sys.argv[at + 1] == '.'\n\
         del sys.argv[at:at + 2]\n\
         runpy.run_path('train.py', run_name='__main__')\n",
    );
    let line = "ydl-mx --n 2 --jobname MXNetOnYarn --jar ydl-mx.jar --files train.py --env OMP_NUM_THREADS=1 --results model/ \
                --download got train_mnist.py --kv-store sync --data-dir .";
    let mut command = workspace.ydl();
    command.args(line.split_whitespace()).env("VIRTUAL_ENV", mxnet_environment());
    let ran = CommandOutput::from(command.output().expect("ydl can be started"));
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(accuracies(&ran, 2).iter().all(|it| *it >= 0.95), "{ran:#?}");
    let id = digits::job_id(&ran);
    let found = Command::new("find").arg("got").current_dir(workspace.path()).output();
    let got = CommandOutput::from(found.expect("find can be started")).stdout;
    for name in ["logs/worker/0/1/stdout.0", "logs/worker/1/1/stdout.0", "/metrics.json"] {
        assert!(got.lines().any(|path| path.ends_with(name)), "{got}");
    }
    let files = ydl_testkit::yarn::hdfs_files(workspace.cluster, &format!("results/{id}"));
    let metrics = |path: &&String| path.ends_with("/metrics.json");
    assert_eq!(files.iter().filter(metrics).count(), 1, "{files:?}");
    digits::wait_cleaned_up(workspace.cluster, &id);
}

#[test]
fn dmlc_submit_without_servers_is_a_rabit_job() {
    let cluster = &*common_cluster();
    let workspace = example_workspace(cluster, "xgboost1-digits", &["train.py"]);
    let python = python(&example_environment("xgboost1"));
    let args = [
        "dmlc-submit",
        "--cluster=yarn",
        "--num-workers",
        "3",
        "--worker-memory",
        "0.75g",
        "--jobname",
        "trees",
        &python,
        "train.py",
        "--rounds",
        "5",
    ];
    let ran = ran(&workspace, &args);
    let all = accuracies(&ran, 3);
    assert!(all.iter().all(|it| *it > 0.8 && *it == all[0]), "{ran:#?}");
    digits::wait_cleaned_up(workspace.cluster, &digits::job_id(&ran));
}

/// Runs `yarn-tf` with the code in a tar archive, cluster flags and an output.
fn yarn_tf(environment: &Path, program: &str, name: &str) {
    let cluster = &*common_cluster();
    let workspace = example_workspace(cluster, "tensorflow1-digits", &["train.py"]);
    // TensorFlow 2 runs programs for TensorFlow 1 through `tensorflow.compat.v1`.
    workspace.write(
        "past.py",
        "import runpy, sys\nimport tensorflow.compat.v1 as tf\ntf.disable_v2_behavior()\n\
         sys.modules['tensorflow'] = tf\nrunpy.run_path('train.py', run_name='__main__')\n",
    );
    let files = ["-cf", "code.tar", "train.py", "past.py"];
    let packed = Command::new("tar").args(files).current_dir(workspace.path()).status();
    assert!(packed.expect("tar can be started").success());
    let command = format!("{} {program} --steps 200", python(environment));
    let to = format!("model:yarn-tf/{name}");
    let args = [
        "yarn-tf",
        "--num_parameter_servers",
        "1",
        "--num_trainers",
        "2",
        "--tar",
        "code.tar",
        "--appname",
        name,
        "--container_memory",
        "1536",
        "--shell_env",
        "TF_CPP_MIN_LOG_LEVEL=2",
        "--output",
        &to,
        "--shell_command",
        &command,
    ];
    let ran = ran(&workspace, &args);
    for worker in 0..2 {
        let line = format!("worker:{worker} | worker {worker} of 2, from step ");
        assert!(ran.stdout.contains(&line), "{ran:#?}");
    }
    assert!(accuracies(&ran, 2).iter().all(|it| *it > 0.7), "{ran:#?}");
    let files = ydl_testkit::yarn::hdfs_files(workspace.cluster, &format!("yarn-tf/{name}"));
    let metrics = |path: &String| path.ends_with("/metrics.json");
    assert!(files.iter().any(metrics), "{files:?}");
    digits::wait_cleaned_up(workspace.cluster, &digits::job_id(&ran));
}

#[test]
fn yarn_tf_trains_with_tensorflow_1() {
    yarn_tf(&example_environment("tensorflow1"), "train.py", "one");
}

#[test]
fn yarn_tf_trains_with_tensorflow_2() {
    let environment = requirements_environment("examples/tensorflow-ps-digits/requirements.txt");
    yarn_tf(&environment, "past.py", "two");
}

#[test]
fn a_job_too_large_with_its_master_is_rejected() {
    let cluster = &*common_cluster();
    let workspace = example_workspace(cluster, "mxnet-digits", &["train.py"]);
    // Both nodes together have room for 48 containers of 1 GiB, but not for a master in addition.
    let line = "ydl-mx --n 24 --environment system --dry-run train.py";
    let args: Vec<_> = line.split_whitespace().collect();
    let ran = workspace.run(&args);
    assert_eq!(ran.code, 2, "{ran:#?}");
    assert!(ran.stderr.contains("master"), "{ran:#?}");
    let fewer = "ydl-mx --n 24 --s 22 --environment system --dry-run train.py";
    let args: Vec<_> = fewer.split_whitespace().collect();
    let ran = workspace.run(&args);
    assert_eq!(ran.code, 0, "{ran:#?}");
}
