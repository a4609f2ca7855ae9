//! Local resources of every kind and visibility.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use yarn_native::types::{ExitStatus, LaunchContext, LocalResourceKind, Visibility};

use super::{cluster, local_resource};
use crate::support::master::{Master, scratch};

/// Returns a zip file with small uncompressed entries.
fn zip(entries: &[(&str, &str)]) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for (name, text) in entries {
        let mut sum = flate2::Crc::new();
        sum.update(text.as_bytes());
        let length = text.len() as u32;
        let mut fields = vec![10, 0, 0, 0, 0, 0, 0, 0, 0x21, 0x50];
        fields.extend(sum.sum().to_le_bytes());
        fields.extend(length.to_le_bytes());
        fields.extend(length.to_le_bytes());
        fields.extend((name.len() as u16).to_le_bytes());
        fields.extend([0, 0]);
        let start = bytes.len() as u32;
        bytes.extend(b"PK\x03\x04");
        bytes.extend(&fields);
        bytes.extend(name.as_bytes());
        bytes.extend(text.as_bytes());
        directory.extend(b"PK\x01\x02\x14\0");
        directory.extend(&fields);
        directory.extend([0; 10]);
        directory.extend(start.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let count = (entries.len() as u16).to_le_bytes();
    let start = bytes.len() as u32;
    let length = directory.len() as u32;
    bytes.extend(directory);
    bytes.extend(b"PK\x05\x06\0\0\0\0");
    bytes.extend(count);
    bytes.extend(count);
    bytes.extend(length.to_le_bytes());
    bytes.extend(start.to_le_bytes());
    bytes.extend([0, 0]);
    bytes
}

/// Packs `inside.txt` into a tar file with these flags.
fn tar(directory: &Path, name: &str, flags: &str) -> PathBuf {
    std::fs::write(directory.join("inside.txt"), "inside\n").expect("a file");
    let path = directory.join(name);
    let mut command = Command::new("tar");
    command.arg(flags).arg(&path).arg("-C").arg(directory);
    let made = command.arg("inside.txt").status();
    assert!(made.expect("tar").success());
    path
}

#[tokio::test]
async fn archives_are_unpacked_completely_or_by_pattern() {
    let mut master = Master::new(cluster(), "archives").await;
    let directory = scratch(cluster(), "archives");
    let written = |name: &str, bytes: Vec<u8>| {
        let path = directory.join(name);
        std::fs::write(&path, bytes).expect("a file");
        path
    };
    let one = zip(&[("inside.txt", "inside\n")]);
    let two = zip(&[("keep/a.txt", "a\n"), ("drop/b.txt", "b\n")]);
    let archives = [
        written("in.zip", one.clone()),
        written("in.jar", one),
        tar(&directory, "in.tar", "-cf"),
        tar(&directory, "in.tgz", "-czf"),
    ];
    let mut launch = LaunchContext::command(
        "cat in.zip/inside.txt in.jar/inside.txt in.tar/inside.txt in.tgz/inside.txt || exit 1; \
         test -f some/keep/a.txt || exit 2; test -e some/drop/b.txt && exit 3; \
         test -f some/some.jar || exit 4; exit 40",
    );
    for path in &archives {
        let resource = local_resource(path, LocalResourceKind::Archive, Visibility::Private);
        let name = path.file_name().and_then(|name| name.to_str());
        launch.resources.insert(name.expect("a name").into(), resource);
    }
    let pattern = LocalResourceKind::Pattern("keep/.*".into());
    let some = written("some.jar", two);
    let some = local_resource(&some, pattern, Visibility::Application);
    launch.resources.insert("some".into(), some);
    let end = master.run(&launch).await;
    assert_eq!(end.exit, ExitStatus::Exited(40), "{}", end.diagnostics);
    master.finish().await;
}

#[tokio::test]
async fn files_are_cached_by_visibility() {
    let mut master = Master::new(cluster(), "visibilities").await;
    let directory = scratch(cluster(), "visibilities");
    let [own, other] = ["own.txt", "other.txt"].map(|name| directory.join(name));
    for path in [&own, &other] {
        std::fs::write(path, "own\n").expect("a file");
    }
    let found = directory.join("found");
    let names = ["all", "user", "application"];
    let mut launch = LaunchContext::command(format!(
        "readlink -f {} > {} && exit 41",
        names.join(" "),
        found.display()
    ));
    let file = LocalResourceKind::File;
    launch.resources = BTreeMap::from([
        // World-readable, in world-readable directories, on every machine.
        ("all".into(), local_resource(Path::new("/etc/passwd"), file.clone(), Visibility::Public)),
        ("user".into(), local_resource(&own, file.clone(), Visibility::Private)),
        ("application".into(), local_resource(&other, file.clone(), Visibility::Application)),
    ]);
    let end = master.run(&launch).await;
    assert_eq!(end.exit, ExitStatus::Exited(41), "{}", end.diagnostics);
    let found = std::fs::read_to_string(found).expect("what was found");
    let [all, user, application] = found.lines().collect::<Vec<_>>()[..] else {
        panic!("{found}");
    };
    let cache = format!("/usercache/{}/", cluster().own_user());
    assert!(!all.contains("/usercache/") && all.contains("/filecache/"), "{all}");
    assert!(user.contains(&format!("{cache}filecache/")), "{user}");
    let own_cache = format!("{cache}appcache/{}/filecache/", master.id);
    assert!(application.contains(&own_cache), "{application}");

    // A file that is not world-readable cannot be public.
    set_mode(&own, 0o600);
    let secret = local_resource(&own, file, Visibility::Public);
    launch.resources = BTreeMap::from([("all".into(), secret)]);
    let end = master.run(&launch).await;
    assert!(!end.exit.is_success(), "{end:?}");
    assert!(end.diagnostics.contains("not publicly accessible"), "{end:?}");
    master.finish().await;
}

fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, permissions).expect("permissions");
}
