//! Jobs on a cluster whose default file system is a mount table over two others.

use std::{fs, process::Command};
use testbed::{Hdfs, Lease, Options, Protection};
use ydl_testkit::yarn::{Workspace, digits, shared, version, wait_for};

/// One node, and `viewfs://root`, which has no fallback.
fn cluster() -> Lease {
    shared(Options {
        kerberos: Some(Protection::Integrity),
        hdfs: Hdfs::ViewFs,
        users: vec!["alice".into()],
        ..Options::new(version())
    })
}

#[test]
fn a_job_and_its_next_master_use_a_mount_table_as_default_file_system() {
    let cluster = &*cluster();
    let workspace = Workspace::of(cluster, "alice");
    // Hadoop's shell needs groups to look at a mount point, and the daemons' users have none.
    let data = format!("hdfs://{}/data", cluster.namenodes()[2].rpc);
    let made = cluster.fs(&["-D", "fs.permissions.umask-mode=000", "-mkdir", &data]);
    made.expect("a directory of the second file system");
    let text = workspace.write("text", "one two").display().to_string();
    cluster.fs(&["-put", &text, &format!("{data}/text")]).expect("a file");
    let realm = cluster.kerberos().expect("a realm");
    let (keytab, realm) = (realm.keytab("alice"), realm.realm());
    let shared = workspace.path().display().to_string();
    let script = format!(
        "touch {shared}/began; until [ -e {shared}/go ]; do sleep 0.2; done; \
         mkdir out; cat words listed | tee out/both"
    );
    let id = workspace.detach(&format!(
        "file_systems: [\"viewfs://root\", \"hdfs://root\"]\n\
         keytab: {{path: {}, principal: alice@{realm}}}\n\
         files: [{{words: hdfs:///data/text}}]\n\
         inputs: {{listed: hdfs:///data/text}}\n\
         outputs: {{out/: \"hdfs:///data/{{job}}\"}}\n\
         roles: {{worker: {{memory: 64 MiB, shell: '{script}'}}}}\n",
        keytab.display()
    ));
    wait_for("the program", || workspace.path().join("began").exists().then_some(()));
    // The next master recovers the journal through the mount table.
    let masters = || {
        let mut all = digits::processes(&id);
        all.retain(|(_, args)| args.starts_with("./ydl master"));
        all.into_iter().map(|(pid, _)| pid).collect::<Vec<_>>()
    };
    let [first] = masters()[..] else {
        panic!("{:?}", digits::processes(&id));
    };
    let killed = Command::new("kill").args(["-9", &first.to_string()]).status();
    assert!(killed.expect("kill").success());
    wait_for("the next master", || masters().iter().any(|pid| *pid != first).then_some(()));
    fs::write(workspace.path().join("go"), "").expect("a file");

    let status = wait_for(&format!("the end of {id}"), || {
        let ran = workspace.run(&["status", &id]);
        let state = ran.stdout.lines().find(|line| line.starts_with("state "))?.to_owned();
        ["succeeded", "failed", "killed"].iter().any(|end| state.contains(end)).then_some(ran)
    });
    assert!(status.stdout.contains("succeeded"), "{status:?}");
    let both = cluster.fs(&["-cat", &format!("{data}/{id}/both")]).expect("an output");
    assert!(both.contains("one twoone two"), "{both}");
    let logs = workspace.run(&["logs", &id, "--stdout"]);
    assert!(logs.stdout.contains("one twoone two"), "{logs:?}");
    let listed = workspace.run(&["ls"]);
    assert!(listed.stdout.contains(&id), "{listed:?}");
    let doctor = workspace.run(&["doctor"]);
    assert!(doctor.stdout.contains("viewfs://root"), "{doctor:?}");
}
