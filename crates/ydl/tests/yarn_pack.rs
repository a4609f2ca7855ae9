//! Environments that travel to a real cluster, whose nodes have no MXNet.

mod yarn_support;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use testbed::{Cluster, Options};
use yarn_support::{Desk, Ran, environment, example, shared, version};

fn cluster() -> &'static Cluster {
    shared(Options {
        nodes: 2,
        node_memory_mib: 8192,
        node_vcores: 60,
        ..Options::new(version())
    })
}

/// A desk with the example, a cache of its own, and an environment called so.
fn desk(environment: &str) -> Desk<'static> {
    let desk = Desk::at(cluster());
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/mxnet-digits");
    fs::copy(from.join("train.py"), desk.path().join("train.py")).expect("the example");
    let job = fs::read_to_string(from.join("job.yaml")).expect("the example");
    let job = job.replace(
        "environment: ./venv ",
        &format!("environment: {environment} "),
    );
    assert!(job.contains(environment), "{job}");
    desk.write("job.yaml", &job);
    desk
}

fn run(desk: &Desk, words: &[&str]) -> Ran {
    let mut command = desk.ydl();
    command.env("XDG_CACHE_HOME", desk.path().join("cache"));
    Ran::from(command.args(words).output().expect("ydl can be started"))
}

/// Bytes that the submit has said it sent.
fn sent(ran: &Ran) -> String {
    let line = ran.err.lines().find(|line| line.contains("uploaded "));
    line.unwrap_or("nothing").to_owned()
}

/// Where a task finds `mxnet`, and what `python` is there.
fn whereabouts(desk: &Desk, environment: &str) -> String {
    let script = "import mxnet, sys; print(mxnet.__file__, sys.prefix, sys.base_prefix)";
    let yaml = format!(
        "environment: {environment}\nroles: {{worker: {{memory: 512 MiB, run: [python, -c, \"{script}\"]}}}}\n"
    );
    desk.write("where.yaml", &yaml);
    let ran = run(desk, &["submit", "where.yaml"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    ran.out
}

/// The digits job in that environment learns, and MXNet comes from the container's own directory.
fn carries(desk: &Desk, environment: &str) {
    let ran = run(desk, &["submit", "job.yaml"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    example::learned(&ran.out);
    let found = whereabouts(desk, environment);
    let line = found.trim().rsplit("| ").next().unwrap_or_default();
    assert!(
        line.contains("/container_") && line.contains("/venv/lib/python"),
        "{found}"
    );
}

/// The user's own package, installed so that it can be edited.
fn add_own_package(desk: &Desk, venv: &Path) -> PathBuf {
    let own = desk.path().join("own");
    fs::create_dir_all(own.join("mine")).expect("a directory");
    fs::write(own.join("mine/__init__.py"), "word = 1\n").expect("a file");
    let site = venv.join("lib");
    let site = fs::read_dir(site)
        .expect("a list")
        .next()
        .expect("one")
        .expect("one")
        .path();
    let path = site.join("site-packages/mine.pth");
    fs::write(path, format!("{}\n", own.display())).expect("a file");
    own.join("mine/__init__.py")
}

/// A copy of the example's environment that a test may change: hard links, so that it costs nothing.
fn copied(desk: &Desk) -> PathBuf {
    let to = desk.path().join("venv");
    let status = Command::new("cp")
        .arg("-al")
        .arg(environment())
        .arg(&to)
        .status();
    assert!(status.expect("cp is there").success());
    to
}

#[test]
fn a_virtual_environment_carries_the_digits_job_and_is_sent_once() {
    let desk = desk("./venv");
    let own = add_own_package(&desk, &copied(&desk));
    carries(&desk, "./venv");
    let second = run(&desk, &["submit", "job.yaml"]);
    assert_eq!(second.code, 0, "{second:#?}");
    assert_eq!(sent(&second), "nothing", "{second:#?}");
    fs::write(own, "word = 2\n").expect("a file");
    let third = run(&desk, &["submit", "job.yaml"]);
    assert_eq!(third.code, 0, "{third:#?}");
    let said = sent(&third);
    let small = said.contains(" B in ") || said.contains(" KiB in ");
    assert!(small, "one changed line sends kilobytes: {said}");
}
