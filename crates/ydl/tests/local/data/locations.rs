//! Destinations of outputs: tasks and jobs do not overwrite each other's files, and conflicts are reported.

use super::script;
use std::{collections::BTreeSet, fs, path::Path};
use ydl_storage::{data::is_temporary, store::temporary_name};
use ydl_testkit::{
    assert_rejected, finish,
    local::{Home, kill},
};

#[test]
fn tasks_that_share_a_directory_do_not_overwrite_each_others_files() {
    let home = Home::new();
    let ran = home.submit(&script(
        3,
        "mkdir m; echo $YDL_INDEX > m/model; echo same > m/config; echo $YDL_INDEX > m/own-$YDL_INDEX",
        "outputs: {m/: all}\nrestart: {limit: 0}",
    ));
    assert_ne!(ran.code, 0, "{ran:#?}");
    assert!(ran.stderr.contains("/all`: `m/` of worker:"), "{ran:#?}");
    let read = |name: &str| fs::read_to_string(home.path().join(name)).unwrap_or_default();
    assert_eq!(read("all/config"), "same\n");
    // If the tasks collide, none of them may write the file.
    let model = read("all/model");
    assert!(["", "0\n", "1\n", "2\n"].contains(&&*model), "{model}");
    let ran = home.submit(&script(
        3,
        "mkdir m; echo same > m/config; echo $YDL_INDEX > m/own-$YDL_INDEX",
        "outputs: {m/: fine, 'm/own*': fine}",
    ));
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert_eq!(fs::read_dir(home.path().join("fine")).expect("metadata").count(), 4);
}

#[test]
fn an_output_that_no_task_produced_is_reported() {
    let home = Home::new();
    let ran = home.submit(&script(
        2,
        "test $YDL_INDEX = 1 || { mkdir model; echo x > model/x; }",
        "outputs: {modle/: typo, model/: out}",
    ));
    assert_eq!(ran.code, 0, "{ran:#?}");
    let sentence = "nothing was uploaded: none of 2 tasks wrote `modle/`";
    assert!(ran.stderr.contains(&format!("warning: {sentence}")), "{ran:#?}");
    assert!(!ran.stderr.contains("wrote `model/`"), "{ran:#?}");
    let status = home.run(&["status", "t"]);
    assert!(status.stdout.contains(sentence), "{status:#?}");
    assert_rejected(
        &home.submit(&script(1, "true", "outputs: {'a*/b': out}")),
        "`a*/b` has a `*` before its last part",
        "only the last part may hold one",
    );
}

#[test]
fn an_unwritable_destination_is_rejected_before_the_start() {
    let home = Home::new();
    home.write("file", "");
    for (outputs, why) in [
        ("{m/: file}", "file`: it is a file, and a directory is needed"),
        ("{m: file/x}", "file` is not a directory"),
        ("{m/: 'file/{index}'}", "file` is not a directory"),
    ] {
        let job = home.write("job.yaml", &script(1, "true", &format!("outputs: {outputs}")));
        let job = job.to_string_lossy();
        let ran = home.run(&["submit", "--dry-run", &job]);
        assert_rejected(&ran, why, "choose another destination");
    }
}

#[test]
fn concurrent_jobs_number_their_outputs_without_loss() {
    let home = Home::new();
    let job = script(
        1,
        "until test -e ../../../../go; do sleep 0.1; done; mkdir m; echo x > m/x",
        "outputs: {m/: {to: two, existing: number}}",
    );
    let children: Vec<_> = (0..3).map(|_| home.start(&job)).collect();
    home.wait_for("three jobs", |home| {
        let jobs = fs::read_dir(home.path().join("state/ydl/jobs")).ok()?;
        (jobs.count() == 3).then_some(())
    });
    home.write("state/ydl/jobs/go", "");
    let mut printed = BTreeSet::new();
    for child in children {
        let ran = finish(child);
        assert_eq!(ran.code, 0, "{ran:#?}");
        let mut lines = ran.stderr.lines();
        let line = lines.find_map(|line| line.strip_prefix("output:  m/ → "));
        printed.insert(line.expect("a path").to_owned());
    }
    let path_of = |name: &str| home.path().join(name).to_string_lossy().into_owned();
    let expected = ["two", "two-2", "two-3"].map(path_of);
    assert_eq!(printed, BTreeSet::from(expected.clone()));
    for path in &expected {
        assert!(Path::new(path).join("x").exists(), "{path}");
    }
    let names = fs::read_dir(home.path()).expect("a directory").flatten();
    let names: Vec<_> = names.map(|entry| entry.file_name()).collect();
    let hidden = |name: &std::ffi::OsString| is_temporary(&name.to_string_lossy());
    assert!(!names.iter().any(hidden), "{names:?}");
}

#[test]
fn fetch_replaces_only_files_it_fetched_before() {
    let home = Home::new();
    let ran =
        home.submit(&script(1, "mkdir m; echo new > m/a; echo b > m/b", "outputs: {m/: kept}"));
    assert_eq!(ran.code, 0, "{ran:#?}");
    fs::create_dir_all(home.path().join("got/outputs/kept")).expect("a directory");
    home.write("got/outputs/kept/a", "own\n");
    let read = |name: &str| fs::read_to_string(home.path().join(name)).unwrap_or_default();
    assert_rejected(
        &home.run(&["fetch", "t", "got"]),
        "got/outputs/kept/a` exists and was not fetched from this job",
        "name another directory",
    );
    assert_eq!(read("got/outputs/kept/a"), "own\n");
    assert!(!home.path().join("got/outputs/kept/b").exists());
    let ran = home.run(&["fetch", "t", "outputs/*", "other"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    // Files that it fetched before are updated.
    home.write("kept/a", "newer\n");
    let ran = home.run(&["fetch", "t", "outputs/*", "other"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert_eq!(read("other/outputs/kept/a"), "newer\n");
    fs::remove_dir_all(home.path().join("kept")).expect("gone");
    let ran = home.run(&["fetch", "t", "third"]);
    assert!(ran.stderr.contains("is missing: nothing at `"), "{ran:#?}");
}

#[test]
fn partial_uploads_of_a_killed_agent_are_removed_at_the_end_of_the_job() {
    let home = Home::new();
    let child = home.start(&script(
        1,
        "mkdir m; head -c 100 /dev/zero > m/a; touch ../../../up; sleep 1000",
        "outputs: {m/: {to: kept, every: 1s}}\nrestart: {limit: 0}",
    ));
    home.wait_for_job();
    home.wait_for("a file", |home| home.path().join("kept/a").exists().then_some(()));
    let agent = home.find(" agent ")[0].pid;
    // A partial upload, as if the agent was killed during one.
    let temporary = home.path().join("kept").join(temporary_name(b"b", agent, 0));
    fs::write(&temporary, "partial").expect("a file");
    kill(agent, 9);
    let ran = finish(child);
    assert_ne!(ran.code, 0, "{ran:#?}");
    assert!(!temporary.exists());
    assert!(home.path().join("kept/a").exists());
}
