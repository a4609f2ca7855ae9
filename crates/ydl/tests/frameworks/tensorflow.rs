//! The TensorFlow examples with the real TensorFlow: their results, and killed processes.

use ydl_testkit::{
    CommandOutput,
    local::{
        Home, example_arguments, kill_then_stop, printed_value, run_example, submit_and_signal,
        with_pauses,
    },
    requirements_environment,
};

fn trains(name: &str, run: &str) -> CommandOutput {
    let home = Home::new();
    let args = example_arguments(&home, name, run);
    run_example(&home, &args)
}

/// Asserts that the job succeeded, its model was copied and no process is left.
fn assert_success(home: &Home, ran: &CommandOutput) {
    assert_eq!(ran.code, 0, "{ran:#?}");
    let metrics = home.path().join("result/metrics.json");
    assert!(metrics.exists(), "the model was not copied");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

/// Returns the text after the last occurrence of a label in the output of a task.
fn last_printed<'a>(ran: &'a CommandOutput, task: &str, label: &str) -> &'a str {
    let prefix = format!("{task} | {label} ");
    let mut lines = ran.stdout.lines().rev();
    let found = lines.find_map(|line| line.strip_prefix(&prefix));
    found.unwrap_or_else(|| panic!("no `{prefix}` in {ran:#?}"))
}

fn number(text: &str) -> f64 {
    text.parse().unwrap_or_else(|_| panic!("`{text}` is no number"))
}

/// Checks that both workers have their ranks and have learned the same accurate network.
fn mirrored(ran: &CommandOutput) {
    for worker in 0..2 {
        let rank = printed_value(ran, worker, "rank");
        assert!(rank.starts_with(&format!("{worker} of 2")), "{rank}");
        assert!(number(printed_value(ran, worker, "test accuracy")) >= 0.92);
        assert!(number(printed_value(ran, worker, "epoch 12 loss")) < 0.4);
        for label in ["epoch 12 loss", "weights"] {
            assert_eq!(printed_value(ran, worker, label), printed_value(ran, 0, label), "{ran:#?}");
        }
    }
}

#[test]
fn mirrored_workers_learn_the_same() {
    mirrored(&trains("tensorflow", "python train.py --epochs 12"));
}

/// The newest TensorFlow, with legacy Keras, which supports the strategy.
#[test]
fn mirrored_workers_of_the_newest_version_learn_the_same() {
    let home = Home::new();
    let mut args = example_arguments(&home, "tensorflow", "python train.py --epochs 12");
    let newest = requirements_environment("examples/tensorflow-digits/requirements-newest.txt");
    let newest = format!("environment={}", newest.display());
    let keras = "env.TF_USE_LEGACY_KERAS='1'";
    args.extend(["--set", &newest, "--set", keras].map(String::from));
    mirrored(&run_example(&home, &args));
}

#[test]
fn mirrored_workers_resume_from_their_checkpoint_after_one_is_killed() {
    let home = Home::new();
    let run = with_pauses("python train.py --epochs 12", 0.06);
    let args = example_arguments(&home, "tensorflow", &run);
    let ran = kill_then_stop(&home, args, ["epoch 3 ", "epoch 6 "], "YDL_INDEX=1");
    mirrored(&ran);
    let first = number(printed_value(&ran, 1, "rank 1 of 2, from epoch"));
    assert!(first >= 6.0, "five epochs were done, and it began with {first}");
}

#[test]
fn a_chief_trains_with_workers_and_servers_that_never_end() {
    let ran = trains("tensorflow-ps", "python train.py --epochs 12");
    assert!(number(last_printed(&ran, "chief:0", "epoch 12 loss")) < 0.4);
    assert!(number(last_printed(&ran, "chief:0", "test accuracy")) >= 0.92);
    for server in ["worker:0", "worker:1", "ps:0"] {
        let stopped = format!("{server} is stopped");
        assert!(ran.stderr.contains(&stopped), "no `{stopped}` in {ran:#?}");
    }
}

