//! Jobs of an ordinary user on a cluster with authentication and encryption.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};
use testbed::{Cluster, File, Hdfs, Lease, Options, Protection};
use yarn_native::credentials::Credentials;
use ydl_testkit::{
    CommandOutput,
    yarn::{
        Workspace,
        digits::{self, job_id},
        shared, version, wait_for,
    },
};

/// Lifetime of tokens that are not renewed.
const UNRENEWED: Duration = Duration::from_secs(30);

/// Three nodes, and two file systems.
fn cluster() -> Lease {
    let options = Options {
        nodes: 3,
        kerberos: Some(Protection::Privacy),
        hdfs: Hdfs::Two,
        users: ["alice", "bob", "carol", "dave", "proxy"].map(String::from).into(),
        ..Options::new(version())
    };
    // Nodes without the native library take minutes for this environment with the older ciphers.
    let ciphers = "dfs.encrypt.data.transfer.cipher.suites";
    let options = options.set(File::Hdfs, ciphers, "AES/CTR/NoPadding");
    let unrenewed = "dfs.namenode.delegation.token.renew-interval";
    let options = options.set(File::Hdfs, unrenewed, &UNRENEWED.as_millis().to_string());
    // Off by default before 3.3.
    let options = options.set(File::Hdfs, "dfs.namenode.acls.enabled", "true");
    // By default the test bed and every queue allow all users to kill a job.
    let queues = "yarn.scheduler.capacity.root.acl_administer_queue";
    let options = options.set(File::Queues, queues, "yarn");
    shared(options.set(File::Yarn, "yarn.admin.acl", "yarn"))
}

/// Returns the second file system, with a directory that all users can write.
fn other_system(cluster: &Cluster) -> String {
    let other = format!("hdfs://{}", cluster.namenodes()[1].rpc);
    let open = "fs.permissions.umask-mode=000";
    let made = cluster.fs(&["-D", open, "-mkdir", "-p", &format!("{other}/data")]);
    made.expect("a directory");
    other
}

/// Waits until no process of the job is left.
fn wait_gone(id: &str) {
    wait_for(&format!("the end of all processes of {id}"), || {
        digits::processes(id).is_empty().then_some(())
    });
}

#[test]
fn the_example_runs_for_an_ordinary_user_with_two_file_systems() {
    let cluster = &*cluster();
    let other = other_system(cluster);
    let workspace = Workspace::of(cluster, "alice");
    digits::copy_example(&workspace);
    let program = workspace.path().join("train.py").display().to_string();
    let remote = format!("{other}/data/train.py");
    cluster.fs(&["-put", &program, &remote]).expect("a file");
    fs::remove_file(&program).expect("another node");

    let began = Instant::now();
    let ran = workspace.run(&[
        "submit",
        "job.yaml",
        "--set",
        &format!("file_systems=[\"{other}\"]"),
        "--set",
        &format!("files=[\"{remote}\"]"),
        "--set",
        &format!("outputs={{model/: \"{other}/data/model\"}}"),
    ]);
    let took = began.elapsed().as_secs_f64();
    let uploaded = ran.stderr.lines().find(|line| line.contains("uploaded"));
    println!("the example took {took:.1} s with Kerberos: {uploaded:?}");
    assert_eq!(ran.code, 0, "{ran:#?}");
    digits::assert_accuracy(&ran.stdout);
    let metrics = cluster.fs(&["-cat", &format!("{other}/data/model/metrics.json")]);
    let metrics = metrics.expect("the model's figures");
    assert!(metrics.contains(r#""test_accuracy": 0.9"#), "{metrics}");

    let id = job_id(&ran);
    let logs = format!("/user/alice/.ydl/jobs/{id}/logs");
    let listed = cluster.fs(&["-ls", "-R", &logs]).expect("a list");
    for (role, index) in digits::TASKS {
        let record = format!("{logs}/{role}/{index}/1/exit.json");
        assert!(listed.contains(&record), "{listed}");
    }
    let output = Workspace::of(cluster, "alice").run(&["logs", &id, "worker:1", "--stdout"]);
    assert!(output.stdout.contains("test accuracy 0.9"), "{output:#?}");
    wait_gone(&id);
}

/// Runs Hadoop's file system shell as that user.
fn fs_as(cluster: &Cluster, user: &str, args: &[&str]) -> CommandOutput {
    let ticket = cluster.kerberos().expect("a realm").kinit(user, None);
    let mut shell = cluster.hadoop("org.apache.hadoop.fs.FsShell").expect("FsShell");
    shell.env("KRB5CCNAME", ticket.expect("a ticket"));
    CommandOutput::from(shell.args(args).output().expect("it runs"))
}

fn refused(ran: &CommandOutput, why: &str) {
    assert_ne!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains("error: "), "{ran:?}");
    assert!(ran.stderr.contains(why), "{ran:?}");
}

/// Returns a copy of the cluster's configuration in which `viewfs://root` mounts a file system.
fn with_mount_table(workspace: &Workspace, mounted: &str) -> PathBuf {
    let copy = workspace.path().join("configuration");
    fs::create_dir(&copy).expect("a directory");
    for entry in fs::read_dir(workspace.cluster.configuration()).expect("a list") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name");
        fs::copy(&path, copy.join(name)).expect("a copy");
    }
    let core = copy.join("core-site.xml");
    let link = format!(
        "<property><name>fs.viewfs.mounttable.root.link./data</name><value>{mounted}/data</value>\
         </property></configuration>"
    );
    let text = fs::read_to_string(&core).expect("a configuration");
    fs::write(core, text.replace("</configuration>", &link)).expect("a file");
    copy
}

