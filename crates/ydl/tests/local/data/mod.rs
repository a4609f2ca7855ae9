//! Data in and out of jobs on this machine.

mod locations;

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};
use ydl::agent::outputs;
use ydl_testkit::{
    assert_rejected, finish,
    local::{Home, kill},
};

/// A job of one role that runs this shell script.
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

/// Returns the texts after a word in the output of an attempt.
fn printed(home: &Home, index: u32, attempt: u32, word: &str) -> Vec<String> {
    let log = home.job().join(format!("logs/worker/{index}/{attempt}/stdout.0"));
    let text = fs::read_to_string(log).expect("a log");
    let lines = text.lines().filter_map(|line| line.strip_prefix(word));
    lines.map(str::to_owned).collect()
}

#[test]
fn files_are_divided_over_tasks_and_a_task_that_starts_again_gets_the_same() {
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
    assert_eq!(printed(&home, 1, 1, "file "), printed(&home, 1, 2, "file "), "the same again");
    let whole: BTreeSet<_> = all.iter().cloned().collect();
    assert_eq!(whole.len(), all.len(), "none is there twice: {all:?}");
    let expected: BTreeSet<_> = (0..10).map(|n| format!("part-{n} {}", 100 * (n + 1))).collect();
    assert_eq!(whole, expected, "none is lost");
    assert!(home.processes().is_empty(), "{:?}", home.processes());
}

