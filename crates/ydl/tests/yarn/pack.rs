//! Packed environments on a real cluster whose nodes have no MXNet.

use crate::common_cluster;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use testbed::Cluster;
use ydl_testkit::{
    CommandOutput, mxnet_environment, packed_mxnet_environments,
    yarn::{Workspace, digits},
};

/// Returns a workspace with the example and this environment. The program also prints the path of MXNet.
fn workspace<'a>(cluster: &'a Cluster, environment: &str) -> Workspace<'a> {
    let workspace = Workspace::new(cluster);
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/mxnet-digits");
    let train = fs::read_to_string(from.join("train.py")).expect("the example");
    let (first, rest) = train.split_once("import mxnet as mx\n").expect("an import");
    let code =
        "import mxnet as mx, sys\nprint('mxnet from', mx.__file__, sys.prefix, flush=True)\n";
    workspace.write("train.py", &format!("{first}{code}{rest}"));
    let job = fs::read_to_string(from.join("job.yaml")).expect("the example");
    let job = job.replace("environment: ./venv ", &format!("environment: {environment} "));
    assert!(job.contains(environment), "{job}");
    workspace.write("job.yaml", &job);
    workspace
}

fn run(workspace: &Workspace, args: &[&str]) -> CommandOutput {
    let mut command = workspace.ydl();
    // `ydl pack` finds uv and its shared cache.
    let tools = packed_mxnet_environments().join("tools").canonicalize().expect("the tools");
    let path = std::env::var("PATH").unwrap_or_default();
    command
        .env("XDG_CACHE_HOME", workspace.path().join("cache"))
        .env("UV_CACHE_DIR", packed_mxnet_environments().join("uv-cache"))
        .env("PATH", format!("{}:{path}", tools.display()));
    CommandOutput::from(command.args(args).output().expect("ydl can be started"))
}

/// Returns the line about the upload, or `nothing`.
fn sent(ran: &CommandOutput) -> String {
    let line = ran.stderr.lines().find(|line| line.contains("uploaded "));
    line.unwrap_or("nothing").to_owned()
}

