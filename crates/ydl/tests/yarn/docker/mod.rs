//! Images on a real NodeManager. Its docker runtime validates the requests of containers and creates docker commands. A
//! script replaces its setuid helper, which would need root: it records the commands and runs the container without
//! docker.

use std::{collections::BTreeMap, fs, path::Path};
use testbed::{Cluster, File, Lease, Options};
use ydl_testkit::yarn::{Workspace, shared, version};

const HELPER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/yarn/docker/container-executor");

/// File that maps tags of runc images to hashes.
const TAGS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/yarn/docker/image-tag-to-hash");
const PLUGIN: &str = "runtime.linux.runc.image-tag-to-manifest-plugin";

/// Leases a cluster with one node that runs images.
fn cluster() -> Lease {
    let options = Options { nodes: 1, node_vcores: 60, ..Options::new(version()) };
    let class = "org.apache.hadoop.yarn.server.nodemanager.LinuxContainerExecutor";
    let keys = [
        ("container-executor.class", class),
        ("linux-container-executor.path", HELPER),
        ("linux-container-executor.group", "root"),
        ("runtime.linux.allowed-runtimes", "default,docker,runc"),
        // A local file: HDFS may not run yet when the node reads it.
        (&format!("{PLUGIN}.hdfs-hash-file"), &format!("file://{TAGS}")),
    ];
    shared(keys.iter().fold(options, |options, (key, value)| {
        options.set(File::Yarn, &format!("yarn.nodemanager.{key}"), value)
    }))
}

/// Returns a job of one task in that image, with a short backoff.
fn job(image: &str) -> String {
    format!(
        "environment: {image}\nrestart: {{backoff: {{initial: 50ms, max: 100ms}}}}\n\
         roles: {{worker: {{memory: 64 MiB, shell: 'echo it ran'}}}}\n"
    )
}

/// Returns the docker commands of the NodeManager, by container.
fn commands(cluster: &Cluster) -> BTreeMap<String, BTreeMap<String, String>> {
    let seen = cluster.directory().join("nm1/docker");
    let files = fs::read_dir(seen).into_iter().flatten().flatten();
    let files = files.filter(|file| file.path().extension().is_none());
    let read = |path: &Path| {
        let text = fs::read_to_string(path).expect("a command");
        let pairs = text.lines().filter_map(|line| line.trim().split_once('='));
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    };
    files
        .map(|file| (file.file_name().to_string_lossy().into_owned(), read(&file.path())))
        .collect()
}

#[test]
fn a_node_manager_runs_docker_with_the_requested_image_settings() {
    let cluster = &*cluster();
    let workspace = Workspace::new(cluster);
    let yaml = "\
environment:
  docker: registry.example.com:5000/ydl-test/ran:1.2
  mounts: ['/data/mnist:/data:ro', '/scratch:/tmp/scratch:rw']
  network: bridge
roles:
  inside: {memory: 64 MiB, shell: 'echo $YDL_CONTAINER runs with ${YARN_CONTAINER_RUNTIME_TYPE:-nothing}'}
  plain: {memory: 64 MiB, environment: system, shell: 'echo plain runs with ${YARN_CONTAINER_RUNTIME_TYPE:-nothing}'}
  other: {memory: 64 MiB, environment: {docker: ydl-test/other}, shell: 'echo $YDL_CONTAINER is other'}
";
    let ran = workspace.submit(yaml);
    assert_eq!(ran.code, 0, "{ran:#?}");
    let image_of = |end: &str| {
        let line = ran.stdout.lines().find(|line| line.ends_with(end));
        let line = line.unwrap_or_else(|| panic!("{end}: {ran:#?}"));
        let args: Vec<_> = line.trim_end_matches(end).split_whitespace().collect();
        args.last().copied().unwrap_or_default().to_owned()
    };
    let (inside, other) = (image_of(" runs with docker"), image_of(" is other"));
    image_of("plain runs with nothing");
    let seen = commands(cluster);
    let of = |container: &str, key: &str| {
        let command = seen.get(container);
        let command = command.unwrap_or_else(|| panic!("{container}: {seen:#?}"));
        command.get(key).cloned().unwrap_or_default()
    };
    assert_eq!(of(&inside, "docker-command"), "run");
    assert_eq!(of(&inside, "name"), inside);
    assert_eq!(of(&inside, "image"), "registry.example.com:5000/ydl-test/ran:1.2");
    assert_eq!(of(&inside, "net"), "bridge");
    assert_eq!(of(&inside, "privileged"), "");
    let mounts = of(&inside, "mounts");
    assert!(mounts.ends_with("/data/mnist:/data:ro,/scratch:/tmp/scratch:rw"), "{mounts}");
    // The container's working directory is below a mount of the NodeManager.
    let work = of(&inside, "workdir");
    let above = |mount: &str| work.starts_with(mount.split(':').next().unwrap_or("none"));
    assert!(mounts.split(',').any(above), "{work} is not in {mounts}");
    let launched = format!("bash,{work}/launch_container.sh");
    assert_eq!(of(&inside, "launch-command"), launched);
    assert_eq!(of(&other, "image"), "ydl-test/other");
    assert_eq!(of(&other, "net"), "host", "not the node's own file");
    // The master and the role `plain` run without an image.
    let id = inside.rsplit_once("_01_").expect("a container").0;
    let of_this: Vec<_> = seen.keys().filter(|it| it.starts_with(id)).collect();
    assert_eq!(of_this.len(), 2, "{of_this:?}");
}