#[test]
fn the_chief_resumes_from_its_checkpoint_after_a_parameter_server_is_killed() {
    let home = Home::new();
    let run = "python train.py --epochs 12 --pause 0.2";
    let mut args = example_arguments(&home, "tensorflow-ps", run);
    let restart = "restart={limit: 1, backoff: {initial: 10ms, max: 10ms}}";
    args.extend(["--set", restart].map(String::from));
    let reached = |output: &str| output.contains("epoch 3 ");
    let (ran, _) = submit_and_signal(&home, &args, 9, "chief/0", reached, "YDL_ROLE=ps");
    assert_success(&home, &ran);
    let history = home.history();
    assert!(history.contains(r#""round-started":{"round":2,"#), "{history}");
    assert!(number(last_printed(&ran, "chief:0", "test accuracy")) >= 0.92);
    let first = number(last_printed(&ran, "chief:0", "chief of 2 workers, from epoch"));
    assert!(first >= 3.0, "two epochs were done, and it began with {first}");
}

#[test]
fn the_evaluator_of_an_estimator_sees_the_last_checkpoint() {
    let run = "python train.py --steps 300";
    let ran = trains("tensorflow-estimator", run);
    // Chief and worker count steps one after the other: a step that has started at the last one is finished.
    let last = last_printed(&ran, "evaluator:0", "step");
    let (step, accuracy) = last.split_once(" test accuracy ").expect("step and accuracy");
    assert!((300.0..=302.0).contains(&number(step)), "{last}");
    assert!(number(accuracy) >= 0.88, "{last}");
    for done in ["chief:0 | chief 0 is done", "evaluator:0 | evaluator 0 is done"] {
        assert!(ran.stdout.contains(done), "no `{done}` in {ran:#?}");
    }
    assert!(ran.stderr.contains("ps:0 is stopped"), "{ran:#?}");
}

/// Checks the accuracy of both workers of a TensorFlow 1 job, which train asynchronously.
fn replicated(ran: &CommandOutput) {
    for worker in ["worker:0", "worker:1"] {
        assert!(number(last_printed(ran, worker, "test accuracy")) >= 0.88);
    }
    for server in ["ps:0", "ps:1"] {
        let stopped = format!("{server} is stopped");
        assert!(ran.stderr.contains(&stopped), "no `{stopped}` in {ran:#?}");
    }
}

#[test]
fn tensorflow_1_programs_train_with_cluster_flags() {
    let ran = trains("tensorflow1", "python train.py --steps 600");
    replicated(&ran);
    for worker in 0..2 {
        let start = format!("worker {worker} of 2, from step");
        last_printed(&ran, &format!("worker:{worker}"), &start);
    }
}

/// The first worker writes checkpoints, because the servers lose their weights at the end of a round.
#[test]
fn tensorflow_1_programs_resume_from_the_checkpoint_after_one_is_killed() {
    let home = Home::new();
    let run = "python train.py --steps 600 --pause 0.01";
    let mut args = example_arguments(&home, "tensorflow1", run);
    let restart = "restart={limit: 1, backoff: {initial: 10ms, max: 10ms}}";
    args.extend(["--set", restart].map(String::from));
    // There is a checkpoint every fifty steps.
    let reached = |output: &str| {
        let steps = output.lines().filter_map(|line| line.strip_prefix("step "));
        let mut steps = steps.filter_map(|rest| rest.split(' ').next()?.parse().ok());
        steps.any(|step: u32| step >= 100)
    };
    let (ran, _) = submit_and_signal(&home, &args, 9, "worker/0", reached, "YDL_RANK=0");
    assert_success(&home, &ran);
    replicated(&ran);
    let first = number(last_printed(&ran, "worker:0", "worker 0 of 2, from step"));
    assert!(first >= 50.0, "it began with step {first}");
}

#[test]
fn an_evaluator_that_never_ends_is_stopped_after_the_follow_timeout() {
    let home = Home::new();
    let ran = home.submit(
        "framework: tensorflow\ntimeouts: {follow: 1s}\n\
         roles: {chief: {run: echo done}, evaluator: {run: sleep 1000}}\n",
    );
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(ran.stderr.contains("evaluator:0 is stopped"), "{ran:#?}");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}
