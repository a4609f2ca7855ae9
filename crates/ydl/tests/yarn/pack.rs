//! Environments that travel to a real cluster, whose nodes have no MXNet.

use crate::yarn_support::{Desk, Ran, environment, example, kinds, shared, version};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use testbed::{Cluster, Options};

fn cluster() -> &'static Cluster {
    shared(Options { nodes: 2, node_memory_mib: 8192, node_vcores: 60, ..Options::new(version()) })
}

/// A desk with the example, a cache of its own, and an environment called so. The program also says where MXNet came from.
fn desk(environment: &str) -> Desk<'static> {
    let desk = Desk::at(cluster());
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/mxnet-digits");
    let train = fs::read_to_string(from.join("train.py")).expect("the example");
    let (first, rest) = train.split_once("import mxnet as mx\n").expect("what it imports first");
    let asks =
        "import mxnet as mx, sys\nprint('mxnet from', mx.__file__, sys.prefix, flush=True)\n";
    desk.write("train.py", &format!("{first}{asks}{rest}"));
    let job = fs::read_to_string(from.join("job.yaml")).expect("the example");
    let job = job.replace("environment: ./venv ", &format!("environment: {environment} "));
    assert!(job.contains(environment), "{job}");
    desk.write("job.yaml", &job);
    desk
}

fn run(desk: &Desk, words: &[&str]) -> Ran {
    let mut command = desk.ydl();
    // Whoever makes environments finds uv, and what it has fetched for the others.
    let tools = kinds().join("tools").canonicalize().expect("the tools");
    let path = std::env::var("PATH").unwrap_or_default();
    command
        .env("XDG_CACHE_HOME", desk.path().join("cache"))
        .env("UV_CACHE_DIR", kinds().join("uv-cache"))
        .env("PATH", format!("{}:{path}", tools.display()));
    Ran::from(command.args(words).output().expect("ydl can be started"))
}

/// Bytes that the submit has said it sent.
fn sent(ran: &Ran) -> String {
    let line = ran.err.lines().find(|line| line.contains("uploaded "));
    line.unwrap_or("nothing").to_owned()
}