#[test]
fn inputs_are_copies_lists_and_single_files_under_their_names_and_variables() {
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
    // `_SUCCESS` and the directory count in a copy; in lists they are no data.
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
fn inputs_that_make_no_sense_are_refused_before_anything_starts() {
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
fn a_task_may_be_allowed_to_find_nothing() {
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
    // The second attempt begins after the change that the first one has made.
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
fn two_tasks_may_not_write_one_name() {
    let home = Home::new();
    assert_rejected(
        &home.submit(&script(2, "true", "outputs: {model: out}")),
        "2 tasks would write `model` to the same destination",
        "take it from one task with `from: worker:0`",
    );
    assert_rejected(
        &home.submit(&script(2, "true", "outputs: {model: {to: out, from: 'worker:7'}}")),
        "the job has no task `worker:7`",
        "its tasks are `worker:0` to `worker:1`",
    );
    assert_rejected(
        &home.submit(&script(
            2,
            "true",
            "outputs: {a: {to: out, from: 'worker:0'}, b: {to: out, from: 'worker:1'}}",
        )),
        "another output has the same destination",
        "give one of them another name",
    );
    let ran = home.submit(&script(
        2,
        "echo $YDL_INDEX > model; mkdir logs; echo $YDL_INDEX > logs/$YDL_INDEX",
        "outputs: {model: {to: out/model, from: 'worker:1'}, logs/: all}",
    ));
    assert_eq!(ran.code, 0, "{ran:#?}");
    let read = |name: &str| fs::read_to_string(home.path().join(name)).unwrap_or_default();
    assert_eq!(read("out/model"), "1\n");
    assert_eq!((read("all/0"), read("all/1")), ("0\n".into(), "1\n".into()));
}

#[test]
fn a_destination_that_is_there_is_refused_replaced_or_numbered() {
    let home = Home::new();
    let job = |existing: &str| {
        script(
            1,
            "echo new > m",
            &format!("outputs: {{m: {{to: model.bin, existing: {existing}}}}}"),
        )
    };
    let read = |name: &str| fs::read_to_string(home.path().join(name)).unwrap_or_default();
    home.write("model.bin", "old\n");
    assert_rejected(
        &home.submit(&job("fail")),
        "model.bin`, where the output `m` goes, is there already",
        "existing: number",
    );
    for number in 2..4 {
        assert_eq!(home.submit(&job("number")).code, 0);
        assert_eq!(read(&format!("model-{number}.bin")), "new\n");
    }
    assert_eq!(read("model.bin"), "old\n");
    assert_eq!(home.submit(&job("overwrite")).code, 0);
    assert_eq!(read("model.bin"), "new\n");
}

#[test]
fn what_somebody_makes_while_a_job_runs_is_neither_replaced_nor_keeps_a_numbered_output_away() {
    let home = Home::new();
    let child = home.start(&script(
        1,
        "echo new > m; echo new > n; touch ../../../began; \
         while ! test -e ../../../go; do sleep 0.1; done",
        "outputs: {m: {to: model.bin, existing: number}, n: {to: other.bin, existing: fail}}\n\
         restart: {limit: 0}",
    ));
    home.wait_for_job();
    home.wait_for("the program", |home| home.job().join("began").exists().then_some(()));
    home.write("model.bin", "theirs\n");
    home.write("other.bin", "theirs\n");
    fs::write(home.job().join("go"), "").expect("a file");
    let ran = finish(child);
    assert_ne!(ran.code, 0, "{ran:#?}");
    let sentence = "other.bin` was created by another process after the job was submitted";
    assert!(ran.stderr.contains(sentence), "{ran:#?}");
    let read = |name: &str| fs::read_to_string(home.path().join(name)).unwrap_or_default();
    assert_eq!(read("model.bin"), "theirs\n");
    assert_eq!(read("other.bin"), "theirs\n");
    assert_eq!(read("model-2.bin"), "new\n");
    assert!(ran.stderr.contains("model-2.bin"), "the place is told: {ran:#?}");
    let status = home.run(&["status", "t"]);
    assert!(status.stdout.contains("model-2.bin"), "{status:#?}");
    let ran = home.run(&["fetch", "t", "outputs/model.bin", "got"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert_eq!(read("got/outputs/model.bin"), "new\n");
}

#[test]
fn a_task_that_starts_again_finds_its_inputs_whatever_it_did_to_them() {
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
fn checkpoints_arrive_while_the_program_runs_and_never_half_written() {
    let home = Home::new();
    let child = home.start(&script(
        1,
        "mkdir ckpt; echo one > ckpt/1; exec 3> ckpt/2; echo half >&3; \
         while ! test -e ../../../go; do sleep 0.1; done; echo whole >&3; exec 3>&-; kill -9 $$",
        "outputs: {ckpt/: {to: 'saved', every: 1s}}",
    ));
    home.wait_for_text(|home| home.path().join("saved/1"), "one\n");
    assert!(!home.path().join("saved/2").exists(), "somebody still writes it");
    let number = |name: &str| {
        let about = fs::metadata(home.path().join(name)).expect("a file");
        std::os::unix::fs::MetadataExt::ino(&about)
    };
    let first = number("saved/1");
    fs::write(home.job().join("go"), "").expect("a file");
    let ran = finish(child);
    assert_eq!(ran.code, 137, "{ran:#?}");
    let text = fs::read_to_string(home.path().join("saved/2")).expect("the last checkpoint");
    assert_eq!(text, "half\nwhole\n");
    assert_eq!(number("saved/1"), first, "what was sent is not sent again");
}

#[test]
fn a_checkpoint_that_was_being_rewritten_when_its_program_was_killed_replaces_nothing() {
    let home = Home::new();
    let child = home.start(&script(
        1,
        "mkdir ckpt plain; for f in torn renamed; do echo old > ckpt/$f; done; \
         while ! test -e ../../../go; do sleep 0.1; done; \
         echo new > ckpt/.renamed; echo new > ckpt/fresh; echo new > plain/x; sleep 0.1; \
         mv ckpt/.renamed ckpt/renamed; exec 3> ckpt/torn; printf ne >&3; kill -9 $$",
        "outputs: {ckpt/: {to: saved, every: 1s}, plain/: plain}\nrestart: {limit: 0}",
    ));
    let read = |name: &str| fs::read_to_string(home.path().join(name)).unwrap_or_default();
    home.wait_for_text(|home| home.path().join("saved/torn"), "old\n");
    home.wait_for_text(|home| home.path().join("saved/renamed"), "old\n");
    fs::create_dir(home.path().join("plain")).expect("a directory");
    home.write("plain/x", "theirs\n");
    fs::write(home.job().join("go"), "").expect("a file");
    let ran = finish(child);
    assert_eq!(ran.code, 137, "{ran:#?}");
    assert_eq!(read("saved/torn"), "old\n");
    assert_eq!(read("plain/x"), "theirs\n", "nor does any other output");
    assert_eq!(read("saved/renamed"), "new\n");
    assert_eq!(read("saved/fresh"), "new\n", "where nothing was");
}

#[test]
fn a_container_that_is_told_to_end_leaves_its_last_checkpoint() {
    let home = Home::new();
    let child = home.start(&script(
        1,
        "mkdir ckpt; trap 'echo last > ckpt/last; echo down > ckpt/first; exit 1' TERM; \
         echo up > ckpt/first; while true; do sleep 0.1; done",
        "outputs: {ckpt/: {to: saved, every: 1s}}\nrestart: {limit: 0}",
    ));
    home.wait_for_text(|home| home.path().join("saved/first"), "up\n");
    let agent = home.find(" agent ")[0].pid;
    kill(agent, 15);
    home.wait_for_text(|home| home.path().join("saved/last"), "last\n");
    // It has ended in order, so what it has rewritten last is whole.
    home.wait_for_text(|home| home.path().join("saved/first"), "down\n");
    home.run(&["kill", "t", "--now"]);
    finish(child);
}

#[test]
fn results_and_logs_are_fetched_and_fetching_again_changes_nothing() {
    let home = Home::new();
    let ran = home.submit(&script(
        2,
        "mkdir m; echo p$YDL_INDEX > m/a.params; echo q > m/b.txt; echo hello",
        "outputs: {m/: 'kept/{index}'}",
    ));
    assert_eq!(ran.code, 0, "{ran:#?}");
    for half in ["kept/0/.a.params.ydl-7-7", "kept/0/.aside-another"] {
        home.write(half, "half");
    }
    let ran = home.run(&["fetch", "t", "got"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    let got = fs::read_dir(home.path().join("got/outputs/kept/0")).expect("a directory");
    assert_eq!(got.count(), 2, "what is half-written is not fetched");
    let read = |name: &str| fs::read_to_string(home.path().join(name)).unwrap_or_default();
    assert_eq!(read("got/outputs/kept/1/a.params"), "p1\n");
    assert_eq!(read("got/logs/worker/0/1/stdout.0"), "hello\n");
    let time = |name: &str| {
        let about = fs::metadata(home.path().join(name)).expect("a file");
        about.modified().expect("a time")
    };
    let before = time("got/outputs/kept/0/b.txt");
    fs::remove_file(home.path().join("got/outputs/kept/0/a.params")).expect("a file");
    assert_eq!(home.run(&["fetch", "t", "got"]).code, 0);
    assert_eq!(read("got/outputs/kept/0/a.params"), "p0\n");
    assert_eq!(time("got/outputs/kept/0/b.txt"), before);
    let ran = home.run(&["fetch", "t", "outputs/*.params", "some"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(ran.stderr.contains("2 files with"), "{ran:#?}");
    assert!(!home.path().join("some/logs").exists());
    assert_rejected(
        &home.run(&["fetch", "t", "*.none", "some"]),
        "no file of `t-",
        "names look like `outputs/",
    );
}

#[test]
fn what_added_tasks_leave_is_fetched_too_and_services_leave_what_they_are_asked_for() {
    let home = Home::new();
    let role = "memory: 256 MiB, shell: 'mkdir m; echo $YDL_ROLE > m/a; touch ../../../$YDL_ROLE-$YDL_INDEX; \
                until test -e ../../../go; do sleep 0.1; done'";
    let child = home.start(&format!(
        "name: t\nroles:\n  worker: {{instances: 1, {role}}}\n  \
         server: {{instances: 1, completion: service, {role}}}\n\
         outputs:\n  m/: 'kept/{{role}}-{{index}}'\n  m/a: {{to: 'asked/{{index}}', from: server}}\n"
    ));
    home.wait_for_job();
    let is_up = |name: &'static str| {
        home.wait_for("a task", move |home| home.job().join(name).exists().then_some(()));
    };
    is_up("worker-0");
    is_up("server-0");
    let ran = home.run(&["scale", "t", "worker=2"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    is_up("worker-1");
    fs::write(home.job().join("go"), "").expect("a file");
    let ran = finish(child);
    assert_eq!(ran.code, 0, "{ran:#?}");
    let ran = home.run(&["fetch", "t", "outputs/*", "got"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    let read = |name: &str| fs::read_to_string(home.path().join(name)).unwrap_or_default();
    assert_eq!(read("got/outputs/kept/worker-0/a"), "worker\n");
    assert_eq!(read("got/outputs/kept/worker-1/a"), "worker\n");
    assert_eq!(read("got/outputs/asked/0"), "server\n");
    assert!(!home.path().join("kept/server-0").exists());
}

#[test]
fn files_that_were_divided_are_not_left_to_nobody() {
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

/// Where a child of this test copies from and to; without it the test below has nothing to do.
const COPY: &str = "YDL_TEST_COPY";
const OLD: u8 = b'o';
const NEW: u8 = b'n';
const BYTES: usize = 8 << 20;
const MOMENTS: u32 = 50;

#[test]
fn a_child_copies_what_it_is_told_to() {
    let Some(dir) = env::var_os(COPY).map(PathBuf::from) else {
        return;
    };
    let outputs =
        [("file".to_owned(), dir.join("out/file")), ("dir/".to_owned(), dir.join("out/dir"))];
    outputs::copy(&dir.join("work"), &outputs).expect("a copy");
}

#[test]
fn outputs_are_old_or_new_and_whole_wherever_the_copying_is_killed() {
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
            .args(["--exact", "data::a_child_copies_what_it_is_told_to"])
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
        // The last one is never killed: it may take longer than the one that was measured.
        let last = moment + 1 == MOMENTS;
        while (last || Instant::now() < until) && one.try_wait().expect("a child").is_none() {
            std::thread::park_timeout(Duration::from_micros(200));
        }
        // It may have ended already, which is a moment, too.
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
