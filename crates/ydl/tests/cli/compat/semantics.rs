//! Meaning of single flags, and their precedence.

use super::workspace::{Desk, runs, told};
use expect_test::expect;
use std::fs;

#[test]
fn what_this_machine_offers_can_be_said_to_a_door() {
    let desk = Desk::new();
    let line = "dmlc-submit --cluster local --num-workers 2 --dry-run --worker-memory 2g";
    let said = |offer: &str| {
        let words = line.split_whitespace();
        let words: Vec<_> = words.chain(["--resources", offer, "python", "train.py"]).collect();
        desk.said(&words)
    };
    expect![[r#"
        error: dmlc-submit: a task of role `worker` needs 2 GiB of memory, but only 1 GiB is available

        hint: raise `--resources`, or ask for less
        exit 2
    "#]]
    .assert_eq(&said("memory=1GiB,vcores=4"));
    let enough = said("memory=999GiB,vcores=999");
    assert!(enough.contains("the job could run"), "{enough}");
}

#[test]
fn flags_that_older_systems_did_not_have_stay_with_the_program() {
    let desk = Desk::new();
    desk.shows(
        "dmlc-submit --mode local --num-workers 1 python train.py --mode train --max-attempts 5",
        expect![[r##"
            # dmlc-submit --mode local --num-workers 1 python train.py --mode train --max-attempts 5
            name: train
            framework: xgboost
            files: [train.py]
            roles:
              worker: {instances: 1, run: [python, ./train.py, "--mode", train, "--max-attempts", 5]}
            restart: {limit: 0}
            env:
              DMLC_WORKER_MEMORY_MB: 1024
              DMLC_WORKER_CORES: 1
              DMLC_SERVER_MEMORY_MB: 1024
              DMLC_SERVER_CORES: 1
              DMLC_JOB_CLUSTER: local
            exit 0
        "##]],
    );
}

#[test]
fn what_the_flags_say_of_sizes_wins_over_the_shell() {
    let desk = Desk::new();
    let words =
        "dmlc-submit --show --cluster local --num-workers 1 --worker-cores 2 python train.py";
    let words: Vec<_> = words.split_whitespace().collect();
    let output = desk.command(&words).env("DMLC_WORKER_CORES", "9").output();
    let page = told(&output.unwrap());
    assert!(page.contains("DMLC_WORKER_CORES: 2\n"), "{page}");
    let words = "dmlc-submit --show --cluster yarn --num-workers 1 python train.py";
    let words: Vec<_> = words.split_whitespace().collect();
    let output = desk.command(&words).env("DMLC_MAX_ATTEMPT", "few").output();
    let said = told(&output.unwrap());
    assert!(said.contains("`DMLC_MAX_ATTEMPT` is `few`, which is not a number"), "{said}");
}

#[test]
fn a_job_is_tried_as_often_as_it_was_said() {
    let desk = Desk::new();
    let script = "import os, sys\nprint('attempt', os.environ['DMLC_NUM_ATTEMPT'], os.environ['DMLC_MINE'])\nsys.exit(3)\n";
    fs::write(desk.path().join("train.py"), script).unwrap();
    let tried = |most: &str| {
        let words =
            ["dmlc-submit", "--num-workers", "1", "--max-attempts", most, "python3", "train.py"];
        let mut command = desk.command(&words);
        command
            .env("DMLC_SUBMIT_CLUSTER", "local")
            .env("DMLC_MINE", "here")
            .env("AWS_SECRET_ACCESS_KEY", "hidden");
        let said = told(&command.output().unwrap());
        assert!(said.contains("note: `AWS_SECRET_ACCESS_KEY` is not passed on"), "{said}");
        assert!(!said.contains("hidden") && said.ends_with("exit 3\n"), "{said}");
        said.matches(" | attempt ").count()
    };
    assert_eq!(tried("1"), 1);
    assert_eq!(tried("2"), 2);
}

#[test]
fn what_serves_has_a_port_and_no_servers() {
    let desk = Desk::new();
    let script = "import os\nprint('served', int(os.environ['YDL_PORT_HTTP']) > 0)\n";
    fs::write(desk.path().join("serve.py"), script).unwrap();
    let said = runs(&desk, "ydl-mx --cluster local --n 2 --serve --native cpp python3 serve.py");
    assert_eq!(said.matches(" | served True").count(), 2, "{said}");
}
