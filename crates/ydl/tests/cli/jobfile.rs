//! Valid and invalid job files, read as `submit` reads them.

mod files;
mod rejected;

use expect_test::{Expect, expect, expect_file};
use std::{fs, path::Path};
use tempfile::TempDir;
use ydl_core::{
    JobSpec, Span,
    spec::{Command, Completion, ExistingPolicy, RestartScope},
};
use ydl_jobfile::{load, python_keys, reference_page, show};

fn folder() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("train.py"), "print()").unwrap();
    fs::create_dir(dir.path().join("data")).unwrap();
    fs::create_dir_all(dir.path().join("venv/bin")).unwrap();
    dir
}

fn read_in(dir: &Path, yaml: &[u8], sets: &[&str]) -> Result<JobSpec, String> {
    let file = dir.join("job.yaml");
    fs::write(&file, yaml).unwrap();
    let hide = |text: String| {
        let prefix = dir.display().to_string();
        text.replace(&format!("{prefix}/"), "").replace(&prefix, "DIR")
    };
    let mut source = load(&file).map_err(|diagnostics| hide(diagnostics.to_string()))?;
    sets.iter().for_each(|set| source.set(set));
    let job = source.job();
    job.map_err(|diagnostics| hide(diagnostics.to_string()))
}

/// Reads a job file for a cluster.
fn read_for_cluster(dir: &Path, yaml: &str) -> Result<JobSpec, String> {
    let file = dir.join("job.yaml");
    fs::write(&file, yaml).unwrap();
    let mut source = load(&file).unwrap();
    source.for_cluster();
    let prefix = format!("{}/", dir.display());
    source.job().map_err(|diagnostics| diagnostics.to_string().replace(&prefix, ""))
}

fn read(yaml: &str) -> Result<JobSpec, String> {
    read_in(folder().path(), yaml.as_bytes(), &[])
}

fn check_bad(yaml: &str, expected: Expect) {
    expected.assert_eq(&read(yaml).unwrap_err());
}

fn check_bad_set(sets: &[&str], expected: Expect) {
    let yaml = b"roles: {worker: {run: sleep 1}}";
    expected.assert_eq(&read_in(folder().path(), yaml, sets).unwrap_err());
}

#[test]
fn the_reference_page_matches_the_code() {
    expect_file!["../../../../docs/reference/job-file.md"].assert_eq(&reference_page());
}

#[test]
fn keywords_of_the_python_package_match_the_code() {
    expect_file!["../../../../python/ydl/_keys.py"].assert_eq(&python_keys());
}

const SHORT: &str = "\
name: mnist
framework: mxnet
environment: ./venv
files: [train.py, {input: data}]
roles:
  worker: {instances: 2, memory: 2 GiB, vcores: 1, gpus: 0, run: python train.py --kv-store dist_sync}
  server: {instances: 2, memory: 1 GiB}
