//! Jobs of an ordinary user on a cluster that asks everybody for proof and lets nobody listen.

mod yarn_support;

use std::{fs, time::Instant};
use testbed::{Cluster, File, Hdfs, Options, Protection};
use yarn_support::{
    Desk, Ran,
    example::{self, id},
    shared, version, wait_for,
};

/// Three nodes, and two file systems.
fn cluster() -> &'static Cluster {
    let options = Options {
        nodes: 3,
        kerberos: Some(Protection::Privacy),
        hdfs: Hdfs::Two,
        users: vec!["alice".into(), "bob".into()],
        ..Options::new(version())
    };
    // Nodes without the native library take minutes for this environment with the older ciphers.
    let ciphers = "dfs.encrypt.data.transfer.cipher.suites";
    let options = options.set(File::Hdfs, ciphers, "AES/CTR/NoPadding");
    // Off by default before 3.3.
    let options = options.set(File::Hdfs, "dfs.namenode.acls.enabled", "true");
    // By default the test bed and every queue let everybody end a job.
    let queues = "yarn.scheduler.capacity.root.acl_administer_queue";
    let options = options.set(File::Queues, queues, "yarn");
    shared(options.set(File::Yarn, "yarn.admin.acl", "yarn"))
}

/// The second file system, with a directory for everybody.
fn other_system(cluster: &Cluster) -> String {
    let other = format!("hdfs://{}", cluster.namenodes()[1].rpc);
    let open = "fs.permissions.umask-mode=000";
    let made = cluster.fs(&["-D", open, "-mkdir", "-p", &format!("{other}/data")]);
    made.expect("a directory");
    other
}

/// Nothing of the job is left on its nodes.
fn wait_gone(id: &str) {
    wait_for(&format!("the end of all processes of {id}"), || {
        example::processes(id).is_empty().then_some(())
    });
}

#[test]
fn the_example_runs_for_an_ordinary_user_with_two_file_systems() {
    let cluster = cluster();
    let other = other_system(cluster);
    let desk = Desk::of(cluster, "alice");
    example::lay_out(&desk);
    let program = desk.path().join("train.py").display().to_string();
    let far = format!("{other}/data/train.py");
    cluster.fs(&["-put", &program, &far]).expect("a file");
    fs::remove_file(&program).expect("it is elsewhere now");

    let began = Instant::now();
    let ran = desk.run(&[
        "submit",
        "job.yaml",
        "--set",
        &format!("file_systems=[\"{other}\"]"),
        "--set",
        &format!("files=[\"{far}\"]"),
        "--set",
        &format!("outputs={{model/: \"{other}/data/model\"}}"),
    ]);
    let took = began.elapsed().as_secs_f64();
    let uploaded = ran.err.lines().find(|line| line.contains("uploaded"));
    println!("the example took {took:.1} s with Kerberos: {uploaded:?}");
    assert_eq!(ran.code, 0, "{ran:#?}");
    example::learned(&ran.out);
    let metrics = cluster.fs(&["-cat", &format!("{other}/data/model/metrics.json")]);
    let metrics = metrics.expect("the model's figures");
    assert!(metrics.contains(r#""test_accuracy": 0.9"#), "{metrics}");

    let id = id(&ran);
    let logs = format!("/user/alice/.ydl/jobs/{id}/logs");
    let listed = cluster.fs(&["-ls", "-R", &logs]).expect("a list");
    for (role, index) in example::TASKS {
        let record = format!("{logs}/{role}/{index}/1/exit.json");
        assert!(listed.contains(&record), "{listed}");
    }
    let said = Desk::of(cluster, "alice").run(&["logs", &id, "worker:1", "--stdout"]);
    assert!(said.out.contains("test accuracy 0.9"), "{said:#?}");
    wait_gone(&id);
}

#[test]
fn those_who_may_see_and_end_a_job_do_and_no_others() {
    let cluster = cluster();
    let desk = Desk::of(cluster, "alice");
    let shared = desk.path().display().to_string();
    let job = desk.detach(&format!(
        "acls: {{view: bob}}\n\
         roles: {{worker: {{memory: 64 MiB, shell: 'touch {shared}/began; sleep 600'}}}}\n"
    ));
    wait_for("the program", || {
        desk.path().join("began").exists().then_some(())
    });
    let bob = Desk::of(cluster, "bob");
    let status = bob.run(&["status", &job]);
    assert!(status.out.contains("worker:0  running"), "{status:?}");
    let refused = |ran: Ran| {
        assert_ne!(ran.code, 0, "{ran:?}");
        assert!(ran.err.contains("error: "), "{ran:?}");
    };
    refused(bob.run(&["kill", &job]));
    // Who has no ticket is nobody.
    let mut nobody = bob.ydl();
    nobody.env("KRB5CCNAME", bob.path().join("none"));
    let ran = Ran::from(nobody.args(["status", &job]).output().expect("it runs"));
    assert_ne!(ran.code, 0, "{ran:?}");
    assert!(ran.err.contains("hint: "), "{ran:?}");

    let killed = Desk::of(cluster, "alice").run(&["kill", &job]);
    assert_eq!(killed.code, 0, "{killed:?}");
    wait_gone(&job);
}
