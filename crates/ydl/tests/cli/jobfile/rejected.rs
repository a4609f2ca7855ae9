//! Job files with invalid keys, values and commands.

use super::{check_bad, check_bad_set, folder, read_for_cluster};
use expect_test::expect;

#[test]
fn invalid_cluster_keys_are_reported_with_their_location() {
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
    let message = read_for_cluster(dir.path(), yaml).unwrap_err();
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
    .assert_eq(&message);
}

#[test]
fn an_unknown_key_is_reported_with_its_location_and_the_nearest_key() {
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
fn a_misspelled_command_key_is_reported_once() {
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
fn all_invalid_units_types_and_counts_are_reported_together() {
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

            hint: write `backoff: {initial: 1s, max: 1m}`

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
fn a_role_that_is_not_a_map_has_one_error() {
    check_bad(
        "roles: {worker: python train.py}",
        expect![[r#"
            error: job.yaml:1:17: `roles.worker`: expected a map, found text

            hint: write `worker: {run: python train.py}`"#]],
    );
}

#[test]
fn an_override_of_an_unknown_role_names_the_roles_of_the_file() {
    check_bad_set(
        &["roles.wroker.instances=2"],
        expect![[r#"
            error: --set roles.wroker.instances=2: the job file has no role `wroker`

            hint: did you mean `worker`?"#]],
    );
    check_bad_set(
        &["roles.ps.instances=2"],
        expect![[r#"
            error: --set roles.ps.instances=2: the job file has no role `ps`

            hint: its roles are `worker`"#]],
    );
}

#[test]
fn zero_and_too_many_instances_are_rejected() {
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
