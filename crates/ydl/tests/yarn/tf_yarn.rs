//! Examples of tf-yarn on a real cluster, through its Python API, with real TensorFlow 2.15, PyTorch and Horovod, and a
//! real MLflow server.

use crate::common_cluster;
use std::{
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};
use yarn_native::types::FinalStatus;
use ydl_testkit::{
    CommandOutput, example_environment, packed_mxnet_environments,
    yarn::{Workspace, application, applications, digits, wait_for},
};

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the project's directory")
}

/// Returns a Python command with the package, tf-yarn's module names, the binary and the cluster configuration.
fn python(workspace: &Workspace, interpreter: &Path) -> Command {
    let python = root().join("python");
    let paths = [python.clone(), python.join("tf_yarn-shim")];
    let mut command = Command::new(interpreter);
    command
        .current_dir(workspace.path())
        .env("PYTHONPATH", std::env::join_paths(paths).expect("paths"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("YDL_BINARY", ydl_testkit::ydl())
        .env("XDG_STATE_HOME", workspace.path().join("state"))
        .env("HADOOP_CONF_DIR", workspace.cluster.configuration())
        .env("HADOOP_USER_NAME", workspace.cluster.own_user())
        .env("no_proxy", "127.0.0.1,localhost")
        .env_remove("MLFLOW_TRACKING_URI")
        .stdin(Stdio::null());
    command
}

/// Runs an example with these additional arguments. Tasks use the same interpreter, which all nodes have, because these
/// environments are large. Packed environments have their own tests.
fn run(command: &mut Command, name: &str, framework: &str, args: &[&str]) -> CommandOutput {
    let interpreter = example_environment(framework).join("bin/python");
    command
        .arg(root().join("examples").join(name))
        .arg("--environment")
        .arg(interpreter)
        .args(["--model-dir", "model"])
        .args(args);
    CommandOutput::from(command.output().expect("Python can be started"))
}

fn run_successfully(workspace: &Workspace, name: &str, framework: &str) -> CommandOutput {
    let interpreter = example_environment(framework).join("bin/python");
    let ran = run(&mut python(workspace, &interpreter), name, framework, &[]);
    assert_success(workspace, &ran);
    ran
}

/// Asserts that the command and its application succeeded and were cleaned up. Returns the application's id.
fn assert_success(workspace: &Workspace, ran: &CommandOutput) -> String {
    assert_eq!(ran.code, 0, "{ran:#?}");
    let args = ran.stderr.lines();
    let mut submitted = args.filter_map(|line| line.strip_suffix(" is submitted"));
    let line = submitted.next().unwrap_or_else(|| panic!("no id in {ran:#?}"));
    let id = line.rsplit(' ').next().expect("a word").to_owned();
    let report = application(workspace.cluster, &id);
    assert_eq!(report.final_status, FinalStatus::Succeeded, "{report:?}");
    digits::wait_cleaned_up(workspace.cluster, &id);
    id
}

/// Returns the distinct texts after a label in the output of all tasks, sorted.
fn printed(workspace: &Workspace, id: &str, label: &str) -> Vec<String> {
    let ran = workspace.run(&["logs", id, "--stdout"]);
    let mut found: Vec<_> =
        ran.stdout.lines().filter_map(|line| Some(line.split_once(label)?.1.to_owned())).collect();
    assert!(!found.is_empty(), "no `{label}` in {ran:#?}");
    found.sort();
    found.dedup();
    found
}

/// A tracking server and its directory, stopped at the end of the test.
struct Mlflow {
    server: Child,
    url: String,
    dir: PathBuf,
}

impl Mlflow {
    fn start(dir: PathBuf) -> Mlflow {
        fs::create_dir(&dir).expect("a directory");
        let bin = example_environment("tensorflow").join("bin");
        let path = std::env::var_os("PATH").unwrap_or_default();
        let paths = std::iter::once(bin.clone()).chain(std::env::split_paths(&path));
        let output = dir.join("output");
        let log = fs::File::create(&output).expect("a file");
        // With a time limit, because a killed test cannot stop it.
        let server = Command::new("timeout")
            .args(["--foreground", "1800"])
            .arg(bin.join("mlflow"))
            .args("server --host 127.0.0.1 --port 0 --workers 1".split(' '))
            .args(["--backend-store-uri", "runs"])
            .args(["--artifacts-destination", "artifacts"])
            .current_dir(&dir)
            .env("PATH", std::env::join_paths(paths).expect("paths"))
            .env_remove("PYTHONPATH")
            .stdout(Stdio::null())
            .stderr(log)
            .process_group(0)
            .spawn()
            .expect("the server can be started");
        let url = wait_for("the address of MLflow's server", || {
            let text = fs::read_to_string(&output).ok()?;
            let rest = text.split_once("Listening at: ")?.1;
            Some(rest.split_once(' ')?.0.to_owned())
        });
        Mlflow { server, url, dir }
    }

    /// Returns the content of the only file with that name.
    fn file(&self, name: &str) -> String {
        let listed =
            Command::new("find").arg(&self.dir).args(["-type", "f", "-name", name]).output();
        let listed = String::from_utf8(listed.expect("a list").stdout).expect("paths");
        let path = listed.lines().next();
        let path = path.unwrap_or_else(|| panic!("MLflow has no `{name}`"));
        fs::read_to_string(path).expect("read")
    }
}

impl Drop for Mlflow {
    fn drop(&mut self) {
        // A negative number is a process group; after `--` it is not read as an option.
        let group = format!("-{}", self.server.id());
        let killed = Command::new("kill").args(["-9", "--", &group]).status();
        if killed.is_ok_and(|status| status.success()) {
            // It was just killed and must be reaped.
            let _ = self.server.wait();
        }
    }
}

/// Returns the accuracy that an evaluator logged for the last checkpoint, of this step or later: with two training
/// tasks one may take another step before the other stops.
fn last_accuracy(log: &str, step: u32) -> f64 {
    let mark = "Saving dict for global step ";
    let found = log.rsplit_once(mark);
    let rest = found.unwrap_or_else(|| panic!("no `{mark}` in {log}")).1;
    let line = rest.lines().next().unwrap_or_default();
    let parts = line.split_once(": accuracy = ");
    let (logged, rest) = parts.unwrap_or_else(|| panic!("no accuracy in `{line}`"));
    assert!(logged.parse::<u32>().expect("a step") >= step, "{log}");
    let number = rest.split(',').next().expect("a word");
    number.parse().expect("a number")
}

#[test]
fn the_linear_classifier_is_trained_evaluated_and_logged() {
    let cluster = &*common_cluster();
    let workspace = Workspace::new(cluster);
    let mlflow = Mlflow::start(workspace.path().join("mlflow"));
    let interpreter = example_environment("tensorflow").join("bin/python");
    let name = "tf-yarn-estimator/linear_classifier.py";
    let mut command = python(&workspace, &interpreter);
    command.env("MLFLOW_TRACKING_URI", &mlflow.url);
    let ran = run(&mut command, name, "tensorflow", &[]);
    assert_success(&workspace, &ran);
    // The durations of all tasks were returned.
    let durations: serde_json::Value = serde_json::from_str(ran.stdout.trim()).expect("JSON");
    for task in ["chief:0", "evaluator:0", "tensorboard:0"] {
        let seconds = durations["containers"][task].as_f64();
        assert!(seconds.is_some_and(|seconds| seconds > 0.0), "{ran:#?}");
    }
    assert_ne!(durations["training"], "None", "{ran:#?}");
    // TensorBoard announces its URL, and the evaluator its progress.
    let announced = ran.stderr.contains("Tensorboard listening on http://127.0.0.1");
    assert!(announced, "{ran:#?}");
    let expected = "Training step of last checkpoint: 200";
    assert!(ran.stderr.contains(expected), "{ran:#?}");
    // MLflow has the same values and the logs of all tasks.
    assert!(mlflow.file("tensorboard_0_url_0").starts_with("http://127.0.0.1"));
    for metric in
        ["steps_per_sec_0", "evaluator_0_nb_eval_steps_0", "evaluator_0_last_training_step_0"]
    {
        assert!(!mlflow.file(metric).is_empty());
    }
    assert!(mlflow.file("tf_yarn_duration_stats").contains("container_duration_chief_0_0: "));
    for log in ["chief_0_SUCCEEDED_0", "tensorboard_0_SUCCEEDED_0"] {
        assert!(!mlflow.file(log).is_empty());
    }
    assert!(last_accuracy(&mlflow.file("evaluator_0_SUCCEEDED_0"), 200) >= 0.9);

    // An evaluator alone evaluates again. The unreachable MLflow server does not affect it.
    let gone = mlflow.url.clone();
    drop(mlflow);
    fs::remove_dir_all(workspace.path().join("model/eval")).expect("a result");
    let mut command = python(&workspace, &interpreter);
    command.env("MLFLOW_TRACKING_URI", gone);
    let ran = run(&mut command, name, "tensorflow", &["--evaluator-alone"]);
    let id = assert_success(&workspace, &ran);
    assert!(ran.stderr.contains("mlflow: "), "{ran:#?}");
    let log = workspace.run(&["logs", &id, "evaluator:0"]).stdout;
    assert!(last_accuracy(&log, 200) >= 0.9);
    let evaluated = "evaluating the checkpoint of step";
    assert_eq!(log.matches(evaluated).count(), 5, "{log}");
}

#[test]
fn a_keras_model_trains_as_an_estimator_with_a_parameter_server() {
    let cluster = &*common_cluster();
    let workspace = Workspace::new(cluster);
    let ran = run_successfully(&workspace, "tf-yarn-keras/keras_estimator.py", "tensorflow");
    assert!(ran.stdout.starts_with("trained for 0:"), "{ran:#?}");
    assert!(ran.stdout.contains("evaluated for 0:"), "{ran:#?}");
    assert!(ran.stderr.contains("Tensorboard listening on"), "{ran:#?}");
    let id = digits::job_id(&ran);
    let log = workspace.run(&["logs", &id, "evaluator:0"]).stdout;
    assert!(last_accuracy(&log, 300) >= 0.8);
}

#[test]
fn pytorch_processes_learn_the_same_network() {
    let cluster = &*common_cluster();
    let workspace = Workspace::new(cluster);
    let ran = run_successfully(&workspace, "tf-yarn-pytorch/pytorch_example.py", "horovod");
    let id = digits::job_id(&ran);
    let ranks = printed(&workspace, &id, "] rank ");
    assert_eq!(ranks.len(), 4, "{ranks:?}");
    assert!(ranks.iter().all(|line| line[1..].starts_with(" of 4 loss")));
    assert_eq!(printed(&workspace, &id, "weights ").len(), 1);
    let accuracy: f64 = printed(&workspace, &id, "accuracy ")[0].parse().expect("a number");
    assert!(accuracy >= 0.8, "{accuracy}");
    assert!(workspace.path().join("model/model_20.pt").exists());
}

#[test]
fn horovod_ranks_connect_over_gloo_and_learn_the_same_network() {
    let cluster = &*common_cluster();
    let workspace = Workspace::new(cluster);
    let ran = run_successfully(&workspace, "tf-yarn-horovod/keras_with_gloo.py", "horovod");
    assert!(ran.stdout.starts_with("trained for 0:"), "{ran:#?}");
    let id = digits::job_id(&ran);
    assert_eq!(printed(&workspace, &id, " | rank ").len(), 2);
    assert_eq!(printed(&workspace, &id, " of 2 weights ").len(), 1);
    let accuracy: f64 = printed(&workspace, &id, "accuracy ")[0].parse().expect("a number");
    assert!(accuracy >= 0.8, "{accuracy}");
}

/// A function that records where it runs.
const WHERE: &str = r#"
import os, sys
def where(local_rank):
    with open(os.path.join(os.environ["SEEN"], "where"), "w") as file:
        file.write("\n".join([os.environ["NM_HOST"], sys.prefix, os.environ["HOOKED"], open("data.txt").read()]))
"#;

const SENDS: &str = r#"
import logging, os, sys, where, cluster_pack
from tf_yarn import TaskSpec, NodeLabel
from tf_yarn.distributed.client import run_on_yarn
logging.basicConfig(level=logging.INFO, format="%(message)s")
path = sys.argv[1] if len(sys.argv) > 1 else cluster_pack.upload_env()[0]
run_on_yarn(where.where, {"worker": TaskSpec("256 MiB", 1, label=NodeLabel.GPU)}, pyenv_zip_path=path, queue="ml-gpu",
            env={"SEEN": os.getcwd()}, files={"data.txt": "here.txt"}, pre_script_hook="export HOOKED=yes",
            file_systems=["viewfs://root", "hdfs://root"])
"#;

/// Runs the function from an environment. Returns the environment in which it ran.
fn sent(workspace: &Workspace, own: &Path, args: &[&str]) -> PathBuf {
    let mut command = python(workspace, &own.join("bin/python"));
    let ran = command.arg("send.py").args(args).output();
    let ran = CommandOutput::from(ran.expect("Python can be started"));
    assert_success(workspace, &ran);
    // tf-yarn's own examples name file systems that an insecure cluster need not know.
    assert!(ran.stderr.contains("`file_systems` has no effect"), "{ran:#?}");
    let path = workspace.path().join("where");
    let seen = fs::read_to_string(&path).expect("a file");
    fs::remove_file(path).expect("removed");
    let lines: Vec<_> = seen.lines().collect();
    assert_eq!(lines.len(), 4, "{seen}");
    assert!(lines[0].starts_with("127.0.0.13"), "{seen}");
    assert_eq!(lines[2..], ["yes", "data"]);
    PathBuf::from(lines[1])
}

#[test]
fn a_packed_environment_runs_on_labelled_nodes_and_the_hadoop_check_passes() {
    let cluster = &*common_cluster();
    let workspace = Workspace::new(cluster);
    let checked = python(&workspace, Path::new("python3"))
        .args(["-m", "ydl.compat.tf_yarn.bin.check_hadoop_env"])
        .output();
    let checked = CommandOutput::from(checked.expect("Python can be started"));
    assert_eq!(checked.code, 0, "{checked:#?}");
    let log = fs::read_to_string(workspace.path().join("check_hadoop_env.log")).expect("a log");
    assert!(log.contains("remote_check: True"), "{log}");
    assert!(log.trim_end().ends_with("Hadoop setup: OK"), "{log}");

    let made = Command::new("python3")
        .args(["-m", "venv", "--without-pip", "own"])
        .current_dir(workspace.path())
        .status();
    assert!(made.expect("Python can be started").success());
    for (name, text) in [("where.py", WHERE), ("send.py", SENDS), ("here.txt", "data")] {
        workspace.write(name, text);
    }
    let own = workspace.path().join("own");
    let seen = sent(&workspace, &own, &[]);
    assert!(!seen.starts_with(&own), "the module was not shipped: {seen:?}");

    // An existing pex in HDFS is used unchanged.
    let pex = workspace.path().join("made.pex");
    let made =
        Command::new(packed_mxnet_environments().join("tools/pex")).arg("-o").arg(&pex).output();
    let made = CommandOutput::from(made.expect("pex can be started"));
    assert_eq!(made.code, 0, "{made:#?}");
    let put = workspace.cluster.fs(&["-put", &pex.display().to_string(), "/made.pex"]);
    put.expect("a file in HDFS");
    sent(&workspace, &own, &["hdfs:///made.pex"]);

    let used = applications(workspace.cluster);
    let queued = used.iter().any(|one| one.queue.ends_with("ml-gpu"));
    assert!(queued, "{used:?}");
}
