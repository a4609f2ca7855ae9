//! Job files that cannot be read, and files of a job that cannot be used.

use super::{check_bad, check_bad_set, folder, read_in};
use expect_test::{Expect, expect};
use std::{fs, os::unix::fs::symlink, path::Path};
use ydl_jobfile::load;

#[test]
fn missing_files_and_files_of_the_wrong_type_are_rejected() {
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
fn duplicate_keys_and_file_names_are_rejected() {
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
fn files_that_are_not_job_files_are_identified() {
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

            hint: check the indentation, or quote text that contains `: `"#]],
    );
    check_bad(
        "name: x\nrol",
        expect!["error: job.yaml:2:1: invalid YAML: expected `:` after a key"],
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
fn alias_expansion_and_nesting_are_limited() {
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
fn missing_files_and_directories_have_different_errors() {
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
fn invalid_process_counts_networks_and_checkpoint_paths_are_rejected() {
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
