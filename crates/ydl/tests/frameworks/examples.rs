//! The examples with the real frameworks: their results, and killed workers.

use ydl_testkit::{
    CommandOutput,
    local::{
        Home, assert_workers_agree, example_arguments, kill_then_stop, printed_value, run_example,
        with_pauses,
    },
};

fn trains(framework: &str, run: &str) -> CommandOutput {
    let home = Home::new();
    let args = example_arguments(&home, framework, run);
    run_example(&home, &args)
}

#[test]
fn the_pytorch_example_learns_its_digits() {
    let ran = trains("pytorch", "python train.py --epochs 12");
    assert_workers_agree(&ran, 2, 0.92, "weights");
}

#[test]
fn pytorch_resumes_from_its_checkpoint_after_a_worker_is_killed() {
    let home = Home::new();
    let args =
        example_arguments(&home, "pytorch", &with_pauses("python train.py --epochs 12", 0.06));
    let ran = kill_then_stop(&home, args, ["epoch 3 ", "epoch 6 "], "RANK=1");
    assert_workers_agree(&ran, 2, 0.92, "weights");
    let first = printed_value(&ran, 1, "rank 1 of 2, from epoch");
    let first: u32 = first.parse().expect("a number");
    assert!(first >= 6, "five epochs were done, and it began with {first}");
}

/// Returns the rest of all output lines after that label.
fn all_printed<'a>(ran: &'a CommandOutput, label: &str) -> Vec<&'a str> {
    let lines = ran.stdout.lines();
    let found = lines.filter_map(|line| Some(line.split_once(label)?.1));
    found.collect()
}

/// Runs another job file of the PyTorch example, with four processes in two tasks.
fn four_processes(job: &str, epochs: u32) -> CommandOutput {
    let home = Home::new();
    let mut args = example_arguments(&home, "pytorch", "");
    let examples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for name in ["train_fsdp.py", job] {
        let from = examples.join("pytorch-digits").join(name);
        std::fs::copy(from, home.path().join(name)).expect("the example's file");
    }
    let text = std::fs::read_to_string(home.path().join(job)).expect("a job");
    let text = text.replace("--epochs 12", &format!("--epochs {epochs}"));
    home.write(job, &text);
    job.clone_into(&mut args[1]);
    args.truncate(4);
    let ran = CommandOutput::from(home.ydl().args(&args).output().expect("ydl"));
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
    let weights = all_printed(&ran, "weights ");
    assert_eq!(weights, [weights[0]; 4], "{ran:#?}");
    for accuracy in all_printed(&ran, "test accuracy ") {
        assert!(accuracy.parse::<f64>().expect("a number") > 0.85, "{ran:#?}");
    }
    let mut ranks: Vec<_> = all_printed(&ran, "rank ").iter().map(|it| &it[..6]).collect();
    ranks.sort_unstable();
    assert_eq!(ranks, ["0 of 4", "1 of 4", "2 of 4", "3 of 4"]);
    ran
}

#[test]
fn processes_of_one_pytorch_task_are_separate_ranks_and_shard_a_network() {
    let ran = four_processes("fsdp.yaml", 6);
    let second = "worker:1 | [0] rank 2 of 4 has 2467 of 9610 parameters, from epoch 1";
    assert!(ran.stdout.lines().any(|line| line == second), "{ran:#?}");
}

#[test]
fn torchrun_and_its_workers_use_the_store_of_the_master() {
    four_processes("torchrun.yaml", 6);
}

#[test]
fn the_xgboost_example_learns_its_digits() {
    let ran = trains("xgboost", "python train.py --rounds 10");
    assert_workers_agree(&ran, 3, 0.93, "gain");
}

#[test]
fn xgboost_restarts_after_a_worker_is_killed() {
    let home = Home::new();
    let args =
        example_arguments(&home, "xgboost", &with_pauses("python train.py --rounds 10", 1.0));
    let ran = kill_then_stop(&home, args, ["round 2 "; 2], "DMLC_TASK_ID=1");
    assert_workers_agree(&ran, 3, 0.93, "gain");
}

#[test]
fn a_killed_worker_of_xgboost_1_rejoins_with_its_rank() {
    let home = Home::new();
    let run = with_pauses("python train.py --rounds 10", 1.5);
    let args = example_arguments(&home, "xgboost1", &run);
    let lines = ["round 3 ", "round 6 "];
    let ran = kill_then_stop(&home, args, lines, "DMLC_TASK_ID=1");
    assert_workers_agree(&ran, 3, 0.93, "gain");
    for worker in 0..3 {
        let rank = printed_value(&ran, worker, "rank");
        let from = rank.rsplit(' ').next().and_then(|it| it.parse().ok());
        assert!(from.is_some_and(|from: u32| from >= 6), "{rank}");
    }
}

#[test]
fn the_lightgbm_example_learns_its_digits() {
    let ran = trains("lightgbm", "python train.py --rounds 20");
    assert_workers_agree(&ran, 3, 0.93, "gain");
}

#[test]
fn lightgbm_restarts_after_a_worker_is_killed() {
    let home = Home::new();
    let args =
        example_arguments(&home, "lightgbm", &with_pauses("python train.py --rounds 20", 0.5));
    let ran = kill_then_stop(&home, args, ["round 2"; 2], "YDL_INDEX=1");
    assert_workers_agree(&ran, 3, 0.93, "gain");
}
