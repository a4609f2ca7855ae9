//! Files in a real HDFS: what is written is read, what is half written is not, and bad days have sentences.

use std::time::Duration;
use testbed::{Cluster, Options, Version};
use tokio::{
    sync::{RwLock, RwLockReadGuard},
    time::Instant,
};
use yarn_native::{
    config::{Config, Environment},
    security::Identity,
};
use ydl::hdfs::{Hdfs, Kind};

/// Most tests disturb nobody; some change the mood of the NameNode.
static QUIET: RwLock<()> = RwLock::const_new(());

fn cluster() -> &'static Cluster {
    Cluster::shared(Options::new(Version::NEWEST)).expect("a cluster")
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn config() -> Config {
    let environment = Environment::default().with_variable("USER", "alice");
    Config::from_directories(&[cluster().configuration()], environment).expect("its configuration")
}

async fn hdfs(user: &str) -> Hdfs {
    let identity = Identity::simple(user);
    Hdfs::connect(&config(), None, &identity, soon())
        .await
        .expect("a file system")
}

/// A directory that belongs to a user; the superuser makes it.
async fn place(name: &str, user: &str) -> (Hdfs, String, RwLockReadGuard<'static, ()>) {
    let guard = QUIET.read().await;
    let path = format!("/test/{name}");
    let root = hdfs(&cluster().own_user()).await;
    root.mkdirs(&path, 0o777, soon())
        .await
        .expect("a directory");
    root.set_permission(&path, 0o777, soon())
        .await
        .expect("its permission");
    let hdfs = hdfs(user).await;
    let place = hdfs.url(&path);
    (hdfs, place, guard)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_synced_survives_its_writer_and_shuts_it_out() {
    let (old, place, _quiet) = place("fence", "alice").await;
    let file = format!("{place}/journal");
    let mut writer = old.create(&file, 0o600, soon()).await.expect("a file");
    writer.write("one\n", soon()).await.expect("written");
    writer.sync(soon()).await.expect("synced");
    let entry = old
        .stat(&file, soon())
        .await
        .expect("an answer")
        .expect("a file");
    println!(
        "open: stat {} reader {}",
        entry.bytes,
        old.open(&file, soon()).await.unwrap().length()
    );

    let new = hdfs("alice").await;
    let begun = Instant::now();
    new.recover(&file, soon()).await.expect("taken over");
    println!("recover took {:?}", begun.elapsed());
    assert_eq!(
        new.read_whole(&file, 100, soon()).await.expect("read"),
        "one\n"
    );
    let mut failed = writer.write("two\n", soon()).await;
    if failed.is_ok() {
        failed = writer.sync(soon()).await;
    }
    let error = failed.expect_err("the old writer is shut out");
    println!("{error:?}");
    assert_eq!(error.kind, Kind::LeaseLost, "{error}");
    new.recover(&file, soon())
        .await
        .expect("a closed file stays as it is");
    assert_eq!(
        new.read_whole(&file, 100, soon()).await.expect("read"),
        "one\n"
    );
    let mut more = new.append(&file, soon()).await.expect("appended");
    more.write("three\n", soon()).await.expect("written");
    more.close(soon()).await.expect("closed");
    assert_eq!(
        new.read_whole(&file, 100, soon()).await.expect("read"),
        "one\nthree\n"
    );
}
