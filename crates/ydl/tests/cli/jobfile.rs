//! Job files as people write them, good and bad, through the door that `submit` uses.

use expect_test::{Expect, expect, expect_file};
use std::{fs, os::unix::fs::symlink, path::Path};
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
        let here = dir.display().to_string();
        text.replace(&format!("{here}/"), "").replace(&here, "DIR")
    };
    let mut source = load(&file).map_err(|diagnostics| hide(diagnostics.to_string()))?;
    sets.iter().for_each(|set| source.set(set));
    let job = source.job();
    job.map_err(|diagnostics| hide(diagnostics.to_string()))
}

/// The same for a cluster.
fn read_for_cluster(dir: &Path, yaml: &str) -> Result<JobSpec, String> {
    let file = dir.join("job.yaml");
    fs::write(&file, yaml).unwrap();
    let mut source = load(&file).unwrap();
    source.for_cluster();
    let here = format!("{}/", dir.display());
    source.job().map_err(|diagnostics| diagnostics.to_string().replace(&here, ""))
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
fn the_reference_page_is_what_the_code_says() {
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
fn a_job_file_without_a_name_is_called_after_its_place() {
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
fn what_is_shown_reads_back_as_the_same_job() {
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
        let shown = show(&spec);
        let elsewhere = folder();
        let again = read_in(elsewhere.path(), shown.as_bytes(), &[]);
        assert_eq!(again.as_ref(), Ok(&spec), "{shown}");
    }
}

#[test]
fn what_only_a_cluster_understands_is_read_and_shown() {
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
    let shown = show(&spec);
    let again = read_for_cluster(folder().path(), &shown);
    assert_eq!(again.as_ref(), Ok(&spec), "{shown}");
}

#[test]
fn what_a_cluster_would_refuse_is_told_with_its_place() {
    let yaml = "\
environment: hdfs:///venv
files:
  - s3://bucket/x
  - {lib: {source: train.py, unpack: true}}
  - {odd: {unpack: true}}
roles:
  worker:
    run: sleep 1
    placement: {max_per_node: 0, racks: [r1]}
queue: a b
tags: ['']
priority: high
acls: {view: 'a b c'}
file_systems: [other]
staging: here
keytab: {principal: me, path: nowhere}
master: {memory: 1 MiB, attempts: 0}
outputs: {a: 's3://x/y', b: 'hdfs://x'}
";
    let dir = folder();
    let told = read_for_cluster(dir.path(), yaml).unwrap_err();
    expect![[r#"
        error: job.yaml:1:14: `environment`: `hdfs:///venv` is not a supported archive

        hint: supported are `.tar.gz`, `.tgz`, `.tar` or `.zip`

        error: job.yaml:3:5: `files`: files from `s3://` are not supported

        hint: use a local path, or one in HDFS

        error: job.yaml:4:20: `files.lib.unpack`: `train.py` is not a supported archive

        hint: supported are `.tar.gz`, `.tgz`, `.tar` or `.zip`

        error: job.yaml:5:11: `files.odd`: missing `source`

        hint: add the source

        error: job.yaml:9:31: `roles.worker.placement.max_per_node`: 0 is below the minimum

        hint: the minimum is 1

        error: job.yaml:9:42: `roles.worker.placement.racks`: `r1` is not a rack

        hint: racks begin with `/`: write `/r1`

        error: job.yaml:10:8: `queue`: `a b` is not a valid name

        error: job.yaml:11:8: `tags`: `` is not a valid tag

        hint: tags have 1 to 100 ASCII characters

        error: job.yaml:12:11: `priority`: `high` is not a priority

        hint: write a whole number; the highest goes first

        error: job.yaml:13:14: `acls.view`: `a b c` is not a list of users

        hint: write users, a space, groups: `alice,bob ml-team`; or `*` for all users

        error: job.yaml:14:16: `file_systems`: `other` is not a file system

        hint: write it as `hdfs://namenode:8020`, `hdfs://nameservice` or `viewfs://name`

        error: job.yaml:15:10: `staging`: `here` is not an absolute path

        hint: write it as `/user/me/staging` or `hdfs://…`

        error: job.yaml:16:31: `keytab.path`: `nowhere` cannot be read: no such file or directory

        error: job.yaml:17:18: `master.memory`: `1 MiB` is below the minimum for a master

        hint: the minimum is 32 MiB

        error: job.yaml:17:35: `master.attempts`: 0 is below the minimum

        hint: the minimum is 1

        error: job.yaml:18:14: `outputs.a`: outputs to `s3://` are not supported

        hint: use a path in HDFS, such as `hdfs:///user/me/out`

        error: job.yaml:18:29: `outputs.b`: `hdfs://x` is not a path in HDFS

        hint: write it as `hdfs:///user/me/data` or `hdfs://namenode:8020/user/me/data`"#]]
    .assert_eq(&told);
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

#[test]
fn an_unknown_key_is_told_with_its_place_and_the_nearest_known_one() {
    check_bad(
        "name: x\nroles:\n  worker:\n    run: sleep 1\n    memroy: 2 GiB\n    replicas: 3\n    colour: blue\ngang: {hlod: 1m}\nrole: {}\n",
        expect![[r#"
            error: job.yaml:5:5: unknown key `memroy` in role `worker`

            hint: did you mean `memory`?

            error: job.yaml:6:5: unknown key `replicas` in role `worker`

            hint: did you mean `instances`?

            error: job.yaml:7:5: unknown key `colour` in role `worker`

            hint: known keys: `instances`, `processes`, `memory`, `vcores`, `gpus`, `resources`, `run`, `shell`, `environment`, `env`, `restart`, `completion`, `tolerate`, `memory_growth`, `depends_on`, `ports`, `node_label`, `placement`

            error: job.yaml:8:8: unknown key `hlod` in `gang`

            hint: did you mean `hold`?

            error: job.yaml:9:1: unknown key `role`

            hint: did you mean `roles`?"#]],
    );
}

#[test]
fn a_misspelt_command_is_one_mistake_not_two() {
    check_bad(
        "roles: {worker: {rnu: sleep 1}}",
        expect![[r#"
        error: job.yaml:1:18: unknown key `rnu` in role `worker`

        hint: did you mean `run`?"#]],
    );
    check_bad(
        "roles: {worker: {command: sleep 1}}",
        expect![[r#"
        error: job.yaml:1:18: unknown key `command` in role `worker`

        hint: did you mean `run`?"#]],
    );
}

#[test]
fn wrong_units_types_and_counts_are_all_told_at_once() {
    check_bad(
        "\
name: [x]
framework: mxnte
roles:
  worker:
    instances: two
    memory: 2048
    vcores: -1
    gpus: 99999999999
    run: sleep 1
    restart: {scope: everybody, limit: 1.5, backoff: 3, window: 10}
    completion: services
    tolerate:
    ports: http
    env: [A]
    resources: {fpga: many}
gang: maybe
timeouts: {heartbeat: 10 minutes, grace: soon}
ports: 5-70000
",
        expect![[r#"
            error: job.yaml:1:7: `name`: expected text, found a list

            error: job.yaml:2:12: `framework`: unknown framework `mxnte`: expected one of `none`, `mxnet`, `pytorch`, `horovod`, `xgboost`, `lightgbm`, `tensorflow`, `jax`

            hint: did you mean `mxnet`?

            error: job.yaml:5:16: `roles.worker.instances`: `two` is not a count

            hint: write a whole number

            error: job.yaml:6:13: `roles.worker.memory`: the size `2048` has no unit

            hint: write `2048 MiB`

            error: job.yaml:7:13: `roles.worker.vcores`: `-1` is not a count

            hint: write a whole number

            error: job.yaml:8:11: `roles.worker.gpus`: `99999999999` is too large

            error: job.yaml:10:22: `roles.worker.restart.scope`: invalid value `everybody`

            hint: expected one of `task`, `role`, `job`

            error: job.yaml:10:40: `roles.worker.restart.limit`: `1.5` is not a count

            hint: write a whole number

            error: job.yaml:10:54: `roles.worker.restart.backoff`: expected a map, found text

            error: job.yaml:10:65: `roles.worker.restart.window`: the time `10` has no unit

            hint: write `10s` or `10m`

            error: job.yaml:11:17: `roles.worker.completion`: invalid value `services`

            hint: did you mean `service`?

            error: job.yaml:12:13: `roles.worker.tolerate`: missing value

            hint: add a value, or remove the key

            error: job.yaml:13:12: `roles.worker.ports`: expected a list, found text

            hint: write `ports: [http]`

            error: job.yaml:14:10: `roles.worker.env`: expected a map, found a list

            error: job.yaml:15:23: `roles.worker.resources.fpga`: `many` is not a count

            hint: write a whole number

            error: job.yaml:16:7: `gang`: `maybe` is neither `true` nor `false`

            error: job.yaml:17:23: `timeouts.heartbeat`: `minutes` is not a unit of time

            hint: times are in `ms`, `s`, `m`, `h` and `d`

            error: job.yaml:17:42: `timeouts.grace`: `soon` is not a time

            hint: write it as `30s`, `5m` or `1h 30m`

            error: job.yaml:18:8: `ports`: `5-70000` is not a port range

            hint: write it as `20000-32767`; the highest port is 65535"#]],
    );
}

#[test]
fn a_role_needs_a_command() {
    check_bad(
        "roles: {worker: {instances: 2}}",
        expect![[r#"
        error: job.yaml:1:9: `roles.worker.run`: role `worker` has no command

        hint: set `run: python train.py`"#]],
    );
    check_bad(
        "roles: {worker: {run: ''}}",
        expect![[r#"
        error: job.yaml:1:23: `roles.worker.run`: role `worker` has no command

        hint: set `run: python train.py`"#]],
    );
    check_bad(
        "roles: {worker: {shell: ' '}}",
        expect!["error: job.yaml:1:25: `roles.worker.shell`: empty script"],
    );
    check_bad(
        "roles: {worker: {run: []}}",
        expect![[r#"
        error: job.yaml:1:23: `roles.worker.run`: role `worker` has no command

        hint: set `run: python train.py`"#]],
    );
    check_bad(
        "roles: {worker: {run: a, shell: b}}",
        expect![
            "error: job.yaml:1:33: `roles.worker.shell`: a role has either `run` or `shell`, not both"
        ],
    );
    check_bad(
        "framework: mxnet\nroles: {worker: {}, server: {}}",
        expect![[r#"
            error: job.yaml:2:9: `roles.worker.run`: role `worker` has no command

            hint: set `run: python train.py`"#]],
    );
    check_bad(
        "roles: {worker: {run: cat x | wc -l}}",
        expect![[r#"
            error: job.yaml:1:23: `roles.worker.run`: `|` requires a shell, but `run` uses none

            hint: use `shell:` instead of `run:`, or single-quote the word"#]],
    );
}

#[test]
fn zero_or_a_million_instances_are_refused() {
    check_bad(
        "roles:\n  worker: {instances: 0, run: sleep 1}",
        expect![[r#"
        error: job.yaml:2:23: `roles.worker.instances`: a role of 0 instances does nothing

        hint: leave the role out, or give it at least one instance"#]],
    );
    check_bad(
        "roles:\n  worker: {instances: 1000000, run: sleep 1}",
        expect![
            "error: job.yaml:2:23: `roles.worker.instances`: 1000000 instances exceed the maximum of 20000 tasks"
        ],
    );
    check_bad(
        "roles: {}",
        expect![[r#"
        error: job.yaml:1:1: `roles`: the job has no roles

        hint: name at least one, such as `worker`"#]],
    );
    check_bad(
        "name: x",
        expect![[r#"
        error: job.yaml:1:1: `roles`: the job has no roles

        hint: name at least one, such as `worker`"#]],
    );
}

#[test]
fn files_must_exist_and_be_what_they_are_meant_to_be() {
    check_bad(
        "\
environment: train.py
files:
  - missing.py
  - train.py/
  - ..
  - hdfs:///x
  - /dev/null
  - {a: train.py, b: nothing}
outputs: {a: 'hdfs:///x', ../b: c}
roles: {w: {run: sleep 1}}
",
        expect![[r#"
            error: job.yaml:1:14: `environment`: `train.py` is a file, not the directory of an environment

            hint: create one with `python3 -m venv venv`, or use `system`

            error: job.yaml:3:5: `files`: `missing.py` does not exist

            hint: paths are relative to `DIR`

            error: job.yaml:4:5: `files`: `train.py/` is a file, not a directory

            error: job.yaml:5:5: `files`: `..` has no file name

            hint: set a name: `files: [{data: ..}]`

            error: job.yaml:6:5: `files`: files from `hdfs://` are not supported on one machine

            hint: copy it to this machine first

            error: job.yaml:7:5: `files`: `/dev/null` is neither a file nor a directory

            error: job.yaml:8:22: `files`: `nothing` does not exist

            hint: paths are relative to `DIR`

            error: job.yaml:9:1: `outputs`: `../b` is not below the task's directory

            hint: name a path relative to where the program runs"#]],
    );
    check_bad(
        "environment: data\nroles: {w: {run: sleep 1}}",
        expect![[r#"
            error: job.yaml:1:14: `environment`: `data` is not an environment: it has no `bin`

            hint: create one with `python3 -m venv venv`, or use `system`"#]],
    );
    let dir = folder();
    let made = |path: &str| fs::write(dir.path().join(path), "").unwrap();
    let bad = |environment: &str, expected: Expect| {
        let yaml = format!("environment: {environment}\nroles: {{w: {{run: sleep 1}}}}");
        let wrong = read_in(dir.path(), yaml.as_bytes(), &[]).unwrap_err();
        expected.assert_eq(wrong.strip_prefix("error: job.yaml:1:14: `environment`: ").unwrap());
    };
    made("data/pyproject.toml");
    bad(
        "./data/",
        expect![[r#"
            `./data` is not an environment: it has no `bin`

            hint: to build one from its requirements, use `./data/pyproject.toml`"#]],
    );
    made("venv/pyvenv.cfg");
    bad(
        "venv",
        expect![[r#"
            the virtual environment `venv` cannot be used: it has no `bin/python`

            hint: create it again, with an installed interpreter"#]],
    );
    symlink("/nowhere/python3", dir.path().join("venv/bin/python3")).unwrap();
    bad(
        "venv",
        expect![[r#"
            the virtual environment `venv` cannot be used: its interpreter `/nowhere/python3` does not exist

            hint: create it again, with an installed interpreter"#]],
    );
    made("venv/bin/python");
    read_in(dir.path(), b"environment: venv\nroles: {w: {run: sleep 1}}", &[]).unwrap();
    check_bad(
        "environment: nowhere\nroles: {w: {run: sleep 1}}",
        expect![[r#"
            error: job.yaml:1:14: `environment`: `nowhere` does not exist

            hint: create one with `python3 -m venv venv`, or use `system`"#]],
    );
}

#[test]
fn duplicates_are_refused() {
    check_bad(
        "name: a\nname: b\nroles:\n  w: {run: sleep 1, run: sleep 2}\n  w: {run: sleep 3}\nfiles: [train.py, {train.py: data}]",
        expect![[r#"
            error: job.yaml:2:1: duplicate key `name`

            hint: first defined on line 1

            error: job.yaml:4:21: duplicate key `run`

            hint: first defined on line 4

            error: job.yaml:5:3: duplicate key `w`

            hint: first defined on line 4

            error: job.yaml:6:8: `files`: two files have the name `train.py` in a task's directory

            hint: rename one: `files: [{model.py: other/model.py}]`"#]],
    );
}

#[test]
fn names_and_variables_have_limits() {
    check_bad(
        "name: a/b\nroles: {'w w': {run: sleep 1, env: {YDL_X: 1, 'A=B': 2}}}",
        expect![[r#"
            error: job.yaml:1:7: `name`: invalid character `/` in a name

            hint: use letters from a to z, digits, `-`, `_` and `.`

            error: job.yaml:2:9: `roles.w w`: invalid character ` ` in a name

            hint: use letters from a to z, digits, `-`, `_` and `.`

            error: job.yaml:2:31: `roles.w w.env`: invalid variable name `A=B`

            error: job.yaml:2:31: `roles.w w.env`: `YDL_X`: names beginning with YDL_ are ydl's own

            hint: choose another name"#]],
    );
}

#[test]
fn what_is_not_a_job_file_is_called_what_it_is() {
    check_bad(
        "",
        expect![[r#"
            error: job.yaml: the job file is empty

            hint: the minimum is `roles: {worker: {run: COMMAND}}`"#]],
    );
    check_bad(
        "# only a comment\n",
        expect![[r#"
            error: job.yaml: the job file is empty

            hint: the minimum is `roles: {worker: {run: COMMAND}}`"#]],
    );
    check_bad(
        "just text",
        expect![[r#"
            error: job.yaml:1:1: expected a map of keys, found text

            hint: begin with `name: …`"#]],
    );
    check_bad(
        "- a\n- b",
        expect![[r#"
            error: job.yaml:1:1: expected a map of keys, found a list

            hint: begin with `name: …`"#]],
    );
    check_bad(
        "a: [1, 2\nb: 3",
        expect!["error: job.yaml:2:2: invalid YAML: illegal placement of ':' indicator"],
    );
    check_bad(
        "a: b: c",
        expect![[r#"
            error: job.yaml:1:5: invalid YAML: mapping values are not allowed in this context

            hint: quote text that contains `: `"#]],
    );
    check_bad(
        "roles:\n\tworker: {}",
        expect![
            "error: job.yaml:2:2: invalid YAML: tabs disallowed within this context (block indentation)"
        ],
    );
    check_bad(
        "name: a\n---\nname: b",
        expect![[r#"
        error: job.yaml:2:1: unexpected second document

        hint: put the other job into its own file"#]],
    );
    check_bad(
        "name: *nobody",
        expect!["error: job.yaml:1:7: invalid YAML: while parsing node, found unknown anchor"],
    );
    check_bad(
        "name: !include other.yaml\nroles: {w: {run: sleep 1}}",
        expect!["error: job.yaml:1:16: unsupported tag `!include`"],
    );
    check_bad("{[a]: b}", expect!["error: job.yaml:1:2: keys must be text"]);
    let binary = |bytes: &[u8]| read_in(folder().path(), bytes, &[]).unwrap_err();
    expect![[r#"
        error: job.yaml: is a binary file, not a job file

        hint: a job file is YAML text"#]]
    .assert_eq(&binary(b"\x7fELF\0\0"));
    expect![[r#"
        error: job.yaml: not UTF-8 text

        hint: a job file is YAML text"#]]
    .assert_eq(&binary(b"name: \xff\xfe"));
    expect![[r#"
        error: job.yaml: larger than 1 MiB, the maximum of a job file

        hint: use a YAML file that describes the job"#]]
    .assert_eq(&binary(&vec![b'x'; 2 << 20]));
}

#[test]
fn a_small_file_cannot_become_a_large_one() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for n in 1..12 {
        let list = vec![format!("*a{}", n - 1); 10].join(", ");
        bomb += &format!("a{n}: &a{n} [{list}]\n");
    }
    check_bad(&bomb, expect!["error: job.yaml:6:45: the job is too large after expanding aliases"]);
    check_bad(
        &format!("a: {}{}", "[".repeat(100), "]".repeat(100)),
        expect!["error: job.yaml:1:35: nested more than 32 levels deep"],
    );
    check_bad(
        &format!("a: {}", "[".repeat(100_000)),
        expect!["error: job.yaml:1:259: invalid YAML: recursion limit exceeded"],
    );
    check_bad("a: &a [*a]", expect!["error: job.yaml:1:8: recursive alias"]);
}

#[test]
fn a_file_that_cannot_be_opened_is_told_apart() {
    let dir = folder();
    let wrong = |path: &Path| {
        let text = load(path).unwrap_err().to_string();
        text.replace(&dir.path().display().to_string(), "DIR")
    };
    expect![[r#"
        error: DIR/nothing.yaml: no such file

        hint: `ydl submit -- COMMAND` runs a command without a job file"#]]
    .assert_eq(&wrong(&dir.path().join("nothing.yaml")));
    expect![[r#"
        error: DIR: is a directory, not a job file

        hint: use a file in it, such as `job.yaml`"#]]
    .assert_eq(&wrong(dir.path()));
}

#[test]
fn processes_networks_and_places_for_checkpoints_are_looked_at() {
    check_bad_set(
        &["roles.worker.processes=0"],
        expect![[r#"
        error: --set roles.worker.processes=0: `roles.worker.processes`: 0 processes are not possible

        hint: a task has from 1 to 64"#]],
    );
    check_bad_set(
        &["roles.worker.processes=2", "framework=lightgbm"],
        expect![[r#"
            error: --set roles.worker.processes=2: `roles.worker.processes`: a task of framework `lightgbm` is one process

            hint: raise `instances` instead"#]],
    );
    check_bad_set(
        &["network=10.0.0.0/40"],
        expect![[r#"
            error: --set network=10.0.0.0/40: `network`: `10.0.0.0/40` is neither an interface nor an address range

            hint: write `eth1`, or `10.1.0.0/16`"#]],
    );
    check_bad_set(
        &["checkpoint=s3://bucket/here"],
        expect![[r#"
            error: --set checkpoint=s3://bucket/here: `checkpoint`: checkpoints at `s3://` are not supported

            hint: use a path on shared storage, or `hdfs://…`"#]],
    );
    check_bad_set(
        &["checkpoint=/"],
        expect![[r#"
            error: --set checkpoint=/: `checkpoint`: the directory name is empty

            hint: write `/shared/{job}`, or `hdfs:///user/me/checkpoints`"#]],
    );
}
