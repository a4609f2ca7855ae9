//! Elastic roles with real programs.

use std::fs;
use ydl_testkit::{
    elastic::Training,
    local::{Home, copy_example},
};

/// Returns the output of every attempt of every worker.
fn printed(home: &Home) -> Vec<String> {
    let mut all = Vec::new();
    let workers = home.job().join("logs/worker");
    for worker in fs::read_dir(workers).into_iter().flatten().flatten() {
        for attempt in fs::read_dir(worker.path()).into_iter().flatten().flatten() {
            let log = fs::read_to_string(attempt.path().join("stdout.0"));
            all.push(log.unwrap_or_default());
        }
    }
    all
}

#[test]
fn pytorch_continues_with_two_four_one_and_two_workers() {
    let home = Home::new();
    let enough = home.path().join("enough");
    let run =
        format!("python train_elastic.py --epochs 6 --until {} --pause 0.01", enough.display());
    let mut args = copy_example(&home, "pytorch", ["elastic.yaml", "train_elastic.py"], &run);
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let train = root.join("examples/pytorch-digits/train.py");
    fs::copy(train, home.path().join("train.py")).expect("the example's file");
    // With a long settle time a round starts only with all requested workers.
    args.extend(["--set", "gang.settle=1h", "--detach"].map(String::from));
    let ran = ydl_testkit::CommandOutput::from(home.ydl().args(&args).output().expect("ydl"));
    assert_eq!(ran.code, 0, "{ran:#?}");
    let id = ran.stdout.trim();
    let scale = |instances: u32| {
        let ran = home.run(&["scale", id, &format!("worker={instances}")]);
        assert_eq!(ran.code, 0, "{ran:#?}");
    };
    let reaches = |worlds: &[u32]| {
        home.wait_for(&format!("rounds of {worlds:?}"), |home| {
            Training::read(&printed(home)).has_reached(worlds).then_some(())
        });
    };
    reaches(&[2]);
    let refused = home.run(&["scale", id, "worker=5"]);
    assert_eq!(refused.code, 2, "{refused:#?}");
    let sentence = "role `worker` has between 1 and 4 tasks, not 5";
    assert!(refused.stderr.contains(sentence), "{refused:#?}");
    scale(4);
    reaches(&[2, 4]);
    scale(1);
    reaches(&[2, 4, 1]);
    scale(2);
    reaches(&[2, 4, 1, 2]);
    fs::write(enough, "").expect("a file");
    home.wait_until_empty();
    Training::read(&printed(&home)).assert_successful(&[2, 4, 1, 2], 10);
    let history = home.history();
    assert!(history.contains("job-finished\":{\"outcome\":\"succeeded"), "{history}");
    assert_eq!(history.matches("\"role-scaled\"").count(), 3, "{history}");
    assert_eq!(history.matches("\"attempt-ended\"").count(), 2, "{history}");
    assert!(home.path().join("result/digits.pt").exists());
}
