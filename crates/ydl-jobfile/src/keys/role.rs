//! Keys of a role.

use super::{KeySpec, key, known_as};

pub const KEYS: &[KeySpec] = &[
    key(
        "roles",
        "map of roles",
        "required",
        "{worker: {run: \"true\"}}",
        "Roles of the job, in rank order. The keys of a role are below.",
    ),
    known_as(
        key(
            "roles.*.instances",
            "count, or a map",
            "`1`",
            "2",
            "Number of tasks of the role. `{min: 2, max: 4}` makes the role elastic: it runs with as many tasks as the cluster provides; see [elastic training](../how-to/elastic.md).",
        ),
        &["replicas", "count", "tasks", "number", "num"],
    ),
    known_as(
        key(
            "roles.*.instances.min",
            "count",
            "required in a map",
            "2",
            "Number of tasks required to start and to continue.",
        ),
        &["minimum", "least", "min_np"],
    ),
    known_as(
        key("roles.*.instances.max", "count", "required in a map", "4", "Maximum number of tasks."),
        &["maximum", "most", "max_np"],
    ),
    known_as(
        key(
            "roles.*.instances.start",
            "count",
            "`max`",
            "2",
            "Number of tasks requested at first; `ydl scale` changes it.",
        ),
        &["first", "initial", "desired"],
    ),
    known_as(
        key(
            "roles.*.processes",
            "count",
            "`1`",
            "1",
            "Number of processes of the command in each task, up to 64, in one container; for `none`, `pytorch`, `horovod` and `jax`. The task succeeds when all processes have, and fails with the first that fails. See [several processes in one task](task-environment.md#several-processes-in-one-task).",
        ),
        &["nproc_per_node", "nproc", "procs", "slots"],
    ),
    known_as(
        key(
            "roles.*.memory",
            "size",
            "`1 GiB`",
            "512 MiB",
            "Memory of each task, at least 32 MiB. A task that exceeds it is killed. On one machine this covers the program and all its child processes. On a cluster the node enforces it, if configured to, and includes about 20 MiB for ydl's own two processes.",
        ),
        &["mem", "ram"],
    ),
    known_as(
        key(
            "roles.*.vcores",
            "count",
            "`1`",
            "1",
            "Virtual cores of each task: a share, not a limit. One machine has four per physical core.",
        ),
        &["cores", "cpu", "cpus", "vcpu", "vcpus"],
    ),
    known_as(
        key("roles.*.gpus", "count", "`0`", "0", "GPUs of each task, assigned exclusively."),
        &["gpu"],
    ),
    key(
        "roles.*.resources",
        "map of counts",
        "none",
        "{}",
        "Other countable resources, by their name on the cluster.",
    ),
    known_as(
        key(
            "roles.*.run",
            "text or list of words",
            "required, here or in `shell`",
            "python train.py --lr 0.1",
            "Program and its arguments, run without a shell: quotes group words, and nothing is expanded. With `mxnet` a server without `run` uses the worker's; with `tensorflow` every role without `run` does.",
        ),
        &["command", "cmd", "exec", "args", "entrypoint"],
    ),
    known_as(
        key(
            "roles.*.shell",
            "text",
            "none",
            "python train.py > log",
            "Script for `/bin/sh -c`, instead of `run`.",
        ),
        &["script", "sh", "bash"],
    ),
    known_as(
        key(
            "roles.*.environment",
            "`system`, or a map with `docker` or `runc`",
            "the job's `environment`",
            "{docker: python:3.11}",
            "Environment of this role's programs: an image, with the keys of `environment`, or `system` for the plain node. A packed environment is the same for all roles.",
        ),
        &["image", "docker"],
    ),
    known_as(
        key(
            "roles.*.env",
            "map of texts",
            "none",
            "{OMP_NUM_THREADS: 1}",
            "Environment variables of this role. They override those of the job.",
        ),
        &["environ", "variables"],
    ),
    known_as(
        key(
            "roles.*.restart",
            "map",
            "the job's `restart`",
            "{limit: 3}",
            "Restart policy of this role; keys as in `restart`.",
        ),
        &["restarts", "retry", "retries"],
    ),
    key(
        "roles.*.completion",
        "`all`, `any`, `primary`, `service`, `follows` or `sidecar`",
        "`all`; `service` for MXNet's servers, TensorFlow's `ps`, and its workers where both `ps` and `chief` are; `follows` for its `evaluator` and `tensorboard`",
        "all",
        "Effect of the role's end on the job. `all`: the job needs every task to succeed. `any`: the job needs one task to succeed. `primary`: the job has succeeded when all tasks of this role have. `service`: the role need not end and is stopped with the others. `follows`: the role ends by itself after the others, and is stopped after `timeouts.follow`. `sidecar`: the role is not part of the job, like TensorBoard or a notebook: it has no rank, is unknown to the framework, is started when the others begin to run, is stopped with them, and neither its failures nor its end affect the job.",
    ),
    key(
        "roles.*.tolerate",
        "count or `all`",
        "`0`",
        "0",
        "Number of tasks that may fail permanently before the job fails. With `all` failures of this role are ignored.",
    ),
    key(
        "roles.*.memory_growth",
        "map",
        "none",
        "{percent: 50, max: 4 GiB}",
        "Increases the memory of a task that was killed for exceeding it.",
    ),
    key(
        "roles.*.memory_growth.percent",
        "count",
        "`50`",
        "50",
        "Increase per restart, in percent.",
    ),
    key("roles.*.memory_growth.max", "size", "required", "4 GiB", "Maximum memory."),
    known_as(
        key(
            "roles.*.depends_on",
            "list of roles",
            "none",
            "[]",
            "Roles that run first: tasks of this role request containers when every task of those roles has run, whether or not it has ended. A restarted task does not wait. Only for tasks that start independently (`gang: false`).",
        ),
        &["depends", "after", "start_after", "needs", "dependencies"],
    ),
    key(
        "roles.*.ports",
        "list of names",
        "none",
        "[http]",
        "Names of ports for the program, passed as variables such as `YDL_PORT_HTTP`.",
    ),
    known_as(
        key(
            "roles.*.node_label",
            "text",
            "the job's `node_label`",
            "gpu",
            "Node label of this role on a cluster.",
        ),
        &["label", "node_labels"],
    ),
    key(
        "roles.*.placement",
        "map",
        "none",
        "{max_per_node: 1}",
        "Placement of the role's tasks on a cluster. Ignored on one machine.",
    ),
    known_as(
        key(
            "roles.*.placement.max_per_node",
            "count",
            "no limit",
            "1",
            "Maximum number of tasks of the role on one node. Requires Hadoop 3.1. If any role of the job sets it or `attributes`, `nodes` and `racks` are ignored.",
        ),
        &["per_node"],
    ),
    known_as(
        key("roles.*.placement.nodes", "list of names", "none", "[node1]", "Preferred nodes."),
        &["hosts"],
    ),
    key("roles.*.placement.racks", "list of names", "none", "[/rack1]", "Preferred racks."),
    key(
        "roles.*.placement.attributes",
        "map of texts",
        "none",
        "{cuda: 12}",
        "Required node attributes. Requires Hadoop 3.2.",
    ),
];
