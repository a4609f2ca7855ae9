//! A role: how many, with what, and what they run.

use super::{KeySpec, key, known_as};

pub const KEYS: &[KeySpec] = &[
    key(
        "roles",
        "map of roles",
        "required",
        "{worker: {run: \"true\"}}",
        "The roles in their order; ranks follow it. The keys of a role are below.",
    ),
    known_as(
        key(
            "roles.*.instances",
            "count, or a map",
            "`1`",
            "2",
            "How many tasks the role has. `{min: 2, max: 4}` makes the role elastic: it runs with as many as the cluster gives; see [elastic training](../how-to/elastic.md).",
        ),
        &["replicas", "count", "tasks", "number", "num"],
    ),
    known_as(
        key(
            "roles.*.instances.min",
            "count",
            "required in a map",
            "2",
            "So many tasks are enough to begin and to go on.",
        ),
        &["minimum", "least", "min_np"],
    ),
    known_as(
        key(
            "roles.*.instances.max",
            "count",
            "required in a map",
            "4",
            "The role never has more tasks.",
        ),
        &["maximum", "most", "max_np"],
    ),
    known_as(
        key(
            "roles.*.instances.start",
            "count",
            "`max`",
            "2",
            "How many tasks are asked for at first; `ydl scale` changes it.",
        ),
        &["first", "initial", "desired"],
    ),
    known_as(
        key(
            "roles.*.processes",
            "count",
            "`1`",
            "1",
            "How many processes of its command each task starts, all in its one container, 64 at most; for `none`, `pytorch`, `horovod` and `jax`. The task ends well when all of them have, and fails with the first that does. See [several processes in one task](task-environment.md#several-processes-in-one-task).",
        ),
        &["nproc_per_node", "nproc", "procs", "slots"],
    ),
    known_as(
        key(
            "roles.*.memory",
            "size",
            "`1 GiB`",
            "512 MiB",
            "Memory of each task, at least 32 MiB. A task that uses more is killed. On one machine the program counts, with all that it starts; on a cluster its node kills, if it is set up to do so, and counts ydl's own two processes along, some 20 MiB.",
        ),
        &["mem", "ram"],
    ),
    known_as(
        key(
            "roles.*.vcores",
            "count",
            "`1`",
            "1",
            "Virtual cores of each task: its share, not a limit. One machine has four for each of its cores.",
        ),
        &["cores", "cpu", "cpus", "vcpu", "vcpus"],
    ),
    known_as(
        key(
            "roles.*.gpus",
            "count",
            "`0`",
            "0",
            "GPUs of each task, which nobody else uses meanwhile.",
        ),
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
            "The program and its arguments. No shell: quotes keep words together, and nothing is expanded. With `mxnet` a server without it runs the worker's, with `tensorflow` every role but the worker.",
        ),
        &["command", "cmd", "exec", "args", "entrypoint"],
    ),
    known_as(
        key(
            "roles.*.shell",
            "text",
            "none",
            "python train.py > log",
            "A script for `/bin/sh -c`, in place of `run`.",
        ),
        &["script", "sh", "bash"],
    ),
    known_as(
        key(
            "roles.*.environment",
            "`system`, or a map with `docker` or `runc`",
            "the job's `environment`",
            "{docker: python:3.11}",
            "What this role's programs run in: an image of its own with the keys below `environment`, or the bare node. What is packed is the same for all roles.",
        ),
        &["image", "docker"],
    ),
    known_as(
        key(
            "roles.*.env",
            "map of texts",
            "none",
            "{OMP_NUM_THREADS: 1}",
            "Variables of this role; they win over the job's.",
        ),
        &["environ", "variables"],
    ),
    known_as(
        key(
            "roles.*.restart",
            "map",
            "the job's `restart`",
            "{limit: 3}",
            "What happens when a task of this role fails; keys as in `restart`.",
        ),
        &["restarts", "retry", "retries"],
    ),
    key(
        "roles.*.completion",
        "`all`, `any`, `primary`, `service`, `follows` or `sidecar`",
        "`all`; `service` for MXNet's servers, TensorFlow's `ps`, and its workers where both `ps` and `chief` are; `follows` for its `evaluator` and `tensorboard`",
        "all",
        "What the role's end means. `all`: the job needs every task to succeed. `any`: it needs one. `primary`: when all have succeeded the job has, whatever others do. `service`: it need not end and is stopped with the others. `follows`: it ends by itself soon after the others, and is stopped after `timeouts.follow` if it has not. `sidecar`: it is no part of the job, as TensorBoard or a notebook: it has no rank and its framework does not know it, it is asked for when the others begin to run and is stopped with them, and neither its failures nor its end mean anything.",
    ),
    key(
        "roles.*.tolerate",
        "count or `all`",
        "`0`",
        "0",
        "So many tasks may fail for good before the job fails. With `all` it succeeds whatever becomes of them.",
    ),
    key(
        "roles.*.memory_growth",
        "map",
        "none",
        "{percent: 50, max: 4 GiB}",
        "More memory for a task that was killed for its memory.",
    ),
    key("roles.*.memory_growth.percent", "count", "`50`", "50", "So many percent more each time."),
    key("roles.*.memory_growth.max", "size", "required", "4 GiB", "Never more than this."),
    known_as(
        key(
            "roles.*.depends_on",
            "list of roles",
            "none",
            "[]",
            "Roles that come first: this one's tasks ask for containers when every task of those has run, be it done or not by then. A task that starts again waits for nobody. Only where tasks start on their own (`gang: false`).",
        ),
        &["depends", "after", "start_after", "needs", "dependencies"],
    ),
    key(
        "roles.*.ports",
        "list of names",
        "none",
        "[http]",
        "Ports the program wants, told as `YDL_PORT_HTTP`.",
    ),
    known_as(
        key(
            "roles.*.node_label",
            "text",
            "the job's `node_label`",
            "gpu",
            "The label of this role's nodes on a cluster.",
        ),
        &["label", "node_labels"],
    ),
    key(
        "roles.*.placement",
        "map",
        "none",
        "{max_per_node: 1}",
        "Where tasks of this role go on a cluster. One machine has one place for all.",
    ),
    known_as(
        key(
            "roles.*.placement.max_per_node",
            "count",
            "no limit",
            "1",
            "At most so many tasks of the role on one node. Needs Hadoop 3.1. In a job where a role says so or names attributes, wishes for `nodes` and `racks` are not heeded.",
        ),
        &["per_node"],
    ),
    known_as(
        key(
            "roles.*.placement.nodes",
            "list of names",
            "none",
            "[node1]",
            "Nodes they would best run on: a wish.",
        ),
        &["hosts"],
    ),
    key(
        "roles.*.placement.racks",
        "list of names",
        "none",
        "[/rack1]",
        "Racks they would best run in: a wish.",
    ),
    key(
        "roles.*.placement.attributes",
        "map of texts",
        "none",
        "{cuda: 12}",
        "Attributes their nodes must have. Needs Hadoop 3.2.",
    ),
];