/// The digits job in that environment learns, and MXNet comes from the container's own directory.
fn carries(desk: &Desk) -> Ran {
    let ran = run(desk, &["submit", "job.yaml"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    example::learned(&ran.out);
    let told = ran.out.lines().filter(|line| line.contains("mxnet from "));
    let told: Vec<&str> = told.collect();
    assert_eq!(told.len(), 2, "{ran:#?}");
    for line in told {
        let packed = line.contains("/container_") && line.contains("/venv/lib/python");
        assert!(packed, "{line}");
    }
    ran
}

/// The user's own package, installed so that it can be edited.
fn add_own_package(desk: &Desk, venv: &Path) -> PathBuf {
    let own = desk.path().join("own");
    fs::create_dir_all(own.join("mine")).expect("a directory");
    fs::write(own.join("mine/__init__.py"), "word = 1\n").expect("a file");
    let site = venv.join("lib");
    let site = fs::read_dir(site).expect("a list").next().expect("one").expect("one").path();
    let path = site.join("site-packages/mine.pth");
    fs::write(path, format!("{}\n", own.display())).expect("a file");
    own.join("mine/__init__.py")
}

/// A copy that a test may add to: hard links, so that it costs nothing.
fn copied(desk: &Desk, from: &Path, name: &str) -> PathBuf {
    let to = desk.path().join(name);
    let status = Command::new("cp").arg("-al").arg(from).arg(&to).status();
    assert!(status.expect("cp is there").success());
    to
}

#[test]
fn the_nodes_have_no_mxnet() {
    let desk = Desk::at(cluster());
    let shell = "if python3 -c 'import mxnet'; then exit 9; fi";
    let ran = desk.submit(&format!("roles: {{worker: {{memory: 128 MiB, shell: \"{shell}\"}}}}\n"));
    assert_eq!(ran.code, 0, "{ran:#?}");
}

#[test]
fn what_the_cluster_refuses_is_told_before_an_environment_is_made() {
    let desk = Desk::at(cluster());
    desk.write("requirements.txt", "numpy\n");
    let yaml = "environment: requirements.txt\nroles: {worker: {memory: 9000 GiB, run: 'true'}}\n";
    desk.write("job.yaml", yaml);
    let ran = run(&desk, &["submit", "job.yaml"]);
    assert_ne!(ran.code, 0, "{ran:#?}");
    assert!(ran.err.contains("9000 GiB"), "{ran:#?}");
    assert!(!ran.err.contains("building an environment"), "{ran:#?}");
    assert!(!desk.path().join("cache/ydl/environments").exists());
}

#[test]
fn a_virtual_environment_carries_the_digits_job_and_is_sent_once() {
    let desk = desk("./venv");
    let own = add_own_package(&desk, &copied(&desk, environment(), "venv"));
    carries(&desk);
    // What is sent does not depend on what then runs there.
    let asks = "import mine, sys; print('word', mine.word, 'with', sys.base_prefix)";
    desk.write(
        "again.yaml",
        &format!(
            "environment: ./venv\nfiles: [train.py]\n\
             roles: {{worker: {{memory: 128 MiB, run: [python, -c, \"{asks}\"]}}}}\n"
        ),
    );
    let again = || run(&desk, &["submit", "again.yaml"]);
    let second = again();
    assert_eq!(second.code, 0, "{second:#?}");
    assert_eq!(sent(&second), "nothing", "{second:#?}");
    assert!(second.out.contains("word 1 with "), "{second:#?}");
    // What the first job has unpacked is what later ones use.
    let shared = |ran: &Ran| ran.out.contains("/filecache/") && ran.out.contains(".unpacked");
    assert!(shared(&second), "{second:#?}");
    fs::write(own, "word = 2\n").expect("a file");
    let third = again();
    assert_eq!(third.code, 0, "{third:#?}");
    assert!(third.out.contains("word 2 with ") && shared(&third), "{third:#?}");
    let said = sent(&third);
    let small = said.contains(" B in ") || said.contains(" KiB in ");
    assert!(small, "one changed line sends kilobytes: {said}");
}

#[test]
fn a_virtual_environment_of_uvs_carries_the_digits_job() {
    carries(&desk(&kinds().join("venv").display().to_string()));
}

#[test]
fn a_list_of_packages_carries_the_digits_job() {
    let desk = desk("requirements.txt");
    let packages = fs::read_to_string(kinds().join("requirements.txt")).expect("a list");
    let wheels = kinds().join("wheels");
    let list = format!("--no-index\n--find-links {}\n{packages}", wheels.display());
    desk.write("requirements.txt", &list);
    let python = kinds().join("venv/bin/python").canonicalize();
    let python = python.expect("an interpreter");
    desk.write(".python-version", &format!("{}\n", python.display()));
    let ran = carries(&desk);
    assert!(ran.err.contains("requirements.txt` with uv"), "{ran:#?}");
}

#[test]
fn a_pex_carries_the_digits_job() {
    carries(&desk(&kinds().join("job.pex").display().to_string()));
}

#[test]
fn a_prefix_as_conda_makes_it_carries_the_digits_job_and_its_texts_name_the_new_place() {
    let desk = desk("./prefix");
    let prefix = copied(&desk, &kinds().join("prefix"), "prefix");
    fs::create_dir_all(prefix.join("conda-meta")).expect("a directory");
    fs::write(prefix.join("conda-meta/history"), "").expect("a file");
    fs::create_dir_all(prefix.join("etc")).expect("a directory");
    let here = prefix.display().to_string();
    fs::write(prefix.join("etc/place.conf"), &here).expect("a file");
    let train = fs::read_to_string(desk.path().join("train.py")).expect("the program");
    let asks = "import os, sys\nplace = open(os.path.join(sys.prefix, 'etc/place.conf')).read()\n\
                assert place == sys.prefix == sys.base_prefix == os.environ['CONDA_PREFIX'], place\n\
                import mxnet as mx";
    desk.write("train.py", &train.replace("import mxnet as mx", asks));
    carries(&desk);
}
