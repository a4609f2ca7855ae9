//! Inputs and outputs of jobs on this machine.

mod locations;
mod results;

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};
use ydl::agent::outputs;
use ydl_testkit::{assert_rejected, local::Home};

/// Returns a job file with one role that runs this shell script.
fn script(instances: u32, script: &str, more: &str) -> String {
    let script = serde_json::to_string(script).expect("a string");
    format!(
        "name: t\nroles:\n  worker:\n    instances: {instances}\n    memory: 256 MiB\n    shell: {script}\n{more}\n"
    )
}

fn ten_files(home: &Home) {
    fs::create_dir(home.path().join("data")).expect("a directory");
    for n in 0..10 {
        let text = "x".repeat(100 * (n + 1));
        home.write(&format!("data/part-{n}"), &text);
    }
    home.write("data/_SUCCESS", "");
}

/// Returns the texts after a label in the output of an attempt.
fn printed(home: &Home, index: u32, attempt: u32, label: &str) -> Vec<String> {
    let log = home.job().join(format!("logs/worker/{index}/{attempt}/stdout.0"));
    let text = fs::read_to_string(log).expect("a log");
    let lines = text.lines().filter_map(|line| line.strip_prefix(label));
    lines.map(str::to_owned).collect()
}

#[test]
fn files_are_split_over_tasks_and_a_restarted_task_gets_the_same() {
    let home = Home::new();
    ten_files(&home);
    let ran = home.submit(&script(
        3,
        "for f in train/*; do echo \"file $(basename $f) $(cat $f | wc -c)\"; done; \
         test $YDL_INDEX != 1 || test $YDL_ATTEMPT = 2",
        "inputs: {train: {source: data, as: split}}\nrestart: {limit: 1, backoff: {initial: 1ms, max: 1ms}}",
    ));
    assert_eq!(ran.code, 0, "{ran:#?}");
    let mut all = Vec::new();
    for index in 0..3 {
        all.extend(printed(&home, index, 1, "file "));
    }
    assert_eq!(
        printed(&home, 1, 1, "file "),
        printed(&home, 1, 2, "file "),
        "other files after a restart"
    );
    let whole: BTreeSet<_> = all.iter().cloned().collect();
    assert_eq!(whole.len(), all.len(), "a file was given to two tasks: {all:?}");
    let expected: BTreeSet<_> = (0..10).map(|n| format!("part-{n} {}", 100 * (n + 1))).collect();
    assert_eq!(whole, expected, "a file is missing");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

#[test]
fn inputs_are_copies_lists_and_single_files_with_names_and_variables() {
    let home = Home::new();
    ten_files(&home);
    fs::create_dir(home.path().join("data/sub")).expect("a directory");
    home.write("data/sub/deep", "deep");
    home.write("labels.csv", "label");
    let ran = home.submit(&script(
        2,
        "echo all $(ls all | wc -l) $(cat all/sub/deep); echo some $(ls some); \
         echo one $(cat labels); test $YDL_INPUT_LABELS -ef labels && echo same; \
         echo list $(wc -l < $YDL_INPUT_MY_LIST) $(head -1 $YDL_INPUT_MY_LIST); \
         echo share $(wc -l < $YDL_INPUT_SHARE)",
        "inputs:\n  all: data\n  some: data/part-?\n  labels: labels.csv\n  \
         my-list: {source: 'data/p*', as: list}\n  share: {source: data, as: split-list}",
    ));
    assert_eq!(ran.code, 0, "{ran:#?}");
    // Copies contain `_SUCCESS` and the directory; lists contain data files only.
    assert_eq!(printed(&home, 0, 1, "all "), ["12 deep"]);
    let some: Vec<_> = (0..10).map(|n| format!("part-{n}")).collect();
    assert_eq!(printed(&home, 0, 1, "some "), [some.join(" ")]);
    assert_eq!(printed(&home, 0, 1, "one "), ["label"]);
    assert_eq!(printed(&home, 0, 1, "same"), [""]);
    let first = format!("10 {}", home.path().join("data/part-0").display());
    assert_eq!(printed(&home, 0, 1, "list "), [first]);
    let share = |index| printed(&home, index, 1, "share ")[0].parse::<u32>();
    assert_eq!(share(0).unwrap() + share(1).unwrap(), 11);
}

#[test]
fn invalid_inputs_are_rejected_before_the_start() {
    let home = Home::new();
    ten_files(&home);
    let submit = |more: &str| home.submit(&script(3, "true", more));
    assert_rejected(
        &submit("inputs: {a: 'data/none-*'}"),
        "data/none-*`",
        "hint: check the pattern, or set `allow_empty: true`",
    );
    assert_rejected(&submit("inputs: {a: nowhere}"), "no files at `", "hint: check the path");
    assert_rejected(
        &submit("inputs: {a: {source: nowhere, allow_empty: true}}"),
        "` does not exist",
        "hint: check the path",
    );
    assert_rejected(
        &submit("inputs: {a: {source: 'data/part-[', as: split}}"),
        "no files at",
        "only `*` and `?` stand for other letters",
    );
    assert_rejected(
        &submit(
            "inputs: {a: {source: 'data/part-?', as: split}}\ndisk: 1 MiB\nfiles: [data/part-0]\nenv: {X: 1}\nroles.worker: 1",
        ),
        "unknown key `roles.worker`",
        "hint:",
    );
    assert_rejected(
        &home.submit(&script(11, "true", "inputs: {a: {source: data, as: split}}")),
        "role `worker` has 11 tasks, and the input `a` has only 10 files to divide over them",
        "hint: have at most 10 instances",
    );
    assert_rejected(
        &submit("inputs: {a: 's3://b/c', b: {as: split}, c: {source: data, as: splt}}"),
        "inputs from `s3://` are not supported",
        "did you mean `split`?",
    );
    assert_rejected(
        &submit("inputs: {a: {source: data, roles: [chief]}}"),
        "the job has no role `chief`",
        "its tasks are `worker:0` to `worker:2`",
    );
    assert_rejected(
        &submit("inputs: {a: 'hdfs:///data'}"),
        "`hdfs:///data` is in HDFS, and there is no Hadoop configuration for it",
        "hint: set `HADOOP_CONF_DIR`",
    );
    let big = fs::File::create(home.path().join("big")).expect("a file");
    big.set_len(3 << 20).expect("a length");
    assert_rejected(
        &submit("inputs: {a: big}\ndisk: 2 MiB"),
        "the inputs of a task of role `worker` take 3 MiB, and `disk` allows 2 MiB",
        "hint: raise `disk`",
    );
    assert!(!home.path().join("state/ydl/jobs").exists());
}

#[test]
fn allow_empty_permits_inputs_without_files() {
    let home = Home::new();
    ten_files(&home);
    let ran = home.submit(&script(
        2,
        "echo found $(ls none | wc -l) $(ls few | wc -l)",
        "inputs:\n  none: {source: 'data/none-*', allow_empty: true}\n  \
         few: {source: data/part-0, as: split, allow_empty: true}",
    ));
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert_eq!(printed(&home, 0, 1, "found "), ["0 1"]);
    assert_eq!(printed(&home, 1, 1, "found "), ["0 0"]);
}

#[test]
fn an_input_that_changed_after_submit_fails_its_task_by_name() {
    let home = Home::new();
    home.write("a.csv", "one");
    home.write("gate", "");
    // The first attempt changes the input before the second starts.
    let change = home.path().join("a.csv");
    let ran = home.submit(&script(
        1,
        &format!("echo more >> {}; exit 1", change.display()),
        "inputs: {a: a.csv}\nrestart: {limit: 1, backoff: {initial: 1ms, max: 1ms}}",
    ));
    assert_ne!(ran.code, 0, "{ran:#?}");
    assert!(ran.stderr.contains("a.csv` was changed after it was listed"), "{ran:#?}");
    assert!(ran.stderr.contains("hint: submit the job again"), "{ran:#?}");
}

#[test]
fn a_restarted_task_gets_its_inputs_again_after_changing_them() {
    let home = Home::new();
    ten_files(&home);
    // A gang keeps the container of the second worker when the first one fails.
    let ran = home.submit(&script(
        2,
        "if test $YDL_INDEX = 1; then \
           echo \"files $(ls train | wc -l) in $PWD\"; rm -f train/*; touch ../../../removed; \
           while test $YDL_ATTEMPT = 1; do sleep 0.1; done; \
         else \
           while ! test -e ../../../removed; do sleep 0.1; done; test $YDL_ATTEMPT = 2; \
         fi",
        "gang: true\ninputs: {train: data}\ntimeouts: {grace: 1s}\n\
         restart: {limit: 1, scope: job, backoff: {initial: 1ms, max: 1ms}}",
    ));
    assert_eq!(ran.code, 0, "{ran:#?}");
    let first = printed(&home, 1, 1, "files ");
    assert!(first[0].starts_with("11 in "), "{first:?}");
    assert_eq!(printed(&home, 1, 2, "files "), first);
}

#[test]
fn roles_with_split_inputs_cannot_be_scaled() {
    let home = Home::new();
    ten_files(&home);
    let id = home.detach(&script(
        2,
        "touch ../../../up; sleep 1000",
        "inputs: {train: {source: data, as: split}}",
    ));
    home.wait_for("a task", |home| home.job().join("up").exists().then_some(()));
    for size in ["worker=3", "worker=1"] {
        assert_rejected(
            &home.run(&["scale", &id, size]),
            "the files of the input `train` were divided over the 2 tasks of role `worker` at submit",
            "submit again with",
        );
    }
    assert_eq!(home.run(&["kill", &id, "--now"]).code, 0);
}

/// Variable with the directory of the child process; the test below does nothing without it.
const COPY: &str = "YDL_TEST_COPY";
const OLD: u8 = b'o';
const NEW: u8 = b'n';
const BYTES: usize = 8 << 20;
const MOMENTS: u32 = 50;

#[test]
fn child_process_copies_outputs() {
    let Some(dir) = env::var_os(COPY).map(PathBuf::from) else {
        return;
    };
    let outputs =
        [("file".to_owned(), dir.join("out/file")), ("dir/".to_owned(), dir.join("out/dir"))];
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(outputs::copy(&dir.join("work"), &outputs)).expect("a copy");
}

#[test]
fn outputs_are_replaced_atomically_whenever_the_copy_is_killed() {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |name: &str, byte: u8| {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(path, vec![byte; BYTES]).expect("a file");
    };
    for name in ["file", "dir/a", "dir/b"] {
        write(&format!("work/{name}"), NEW);
    }
    let child = |dir: &Path| {
        Command::new(env::current_exe().expect("this test"))
            .args(["--exact", "data::child_process_copies_outputs"])
            .env(COPY, dir)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a child")
    };
    let began = Instant::now();
    assert!(child(dir.path()).wait().expect("an end").success());
    let whole = began.elapsed();
    let mut seen = BTreeSet::new();
    for moment in 0..MOMENTS {
        for name in ["file", "dir/a"] {
            write(&format!("out/{name}"), OLD);
        }
        let _ = fs::remove_file(dir.path().join("out/dir/b"));
        let mut one = child(dir.path());
        let until = Instant::now() + whole * moment / 45;
        // The last copy is not killed, even if it takes longer than the measured one.
        let last = moment + 1 == MOMENTS;
        while (last || Instant::now() < until) && one.try_wait().expect("a child").is_none() {
            std::thread::park_timeout(Duration::from_micros(200));
        }
        // It may have finished already.
        let _ = one.kill();
        one.wait().expect("an end");
        for (name, may_be_absent) in [("file", false), ("dir/a", false), ("dir/b", true)] {
            let path = dir.path().join("out").join(name);
            let bytes = match fs::read(&path) {
                Ok(bytes) => bytes,
                Err(_) if may_be_absent => continue,
                Err(error) => panic!("{name} at moment {moment}: {error}"),
            };
            assert_eq!(bytes.len(), BYTES, "{name} at moment {moment}");
            let first = bytes[0];
            assert!(first == OLD || first == NEW);
            assert!(bytes.iter().all(|byte| *byte == first), "{name}");
            seen.insert((name, first));
        }
    }
    assert!(seen.contains(&("file", OLD)) && seen.contains(&("file", NEW)));
}
