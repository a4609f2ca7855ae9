//! Jobs that are rejected before they run, and jobs that are not.

use super::{exclusive_cluster, expect_ok, shared_cluster};
use std::{fs, time::Duration};
use testbed::Cluster;
use ydl_testkit::yarn::{WAIT_TIMEOUT, Workspace, applications, hdfs_files};

const SMALL: &str = "roles: {worker: {memory: 128 MiB, run: 'true'}}";

#[test]
fn unusable_queues_are_rejected_and_creatable_ones_accepted() {
    let cluster = &*shared_cluster();
    let alice = Workspace::of(cluster, "alice");
    let dry = |queue: &str| {
        alice.write("job.yaml", &format!("queue: {queue}\n{SMALL}"));
        alice.run(&["submit", "--dry-run", "job.yaml"])
    };
    let hint = "hint: set `queue` to another: `default`, `loan`, `tiny`, `users`\n";
    let ran = dry("stopped");
    assert_eq!(ran.code, 2, "{ran:#?}");
    let what = "error: queue `stopped` accepts no jobs: it is STOPPED\n\n";
    assert!(ran.stderr.contains(&format!("{what}{hint}")), "{ran:#?}");
    let ran = dry("closed");
    assert_eq!(ran.code, 2, "{ran:#?}");
    let what = "error: permission denied: queue `closed` accepts no jobs of user `alice`\n\n";
    assert!(ran.stderr.contains(&format!("{what}{hint}")), "{ran:#?}");

    let note = "note: there is no queue `root.users.alice` yet: the cluster creates it if queue `root.users` allows automatic creation";
    let ran = alice.submit(&format!("queue: root.users.alice\n{SMALL}"));
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(ran.stderr.contains(note), "{ran:#?}");
    // Now the queue exists.
    let ran = dry("root.users.alice");
    assert_eq!((ran.code, ran.stderr.contains("note:")), (0, false), "{ran:#?}");

    // If the queue cannot be created, the cluster rejects the job, and nothing of it is left.
    let before = hdfs_files(cluster, "/user/alice/.ydl/jobs");
    let ran = alice.submit(&format!("queue: root.default.alice\n{SMALL}"));
    assert_eq!(ran.code, 2, "{ran:#?}");
    assert!(ran.stderr.contains("error: the cluster rejected the job: "), "{ran:#?}");
    assert!(ran.stderr.contains("root.default.alice"), "{ran:#?}");
    assert_eq!(hdfs_files(cluster, "/user/alice/.ydl/jobs"), before);
}

/// Returns a copy of the cluster's configuration with other values, as on an outdated machine.
fn outdated(
    workspace: &Workspace,
    cluster: &Cluster,
    values: &[(&str, &str)],
) -> std::path::PathBuf {
    let dir = workspace.path().join("conf");
    fs::create_dir_all(&dir).expect("a directory");
    for entry in fs::read_dir(cluster.configuration()).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_file() {
            let name = path.file_name().expect("a name");
            fs::copy(&path, dir.join(name)).expect("a copy");
        }
    }
    let site = dir.join("yarn-site.xml");
    let text = fs::read_to_string(&site).expect("a file");
    let more: String = values
        .iter()
        .map(|(name, value)| {
            format!("<property><name>{name}</name><value>{value}</value></property>")
        })
        .collect();
    // The last value of a key counts.
    let text = text.replace("</configuration>", &format!("{more}</configuration>"));
    fs::write(site, text).expect("a file");
    dir
}

#[test]
fn outdated_local_configuration_rejects_no_job_that_fits() {
    let cluster = &*shared_cluster();
    let workspace = Workspace::of(cluster, "alice");
    let wrong = [
        ("yarn.scheduler.maximum-allocation-mb", "128"),
        ("yarn.scheduler.minimum-allocation-mb", "2048"),
        ("yarn.resourcemanager.am.max-attempts", "1"),
    ];
    let conf = outdated(&workspace, cluster, &wrong);
    workspace.write("job.yaml", "roles: {worker: {instances: 6, memory: 256 MiB, run: 'true'}}");
    let mut command = workspace.ydl();
    command.env("HADOOP_CONF_DIR", conf);
    command.args(["submit", "--dry-run", "job.yaml"]);
    let ran = ydl_testkit::CommandOutput::from(command.output().expect("ydl can be started"));
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(
        ran.stderr.contains(
            "assuming that memory is allocated in steps of 2 GiB, as in this configuration"
        ),
        "{ran:#?}"
    );
    assert!(
        ran.stderr.contains(
            "note: `master.attempts` is 4, and the cluster starts a master at most 1 times"
        ),
        "{ran:#?}"
    );
}

