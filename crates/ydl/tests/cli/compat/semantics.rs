//! Meaning of single flags, and their precedence.

use super::workspace::{CompatWorkspace, render, run_successfully};
use expect_test::expect;
use std::fs;

#[test]
fn compat_commands_accept_local_resources() {
    let workspace = CompatWorkspace::new();
    let line = "dmlc-submit --cluster local --num-workers 2 --dry-run --worker-memory 2g";
    let run_args = |offer: &str| {
        let args = line.split_whitespace();
        let args: Vec<_> = args.chain(["--resources", offer, "python", "train.py"]).collect();
        workspace.output_of(&args)
    };
    expect![[r#"
        error: dmlc-submit: a task of role `worker` needs 2 GiB of memory, but only 1 GiB is available

        hint: raise `--resources`, or request less
        exit 2
    "#]]
    .assert_eq(&run_args("memory=1GiB,vcores=4"));
    let enough = run_args("memory=999GiB,vcores=999");
    assert!(enough.contains("the job could run"), "{enough}");
}

#[test]
fn flags_unknown_to_the_older_system_are_passed_to_the_program() {
    let workspace = CompatWorkspace::new();
    workspace.shows(
        "dmlc-submit --mode local --num-workers 1 python train.py --mode train --max-attempts 5",
        expect![[r##"
            # dmlc-submit --mode local --num-workers 1 python train.py --mode train --max-attempts 5
            name: train
            framework: xgboost
            roles:
              worker: {instances: 1, run: [python, train.py, "--mode", train, "--max-attempts", 5]}
            restart: {limit: 0}
            env:
              DMLC_WORKER_MEMORY_MB: 1024
              DMLC_WORKER_CORES: 1
              DMLC_SERVER_MEMORY_MB: 1024
              DMLC_SERVER_CORES: 1
              DMLC_JOB_CLUSTER: local
            local: {directory: ., oversubscribe: true}
            exit 0
        "##]],
    );
}

#[test]
fn size_flags_take_precedence_over_environment_variables() {
    let workspace = CompatWorkspace::new();
    let args =
        "dmlc-submit --show --cluster local --num-workers 1 --worker-cores 2 python train.py";
    let args: Vec<_> = args.split_whitespace().collect();
    let output = workspace.command(&args).env("DMLC_WORKER_CORES", "9").output();
    let page = render(&output.unwrap());
    assert!(page.contains("DMLC_WORKER_CORES: 2\n"), "{page}");
    let args = "dmlc-submit --show --cluster yarn --num-workers 1 python train.py";
    let args: Vec<_> = args.split_whitespace().collect();
    let output = workspace.command(&args).env("DMLC_MAX_ATTEMPT", "few").output();
    let text = render(&output.unwrap());
    assert!(text.contains("`DMLC_MAX_ATTEMPT` is `few`, which is not a number"), "{text}");
    let output = workspace.command(&args).env("AWS_SECRET_ACCESS_KEY", "hidden").output();
    let text = render(&output.unwrap());
    assert!(text.contains("note: `AWS_SECRET_ACCESS_KEY` is not passed on"), "{text}");
    assert!(!text.contains("hidden"), "{text}");
}

#[test]
fn files_have_one_flag_and_an_alias() {
    let workspace = CompatWorkspace::new();
    workspace.file("lib/data.txt");
    for line in [
        "dmlc-submit --show --cluster yarn --num-workers 1 FLAG lib/data.txt python train.py",
        "dmlc-yarn --show -n 1 FLAG lib/data.txt python train.py",
        "launch.py --show -n 1 --launcher yarn FLAG lib/data.txt python train.py",
        "ydl-mx --show --n 1 --launcher yarn FLAG lib/data.txt train.py",
        "yarn-tf --show FLAG lib/data.txt --shell_command date",
        "submit --show FLAG lib/data.txt -- python train.py",
    ] {
        for flag in ["--files", "--file"] {
            let line = line.replace("FLAG", flag);
            let output = run_successfully(&workspace, &line);
            assert!(output.contains("lib/data.txt"), "{line}: {output}");
        }
    }
    // After the command the alias is a flag of the program, as before.
    let output = run_successfully(
        &workspace,
        "dmlc-submit --show --cluster yarn --num-workers 1 python train.py --file lib",
    );
    assert!(output.contains("--file\", lib]"), "{output}");
}

#[test]
fn the_active_environment_is_shipped_by_every_command() {
    let workspace = CompatWorkspace::new();
    workspace.file("venv/bin/python").file("venv/pyvenv.cfg").file("code.tar").file("xgboost");
    let venv = workspace.path().join("venv");
    let python = venv.join("bin/python").display().to_string();
    let shown = |line: &str| {
        let args: Vec<_> = line.split_whitespace().collect();
        let output = workspace.cluster_command(&args).env("VIRTUAL_ENV", &venv).output().unwrap();
        render(&output)
    };
    let shipped = format!("environment: {}\n", venv.display());
    for line in [
        "dmlc-submit --show --cluster yarn --num-workers 1 python train.py",
        "dmlc-yarn --show -n 1 A=1 python3 train.py",
        "launch.py --show -n 1 python train.py",
        "ydl-mx --show --n 1 train.py",
        "yarn-tf --show --tar code.tar --shell_command python --shell_args train.py",
        "yarn-tf --show --node_label_expression gpu --shell_command python",
    ] {
        let text = shown(line);
        assert!(text.contains(&shipped) && text.ends_with("exit 0\n"), "{line}: {text}");
    }
    // Its interpreter is the one of the shipped environment.
    let text = shown(&format!("dmlc-yarn --show -n 1 {python} train.py"));
    assert!(text.contains(&shipped) && text.contains("run: [python, ./train.py]"), "{text}");
    for line in [
        "dmlc-submit --show --cluster yarn --num-workers 1 /usr/bin/python3 train.py",
        "dmlc-submit --show --cluster yarn --num-workers 1 ./xgboost",
        "dmlc-submit --show --cluster local --num-workers 1 python train.py",
        "ydl-mx --show --n 1 --label mxnet train.py",
        "ydl-mx --show --n 1 --native scala ./xgboost",
        "yarn-tf --show --docker_image x:1 --shell_command python",
    ] {
        let text = shown(line);
        assert!(!text.contains(&shipped) && text.ends_with("exit 0\n"), "{line}: {text}");
    }
}

#[test]
fn max_attempts_limits_the_attempts_of_a_task() {
    let workspace = CompatWorkspace::new();
    let script = "import os, sys\nprint('attempt', os.environ['DMLC_NUM_ATTEMPT'], os.environ['DMLC_MINE'])\nsys.exit(3)\n";
    fs::write(workspace.path().join("train.py"), script).unwrap();
    let tried = |most: &str| {
        let args =
            ["dmlc-submit", "--num-workers", "1", "--max-attempts", most, "python3", "train.py"];
        let mut command = workspace.command(&args);
        command
            .env("DMLC_SUBMIT_CLUSTER", "local")
            .env("DMLC_MINE", "here")
            .env("AWS_SECRET_ACCESS_KEY", "hidden");
        let text = render(&command.output().unwrap());
        assert!(!text.contains("AWS_SECRET_ACCESS_KEY"), "programs inherit it: {text}");
        assert!(!text.contains("hidden") && text.ends_with("exit 3\n"), "{text}");
        text.matches(" | attempt ").count()
    };
    assert_eq!(tried("1"), 1);
    assert_eq!(tried("2"), 2);
}

#[test]
fn serving_tasks_have_a_port_and_no_parameter_servers() {
    let workspace = CompatWorkspace::new();
    let script = "import os\nprint('served', int(os.environ['YDL_PORT_HTTP']) > 0)\n";
    fs::write(workspace.path().join("serve.py"), script).unwrap();
    let output = run_successfully(
        &workspace,
        "ydl-mx --cluster local --n 2 --serve --native cpp python3 serve.py",
    );
    assert_eq!(output.matches(" | served True").count(), 2, "{output}");
}
