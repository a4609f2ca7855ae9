//! Destinations in HDFS that tasks and jobs share.

use super::{connect, exists, job, shared_cluster, text_at};
use std::{collections::BTreeSet, fs};
use tokio::runtime::Runtime;
use ydl_testkit::{
    finish,
    yarn::{Workspace, deadline, wait_for},
};

#[test]
fn tasks_that_share_a_directory_in_hdfs_do_not_overwrite_each_others_files() {
    let cluster = &*shared_cluster();
    let workspace = Workspace::new(cluster);
    let script = "mkdir m; echo $YDL_INDEX > m/model; echo same > m/config; \
                  echo $YDL_INDEX > m/own-$YDL_INDEX";
    let more =
        "outputs: {m/: 'hdfs:///shared/all', modle/: 'hdfs:///shared/typo'}\nrestart: {limit: 0}";
    let ran = workspace.submit(&job(2, script, more));
    assert_ne!(ran.code, 0, "{ran:#?}");
    assert!(
        ran.stderr.contains("cannot copy `model` to `hdfs:///shared/all`: `m/` of worker:"),
        "{ran:#?}"
    );
    let runtime = Runtime::new().expect("a runtime");
    let hdfs = runtime.block_on(connect(cluster));
    let text_of = |name: &str| runtime.block_on(text_at(&hdfs, &format!("/shared/{name}")));
    assert_eq!(text_of("all/config").as_deref(), Some("same\n"));
    let script = "mkdir m; echo same > m/config; echo $YDL_INDEX > m/own-$YDL_INDEX";
    let more = "outputs: {m/: 'hdfs:///shared/fine', modle/: 'hdfs:///shared/typo'}";
    let ran = workspace.submit(&job(2, script, more));
    assert_eq!(ran.code, 0, "{ran:#?}");
    for (name, text) in [("config", "same\n"), ("own-0", "0\n"), ("own-1", "1\n")] {
        assert_eq!(text_of(&format!("fine/{name}")).as_deref(), Some(text));
    }
    let warning = "warning: nothing was uploaded: none of 2 tasks wrote `modle/`";
    assert!(ran.stderr.contains(warning), "{ran:#?}");
}

#[test]
fn concurrent_jobs_number_their_hdfs_outputs_without_loss() {
    let cluster = &*shared_cluster();
    let workspace = Workspace::new(cluster);
    let script = format!(
        "mktemp {0}/up-XXXXXX; until test -e {0}/go; do sleep 0.1; done; mkdir m; echo x > m/x",
        workspace.path().display()
    );
    let more = "outputs: {m/: {to: 'hdfs:///numbered/two', existing: number}}";
    workspace.write("job.yaml", &job(1, &script, more));
    let children = [0, 1].map(|_| workspace.start(&["submit", "job.yaml"]));
    let runtime = Runtime::new().expect("a runtime");
    let hdfs = runtime.block_on(connect(cluster));
    wait_for("both programs", || {
        let names = fs::read_dir(workspace.path()).ok()?.flatten();
        let up = names.filter(|entry| entry.file_name().to_string_lossy().starts_with("up-"));
        (up.count() == 2).then_some(())
    });
    fs::write(workspace.path().join("go"), "").expect("a file");
    let mut printed = BTreeSet::new();
    for child in children {
        let ran = finish(child);
        assert_eq!(ran.code, 0, "{ran:#?}");
        let mut lines = ran.stderr.lines();
        let line = lines.find_map(|line| line.strip_prefix("output:  m/ → "));
        printed.insert(line.expect("a path").to_owned());
    }
    let expected = ["two", "two-2"].map(|name| format!("hdfs:///numbered/{name}"));
    assert_eq!(printed, BTreeSet::from(expected));
    let all = runtime.block_on(hdfs.list("/numbered", deadline()));
    let all = all.expect("a list");
    let names: BTreeSet<_> = all.iter().map(|entry| entry.name()).collect();
    assert_eq!(names, BTreeSet::from(["two", "two-2"]));
}

#[test]
fn partial_uploads_of_a_failed_job_are_removed() {
    let cluster = &*shared_cluster();
    let workspace = Workspace::new(cluster);
    let script = format!(
        "mkdir m; echo x > m/x; until test -e {}/go; do sleep 0.1; done; exit 3",
        workspace.path().display()
    );
    let more = "outputs: {m/: {to: 'hdfs:///left/m', every: 1s}}\nrestart: {limit: 0}";
    let id = workspace.detach(&job(1, &script, more));
    let runtime = Runtime::new().expect("a runtime");
    let hdfs = runtime.block_on(connect(cluster));
    wait_for("a file", || runtime.block_on(exists(&hdfs, "/left/m/x")).then_some(()));
    let (own, others) = (
        format!("/left/m/.aside-kept0-{id}-worker=0-00"),
        "/left/m/.aside-application_1_0001-worker=0-00".to_owned(),
    );
    runtime.block_on(async {
        for path in [&own, &others] {
            let written = hdfs.write_atomic(path, "partial", 0o644, deadline()).await;
            written.expect("written");
        }
    });
    fs::write(workspace.path().join("go"), "").expect("a file");
    wait_for("the removal of the partial upload", || {
        (!runtime.block_on(exists(&hdfs, &own))).then_some(())
    });
    assert!(runtime.block_on(exists(&hdfs, &others)));
}
