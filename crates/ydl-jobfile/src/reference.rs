//! The reference page of the job file, made from the table of keys.

use super::keys::{KeySpec, keys};
use std::fmt::Write;

const HEAD: &str = "\
# The job file

<!-- Made from the table of keys in crates/ydl-jobfile/src/keys.rs; \
`UPDATE_EXPECT=1 cargo test -p ydl --test jobfile` writes it anew. -->

A job file is YAML. Unknown keys are refused, every mistake is told with its line and column, and nothing is
started before all of them are gone. `ydl submit --show job.yaml` prints a job as it was understood, with every
default filled in.

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

The kinds of values:

* A *size* has a unit: `2 GiB`, `512 MiB`, `1.5 GiB`. `KiB`, `MiB`, `GiB`, `TiB` and the single letters `k`, `m`,
  `g`, `t` count in powers of 1024; `KB`, `MB`, `GB`, `TB` in powers of 1000. A number alone is refused.
* A *time* has units, from large to small: `500ms`, `10s`, `5m`, `1h 30m`, `2d`.
* A *count* is a whole number.
* A *path* is relative to the job file.
* *Text* may be a number or a truth value too; it is taken as written.

Anchors, aliases and `<<` work, within limits. `--set roles.worker.instances=4` puts a value on top of a file; it
is read as YAML and checked like the file. A name with dots or `=` in it stands in quotes:
`--set 'env.\"A.B\"=1'`.
";

/// The text of `docs/reference/job-file.md`.
pub fn page() -> String {
    let mut page = HEAD.to_string();
    section(&mut page, "## The job", "");
    section(&mut page, "## A file of its own keys: `files.NAME`", "files.*.");
    section(&mut page, "## An input: `inputs.NAME`", "inputs.*.");
    section(&mut page, "## An output: `outputs.PATH`", "outputs.*.");
    section(&mut page, "## A role: `roles.NAME`", "roles.*.");
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
    ] {
        section(&mut page, &format!("## `{name}`"), &format!("{name}."));
    }
    page
}

/// The keys that begin with `below`; at the top only those of the job itself.
fn section(page: &mut String, title: &str, below: &str) {
    let belongs = |key: &KeySpec| match below {
        "" => key.parent().is_empty(),
        _ => key.path.starts_with(below),
    };
    // Writing to a string cannot fail.
    let _ =
        write!(page, "\n{title}\n\n| key | value | default | example | |\n|---|---|---|---|---|\n");
    for key in keys().filter(|key| belongs(key)) {
        let short = key.path.strip_prefix(below).unwrap_or(key.path);
        let _ = writeln!(
            page,
            "| `{short}` | {} | {} | `{}` | {} |",
            key.kind, key.default, key.example, key.about
        );
    }
}
