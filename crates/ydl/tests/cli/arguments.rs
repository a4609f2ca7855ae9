//! Command-line parsing, help and messages of the binary before any job runs.

use expect_test::{Expect, expect, expect_file};
use std::{
    fs,
    path::Path,
    process::{Command, Output},
};
use tempfile::TempDir;
use ydl_os::report::Exit;

struct Workspace {
    dir: TempDir,
}

impl Workspace {
    fn new() -> Workspace {
        Workspace { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(ydl_testkit::ydl());
        command
            .args(args)
            .current_dir(self.path())
            .env("XDG_STATE_HOME", self.path().join("state"))
            .env_remove("YDL_MASTER")
            .env_remove("NO_COLOR");
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Returns output and exit code, with the workspace path replaced by `HERE`.
    fn output_of(&self, args: &[&str]) -> String {
        render(&self.run(args)).replace(&self.path().display().to_string(), "HERE")
    }
}

fn render(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let code = output.status.code().unwrap();
    format!("{}{}exit {code}\n", text(&output.stdout), text(&output.stderr))
}

fn check(args: &[&str], expected: Expect) {
    expected.assert_eq(&Workspace::new().output_of(args));
}

#[test]
fn reference_page_matches_the_help() {
    expect_file!["../../../../docs/reference/commands.md"].assert_eq(&ydl::command_reference());
}

#[test]
fn exit_code_page_lists_every_exit_code() {
    let page = include_str!("../../../../docs/reference/exit-codes.md");
    let all = [
        Exit::Success,
        Exit::BadInput,
        Exit::JobFailed,
        Exit::JobKilled,
        Exit::Unreachable,
        Exit::Internal,
        Exit::Interrupted,
    ];
    for exit in all {
        assert!(page.contains(&format!("\n| {} |", exit.code())), "{exit:?}");
    }
}

#[test]
fn every_command_prints_help() {
    let workspace = Workspace::new();
    for args in [
        vec!["--help"],
        vec!["submit", "--help"],
        vec!["ls", "--help"],
        vec!["status", "--help"],
        vec!["logs", "--help"],
        vec!["kill", "--help"],
        vec!["scale", "--help"],
        vec!["kv", "--help"],
        vec!["kv", "put", "--help"],
    ] {
        let output = workspace.run(&args);
        assert!(output.status.success(), "{args:?}");
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(help.contains("Usage: ydl"), "{args:?}: {help}");
        assert!(!help.contains("master <"), "a hidden command is listed");
    }
}

#[test]
fn completions_are_generated_for_every_shell() {
    let workspace = Workspace::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = workspace.run(&["completions", shell]);
        assert!(output.status.success());
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(script.contains("submit"), "{shell}");
    }
}

#[test]
fn invalid_arguments_exit_with_2() {
    let workspace = Workspace::new();
    for args in [
        vec!["--nonsense"],
        vec!["nonsense"],
        vec!["submit"],
        vec!["submit", "--nonsense", "job.yaml"],
        vec!["submit", "job.yaml", "--", "true"],
        vec!["kill"],
        vec!["scale", "x"],
        vec!["kv"],
        vec!["logs", "--stdout", "--stderr"],
        vec![],
    ] {
        let output = workspace.run(&args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(!output.stderr.is_empty(), "{args:?}");
    }
    assert!(!workspace.path().join("state").exists(), "files were created");
}

#[test]
fn misspelled_command_is_suggested() {
    check(
        &["dmlc-sumbit", "--cluster", "local"],
        expect![[r#"
            error: unknown command `dmlc-sumbit`

            hint: did you mean `dmlc-submit`?
            exit 2
        "#]],
    );
    let verb = Workspace::new().output_of(&["sumbit", "job.yaml"]);
    assert!(verb.contains("'submit'"), "{verb}");
}

#[test]
fn missing_hadoop_configuration_is_reported() {
    check(
        &["submit", "--cluster", "yarn", "--", "true"],
        expect![[r#"
            error: no Hadoop configuration found

            hint: set `HADOOP_CONF_DIR` to the directory with `core-site.xml` and `yarn-site.xml`
            exit 2
        "#]],
    );
}

#[test]
fn job_file_error_names_its_location() {
    let workspace = Workspace::new();
    let yaml = "name: x\nroles:\n  worker:\n    run: sleep 1\n    memroy: 2 GiB\n";
    fs::write(workspace.path().join("job.yaml"), yaml).unwrap();
    expect![[r#"
        error: job.yaml:5:5: unknown key `memroy` in role `worker`

        hint: did you mean `memory`?
        exit 2
    "#]]
    .assert_eq(&workspace.output_of(&["submit", "job.yaml"]));
    expect![[r#"
        error: missing.yaml: no such file

        hint: `ydl submit -- COMMAND` runs a command without a job file
        exit 2
    "#]]
    .assert_eq(&workspace.output_of(&["submit", "missing.yaml"]));
    fs::write(workspace.path().join("train.py"), "\"\"\"Trains.\"\"\"\nimport sys\n").unwrap();
    expect![[r#"
        error: train.py: is a program, not a job file

        hint: `ydl submit -- python train.py` runs it without a job file
        exit 2
    "#]]
    .assert_eq(&workspace.output_of(&["submit", "train.py"]));
    expect![[r#"
        error: .: is a directory, not a job file

        hint: use a file in it, such as `job.yaml`
        exit 2
    "#]]
    .assert_eq(&workspace.output_of(&["submit", "."]));
    expect![[r#"
        error: `--memory` is for a job without a job file

        hint: override a value of the file with `--set`, as in `--set roles.worker.memory=2GiB`
        exit 2
    "#]]
    .assert_eq(&workspace.output_of(&["submit", "job.yaml", "--memory", "1GiB"]));
    assert!(!workspace.path().join("state").exists(), "files were created");
}

#[test]
fn flag_error_names_the_flag() {
    check(
        &[
            "submit",
            "--instances",
            "0",
            "--memory",
            "5",
            "--env",
            "A",
            "--env",
            "YDL_X=1",
            "--files",
            "gone.py",
            "--output",
            "a=hdfs:///b",
            "--framework",
            "mx",
            "--",
            "true",
        ],
        expect![[r#"
            error: --env A: missing `=`

            hint: write `--env NAME=VALUE`

            error: --files gone.py: `files`: `gone.py` does not exist

            hint: paths are relative to `HERE`

            error: --framework mx: `framework`: unknown framework `mx`: expected one of `none`, `mxnet`, `pytorch`, `horovod`, `xgboost`, `lightgbm`, `tensorflow`, `jax`

            hint: did you mean `mxnet`?

            error: --instances 0: `roles.worker.instances`: a role of 0 instances does nothing

            hint: leave the role out, or give it at least one instance

            error: --memory 5: `roles.worker.memory`: the size `5` has no unit

            hint: write `5 GiB`

            error: `env`: `YDL_X`: names beginning with YDL_ are ydl's own

            hint: choose another name
            exit 2
        "#]],
    );
    check(
        &["submit", "--set", "x", "--", "true"],
        expect![[r#"
            error: --set x: missing `=`

            hint: write `--set roles.worker.instances=4`
            exit 2
        "#]],
    );
}

#[test]
fn job_larger_than_this_machine_is_rejected_at_submit() {
    let workspace = Workspace::new();
    let offer = ["--resources", "vcores=2,memory=1GiB,gpus=0"];
    let output_with = |more: &[&str]| {
        workspace.output_of(&[&["submit"], &offer[..], more, &["--", "true"]].concat())
    };
    expect![[r#"
        error: a task of role `worker` needs 2 GiB of memory, but only 1 GiB is available

        hint: raise `--resources`, or request less
        exit 2
    "#]]
    .assert_eq(&output_with(&["--memory", "2GiB"]));
    expect![[r#"
        error: a task of role `worker` needs 1 GPUs, but only 0 are available

        hint: raise `--resources`, or request less
        exit 2
    "#]]
    .assert_eq(&output_with(&["--gpus", "1"]));
    expect![[r#"
        error: a task of role `worker` needs 3 vcores, but only 2 are available

        hint: raise `--resources`, or request less
        exit 2
    "#]]
    .assert_eq(&output_with(&["--vcores", "3"]));
    expect![[r#"
        error: the job's 2 tasks start together and need 1.1 GiB of memory, but only 1 GiB is available

        hint: raise `--resources`, or request less
        exit 2
    "#]]
    .assert_eq(&output_with(&["--memory", "600MiB", "--instances", "2", "--set", "gang=true"]));
    assert!(!workspace.path().join("state").exists(), "files were created");
    for offer in ["memory", "memory=8", "cores=1", "vcores=many", "gpus=10000"] {
        let output = workspace.run(&["submit", "--resources", offer, "--", "true"]);
        assert_eq!(output.status.code(), Some(2), "{offer}");
    }
    expect![[r#"
        error: --resources cores=1: unknown resource `cores`

        hint: write `--resources vcores=4,memory=8GiB,gpus=0`
        exit 2
    "#]]
    .assert_eq(&workspace.output_of(&["submit", "--resources", "cores=1", "--", "true"]));
}

#[test]
fn show_prints_the_job_with_defaults() {
    let workspace = Workspace::new();
    let args = [
        "submit",
        "--show",
        "--name",
        "demo",
        "--framework",
        "mxnet",
        "--workers",
        "2",
        "--servers",
        "1",
        "--memory",
        "2g",
        "--env",
        "A=1",
        "--",
        "python",
        "train.py",
        "a b",
    ];
    let output = workspace.run(&args);
    let printed = String::from_utf8(output.stdout).unwrap();
    expect![[r#"
        name: demo
        framework: mxnet
        environment: system
        roles:
          worker:
            instances: 2
            processes: 1
            memory: 2 GiB
            vcores: 1
            gpus: 0
            run: [python, train.py, "a b"]
            restart:
              scope: job
              limit: 0
              backoff: {initial: 1s, max: 1m}
              window: none
            completion: all
            tolerate: 0
            placement:
              strict: false
          server:
            instances: 1
            processes: 1
            memory: 2 GiB
            vcores: 1
            gpus: 0
            run: [python, train.py, "a b"]
            restart:
              scope: job
              limit: 0
              backoff: {initial: 1s, max: 1m}
              window: none
            completion: service
            tolerate: 0
            placement:
              strict: false
        env:
          A: 1
        gang:
          together: true
          hold: 5m
          retries: 3
          backoff: {initial: 30s, max: 10m}
          settle: 10s
        timeouts:
          allocation: 1h
          launch: 2m
          join: 15m
          fetch: 6h
          start: 2m
          run: none
          follow: 30m
          heartbeat: 1m
          grace: 10s
          stop: 20s
          upload: 10m
        node_exclusion:
          failures: 3
          timeout: 30m
          max_nodes: 10
        ports: 20000-32767
        master:
          memory: 256 MiB
          vcores: 1
          attempts: 4
    "#]]
    .assert_eq(&printed);
    fs::write(workspace.path().join("again.yaml"), &printed).unwrap();
    let again = workspace.run(&["submit", "--show", "again.yaml"]);
    assert_eq!(String::from_utf8(again.stdout).unwrap(), printed);
    let stdin = fs::File::open(workspace.path().join("again.yaml")).unwrap();
    let again = workspace.command(&["submit", "--show", "-"]).stdin(stdin).output().unwrap();
    assert_eq!(String::from_utf8(again.stdout).unwrap(), printed);
    let json = workspace.run(&["submit", "--show", "--json", "again.yaml"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["name"], "demo");
}

#[test]
fn unusable_state_directory_is_reported() {
    let workspace = Workspace::new();
    fs::write(workspace.path().join("state"), "a file").unwrap();
    expect![[r#"
        error: cannot create the job's directory in `HERE/state/ydl/jobs`: not a directory

        hint: make it writable, or set `XDG_STATE_HOME` to a directory that is
        exit 123
    "#]]
    .assert_eq(&workspace.output_of(&["submit", "--", "true"]));
    let mut without_home = workspace.command(&["submit", "--", "true"]);
    let output = without_home.env_remove("XDG_STATE_HOME").env_remove("HOME").output().unwrap();
    expect![[r#"
        error: no directory for jobs: neither `XDG_STATE_HOME` nor `HOME` is set

        hint: set `XDG_STATE_HOME` to a writable directory
        exit 123
    "#]]
    .assert_eq(&render(&output));
}

#[test]
fn missing_jobs_are_reported() {
    check(
        &["ls"],
        expect![[r#"
            no jobs on this machine
            exit 0
        "#]],
    );
    check(
        &["ls", "--json"],
        expect![[r#"
        exit 0
    "#]],
    );
    check(
        &["status"],
        expect![[r#"
            error: no jobs on this machine

            hint: start one with `ydl submit`
            exit 2
        "#]],
    );
    check(
        &["status", "x"],
        expect![[r#"
            error: there is no job `x` on this machine

            hint: `ydl ls` lists the jobs
            exit 2
        "#]],
    );
    check(
        &["logs"],
        expect![[r#"
            error: no jobs on this machine

            hint: start one with `ydl submit`
            exit 2
        "#]],
    );
    check(
        &["logs", "worker:0"],
        expect![[r#"
            error: no jobs on this machine

            hint: start one with `ydl submit`
            exit 2
        "#]],
    );
    check(
        &["kill", "x"],
        expect![[r#"
            error: there is no job `x` on this machine

            hint: `ydl ls` lists the jobs
            exit 2
        "#]],
    );
    check(
        &["scale", "x", "worker"],
        expect![[r#"
            error: `worker` is not of the form ROLE=COUNT

            hint: write `worker=4`
            exit 2
        "#]],
    );
    check(
        &["kv", "ls"],
        expect![[r#"
        error: no job given, and this process is not a task of a job

        hint: write `ydl kv --job JOB …`; `ydl ls` lists the jobs
        exit 2
    "#]],
    );
    check(
        &["kv", "--job", "x", "get", "a"],
        expect![[r#"
            error: there is no job `x` on this machine

            hint: `ydl ls` lists the jobs
            exit 2
        "#]],
    );
}

#[test]
fn jobs_of_another_version_are_reported_with_both_versions() {
    let workspace = Workspace::new();
    let jobs = workspace.path().join("state/ydl/jobs");
    for (name, content) in
        [("a-111111", r#"{"version":2,"job":[]}"#), ("b-222222", r#"{"id":"b"}"#)]
    {
        fs::create_dir_all(jobs.join(name)).unwrap();
        fs::write(jobs.join(name).join("job.json"), content).unwrap();
    }
    let output_of = |args: &[&str]| workspace.output_of(args);
    expect![[r#"
        error: cannot read `HERE/state/ydl/jobs/a-111111/job.json`: unsupported file version 2: this `ydl` reads version 1

        hint: use the version of `ydl` that submitted the job
        exit 2
    "#]]
    .assert_eq(&output_of(&["status", "a-111111"]));
    expect![[r#"
        error: cannot read `HERE/state/ydl/jobs/b-222222/job.json`: the file has no version: this `ydl` reads version 1

        hint: use the version of `ydl` that submitted the job
        exit 2
    "#]]
    .assert_eq(&output_of(&["kill", "b-2"]));
    let listed = output_of(&["ls"]);
    for text in [
        "unsupported file version 2",
        "the file has no version",
        "no jobs on this machine",
        "exit 0",
    ] {
        assert!(listed.contains(text), "{listed}");
    }
    let master = output_of(&["master", &jobs.join("a-111111").display().to_string()]);
    assert!(master.contains("unsupported file version 2"), "{master}");
}

#[test]
fn incomplete_job_directories_are_ignored() {
    let workspace = Workspace::new();
    let jobs = workspace.path().join("state/ydl/jobs");
    for (name, content) in
        [("a-111111", None), ("b-222222", Some("{\"id\":")), ("c-333333", Some(""))]
    {
        fs::create_dir_all(jobs.join(name)).unwrap();
        if let Some(content) = content {
            fs::write(jobs.join(name).join("job.json"), content).unwrap();
        }
    }
    fs::write(jobs.join("a-file"), "").unwrap();
    expect![[r#"
        no jobs on this machine
        exit 0
    "#]]
    .assert_eq(&workspace.output_of(&["ls"]));
}