#[test]
fn a_viewfs_gives_a_job_the_tokens_of_its_mounted_file_systems() {
    let cluster = &*cluster();
    let other = other_system(cluster);
    let workspace = Workspace::of(cluster, "alice");
    let configuration = with_mount_table(&workspace, &other);
    let shared = workspace.path().display().to_string();
    let submit = |systems: &str| {
        let script = format!("cp $HADOOP_TOKEN_FILE_LOCATION {shared}/tokens");
        workspace.write(
            "job.yaml",
            &format!(
                "file_systems: [\"{systems}\"]\n\
                 roles: {{worker: {{memory: 64 MiB, shell: '{script}'}}}}\n"
            ),
        );
        let mut command = workspace.ydl();
        command.args(["submit", "job.yaml"]).env("HADOOP_CONF_DIR", &configuration);
        CommandOutput::from(command.output().expect("ydl can be started"))
    };
    let ran = submit("viewfs://root");
    assert_eq!(ran.code, 0, "{ran:#?}");
    let tokens = Credentials::read(&workspace.path().join("tokens")).expect("tokens");
    let of_namenodes = tokens.tokens().filter(|(_, token)| token.kind == "HDFS_DELEGATION_TOKEN");
    let distinct: BTreeSet<_> = of_namenodes.map(|(_, token)| token.identifier.clone()).collect();
    assert_eq!(distinct.len(), 2, "one for the staging directory, one for the mounted system");
    refused(&submit("viewfs://nowhere"), "`file_systems`: cannot resolve `viewfs://nowhere`: ");
}

