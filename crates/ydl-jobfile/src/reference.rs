//! Reference page of the job file, generated from the table of keys.

use super::keys::keys_with_defaults;
use std::fmt::Write;

const HEAD: &str = "\
# The job file

<!-- Generated from crates/ydl-jobfile/src/keys by `UPDATE_EXPECT=1 cargo test -p ydl --test cli jobfile`. -->

A job file is YAML. Unknown keys are errors. Every error is reported with line and column, and the job is not submitted
until all are fixed. `ydl submit --show job.yaml` prints a job with all defaults.

```yaml
name: digits
framework: mxnet
environment: ./venv
files: [train.py]
roles:
  worker: {instances: 2, memory: 2 GiB, run: python train.py --kv-store dist_sync}
  server: {instances: 2, memory: 1 GiB}
restart: {limit: 1}
outputs: {model/: out}
```

Types of values:

* A *size* has a unit: `2 GiB`, `512 MiB`, `1.5 GiB`. `KiB`, `MiB`, `GiB`, `TiB` and the letters `k`, `m`, `g`, `t`
  are powers of 1024; `KB`, `MB`, `GB`, `TB` are powers of 1000. A number without a unit is an error.
* A *time* has units, largest first: `500ms`, `10s`, `5m`, `1h 30m`, `2d`.
* A *count* is a whole number.
* A *path* is relative to the job file.
* *Text* may look like a number or a boolean; it is used as written.

Anchors, aliases and `<<` work, within limits. `--set roles.worker.instances=4` overrides a key of the file; the value
is read as YAML and checked like the file. Quote names that contain dots or `=`: `--set 'env.\"A.B\"=1'`.
";

/// Renders `docs/reference/job-file.md`.
pub fn reference_page() -> String {
    let mut page = HEAD.to_string();
    section(&mut page, "## The job", "");
    section(&mut page, "## A file with options: `files.NAME`", "files.*");
    section(&mut page, "## An input: `inputs.NAME`", "inputs.*");
    section(&mut page, "## An output: `outputs.PATH`", "outputs.*");
    section(&mut page, "## A role: `roles.NAME`", "roles.*");
    for name in [
        "environment",
        "restart",
        "gang",
        "timeouts",
        "node_exclusion",
        "acls",
        "keytab",
        "tensorboard",
        "mlflow",
        "master",
        "local",
    ] {
        section(&mut page, &format!("## `{name}`"), name);
    }
    page
}

/// Appends a table of the keys below a key, or of the top-level keys.
fn section(page: &mut String, title: &str, parent: &str) {
    // Writing to a string cannot fail.
    let _ =
        write!(page, "\n{title}\n\n| key | value | default | example | |\n|---|---|---|---|---|\n");
    rows(page, parent, "");
}

/// Appends the rows of the children of a key; below the top level each child is followed by its own children.
fn rows(page: &mut String, parent: &str, prefix: &str) {
    for (key, default) in keys_with_defaults().filter(|(key, _)| key.parent() == parent) {
        let name = format!("{prefix}{}", key.name());
        let _ = writeln!(
            page,
            "| `{name}` | {} | {default} | `{}` | {} |",
            (key.kind)(),
            key.example,
            key.description()
        );
        if !parent.is_empty() {
            rows(page, key.path, &format!("{name}."));
        }
    }
}
