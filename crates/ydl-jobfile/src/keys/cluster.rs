//! Keys that apply on a cluster: placement, users, access and the master.

use super::{KeySpec, key, known_as};

pub const KEYS: &[KeySpec] = &[
    key(
        "checkpoint",
        "path, or `hdfs://…`",
        "a directory of the job",
        "hdfs:///user/me/checkpoints/{job}",
        "Location of `YDL_CHECKPOINT`, which outlives containers. An absolute path is a directory on shared storage and used as it is. A directory in HDFS, or on a cluster a path relative to the user's home directory there, is downloaded to the node before each attempt and uploaded while the program runs ([checkpoints](../how-to/checkpoints.md)). `{job}` is replaced; without it a later job continues from the same checkpoint.",
    ),
    key(
        "network",
        "interface, or address range",
        "the route to the job's master",
        "10.1.0.0/16",
        "Network of a node that tasks use to reach each other, if it has several: an interface such as `eth1`, or its address range, such as `10.1.0.0/16`. Nodes without this network are excluded. Lower precedence: `YDL_NODE_ADDRESS`, which a node's administrator can set in `yarn.nodemanager.admin-env`, and then the address from which the node reaches the master.",
    ),
    key("queue", "text", "`default`", "default", "Queue on a cluster. Ignored on one machine."),
    known_as(
        key(
            "node_label",
            "text",
            "default of the queue",
            "gpu",
            "Node label of the job on a cluster. Ignored on one machine.",
        ),
        &["label", "node_labels"],
    ),
    key(
        "gpu_assignment",
        "`cluster` or `agent`",
        "`cluster`",
        "agent",
        "Component that assigns GPUs to tasks on a cluster. `cluster`: YARN, which counts `yarn.io/gpu`. `agent`: the agents of a node, for clusters that do not count GPUs; use `node_label` to select nodes that have them.",
    ),
    key(
        "tags",
        "list of texts",
        "none",
        "[nightly]",
        "Tags of the application on a cluster, up to ten.",
    ),
    key(
        "priority",
        "number",
        "default of the queue",
        "5",
        "Priority among the jobs of a queue; the highest number goes first.",
    ),
    known_as(
        key(
            "acls",
            "map",
            "see below",
            "{view: \"*\"}",
            "Access of other users to the job on a cluster.",
        ),
        &["acl", "permissions"],
    ),
    key(
        "acls.view",
        "users, a space, groups; or `*`",
        "the owner only",
        "\"alice,bob ml-team\"",
        "Users who may see the job and its logs.",
    ),
    key(
        "acls.modify",
        "users, a space, groups; or `*`",
        "the owner only",
        "alice",
        "Users who may stop and scale the job.",
    ),
    known_as(
        key(
            "file_systems",
            "list of `hdfs://…`",
            "none",
            "[\"hdfs://other:8020\"]",
            "Additional file systems that programs use; on a secure cluster the job gets a token for each.",
        ),
        &["namenodes", "filesystems"],
    ),
    known_as(
        key(
            "staging",
            "path in HDFS",
            "`.ydl` in the user's home directory",
            "/user/alice/staging",
            "Directory in HDFS for files that are sent to the nodes.",
        ),
        &["staging_dir", "staging_directory"],
    ),
    key(
        "keytab",
        "map",
        "none",
        "{principal: alice@EXAMPLE.COM, path: ./alice.keytab}",
        "Keytab with which a job on a secure cluster outlives the maximum lifetime of its tokens; without it tokens are renewed until then. It is checked at submit and sent to masters only. They request new tokens in time and pass them to the agents.",
    ),
    key(
        "keytab.principal",
        "text",
        "required",
        "alice@EXAMPLE.COM",
        "Principal of the keytab: the submitting user, or a service that acts for that user.",
    ),
    key(
        "keytab.path",
        "path",
        "required",
        "./alice.keytab",
        "Path of the keytab on the submitting machine.",
    ),
    known_as(
        key(
            "master",
            "map",
            "see below",
            "{memory: 512 MiB}",
            "Container of the job's master on a cluster.",
        ),
        &["am", "application_master"],
    ),
    known_as(
        key(
            "master.memory",
            "size",
            "`256 MiB`",
            "512 MiB",
            "Memory. The default is sufficient for thousands of tasks.",
        ),
        &["mem", "ram"],
    ),
    known_as(key("master.vcores", "count", "`1`", "1", "Virtual cores."), &["cores", "cpus"]),
    known_as(
        key("master.node_label", "text", "default of the queue", "stable", "Node label."),
        &["label"],
    ),
    known_as(
        key(
            "master.attempts",
            "count",
            "`4`",
            "4",
            "Maximum number of attempts; the cluster has a limit of its own. Lost nodes and preemption do not count, except that YARN never restarts a master with a single attempt.",
        ),
        &["limit", "retries"],
    ),
];