#[test]
fn access_lists_are_enforced_with_kerberos() {
    let cluster = &*cluster();
    let workspace = Workspace::of(cluster, "alice");
    let shared = workspace.path().display().to_string();
    let job = workspace.detach(&format!(
        "acls: {{view: bob, modify: carol}}\n\
         roles: {{worker: {{memory: 64 MiB, shell: 'echo hello; touch {shared}/began; sleep 600'}}}}\n"
    ));
    let open = workspace.detach(
        "acls: {view: \"*\"}\nroles: {worker: {memory: 64 MiB, shell: 'echo for everybody'}}\n",
    );
    wait_for("the program", || workspace.path().join("began").exists().then_some(()));
    let bob = Workspace::of(cluster, "bob");
    // The master learns of the start a moment later.
    wait_for("its reported start", || {
        let status = bob.run(&["status", &job]);
        status.stdout.contains("worker:0  running").then_some(())
    });
    wait_for("what it printed", || {
        let logs = bob.run(&["logs", &job, "--stdout"]);
        logs.stdout.contains("hello").then_some(())
    });
    let only_looks = "viewers cannot change this job";
    refused(&bob.run(&["kill", &job]), only_looks);
    refused(&bob.run(&["scale", &job, "worker=2"]), only_looks);
    refused(&bob.run(&["kv", "--job", &job, "put", "key", "value"]), only_looks);
    refused(&bob.run(&["kv", "--job", &job, "get", "key"]), only_looks);
    // The files in HDFS are not readable, either.
    let job_dir = format!("/user/alice/.ydl/jobs/{job}");
    let seen = fs_as(cluster, "bob", &["-ls", &job_dir]);
    assert_eq!(seen.code, 0, "{seen:?}");
    for file in ["client.token", "journal.1"] {
        assert!(seen.stdout.contains(&format!("{job_dir}/{file}")), "{seen:?}");
        let ran = fs_as(cluster, "bob", &["-cat", &format!("{job_dir}/{file}")]);
        assert_ne!(ran.code, 0, "{ran:?}");
        assert!(ran.stderr.contains("Permission denied"), "{ran:?}");
    }

    let dave = Workspace::of(cluster, "dave");
    let status = dave.run(&["status", &job]);
    assert!(!status.stdout.contains("worker:0"), "{status:?}");
    let denied = format!("{}{}", status.stdout, status.stderr);
    assert!(denied.contains("user `dave` has no"), "{status:?}");
    refused(&dave.run(&["kill", &job]), "MODIFY_APP");
    assert_ne!(dave.run(&["logs", &job]).code, 0);
    // Without a ticket the user is not authenticated.
    dave.destroy_ticket();
    let ran = dave.run(&["status", &job]);
    assert_ne!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains("hint: "), "{ran:?}");

    let killed = Workspace::of(cluster, "carol").run(&["kill", &job]);
    assert_eq!(killed.code, 0, "{killed:?}");
    wait_gone(&job);
    // All users can view a job whose ACL allows all users.
    let dave = Workspace::of(cluster, "dave");
    wait_for("the end of the other job", || {
        let status = dave.run(&["status", &open]);
        status.stdout.contains("succeeded").then_some(())
    });
    let logs = dave.run(&["logs", &open, "--stdout"]);
    assert!(logs.stdout.contains("for everybody"), "{logs:?}");
}

#[test]
fn a_job_runs_longer_than_the_ticket_of_its_submitter() {
    let cluster = &*cluster();
    let other = other_system(cluster);
    let workspace = Workspace::of(cluster, "alice");
    let go = workspace.path().join("go").display().to_string();
    let began = Instant::now();
    let job = workspace.detach(&format!(
        "outputs: {{out: \"{other}/data/{{job}}/out\"}}\nfile_systems: [\"{other}\"]\n\
         roles: {{worker: {{memory: 64 MiB, shell: 'until [ -e {go} ]; do sleep 0.2; done; echo late > out'}}}}\n"
    ));
    workspace.destroy_ticket();
    // Waits for a fixed time, after which the tokens were renewed or have expired.
    wait_for("the first renewal", || (began.elapsed() > UNRENEWED + UNRENEWED / 3).then_some(()));
    fs::write(&go, "").expect("a file");
    let alice = Workspace::of(cluster, "alice");
    wait_for("the end of the job", || {
        let status = alice.run(&["status", &job]);
        assert!(!status.stdout.contains("failed"), "{status:?}");
        status.stdout.contains("succeeded").then_some(())
    });
    let output = format!("{other}/data/{job}/out");
    let text = cluster.fs(&["-cat", &output]).expect("an output");
    // The output also contains Hadoop's warning about its native library.
    assert_eq!(text.lines().next_back(), Some("late"), "{text}");
}