queue: default
outputs: {model/: \"out/{index}/\"}
";

#[test]
fn a_short_job_file_gets_its_defaults() {
    let dir = folder();
    let spec = read_in(dir.path(), SHORT.as_bytes(), &[]).unwrap();
    let names: Vec<_> = spec.roles.iter().map(|role| role.name.as_str()).collect();
    assert_eq!(names, ["worker", "server"]);
    assert_eq!(spec.roles[1].command, spec.roles[0].command);
    assert_eq!(spec.roles[1].completion, Completion::Service);
    assert_eq!(spec.roles[0].restart.scope, RestartScope::Job);
    assert_eq!(spec.roles[0].restart.limit, 0);
    assert_eq!(spec.roles[0].resources.memory_mib, 2048);
    assert!(spec.gang.together);
    assert_eq!(spec.gang.hold, Span::minutes(5));
    assert_eq!(spec.files[1].name, "input");
    assert_eq!(Path::new(&spec.files[1].source), dir.path().join("data"));
    assert_eq!(spec.outputs[0].to, format!("{}/out/{{index}}/", dir.path().display()));
}

#[test]
fn a_job_without_a_name_is_named_after_its_file_or_directory() {
    let dir = folder();
    let folder = dir.path().join("my job!");
    fs::create_dir(&folder).unwrap();
    let name = |file: &str| {
        fs::write(folder.join(file), "roles: {worker: {run: sleep 1}}").unwrap();
        load(&folder.join(file)).unwrap().job().unwrap().name.clone()
    };
    assert_eq!(name("job.yaml"), "my-job-");
    assert_eq!(name("train.yml"), "train");
}

#[test]
fn a_printed_job_file_reads_back_as_the_same_job() {
    let full = "\
name: everything
files: [train.py]
environment: venv
env: {A: 'yes', B: \"line\\nnext\\t\\\"q\\\" \\\\ \\u2028 é\", C: '', D: 'true', E: '# no: comment', F: ' lead', G: '-x', H: '*a'}
restart: {limit: 3, backoff: {initial: 500ms, max: 1h 1ms}, window: 1h 30m}
roles:
  chief.1:
    instances: 3
    memory: 1537 MiB
    run: ['python', 'a b', '', '$HOME', 'x: y', '[', '{', '~', '1.0']
    env: {OWN: 1}
    restart: {scope: role}
    completion: primary
    tolerate: 1
    memory_growth: {percent: 20, max: 5000 MiB}
    ports: [http, grpc]
    resources: {yarn.io/fpga: 2}
  side:
    shell: |
      set -e
      echo \"$X\" | cat
    completion: service
gang: {hold: 1m, retries: 0, backoff: {initial: 1s, max: 2s}}
timeouts: {run: 2h, heartbeat: 5s, grace: 0s}
node_exclusion: {failures: 1, timeout: 1m, max_nodes: 0}
ports: 1000-2000
queue: a.b
node_label: gpu
outputs: {'a/*': out, b: /tmp/b/}
";
    let flags = "{framework: tensorflow, cluster_flags: true, timeouts: {follow: 1m}, \
         roles: {worker: {run: python t.py}, ps: {instances: 2, completion: follows}}}";
    for yaml in [full, SHORT, flags, "roles: {w: {run: sleep 1}}"] {
        let dir = folder();
        let spec = read_in(dir.path(), yaml.as_bytes(), &[]).unwrap();
        let yaml_text = show(&spec);
        let elsewhere = folder();
        let again = read_in(elsewhere.path(), yaml_text.as_bytes(), &[]);
        assert_eq!(again.as_ref(), Ok(&spec), "{yaml_text}");
    }
}

#[test]
fn cluster_keys_survive_show_and_reload() {
    let yaml = "\
name: far
environment: venv.tar.gz
files:
  - train.py
  - hdfs:///data/train.csv
  - {model: {source: 'hdfs://other:8020/m.zip', unpack: true}}
  - {lib: {source: lib.tgz, unpack: true}}
roles:
  worker:
    run: sleep 1
    gpus: 1
    node_label: gpu
    placement: {max_per_node: 1, nodes: [a, b], racks: [/r1], attributes: {cuda: 12, arch: x86}}
queue: root.ml
node_label: fast
tags: [nightly, mnist]
priority: -3
acls: {view: 'alice,bob ml', modify: '*'}
file_systems: ['hdfs://other:8020/', 'viewfs://root/', 'viewfs:///']
staging: /tmp/stage/
keytab: {principal: alice@EXAMPLE.COM, path: alice.keytab}
master: {memory: 512 MiB, vcores: 2, node_label: stable, attempts: 2}
outputs: {model/: './out/{index}', log: 'hdfs:///logs', own: 'file:///tmp/own'}
";
    let dir = folder();
    for name in ["venv.tar.gz", "lib.tgz", "alice.keytab"] {
        fs::write(dir.path().join(name), "").unwrap();
    }
    let spec = read_for_cluster(dir.path(), yaml).unwrap();
    let on = &spec.cluster_options;
    assert_eq!(on.file_systems, ["hdfs://other:8020", "viewfs://root", "viewfs://"]);
    assert_eq!(on.staging.as_deref(), Some("/tmp/stage"));
    assert_eq!((on.priority, on.master.attempts), (Some(-3), 2));
    assert_eq!(on.viewers.as_deref(), Some("alice,bob ml"));
    assert_eq!(spec.files[1].source, "hdfs:///data/train.csv");
    assert!(spec.files[2].unpack && spec.files[3].unpack);
    assert_eq!(spec.outputs[0].to, "out/{index}");
    let placement = &spec.roles[0].placement;
    assert_eq!(placement.max_per_node, Some(1));
    assert_eq!(placement.node_label.as_deref(), Some("gpu"));
    let yaml_text = show(&spec);
    let again = read_for_cluster(folder().path(), &yaml_text);
    assert_eq!(again.as_ref(), Ok(&spec), "{yaml_text}");
}

#[test]
fn overrides_are_typed_like_the_file() {
    let yaml = b"roles: {a.b: {instances: 1, run: sleep 1}}\ngang: false";
    let sets = [
        "roles.a.b.instances=4",
        "roles.a.b.env.X=1",
        "roles.a.b.run=[echo, hi]",
        "name=other",
        "timeouts.run=1h",
    ];
    let spec = read_in(folder().path(), yaml, &sets).unwrap();
    assert_eq!(spec.name, "other");
    assert_eq!(spec.roles[0].instances, 4);
    assert_eq!(spec.roles[0].env["X"], "1");
    assert_eq!(spec.roles[0].command, Command::Program(vec!["echo".into(), "hi".into()]));
    assert_eq!(spec.timeouts.run, Some(Span::hours(1)));
    let yaml = b"roles: {w: {run: sleep 1}}\noutputs: {c k/: {to: out}, a: {to: there}}";
    let sets = [
        r#"outputs."c k/".existing=fail"#,
        "outputs.'a=b/'=\"c=d\"",
        r#"roles.w.env."A.B"=it's"#,
        "outputs.a.existing=number",
    ];
    let spec = read_in(folder().path(), yaml, &sets).unwrap();
    let of = |from: &str| spec.outputs.iter().find(|output| output.from == from);
    assert_eq!(of("c k/").unwrap().existing, ExistingPolicy::Fail);
    assert_eq!(of("a").unwrap().existing, ExistingPolicy::Number);
    assert!(of("a=b/").unwrap().to.ends_with("c=d"), "{spec:?}");
    assert_eq!(spec.roles[0].env["A.B"], "it's");
    check_bad_set(
        &["roles.worker.instnaces=4", "nonsense", "roles.worker.memory=4", "gang.hold=["],
        expect![[r#"
            error: --set gang.hold=[: invalid YAML: unclosed bracket '['

            error: --set nonsense: missing `=`

            hint: write `--set roles.worker.instances=4`

            error: --set roles.worker.instnaces=4: unknown key `instnaces` in role `worker`

            hint: did you mean `instances`?

            error: --set roles.worker.memory=4: `roles.worker.memory`: the size `4` has no unit

            hint: write `4 GiB`"#]],
    );
}

#[test]
fn aliases_and_merges_work() {
    let yaml = "\
roles:
  a: &base {memory: 2 GiB, run: sleep 1}
  b: {<<: *base, memory: 3 GiB}
  c: {<<: [*base], instances: 2}
";
    let spec = read(yaml).unwrap();
    let sizes: Vec<_> = spec.roles.iter().map(|r| (r.resources.memory_mib, r.instances)).collect();
    assert_eq!(sizes, [(2048, 1), (3072, 1), (2048, 2)]);
    assert_eq!(spec.roles[2].command, spec.roles[0].command);
}
