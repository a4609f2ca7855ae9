//! The rules of `FileStore`, on a local disk and in HDFS.

use super::{connect, shared_cluster};
use std::{fs::File, io::Write, sync::Arc};
use tokio::runtime::Runtime;
use ydl_storage::{
    data::is_temporary,
    store::{FileStore, LocalStore, remove_abandoned},
};
use ydl_testkit::yarn::deadline;

#[test]
fn a_local_store_and_hdfs_follow_the_same_rules() {
    let cluster = &*shared_cluster();
    let dir = tempfile::tempdir().expect("a directory");
    let mut source = tempfile::NamedTempFile::new().expect("a file");
    source.write_all(b"content").expect("written");
    let open = || Arc::new(source.reopen().expect("a file"));
    let runtime = Runtime::new().expect("a runtime");
    runtime.block_on(async {
        check(&LocalStore, &dir.path().join("store").to_string_lossy(), &open).await;
        let hdfs = connect(cluster).await;
        check(&hdfs, &hdfs.url("/store"), &open).await;
    });
}

async fn check(store: &dyn FileStore, root: &str, open: &dyn Fn() -> Arc<File>) {
    let path = |name: &str| format!("{root}/{name}");
    let read = async |name: &str| {
        let found = store.read(&path(name), 100, deadline()).await.expect("a response");
        found.map(|bytes| String::from_utf8(bytes.to_vec()).expect("text"))
    };
    // Nothing is there.
    assert_eq!(store.stat(&path("none/x"), deadline()).await, Ok(None));
    assert_eq!(store.list(&path("none"), deadline()).await, Ok(Vec::new()));
    assert_eq!(store.delete(&path("none"), deadline()).await, Ok(false));
    assert_eq!(read("none").await, None);
    store.make_dirs(&path("dir/deep"), Some(0o700), deadline()).await.expect("made");
    store.make_dirs(&path("dir"), Some(0o700), deadline()).await.expect("there");

    // Small files.
    let small = path("small");
    assert_eq!(store.write_if_absent(&small, "one".into(), deadline()).await, Ok(true));
    assert_eq!(store.write_if_absent(&small, "two".into(), deadline()).await, Ok(false));
    assert_eq!(read("small").await.as_deref(), Some("one"));
    store.write(&small, "three".into(), deadline()).await.expect("written");
    assert_eq!(read("small").await.as_deref(), Some("three"));

    // A temporary file is renamed: to a free name, or instead of a file, but not of a directory.
    let temporary = async || {
        let temporary = store.temporary(&path("file"), "job-worker=0").expect("a name");
        let sent = store.upload(open(), &temporary, 0o644, deadline()).await;
        assert_eq!(sent, Ok(7));
        assert!(is_temporary(temporary.rsplit('/').next().expect("a name")), "{temporary}");
        temporary
    };
    let new = temporary().await;
    assert_eq!(store.rename(&new, &path("small"), deadline()).await, Ok(false));
    assert_eq!(store.rename(&new, &path("file"), deadline()).await, Ok(true));
    let new = temporary().await;
    store.replace(&new, &path("small"), deadline()).await.expect("replaced");
    let new = temporary().await;
    assert!(store.replace(&new, &path("dir"), deadline()).await.is_err());
    assert_eq!(store.delete(&new, deadline()).await, Ok(true));
    assert_eq!(read("small").await.as_deref(), Some("content"));
    // A directory takes the place of no other.
    store.make_dirs(&path("new"), None, deadline()).await.expect("made");
    assert_eq!(store.rename(&path("new"), &path("dir"), deadline()).await, Ok(false));
    assert_eq!(store.rename(&path("new"), &path("newer"), deadline()).await, Ok(true));

    let entries = store.list(root, deadline()).await.expect("a list");
    let mut names: Vec<_> = entries.iter().map(|entry| (entry.name(), entry.directory)).collect();
    names.sort_unstable();
    let expected = [("dir", true), ("file", false), ("newer", true), ("small", false)];
    assert_eq!(names, expected);
    // Files of other writers stay.
    remove_abandoned(store, root, "job-worker=0", deadline()).await;
    assert_eq!(store.list(root, deadline()).await.expect("a list").len(), 4);
    assert_eq!(store.delete(root, deadline()).await, Ok(true));
}