#[test]
fn doctor_shows_the_lifetime_of_a_ticket_and_names_a_missing_one_first() {
    let cluster = &*cluster();
    let workspace = Workspace::of(cluster, "dave");
    let ran = workspace.run(&["doctor", "--no-job"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    let mut lines = ran.stdout.lines();
    let ticket = lines.find(|line| line.contains("  ticket "));
    let ticket = ticket.expect("a line about the ticket");
    assert!(ticket.contains("`dave@"), "{ran:#?}");
    assert!(ticket.ends_with(" left"), "{ran:#?}");
    // The ticket determines the user of a job, not the local account.
    let queue_message = "`default` accepts jobs of `dave`";
    assert!(ran.stdout.contains(queue_message), "{ran:#?}");

    workspace.destroy_ticket();
    let submitted = workspace.run(&["submit", "--memory", "64MiB", "--", "true"]);
    let ran = workspace.run(&["doctor"]);
    assert_eq!(ran.code, 2, "{ran:#?}");
    let first = ran.stderr.lines().find(|line| line.starts_with("error: "));
    let first = first.expect("an error");
    let what = "error: ticket: no Kerberos ticket was found: ";
    assert!(first.starts_with(what), "{ran:#?}");
    // The exit code is that of `submit`.
    assert_eq!(submitted.code, ran.code, "{submitted:#?}");
    let what = "error: no Kerberos ticket was found: ";
    assert!(submitted.stderr.contains(what), "{submitted:#?}");
    assert!(ran.stderr.contains("hint: run `kinit`"), "{ran:#?}");
    let skipped = ran.stdout.lines().filter(|line| line.starts_with("skipped"));
    let skipped: Vec<_> = skipped.collect();
    assert_eq!(skipped.len(), 6, "{ran:#?}");
    let because = |line: &&str| line.ends_with("because `ticket` failed");
    assert!(skipped.iter().all(because), "{ran:#?}");
}

#[test]
fn a_proxy_user_submits_for_others_if_the_cluster_allows_it() {
    let cluster = &*cluster();
    let service = Workspace::of(cluster, "proxy");
    service.write(
        "job.yaml",
        "outputs: {out: out-by-proxy}\nroles: {worker: {memory: 64 MiB, shell: 'echo $USER | tee out'}}\n",
    );
    let for_alice = |workspace: &Workspace, args: &[&str]| {
        let mut command = workspace.ydl();
        command.env("HADOOP_PROXY_USER", "alice");
        CommandOutput::from(command.args(args).output().expect("ydl can be started"))
    };
    let ran = for_alice(&service, &["submit", "job.yaml"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let id = job_id(&ran);
    let listed = cluster.fs(&["-ls", "-R", "/user/alice/.ydl/jobs"]);
    let listed = listed.expect("a list");
    let mut files = listed.lines().filter(|line| line.contains(&id)).peekable();
    assert!(files.peek().is_some(), "{listed}");
    assert!(files.all(|line| line.contains(" alice ")), "{listed}");
    let output = cluster.fs(&["-ls", "/user/alice/out-by-proxy"]).expect("metadata");
    assert!(output.contains(" alice "), "{output}");
    // The job belongs to alice in YARN, so `ydl ls` of alice lists it.
    let listed = Workspace::of(cluster, "alice").run(&["ls", "--all"]);
    assert!(listed.stdout.contains(&id), "{listed:?}");
    wait_gone(&id);

    let bob = Workspace::of(cluster, "bob");
    bob.write("job.yaml", "roles: {worker: {shell: 'true'}}\n");
    let ran = for_alice(&bob, &["submit", "job.yaml"]);
    refused(&ran, "not allowed to impersonate alice");
    assert!(ran.stderr.contains("hint: unset `HADOOP_PROXY_USER`"), "{ran:?}");
}

#[test]
fn an_unusable_keytab_is_rejected_before_submission() {
    let cluster = &*cluster();
    let kerberos = cluster.kerberos().expect("a realm");
    let workspace = Workspace::of(cluster, "alice");
    let submit = |principal: &str, path: &str| {
        workspace.submit(&format!(
            "keytab: {{principal: {principal}@TESTBED.LOCAL, path: {path}}}\n\
             roles: {{worker: {{shell: 'true'}}}}\n"
        ))
    };
    let bobs = kerberos.keytab("bob").display().to_string();
    refused(&submit("bob", &bobs), "is for `bob`, and the job runs as `alice`");
    refused(&submit("alice", &bobs), "cannot authenticate as `alice@TESTBED.LOCAL`");
}