/// Puts an image for runc into HDFS, as administrators do: its manifest, its configuration and one layer.
/// The content of the layer is not used.
fn runc_image(cluster: &Cluster) {
    let dir = tempfile::tempdir().expect("a directory");
    let [hash, config, layer] = ["a1", "b2", "c3"].map(|part| part.repeat(32));
    let part = |media: &str, digest: &str| serde_json::json!({ "mediaType": media, "size": 2, "digest": format!("sha256:{digest}") });
    let manifest = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": part("application/vnd.docker.container.image.v1+json", &config),
        "layers": [part("application/vnd.docker.image.rootfs.diff.tar.gzip", &layer)],
    });
    let root = dir.path().join("runc-root");
    let files = [
        (format!("manifests/{hash}"), manifest.to_string()),
        (format!("config/{config}"), r#"{"config": {"Env": ["COLOUR=blue"]}}"#.to_owned()),
        (format!("layers/{layer}.sqsh"), "no layer".to_owned()),
    ];
    for (name, text) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(path, text).expect("a file");
    }
    let root = root.to_str().expect("a path");
    let put = cluster.fs(&["-put", root, "/"]);
    put.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn a_node_manager_runs_runc_with_the_requested_image_settings() {
    let cluster = &*cluster();
    runc_image(cluster);
    let workspace = Workspace::new(cluster);
    let ran = workspace.submit(&job(
        "{runc: ydl-test/python, mounts: ['/etc/hostname:/data/a:ro', '/var/log:/data/b:rw']}",
    ));
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(ran.stdout.contains("it ran"), "{ran:#?}");
    let seen = fs::read_dir(cluster.directory().join("nm1/docker")).expect("a directory");
    let texts = seen.flatten().map(|file| file.path());
    let texts = texts.filter(|path| path.extension().is_none());
    let texts = texts.filter_map(|path| fs::read_to_string(path).ok());
    let all: Vec<serde_json::Value> =
        texts.filter_map(|text| serde_json::from_str(&text).ok()).collect();
    let [config] = all.as_slice() else {
        panic!("{all:#?}");
    };
    let mounts = config["ociRuntimeConfig"]["mounts"].as_array();
    let mounts = mounts.unwrap_or_else(|| panic!("{config:#}"));
    let own_mounts: Vec<_> = mounts
        .iter()
        .filter(|mount| mount["destination"].as_str().is_some_and(|to| to.starts_with("/data/")))
        .map(|mount| {
            format!("{} {} {}", mount["source"], mount["destination"], mount["options"][0])
        })
        .collect();
    let expected = [r#""/etc/hostname" "/data/a" "ro""#, r#""/var/log" "/data/b" "rw""#];
    assert_eq!(own_mounts, expected, "{config:#}");
    let layer = config["layers"][0]["path"].as_str().unwrap_or_default();
    assert!(layer.ends_with(".sqsh"), "{config:#}");
}

#[test]
fn an_image_missing_on_the_nodes_is_reported_with_a_hint() {
    let cluster = &*cluster();
    let workspace = Workspace::new(cluster);
    let ran = workspace.submit(&job("{runc: ydl-test/unknown}"));
    assert_eq!(ran.code, 120, "{ran:#?}");
    // The NodeManager reports no details.
    let why = "worker:0 could not run on its node: its node could not prepare it";
    assert!(ran.stderr.contains(why), "{ran:#?}");
    let hint = "hint: ask an administrator whether `runc` is in the nodes' \
                `yarn.nodemanager.runtime.linux.allowed-runtimes`";
    assert!(ran.stderr.contains(hint), "{ran:#?}");
}

#[test]
fn denied_privileges_are_reported_with_a_hint() {
    let cluster = &*cluster();
    let workspace = Workspace::new(cluster);
    let ran = workspace.submit(&job("{docker: ydl-test/ran, privileged: true}"));
    assert_eq!(ran.code, 120, "{ran:#?}");
    let why = "it does not run the image: the cluster allows no privileged containers";
    assert!(ran.stderr.contains(why), "{ran:#?}");
    assert!(ran.stderr.contains("hint: leave `privileged` out"), "{ran:#?}");
}

#[test]
fn a_node_that_ignores_images_does_not_run_programs_without_them() {
    let cluster = &*cluster();
    let workspace = Workspace::new(cluster);
    let ran = workspace.submit(&job("{docker: ydl-test/bare}"));
    assert_eq!(ran.code, 120, "{ran:#?}");
    let why =
        "the node ignored the task's image: it does not support the container runtime `docker`";
    assert!(ran.stderr.contains(why), "{ran:#?}");
    assert!(ran.stderr.contains("LinuxContainerExecutor"), "{ran:#?}");
    assert!(!ran.stdout.contains("it ran"), "{ran:#?}");
}