#[test]
fn resource_managers_that_are_all_in_standby_are_reported() {
    let cluster = &*exclusive_cluster();
    let workspace = Workspace::of(cluster, "alice");
    expect_ok(cluster.rm_admin(&["-transitionToStandby", "rm1"]));
    workspace.write("job.yaml", SMALL);
    let began = std::time::Instant::now();
    let ran = workspace.run(&["submit", "job.yaml"]);
    let took = began.elapsed();
    expect_ok(cluster.fail_over("rm"));
    expect_ok(cluster.wait_nodes(2));
    assert_eq!(ran.code, 122, "{ran:#?}");
    let at: Vec<_> = cluster.resource_managers().iter().collect();
    let what = format!(
        "error: no ResourceManager at `{}`, `{}` is active: all 2 are on standby (connection refused)\n\nhint: wait for the failover to finish, or ask an administrator to make one active",
        at[0].client, at[1].client
    );
    assert!(ran.stderr.contains(&what), "{ran:#?}");
    // The command ends by its own timeout; Hadoop's clients wait for a quarter of an hour.
    assert!(took < WAIT_TIMEOUT, "{took:?}");
}

/// Returns the files of a user in HDFS, and the number of the user's applications.
fn trace(cluster: &Cluster, user: &str) -> (Vec<String>, usize) {
    let files = hdfs_files(cluster, &format!("/user/{user}"));
    let all = applications(cluster);
    (files, all.iter().filter(|app| app.user == user).count())
}

fn dfs_admin(cluster: &Cluster, args: &[&str]) {
    let mut command = expect_ok(cluster.hadoop("org.apache.hadoop.hdfs.tools.DFSAdmin"));
    let output = expect_ok(testbed::run(command.args(args), Duration::from_secs(60)));
    println!("{args:?}: {output:?}");
}

#[test]
fn an_unwritable_hdfs_leaves_no_partial_job() {
    let cluster = &*exclusive_cluster();
    let poor = Workspace::of(cluster, "poor");
    // Less than the size of the binary.
    dfs_admin(cluster, &["-setSpaceQuota", "20m", "/user/poor"]);
    let ran = poor.submit(SMALL);
    assert_eq!(ran.code, 123, "{ran:#?}");
    assert!(ran.stderr.contains("error: cannot write `hdfs://"), "{ran:#?}");
    assert!(ran.stderr.contains("quota"), "{ran:#?}");
    assert!(
        ran.stderr.contains("hint: delete what is no longer needed there, ask for a larger quota"),
        "{ran:#?}"
    );
    let (files, jobs) = trace(cluster, "poor");
    let left: Vec<_> = files
        .iter()
        .filter(|path| {
            !path.ends_with("/.ydl") && !path.ends_with("/jobs") && !path.ends_with("/content")
        })
        .collect();
    assert_eq!((left.len(), jobs), (0, 0), "{left:?}");

    dfs_admin(cluster, &["-safemode", "enter"]);
    let ran = poor.submit(SMALL);
    dfs_admin(cluster, &["-safemode", "leave"]);
    assert_eq!(ran.code, 122, "{ran:#?}");
    assert!(
        ran.stderr.contains(" is in safe mode\n\nhint: wait until it leaves safe mode"),
        "{ran:#?}"
    );

    expect_ok(cluster.fs(&["-mkdir", "/shut"]));
    expect_ok(cluster.fs(&["-chmod", "700", "/shut"]));
    let ran = poor.submit(&format!("staging: /shut/poor\n{SMALL}"));
    assert_eq!(ran.code, 123, "{ran:#?}");
    assert!(ran.stderr.contains("user `poor` has no "), "{ran:#?}");
    assert!(ran.stderr.contains(" access to `/shut`"), "{ran:#?}");
    assert!(ran.stderr.contains("or name another directory with `staging:`"), "{ran:#?}");
    assert_eq!(trace(cluster, "poor"), (files, 0));
}
