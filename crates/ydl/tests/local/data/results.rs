//! Outputs and checkpoints of jobs: destinations, uploads, and fetched results.

use super::script;
use std::fs;
use ydl_testkit::{
    assert_rejected, finish,
    local::{Home, kill},
};

#[test]
fn two_tasks_cannot_write_to_one_destination() {
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
fn an_existing_destination_is_rejected_overwritten_or_numbered() {
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
        "model.bin` of the output `m` already exists",
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
fn files_created_by_others_during_a_job_are_not_replaced() {
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
    assert!(ran.stderr.contains("model-2.bin"), "the path is not printed: {ran:#?}");
    let status = home.run(&["status", "t"]);
    assert!(status.stdout.contains("model-2.bin"), "{status:#?}");
    let ran = home.run(&["fetch", "t", "outputs/model.bin", "got"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert_eq!(read("got/outputs/model.bin"), "new\n");
}

#[test]
fn checkpoints_are_uploaded_while_the_program_runs_and_only_complete() {
    let home = Home::new();
    let child = home.start(&script(
        1,
        "mkdir ckpt; echo one > ckpt/1; exec 3> ckpt/2; echo half >&3; \
         while ! test -e ../../../go; do sleep 0.1; done; echo whole >&3; exec 3>&-; kill -9 $$",
        "outputs: {ckpt/: {to: 'saved', every: 1s}}",
    ));
    home.wait_for_text(|home| home.path().join("saved/1"), "one\n");
    assert!(!home.path().join("saved/2").exists(), "an incomplete checkpoint was copied");
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
    assert_eq!(number("saved/1"), first, "an unchanged file was sent again");
}

#[test]
fn a_checkpoint_torn_by_a_kill_replaces_no_file() {
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
    assert_eq!(read("plain/x"), "theirs\n", "a file of another process was replaced");
    assert_eq!(read("saved/renamed"), "new\n");
    assert_eq!(read("saved/fresh"), "new\n", "a new file is missing");
}

#[test]
fn a_terminated_container_uploads_its_last_checkpoint() {
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
    // The program ended in order, so its last writes are complete.
    home.wait_for_text(|home| home.path().join("saved/first"), "down\n");
    home.run(&["kill", "t", "--now"]);
    finish(child);
}

#[test]
fn fetching_results_and_logs_again_changes_nothing() {
    let home = Home::new();
    let ran = home.submit(&script(
        2,
        "mkdir m; echo p$YDL_INDEX > m/a.params; echo q > m/b.txt; echo hello",
        "outputs: {m/: 'kept/{index}'}",
    ));
    assert_eq!(ran.code, 0, "{ran:#?}");
    for partial in ["kept/0/.a.params.ydl-7-7", "kept/0/.aside-another"] {
        home.write(partial, "half");
    }
    let ran = home.run(&["fetch", "t", "got"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    let got = fs::read_dir(home.path().join("got/outputs/kept/0")).expect("a directory");
    assert_eq!(got.count(), 2, "a partial file was fetched");
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
fn outputs_of_added_tasks_and_named_services_are_fetched() {
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
