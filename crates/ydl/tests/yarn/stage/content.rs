//! Files of a job are uploaded once, completely, and readable only for permitted users.

use super::{StageFixture, soon};
use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use yarn_native::security::Identity;
use ydl::client::stage::{self, JobFiles, Upload};
use ydl_core::{JobSpec, Time};
use ydl_proto::{
    files::{HadoopConfig, SubmittedJob},
    version::from_json,
};
use ydl_storage::hdfs::{Entry, Hdfs, Kind, layout};

fn submitted(spec: JobSpec, upload: &Upload) -> SubmittedJob {
    SubmittedJob {
        id: "application_1_0001".into(),
        at: Time(0),
        from: "/".into(),
        spec,
        target: ydl_proto::files::JobTarget::Yarn(upload.staged.clone()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_submission_uploads_only_changed_files() {
    let fixture = StageFixture::new("twice").await;
    let staging = &fixture.path;
    let alice = fixture.submitter("alice", &format!("{staging}/.ydl")).await;
    let spec = alice.spec("environment: env.tar.gz\n");
    let reported = Arc::new(AtomicU64::new(0));
    let first = alice.submit("application_1_0001", &spec).await.expect("staged");
    assert_eq!(first.sent.files, 4, "binary, script, code, environment");
    let contents = alice.contents().await;
    assert_eq!(contents.len(), 4, "{contents:?}");
    assert_eq!(contents.iter().map(|entry| entry.bytes).sum::<u64>(), first.sent.bytes);
    assert!(contents.iter().all(|entry| entry.permission == 0o600), "{contents:?}");

    let again = reported.clone();
    let on_progress =
        move |progress: stage::Progress| again.store(progress.sent, Ordering::Relaxed);
    let second =
        alice.submit_with_progress("application_1_0002", &spec, on_progress).await.expect("staged");
    assert_eq!(second.sent, ydl_storage::hdfs::UploadTotals::default());
    assert_eq!(reported.load(Ordering::Relaxed), 0);
    assert_eq!(alice.contents().await, contents, "a file was written again");
    assert_eq!(second.staged.binary, first.staged.binary);
    assert_eq!(second.staged.files, first.staged.files);
    assert_eq!(second.staged.environment, first.staged.environment);

    alice.write("train.py", b"print(2)");
    let third = alice.submit("application_1_0003", &spec).await.expect("staged");
    assert_eq!((third.sent.files, third.sent.bytes), (1, 8), "a change of the same length");
    alice.write("train.py", b"print(12345)");
    let fourth = alice.submit("application_1_0004", &spec).await.expect("staged");
    assert_eq!((fourth.sent.files, fourth.sent.bytes), (1, 12));
    let files = &fourth.staged.files;
    assert!(files["code"].unpack && !files["train.py"].unpack && !fourth.staged.binary.unpack);
    assert_eq!(files["code"], first.staged.files["code"]);
    let hdfs = &alice.staging_dir.hdfs;
    let script = hdfs.read_file(&files["train.py"].url, 100, soon()).await;
    assert_eq!(script.expect("the script"), "print(12345)");
    let packed = hdfs.read_file(&files["code"].url, 1 << 20, soon()).await.expect("an archive");
    let out = alice.path("unpacked");
    tar::Archive::new(&packed[..]).unpack(&out).expect("unpacked");
    assert_eq!(fs::read(out.join("model.py")).expect("a file"), b"layers = 3");
    let whole = hdfs.read_file(&first.staged.binary.url, 4 << 20, soon()).await;
    assert_eq!(whole.expect("the binary"), vec![7; 3 << 20], "a file of several blocks");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_in_hdfs_are_used_in_place() {
    let fixture = StageFixture::new("remote").await;
    let staging = &fixture.path;
    let alice = fixture.submitter("alice", &format!("{staging}/.ydl")).await;
    let hdfs = &alice.staging_dir.hdfs;
    let big = hdfs.url(&format!("{staging}/big.tar.gz"));
    hdfs.write_atomic(&big, "a big archive", 0o644, soon()).await.expect("written");
    let entry = hdfs.stat(&big, soon()).await.expect("a response").expect("a file");
    let spec = |source: &str| {
        let mut draft = ydl_core::spec::JobSpecBuilder::from(alice.spec(""));
        draft.files = vec![ydl_core::spec::File {
            name: "data".into(),
            source: source.into(),
            unpack: true,
            ..ydl_core::spec::File::default()
        }];
        draft.build().expect("a job")
    };
    for source in [big.clone(), format!("hdfs://{staging}/big.tar.gz")] {
        let upload = alice.submit("application_1_0001", &spec(&source)).await.expect("staged");
        let data = &upload.staged.files["data"];
        assert_eq!((data.url.as_str(), data.bytes), (big.as_str(), 13), "{source}");
        assert_eq!(data.modified_ms, entry.modified_ms);
        assert!(data.unpack && !data.own);
        assert_eq!(alice.contents().await.len(), 1, "more than the binary was uploaded");
    }
    let refused = async |source: String| {
        let report = alice.submit("application_1_0002", &spec(&source)).await;
        report.expect_err("refused").to_string()
    };
    let what = refused(format!("{big}.tar")).await;
    assert!(what.contains("big.tar.gz.tar` does not exist"), "{what}");
    let what = refused(hdfs.url(&format!("{staging}/odd"))).await;
    assert!(what.contains("is not an archive"), "{what}");
    hdfs.mkdirs(&format!("{staging}/dir.zip"), 0o755, soon()).await.expect("a directory");
    let what = refused(hdfs.url(&format!("{staging}/dir.zip"))).await;
    assert!(what.contains("is a directory"), "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_job_are_readable_for_permitted_users_only() {
    let fixture = StageFixture::new("own").await;
    let staging = &fixture.path;
    let alice = fixture.submitter("alice", &format!("{staging}/.ydl")).await;
    let spec = alice.spec("acls: {view: bob, modify: carol}\n");
    let upload = alice.submit("application_1_0001", &spec).await.expect("staged");
    let submitted = submitted(spec, &upload);
    let files = JobFiles {
        submitted: &submitted,
        certificate: "a certificate",
        client_token: "a token",
        viewer_token: "another",
        config: &fixture.config(),
        inputs: None,
    };
    let notes = stage::write_job(&alice.staging_dir, files, soon()).await.expect("written");
    assert_eq!(notes, Vec::<String>::new());
    let job = alice.staging_dir.job("application_1_0001");
    let own_files = stage::own_files(&alice.staging_dir.hdfs, &job, soon()).await;
    let own_files = own_files.expect("a listing");
    let names: Vec<_> = own_files.keys().map(String::as_str).collect();
    assert_eq!(names, ["certificate.pem", "hadoop.json", "job.json"]);
    let read_as = async |user: &str, path: String| {
        let read = fixture.hdfs(user).await.read_file(&path, 1 << 20, soon()).await;
        match read {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind == Kind::Denied => None,
            Err(error) => panic!("{error}"),
        }
    };
    for (user, job_file, token) in
        [("alice", true, true), ("bob", true, false), ("carol", true, true), ("dave", false, false)]
    {
        assert_eq!(read_as(user, job.submitted()).await.is_some(), job_file, "{user}");
        assert_eq!(read_as(user, job.token()).await.is_some(), token, "{user}");
        let content = read_as(user, upload.staged.files["train.py"].url.clone()).await;
        assert_eq!(content.is_some(), user == "alice", "{user}");
    }
    let hadoop = read_as("alice", job.hadoop()).await.expect("a file");
    let HadoopConfig { properties: pairs } = from_json(&hadoop).expect("JSON");
    assert_eq!(pairs["fs.defaultFS"], fixture.cluster.default_fs());
    // Files written later have the same access lists.
    let events = job.events();
    let writer = alice.staging_dir.hdfs.create(&events, layout::FILE, soon()).await;
    writer.expect("a file").close(soon()).await.expect("closed");
    assert!(read_as("bob", events.clone()).await.is_some());
    assert!(read_as("dave", events).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_user_files_are_owned_by_the_proxied_user() {
    let fixture = StageFixture::new("proxy").await;
    let staging = &fixture.path;
    let identity = Identity::simple(fixture.cluster.own_user()).acting_for("erin");
    let hdfs =
        Hdfs::connect(&fixture.config(), None, &identity, soon()).await.expect("a file system");
    assert_eq!(hdfs.home(soon()).await.expect("a home"), hdfs.url("/user/erin"));
    let file = format!("{staging}/file");
    hdfs.write_atomic(&file, "text", 0o600, soon()).await.expect("written");
    let entry = hdfs.stat(&file, soon()).await.expect("a response").expect("a file");
    assert_eq!(entry.owner, "erin");
}

#[tokio::test(flavor = "multi_thread")]
async fn uploaded_files_are_complete() {
    let fixture = StageFixture::new("files").await;
    let staging_dir = &fixture.path;
    let hdfs = fixture.hdfs("alice").await;
    let folder = tempfile::tempdir().expect("a folder");
    for (name, bytes) in [("model", vec![3; 5 << 20]), ("empty", Vec::new())] {
        let path = folder.path().join(name);
        fs::write(&path, &bytes).expect("a file");
        let to = format!("{staging_dir}/{name}");
        let sent = hdfs.upload_file(&path, &to, 0o644, &|_| {}, soon()).await;
        assert_eq!(sent.expect("sent"), bytes.len() as u64);
        let uploaded = hdfs.read_file(&to, 8 << 20, soon()).await;
        assert_eq!(uploaded.expect("a file"), bytes);
    }
    let names = hdfs.list(staging_dir, soon()).await.expect("a listing");
    let names: Vec<_> = names.iter().map(Entry::name).collect();
    assert_eq!(names, ["empty", "model"]);
}