/// Runs the example in its environment. Asserts that MXNet was imported from the container's directory.
fn assert_packed_word(workspace: &Workspace) -> CommandOutput {
    let ran = run(workspace, &["submit", "job.yaml"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    digits::assert_accuracy(&ran.stdout);
    let versions = ran.stdout.lines().filter(|line| line.contains("mxnet from "));
    let versions: Vec<&str> = versions.collect();
    assert_eq!(versions.len(), 2, "{ran:#?}");
    for line in versions {
        let packed = line.contains("/container_") && line.contains("/venv/lib/python");
        assert!(packed, "{line}");
    }
    ran
}

/// Installs a package of the user in editable mode. Returns its source file.
fn add_own_package(workspace: &Workspace, venv: &Path) -> PathBuf {
    let own = workspace.path().join("own");
    fs::create_dir_all(own.join("mine")).expect("a directory");
    fs::write(own.join("mine/__init__.py"), "word = 1\n").expect("a file");
    let site = venv.join("lib");
    let site = fs::read_dir(site).expect("a list").next().expect("one").expect("one").path();
    let path = site.join("site-packages/mine.pth");
    fs::write(path, format!("{}\n", own.display())).expect("a file");
    own.join("mine/__init__.py")
}

/// Copies an environment by hard links.
fn copied(workspace: &Workspace, from: &Path, name: &str) -> PathBuf {
    let to = workspace.path().join(name);
    let status = Command::new("cp").arg("-al").arg(from).arg(&to).status();
    assert!(status.expect("cp is there").success());
    to
}

#[test]
fn the_nodes_have_no_mxnet() {
    let cluster = &*common_cluster();
    let workspace = Workspace::new(cluster);
    let shell = "if python3 -c 'import mxnet'; then exit 9; fi";
    let ran =
        workspace.submit(&format!("roles: {{worker: {{memory: 128 MiB, shell: \"{shell}\"}}}}\n"));
    assert_eq!(ran.code, 0, "{ran:#?}");
}

#[test]
fn a_job_that_cannot_fit_is_rejected_before_its_environment_is_built() {
    let cluster = &*common_cluster();
    let workspace = Workspace::new(cluster);
    workspace.write("requirements.txt", "numpy\n");
    let yaml = "environment: requirements.txt\nroles: {worker: {memory: 9000 GiB, run: 'true'}}\n";
    workspace.write("job.yaml", yaml);
    let ran = run(&workspace, &["submit", "job.yaml"]);
    assert_ne!(ran.code, 0, "{ran:#?}");
    assert!(ran.stderr.contains("9000 GiB"), "{ran:#?}");
    assert!(!ran.stderr.contains("building an environment"), "{ran:#?}");
    assert!(!workspace.path().join("cache/ydl/environments").exists());
}

#[test]
fn a_virtual_environment_runs_the_example_and_is_uploaded_once() {
    let cluster = &*common_cluster();
    let workspace = workspace(cluster, "./venv");
    let own = add_own_package(&workspace, &copied(&workspace, mxnet_environment(), "venv"));
    assert_packed_word(&workspace);
    // The upload does not depend on the command.
    let code = "import mine, sys; print('word', mine.word, 'with', sys.base_prefix)";
    workspace.write(
        "again.yaml",
        &format!(
            "environment: ./venv\nfiles: [train.py]\n\
             roles: {{worker: {{memory: 128 MiB, run: [python, -c, \"{code}\"]}}}}\n"
        ),
    );
    let again = || run(&workspace, &["submit", "again.yaml"]);
    let second = again();
    assert_eq!(second.code, 0, "{second:#?}");
    assert_eq!(sent(&second), "nothing", "{second:#?}");
    assert!(second.stdout.contains("word 1 with "), "{second:#?}");
    // Later jobs use the layers that the first one unpacked.
    let shared = |ran: &CommandOutput| {
        ran.stdout.contains("/filecache/") && ran.stdout.contains(".unpacked")
    };
    assert!(shared(&second), "{second:#?}");
    fs::write(own, "word = 2\n").expect("a file");
    let third = again();
    assert_eq!(third.code, 0, "{third:#?}");
    assert!(third.stdout.contains("word 2 with ") && shared(&third), "{third:#?}");
    let output = sent(&third);
    let small = output.contains(" B in ") || output.contains(" KiB in ");
    assert!(small, "one changed line sends kilobytes: {output}");
}

#[test]
fn a_uv_environment_runs_the_example() {
    let cluster = &*common_cluster();
    assert_packed_word(&workspace(
        cluster,
        &packed_mxnet_environments().join("venv").display().to_string(),
    ));
}

#[test]
fn a_requirements_file_runs_the_example() {
    let cluster = &*common_cluster();
    let workspace = workspace(cluster, "requirements.txt");
    let packages =
        fs::read_to_string(packed_mxnet_environments().join("requirements.txt")).expect("a list");
    let wheels = packed_mxnet_environments().join("wheels");
    let list = format!("--no-index\n--find-links {}\n{packages}", wheels.display());
    workspace.write("requirements.txt", &list);
    let python = packed_mxnet_environments().join("venv/bin/python").canonicalize();
    let python = python.expect("an interpreter");
    workspace.write(".python-version", &format!("{}\n", python.display()));
    let ran = assert_packed_word(&workspace);
    assert!(ran.stderr.contains("requirements.txt` with uv"), "{ran:#?}");
}

#[test]
fn a_pex_runs_the_example() {
    let cluster = &*common_cluster();
    assert_packed_word(&workspace(
        cluster,
        &packed_mxnet_environments().join("job.pex").display().to_string(),
    ));
}

#[test]
fn a_relocated_conda_prefix_runs_the_example() {
    let cluster = &*common_cluster();
    let workspace = workspace(cluster, "./prefix");
    let prefix = copied(&workspace, &packed_mxnet_environments().join("prefix"), "prefix");
    fs::create_dir_all(prefix.join("conda-meta")).expect("a directory");
    fs::write(prefix.join("conda-meta/history"), "").expect("a file");
    fs::create_dir_all(prefix.join("etc")).expect("a directory");
    let text = prefix.display().to_string();
    fs::write(prefix.join("etc/prefix.conf"), &text).expect("a file");
    let train = fs::read_to_string(workspace.path().join("train.py")).expect("the program");
    let code = "import os, sys\nplace = open(os.path.join(sys.prefix, 'etc/prefix.conf')).read()\n\
                assert place == sys.prefix == sys.base_prefix == os.environ['CONDA_PREFIX'], place\n\
                import mxnet as mx";
    workspace.write("train.py", &train.replace("import mxnet as mx", code));
    assert_packed_word(&workspace);
}
