//! Where a job runs on a cluster, as whom, and who may see it.

use super::{KeySpec, key, known_as};

pub const KEYS: &[KeySpec] = &[
    key(
        "checkpoint",
        "path, or `hdfs://…`",
        "the job's own directory",
        "hdfs:///user/me/checkpoints/{job}",
        "Where `YDL_CHECKPOINT` outlives containers: an absolute path is a directory that all nodes share and is used as it is; what is in HDFS, or relative on a cluster and so in the user's home directory there, is brought to the node before each attempt and saved while the program runs ([checkpoints](../how-to/checkpoints.md)). `{job}` is filled in; without it a later job goes on where this one ended.",
    ),
    key(
        "network",
        "an interface, or a range of addresses",
        "the way to the job's master",
        "10.1.0.0/16",
        "Through which of a node's networks tasks reach each other, where it has several: `eth1`, or the range of one, `10.1.0.0/16`. A node that is not in it is avoided. What a node's administrator says with `YDL_NODE_ADDRESS` in `yarn.nodemanager.admin-env` comes after it, and then the address from which the node reaches the master.",
    ),
    key("queue", "text", "`default`", "default", "The queue on a cluster. One machine has none."),
    known_as(
        key(
            "node_label",
            "text",
            "the queue's own",
            "gpu",
            "The label of the job's nodes on a cluster. One machine has none.",
        ),
        &["label", "node_labels"],
    ),
    key(
        "gpu_assignment",
        "`cluster` or `agent`",
        "`cluster`",
        "agent",
        "Who gives tasks their GPUs on a cluster. `cluster`: it counts `yarn.io/gpu`. `agent`: it does not, \
         and agents on a node agree which task has which device; `node_label` leads them to nodes that have some.",
    ),
    key(
        "tags",
        "list of texts",
        "none",
        "[nightly]",
        "Words to find the job by on a cluster; ten at most.",
    ),
    key(
        "priority",
        "number",
        "the queue's own",
        "5",
        "Among the jobs of a queue the highest goes first.",
    ),
    known_as(
        key(
            "acls",
            "map",
            "see below",
            "{view: \"*\"}",
            "Who else may see the job on a cluster, and who may change it.",
        ),
        &["acl", "permissions"],
    ),
    key(
        "acls.view",
        "users, a blank, groups; or `*`",
        "the owner alone",
        "\"alice,bob ml-team\"",
        "Who may see the job and its logs.",
    ),
    key(
        "acls.modify",
        "users, a blank, groups; or `*`",
        "the owner alone",
        "alice",
        "Who may end and scale the job.",
    ),
    known_as(
        key(
            "file_systems",
            "list of `hdfs://…`",
            "none",
            "[\"hdfs://other:8020\"]",
            "Further file systems that programs use: on a secure cluster the job gets a token for each.",
        ),
        &["namenodes", "filesystems"],
    ),
    known_as(
        key(
            "staging",
            "path in HDFS",
            "`.ydl` in the user's home directory",
            "/user/alice/staging",
            "Where what travels to the nodes is kept.",
        ),
        &["staging_dir", "staging_directory"],
    ),
    key(
        "keytab",
        "map",
        "none",
        "{principal: alice@EXAMPLE.COM, path: ./alice.keytab}",
        "With which a job on a secure cluster outlives the longest life of its tokens; without it tokens are renewed until then. It is tried at submit, and only masters get it: they fetch new tokens in time and hand them to the agents.",
    ),
    key(
        "keytab.principal",
        "text",
        "required",
        "alice@EXAMPLE.COM",
        "Whose it is: the user who submits, or a service that acts for him.",
    ),
    key(
        "keytab.path",
        "path",
        "required",
        "./alice.keytab",
        "The file, on the machine from which the job is submitted.",
    ),
    known_as(
        key(
            "master",
            "map",
            "see below",
            "{memory: 512 MiB}",
            "The container of the job's master on a cluster.",
        ),
        &["am", "application_master"],
    ),
    known_as(
        key(
            "master.memory",
            "size",
            "`256 MiB`",
            "512 MiB",
            "Its memory. The default is enough for thousands of tasks.",
        ),
        &["mem", "ram"],
    ),
    known_as(key("master.vcores", "count", "`1`", "1", "Its virtual cores."), &["cores", "cpus"]),
    known_as(
        key("master.node_label", "text", "the queue's own", "stable", "The label of its node."),
        &["label"],
    ),
    known_as(
        key(
            "master.attempts",
            "count",
            "`4`",
            "4",
            "How often it is started at most; a cluster has a limit of its own. Lost nodes and preemption do not count, except that YARN never follows up on a single one.",
        ),
        &["limit", "retries"],
    ),
];
